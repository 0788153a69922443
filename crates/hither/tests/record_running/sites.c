// For each line on stdin, reads each of two files in a function of its own, and says so:
//
//   sites FIRST SECOND
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static char buffer[1 << 16];

__attribute__((noinline)) long first(const char *path) {
    int file = open(path, O_RDONLY);
    long sum = 0, bytes;
    while ((bytes = read(file, buffer, sizeof buffer)) > 0) sum += bytes;
    close(file);
    return sum;
}

__attribute__((noinline)) long by_stream(FILE *file, int depth) {
    // Frames of any size, and a recursion, which counts once.
    char pad[512 * depth + 1];
    pad[depth] = 1;
    if (depth > 0) return by_stream(file, depth - 1) + pad[depth];
    return (long)fread(buffer, 1, sizeof buffer, file) + pad[depth];
}

__attribute__((noinline)) long second(const char *path) {
    FILE *file = fopen(path, "r");
    long bytes = by_stream(file, 3);
    fclose(file);
    return bytes + 1;
}

int main(int count, char **arguments) {
    char line[16];
    while (count == 3 && fgets(line, sizeof line, stdin)) {
        printf("%s", first(arguments[1]) + second(arguments[2]) > 0 ? "read\n" : "none\n");
        fflush(stdout);
    }
    return 0;
}
