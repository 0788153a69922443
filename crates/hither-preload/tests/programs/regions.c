// Allocates once with every function, and says what it got: name, kind, first byte, length.
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MIB = 1 << 20 };

static void say(const char *name, const char *kind, void *start, size_t length) {
    if (start == NULL || start == MAP_FAILED) abort();
    // The last byte can be written.
    ((volatile char *)start)[length - 1] = 1;
    printf("%s %s %zu %zu\n", name, kind, (size_t)start, length);
    fflush(stdout);
}

int main(void) {
    void *p, *q;
    size_t n = 2 * MIB;
    n += 16; say("malloc", "malloc", malloc(n), n);
    n += 16; p = calloc(n / 16, 16); say("calloc", "malloc", p, n);
    for (size_t i = 0; i < n - 1; i++) if (((char *)p)[i]) abort();
    n += 16; p = malloc(100); strcpy(p, "kept"); p = realloc(p, n); if (strcmp(p, "kept")) abort();
    say("realloc", "malloc", p, n);
    n += 16; say("reallocarray", "malloc", reallocarray(NULL, n / 16, 16), n);
    n += 16; p = memalign(64, n); if ((size_t)p % 64) abort(); say("memalign", "malloc", p, n);
    n = 3 * MIB;
    p = aligned_alloc(4096, n);
    if ((size_t)p % 4096) abort();
    say("aligned_alloc", "malloc", p, n);
    n += 16; if (posix_memalign(&p, 1 << 21, n)) abort();
    if ((size_t)p % (1 << 21)) abort();
    say("posix_memalign", "malloc", p, n);
    n += 16; p = valloc(n); if ((size_t)p % 4096) abort(); say("valloc", "malloc", p, n);
    n += 16; p = pvalloc(n); if ((size_t)p % 4096) abort(); say("pvalloc", "malloc", p, n);
    int rw = PROT_READ | PROT_WRITE, private = MAP_PRIVATE | MAP_ANONYMOUS;
    n += 4096; say("mmap", "map", mmap(NULL, n, rw, private, -1, 0), n);

    // What is no region: too small, not private, not to be written, a stack, a file.
    p = malloc(MIB - 1), q = calloc(1, 100);
    p = mmap(NULL, n, rw, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    p = mmap(NULL, n, PROT_NONE, private, -1, 0);
    p = mmap(NULL, n, rw, private | MAP_STACK, -1, 0);
    p = mmap(NULL, MIB / 2, rw, private, -1, 0);
    (void)q;

    // The answers to what cannot be.
    errno = 0; if (malloc((size_t)-1) != NULL || errno != ENOMEM) abort();
    errno = 0; if (calloc((size_t)1 << 40, (size_t)1 << 40) != NULL || errno != ENOMEM) abort();
    errno = 0;
    if (reallocarray(NULL, (size_t)1 << 40, (size_t)1 << 40) != NULL || errno != ENOMEM) abort();
    p = malloc(2 * MIB); memset(p, 7, 2 * MIB);
    errno = 0; if (realloc(p, (size_t)-1) != NULL || errno != ENOMEM) abort();
    if (((char *)p)[2 * MIB - 1] != 7) abort();
    say("kept", "malloc", p, 2 * MIB);
    if (posix_memalign(&p, 3, 2 * MIB) != EINVAL) abort();
    errno = 0; if (mmap(NULL, 0, rw, private, -1, 0) != MAP_FAILED || errno != EINVAL) abort();
    errno = 0; if (munmap((void *)1, 4096) != -1 || errno != EINVAL) abort();
    errno = 7;
    p = malloc(2 * MIB);
    free(p);
    free(NULL);
    p = malloc(0);
    p = realloc(p, 0);
    if (errno != 7) abort();
    p = malloc(2 * MIB + 5); if (malloc_usable_size(p) < 2 * MIB + 5) abort(); free(p);
    p = malloc(100); if (malloc_usable_size(p) < 100) abort(); free(p);
    return 0;
}
