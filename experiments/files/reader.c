/* Reads files as a workload of guest.py does, and prints a sum of what it read, one word of each
 * 4 KiB, so that two runs can be told to have read the same bytes.
 *
 *     reader passes TIMES SIZE FILE...     each file in turn from begin to end, TIMES times
 *     reader epochs TIMES SIZE FILE        its records of SIZE in a new order each time
 *     reader mapped TIMES SIZE FILE        as passes, through a mapping */

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096

static uint64_t sum;

static void add(const char *bytes, size_t count) {
    for (size_t at = 0; at + 8 <= count; at += PAGE_BYTES) {
        uint64_t word;
        memcpy(&word, bytes + at, 8);
        sum += word;
    }
}

/* xorshift64, from a fixed seed: each run has the same orders. */
static uint64_t next(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static int opened(const char *path) {
    int file = open(path, O_RDONLY);
    if (file < 0) {
        perror(path);
        exit(1);
    }
    return file;
}

static void pass(const char *path, char *buffer, size_t size) {
    int file = opened(path);
    for (ssize_t got; (got = read(file, buffer, size)) > 0;) add(buffer, got);
    close(file);
}

static void epochs(const char *path, int times, char *buffer, size_t size) {
    int file = opened(path);
    long records = lseek(file, 0, SEEK_END) / size;
    long *order = malloc(records * sizeof *order);
    for (long at = 0; at < records; at++) order[at] = at;
    for (int epoch = 0; epoch < times; epoch++) {
        for (long at = records - 1; at > 0; at--) {
            long other = next() % (at + 1), swapped = order[at];
            order[at] = order[other];
            order[other] = swapped;
        }
        for (long at = 0; at < records; at++) {
            add(buffer, pread(file, buffer, size, order[at] * size));
        }
    }
}

static void mapped(const char *path, int times) {
    int file = opened(path);
    size_t bytes = lseek(file, 0, SEEK_END);
    char *data = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
    if (data == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    for (int time = 0; time < times; time++) add(data, bytes);
}

int main(int count, char **words) {
    if (count < 5) {
        fputs("usage: reader passes|epochs|mapped TIMES SIZE FILE...\n", stderr);
        return 2;
    }
    int times = atoi(words[2]);
    size_t size = atol(words[3]);
    char *buffer = malloc(size);
    if (!strcmp(words[1], "epochs")) {
        epochs(words[4], times, buffer, size);
    } else if (!strcmp(words[1], "mapped")) {
        mapped(words[4], times);
    } else {
        for (int time = 0; time < times; time++) {
            for (int file = 4; file < count; file++) pass(words[file], buffer, size);
        }
    }
    printf("%016lx\n", (unsigned long)sum);
    return 0;
}
