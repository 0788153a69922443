// C++'s ways to malloc.
#include <cstdio>
#include <new>
#include <vector>

struct alignas(256) Wide { char bytes[256]; };

int main() {
    auto *array = new char[3 << 20];
    std::printf("%zu %zu\n", (size_t)array, (size_t)3 << 20);
    auto *wide = new Wide[16384];
    std::printf("%zu %zu\n", (size_t)wide, sizeof(Wide) * 16384);
    std::vector<double> vector(1 << 19);
    std::printf("%zu %zu\n", (size_t)vector.data(), sizeof(double) << 19);
    volatile size_t most = (size_t)1 << 62;
    try {
        char *volatile p = new char[most];
        std::puts(p ? "?" : "null");
    } catch (const std::bad_alloc &) { std::puts("caught"); }
    delete[] array;
    delete[] wide;
}
