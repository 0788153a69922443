// Threads that each allocate, pass on and free: argument one says how many.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIB = 1 << 20, EACH = 10 };
static void *slots[512];
static pthread_barrier_t barrier;
static int count;

static void *work(void *argument) {
    size_t self = (size_t)argument;
    for (int i = 0; i < EACH; i++) {
        char *p = malloc(MIB + self);
        p[0] = p[MIB - 1] = (char)self;
        __atomic_store_n(&slots[self], p, __ATOMIC_RELEASE);
        pthread_barrier_wait(&barrier);
        // The neighbour's.
        size_t other = (self + 1) % count;
        p = __atomic_exchange_n(&slots[other], NULL, __ATOMIC_ACQ_REL);
        if (p[0] != (char)other || p[MIB - 1] != (char)other) abort();
        free(p);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int argc, char **argv) {
    (void)argc;
    count = atoi(argv[1]);
    pthread_t threads[512];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_barrier_init(&barrier, NULL, count);
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], &small, work, (void *)(size_t)i)) abort();
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
