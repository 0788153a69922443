// Ways to get a replica's bytes into a program's buffer, against `pread` of the cached file:
// nanoseconds of CPU time for each call, medians of 15 rounds in which each way has its turn.
//
//   gcc -O1 -o candidates candidates.c && ./candidates FILE MIB
//
// FILE has so many MiB at least, and is cached. The replica is a memfd of single pages, as the
// agent's, mapped for reading.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 15
#define PIPE (64 << 10)

static int file, memory, ends[2];
static char *slots, *buffer;
static size_t size;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void must(ssize_t got, size_t wanted) {
    if (got == (ssize_t)wanted) return;
    perror("a call");
    exit(1);
}

static void plain(size_t at) {
    must(pread(file, buffer, size, at), size);
}

static void by_processor(size_t at) {
    void *to = buffer, *from = slots + at;
    size_t count = size;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
}

static void by_writev(size_t at) {
    struct iovec from = {slots + at, size}, to = {buffer, size};
    must(process_vm_writev(syscall(SYS_getpid), &from, 1, &to, 1, 0), size);
}

static void by_readv(size_t at) {
    struct iovec from = {slots + at, size}, to = {buffer, size};
    must(process_vm_readv(syscall(SYS_getpid), &to, 1, &from, 1, 0), size);
}

static void from_memfd(size_t at) {
    must(pread(memory, buffer, size, at), size);
}

static void by_pipe(size_t at) {
    for (size_t done = 0; done < size; done += PIPE) {
        size_t count = size - done < PIPE ? size - done : PIPE;
        must(write(ends[1], slots + at + done, count), count);
        must(read(ends[0], buffer + done, count), count);
    }
}

static void by_vmsplice(size_t at) {
    for (size_t done = 0; done < size; done += PIPE) {
        size_t count = size - done < PIPE ? size - done : PIPE;
        struct iovec from = {slots + at + done, count};
        must(vmsplice(ends[1], &from, 1, 0), count);
        must(read(ends[0], buffer + done, count), count);
    }
}

// The proof by which the processor could copy if no other thread unmapped the buffer.
static void by_probe_of_each_page(size_t at) {
    struct stat status;
    fstat(file, &status);
    struct iovec bytes[64];
    for (size_t done = 0; done < size;) {
        int count = 0;
        for (; count < 64 && done < size; count++, done += 4096)
            bytes[count] = (struct iovec){buffer + done, 1};
        must(preadv(file, bytes, count, at), count);
    }
    by_processor(at);
}

// What a served read does.
static void served(size_t at) {
    struct stat status;
    fstat(file, &status);
    must(pread(file, buffer, 1, at), 1);
    by_writev(at);
}

static int order(const void *a, const void *b) {
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

int main(int count, char **words) {
    static const struct {
        const char *name;
        void (*copy)(size_t);
    } ways[] = {
        {"pread", plain}, {"processor", by_processor}, {"process_vm_writev", by_writev},
        {"process_vm_readv", by_readv}, {"pread of the memfd", from_memfd}, {"pipe", by_pipe},
        {"vmsplice", by_vmsplice}, {"probe, processor", by_probe_of_each_page},
        {"served", served},
    };
    enum { WAYS = sizeof ways / sizeof *ways };
    if (count < 3) return 2;
    size_t bytes = (size_t)atol(words[2]) << 20, at = 0;
    file = open(words[1], O_RDONLY);
    memory = memfd_create("replica", 0);
    if (file < 0 || memory < 0 || ftruncate(memory, bytes) != 0 || pipe(ends) != 0) return 1;
    char *filled = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    for (size_t done = 0; done < bytes; done += 1 << 20)
        must(pread(file, filled + done, 1 << 20, done), 1 << 20);
    slots = mmap(NULL, bytes, PROT_READ, MAP_SHARED, memory, 0);
    madvise(slots, bytes, MADV_NOHUGEPAGE);
    buffer = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(buffer, 1 << 20, MADV_NOHUGEPAGE);
    memset(buffer, 1, 1 << 20);
    for (size = 16 << 10; size <= 1 << 20; size *= 2) {
        static double taken[WAYS][ROUNDS];
        long calls = (16 << 20) / size;
        for (int round = 0; round < ROUNDS; round++) {
            for (int way = 0; way < WAYS; way++) {
                double begun = now();
                for (long call = 0; call < calls; call++) {
                    ways[way].copy(at);
                    at = at + 2 * size <= bytes ? at + size : 0;
                }
                taken[way][round] = (now() - begun) / calls;
            }
        }
        for (int way = 0; way < WAYS; way++) qsort(taken[way], ROUNDS, sizeof(double), order);
        for (int way = 0; way < WAYS; way++) {
            double median = taken[way][ROUNDS / 2];
            printf("%7zu %-20s %8.0f ns %6.2f\n", size, ways[way].name, median,
                median / taken[0][ROUNDS / 2]);
        }
    }
    return 0;
}
