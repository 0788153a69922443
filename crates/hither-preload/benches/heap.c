// Allocates and frees blocks of one size, and says how many nanoseconds of a CPU it took: ROUNDS
// SIZE [mapped].
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv) {
    long rounds = strtol(argv[1], NULL, 10);
    size_t size = strtoul(argv[2], NULL, 10);
    // A mapping for each large block, which is unmapped again, or the heap, which keeps it.
    mallopt(M_MMAP_THRESHOLD, argc > 3 ? 1 << 20 : 1 << 26);
    mallopt(M_TRIM_THRESHOLD, 1 << 28);
    struct timespec from, to;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    for (long i = 0; i < rounds; i++) {
        char *volatile block = malloc(size);
        block[0] = 1;
        free(block);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    printf("%lld\n", (to.tv_sec - from.tv_sec) * 1000000000LL + to.tv_nsec - from.tv_nsec);
    return 0;
}
