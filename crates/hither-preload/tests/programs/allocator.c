// A malloc of its own, as programs link in or preload: from mappings of 4 MiB at least, which it
// gives out piece by piece. Compiled with -DMAIN it comes with a program, otherwise as a library.
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { MIB = 1 << 20, HEAD = 16 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *at, *end;
static size_t calls;

void *memalign(size_t alignment, size_t size) {
    if (size > (size_t)1 << 40) { errno = ENOMEM; return NULL; }
    pthread_mutex_lock(&lock);
    calls++;
    size_t need = size + alignment + HEAD;
    if ((size_t)(end - at) < need) {
        size_t length = need < 4 * MIB ? 4 * MIB : (need + 4095) & ~(size_t)4095;
        at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) { at = end = NULL; pthread_mutex_unlock(&lock); return NULL; }
        end = at + length;
    }
    char *block = (char *)(((size_t)at + HEAD + alignment - 1) / alignment * alignment);
    ((size_t *)block)[-1] = size;
    at = (char *)(((size_t)block + size + 15) & ~(size_t)15);
    pthread_mutex_unlock(&lock);
    return block;
}
void *malloc(size_t size) { return memalign(16, size); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void **block, size_t alignment, size_t size) {
    *block = memalign(alignment, size);
    return *block ? 0 : ENOMEM;
}
void *calloc(size_t count, size_t size) {
    if (size && count > (size_t)-1 / size) { errno = ENOMEM; return NULL; }
    return memalign(16, count * size);
}
void free(void *block) { (void)block; }
void *realloc(void *block, size_t size) {
    char *fresh = memalign(16, size);
    if (fresh && block) {
        size_t old = ((size_t *)block)[-1];
        memcpy(fresh, block, old < size ? old : size);
    }
    return fresh;
}

#ifdef MAIN
int main(void) {
    char *p = malloc(2 * MIB), *q = malloc(100);
    strcpy(q, "small");
    q = realloc(q, 3 * MIB);
    if (strcmp(q, "small")) return 1;
    free(p);
    printf("%s\n", calls ? "own" : "not called");
    return 0;
}
#endif
