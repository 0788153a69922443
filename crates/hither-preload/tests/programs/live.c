// live FILE THREADS: so many threads, all alive at once, read 8 bytes 50 times, each at its place.

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static int file;
static pthread_barrier_t all;

static void *work(void *argument) {
    long thread = (long)argument;
    char buffer[8];
    pthread_barrier_wait(&all);
    for (int i = 0; i < 50; i++)
        if (pread(file, buffer, 8, thread * 8) != 8)
            abort();
    pthread_barrier_wait(&all);
    return 0;
}

int main(int count, char **arguments) {
    long threads = atoi(arguments[count - 1]);
    pthread_t *made = calloc(threads, sizeof *made);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_barrier_init(&all, 0, threads);
    file = open(arguments[1], O_RDONLY);
    for (long i = 0; i < threads; i++)
        if (pthread_create(&made[i], &small, work, (void *)i))
            abort();
    for (long i = 0; i < threads; i++)
        pthread_join(made[i], 0);
    return 0;
}
