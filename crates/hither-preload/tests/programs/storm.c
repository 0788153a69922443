// Threads that do everything at random to blocks whose every byte they know.
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BLOCKS = 12, KIB = 1 << 10 };
static int rounds, usable;

struct block { unsigned char *at; size_t length; unsigned char seed; int mapped; };

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13; *state ^= *state >> 7; *state ^= *state << 17;
    return *state;
}

// Every 97th byte, and the ends: the storm is to be large, not slow.
static void fill(struct block *b, size_t from) {
    for (size_t i = from; i < b->length; i += 97) b->at[i] = (unsigned char)(i / 97) ^ b->seed;
}
static size_t aligned(size_t n) { return (n + 96) / 97 * 97; }
static void check(struct block *b, size_t length) {
    for (size_t i = 0; i < length; i += 97)
        if (b->at[i] != ((unsigned char)(i / 97) ^ b->seed)) {
            fprintf(stderr, "byte %zu of %zu\n", i, length);
            abort();
        }
}

static void drop(struct block *b) {
    if (!b->at) return;
    check(b, b->length);
    if (b->mapped) munmap(b->at, b->length); else free(b->at);
    memset(b, 0, sizeof *b);
}

static void *storm(void *argument) {
    uint64_t state = (uint64_t)(size_t)argument * 0x9e3779b97f4a7c15u + 1, done = 0;
    struct block blocks[BLOCKS] = {0};
    for (int round = 0; round < rounds; round++) {
        struct block *b = &blocks[next(&state) % BLOCKS];
        // Mostly around the least region's size of 64 KiB.
        size_t length = 1 + next(&state) % (next(&state) % 8 ? 130 * KIB : 2048 * KIB);
        int kind = next(&state) % 8;
        if (b->at && !b->mapped && kind < 4) {
            size_t kept = b->length < length ? b->length : length;
            check(b, b->length);
            b->at = kind == 0 ? reallocarray(b->at, length, 1) : realloc(b->at, length);
            b->length = length;
            check(b, kept);
            fill(b, aligned(kept));
        } else if (b->at && b->mapped && kind < 4) {
            size_t whole = (length + 4095) & ~(size_t)4095,
                   kept = b->length < whole ? b->length : whole;
            b->at = mremap(b->at, b->length, whole, MREMAP_MAYMOVE);
            if (b->at == MAP_FAILED) abort();
            b->length = whole;
            check(b, kept);
            fill(b, aligned(kept));
        } else {
            drop(b);
            b->seed = next(&state);
            b->length = length;
            void *p = NULL;
            switch (kind) {
            case 0:
                p = calloc(length, 1);
                for (size_t i = 0; i < length; i += 4093)
                    if (((char *)p)[i]) abort();
                break;
            case 1: p = memalign(256, length); if ((size_t)p % 256) abort(); break;
            case 2:
                if (posix_memalign(&p, 8192, length)) abort();
                if ((size_t)p % 8192) abort();
                break;
            case 3: case 4:
                b->length = (length + 4095) & ~(size_t)4095;
                p = mmap(
                    NULL, b->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                b->mapped = 1;
                break;
            default: p = malloc(length); if (usable && malloc_usable_size(p) < length) abort();
            }
            if (!p || p == MAP_FAILED) abort();
            b->at = p;
            fill(b, 0);
        }
        done += b->length;
    }
    for (int i = 0; i < BLOCKS; i++) drop(&blocks[i]);
    return (void *)(size_t)done;
}

int main(int argc, char **argv) {
    int count = atoi(argv[1]);
    rounds = atoi(argv[2]);
    usable = getenv("STORM_WITHOUT_USABLE") == NULL;
    (void)argc;
    pthread_t threads[256];
    size_t sum = 0;
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, storm, (void *)(size_t)(i + 1))) abort();
    for (int i = 0; i < count; i++) {
        void *done;
        pthread_join(threads[i], &done);
        sum += (size_t)done;
    }
    printf("%zu\n", sum);
    return 0;
}
