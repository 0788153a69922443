// Lives of regions, a mode each: every line says what the agent should know then, as "+start
// length" or "-start length".
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20 };
#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

static void begun(void *p, size_t length) {
    printf("+%zu %zu\n", (size_t)p, length);
    fflush(stdout);
}
static void ended(void *p, size_t length) {
    printf("-%zu %zu\n", (size_t)p, length);
    fflush(stdout);
}

static void *map(size_t length) {
    char *p = mmap(NULL, length, RW, PRIVATE, -1, 0);
    if (p == MAP_FAILED) abort();
    begun(p, length);
    return p;
}

static void *freeing(void *p) { free(p); return NULL; }

int main(int argc, char **argv) {
    const char *mode = argv[1];
    (void)argc;
    if (!strcmp(mode, "free")) {
        for (int i = 0; i < 100; i++) {
            size_t n = MIB + 100 * i;
            void *p = malloc(n);
            begun(p, n); ended(p, n);
            free(p);
        }
    } else if (!strcmp(mode, "other-thread")) {
        void *p = malloc(2 * MIB);
        begun(p, 2 * MIB); ended(p, 2 * MIB);
        pthread_t thread;
        pthread_create(&thread, NULL, freeing, p);
        pthread_join(thread, NULL);
    } else if (!strcmp(mode, "realloc")) {
        size_t n = 2 * MIB;
        char *p = malloc(n);
        begun(p, n);
        for (int i = 0; i < n; i++) p[i] = i * 7 >> 3;
        for (int step = 0; step < 60; step++) {
            size_t next = step % 3 == 2 ? n / 2 + MIB : n + 300000;
            ended(p, n);
            p = realloc(p, next);
            begun(p, next);
            size_t kept = n < next ? n : next;
            for (size_t i = 0; i < (kept < 2 * MIB ? kept : 2 * MIB); i += 61)
                if (p[i] != (char)((int)i * 7 >> 3)) abort();
            n = next;
        }
        ended(p, n);
        p = realloc(p, 100);
        free(p);
    } else if (!strcmp(mode, "unmap")) {
        char *p = map(8 * MIB);
        // The front, the middle, the end, what is left.
        ended(p, MIB); munmap(p, MIB);
        ended(p + 3 * MIB, MIB); munmap(p + 3 * MIB, MIB);
        ended(p + 7 * MIB, MIB); munmap(p + 7 * MIB, MIB);
        // Leaves less than a region on one side, which ends as well.
        ended(p + 4 * MIB, 2 * MIB); munmap(p + 4 * MIB + 4096, 2 * MIB - 4096);
        ended(p + MIB, 2 * MIB); ended(p + 6 * MIB, MIB); munmap(p, 8 * MIB);
    } else if (!strcmp(mode, "fixed")) {
        char *p = map(8 * MIB);
        ended(p + 2 * MIB, 3 * MIB);
        if (mmap(p + 2 * MIB, 3 * MIB, RW, PRIVATE | MAP_FIXED, -1, 0) != p + 2 * MIB) abort();
        begun(p + 2 * MIB, 3 * MIB);
        // A reservation in place of a part: nothing there is a region then.
        ended(p, MIB);
        mmap(p, MIB, PROT_NONE, PRIVATE | MAP_FIXED, -1, 0);
    } else if (!strcmp(mode, "mremap")) {
        char *p = map(4 * MIB);
        strcpy(p, "kept");
        ended(p, 4 * MIB);
        p = mremap(p, 4 * MIB, 2 * MIB, 0);
        begun(p, 2 * MIB);
        ended(p, 2 * MIB);
        p = mremap(p, 2 * MIB, 64 * MIB, MREMAP_MAYMOVE);
        begun(p, 64 * MIB);
        char *q = map(2 * MIB);
        ended(q, 2 * MIB); ended(p, 64 * MIB);
        p = mremap(p, 64 * MIB, 2 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, q);
        begun(p, 2 * MIB);
        if (strcmp(p, "kept")) abort();
        // Refused: it is where it was.
        ended(p, 2 * MIB);
        if (mremap(p, 2 * MIB, (size_t)1 << 60, MREMAP_MAYMOVE) != MAP_FAILED) abort();
        begun(p, 2 * MIB);
    } else if (!strcmp(mode, "advise")) {
        char *p = map(4 * MIB);
        memset(p, 1, 4 * MIB);
        madvise(p, 4 * MIB, MADV_DONTNEED);
        if (p[MIB]) abort();
        madvise(p, 4 * MIB, MADV_HUGEPAGE);
        memset(p, 1, 4 * MIB);
        mprotect(p, MIB, PROT_READ);
    } else if (!strcmp(mode, "unseen")) {
        // Freed past the library; its memory comes back as another's.
        mallopt(M_MMAP_THRESHOLD, 64 * MIB);
        extern void __libc_free(void *);
        void *p = malloc(2 * MIB);
        begun(p, 2 * MIB);
        __libc_free(p);
        ended(p, 2 * MIB);
        void *q = malloc(3 * MIB / 2);
        if (q != p) abort();
        begun(q, 3 * MIB / 2);
    } else {
        return 1;
    }
    return 0;
}
