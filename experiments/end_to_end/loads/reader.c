// Reads known parts of a file and counts them. For by_kernel.py.
//
//     reader WAY FILE CALLS THREADS [OTHER]
//
// Says "ready" and waits for a line on its stdin. Then each thread makes CALLS calls, and the
// counts are printed as JSON: bytes that were moved, and pages, where each call counts all pages
// that it covers. WAY is one of
//     pread     ranges of 1 to 65,536 bytes, anywhere
//     read      from the start to the end, 10,000 bytes at a time
//     sendfile  the same ranges as pread, to /dev/null
//     mmap      one byte each of random pages; pages counts those that are newly in a page table
//
// With OTHER, the threads read that file before and after, so that they run when somebody attaches.
// Two barriers separate that from the part that is counted.

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, LONGEST = 65536, IN_ORDER = 10000, OTHERS = 2000 };

static const char *way;
static int file, other = -1, null;
static off_t size, other_size;
static long calls;
static const volatile unsigned char *map;
static pthread_barrier_t begin, end;
static atomic_long bytes_total, pages_total, calls_total;
static atomic_int may_begin, may_end;

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void check(int is_good, const char *what) {
    if (!is_good) {
        perror(what);
        exit(1);
    }
}

// One byte for each page of the file: whether this process has it in a page table.
static long present(void) {
    int table = open("/proc/self/pagemap", O_RDONLY);
    check(table >= 0, "pagemap");
    long found = 0;
    for (off_t at = 0; at < size; at += PAGE) {
        uint64_t entry;
        off_t place = ((uintptr_t)map + at) / PAGE * sizeof entry;
        check(pread(table, &entry, sizeof entry, place) == sizeof entry, "pagemap");
        found += entry >> 63;
    }
    close(table);
    return found;
}

static void around(char *buffer, uint64_t *state) {
    off_t at = next(state) % (other_size - LONGEST);
    check(pread(other, buffer, 1 + next(state) % LONGEST, at) > 0, "pread");
}

static void *work(void *number) {
    uint64_t state = 88172645463325252u + 7919 * (uintptr_t)number;
    char *buffer = malloc(LONGEST);
    long bytes = 0, pages = 0, made = 0;
    while (other >= 0 && !may_begin) {
        around(buffer, &state);
        usleep(1000);
    }
    pthread_barrier_wait(&begin);
    for (off_t at = 0; made < calls; made++) {
        long want = 1 + next(&state) % LONGEST, got;
        if (strcmp(way, "read") != 0) at = next(&state) % (size - want);
        if (strcmp(way, "pread") == 0) {
            got = pread(file, buffer, want, at);
            check(got == want, "pread");
        } else if (strcmp(way, "read") == 0) {
            got = read(file, buffer, IN_ORDER);
            if (got == 0) break;
            check(got > 0, "read");
        } else if (strcmp(way, "sendfile") == 0) {
            off_t from = at;
            got = sendfile(null, file, &from, want);
            check(got == want, "sendfile");
        } else {
            buffer[0] += map[at];
            continue;
        }
        bytes += got;
        pages += (at + got - 1) / PAGE - at / PAGE + 1;
        at += got;
    }
    pthread_barrier_wait(&end);
    bytes_total += bytes;
    pages_total += pages;
    calls_total += made;
    while (other >= 0 && !may_end) {
        around(buffer, &state);
        usleep(1000);
    }
    return NULL;
}

static void wait_for_line(void) {
    char byte;
    fflush(stdout);
    while (read(0, &byte, 1) == 1 && byte != '\n') {}
}

int main(int count, char **words) {
    check(count >= 5, "reader WAY FILE CALLS THREADS [OTHER]");
    way = words[1];
    calls = atol(words[3]);
    long threads = atol(words[4]);
    struct stat status;
    file = open(words[2], O_RDONLY);
    check(file >= 0 && fstat(file, &status) == 0, words[2]);
    size = status.st_size;
    null = open("/dev/null", O_WRONLY);
    if (count > 5) {
        other = open(words[5], O_RDONLY);
        check(other >= 0 && fstat(other, &status) == 0, words[5]);
        other_size = status.st_size;
    }
    int is_mapped = strcmp(way, "mmap") == 0;
    if (is_mapped) {
        map = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
        check(map != MAP_FAILED, "mmap");
        check(madvise((void *)map, size, MADV_RANDOM) == 0, "madvise");
    }
    check(pthread_barrier_init(&begin, NULL, threads) == 0, "barrier");
    check(pthread_barrier_init(&end, NULL, threads + 1) == 0, "barrier");
    pthread_t *all = calloc(threads, sizeof *all);
    if (other >= 0)
        for (long n = 0; n < threads; n++) pthread_create(&all[n], NULL, work, (void *)n);
    long before = is_mapped ? present() : 0;
    printf("ready\n");
    wait_for_line();
    struct rusage usage[2];
    getrusage(RUSAGE_SELF, &usage[0]);
    may_begin = 1;
    if (other < 0)
        for (long n = 0; n < threads; n++) pthread_create(&all[n], NULL, work, (void *)n);
    pthread_barrier_wait(&end);
    getrusage(RUSAGE_SELF, &usage[1]);
    if (other >= 0) usleep(300000);
    may_end = 1;
    for (long n = 0; n < threads; n++) pthread_join(all[n], NULL);
    if (is_mapped) pages_total = present() - before;
    printf("{\"bytes\": %ld, \"pages\": %ld, \"calls\": %ld, \"major_faults\": %ld}\n", bytes_total,
           pages_total, calls_total, usage[1].ru_majflt - usage[0].ru_majflt);
    return 0;
}
