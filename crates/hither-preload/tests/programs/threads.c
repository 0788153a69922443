/* THREADS threads read blocks of their own, all at once, twice over. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fd;
static pthread_barrier_t barrier;

static void *reader(void *argument) {
    long index = (long)argument;
    unsigned long word;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 20; i++) {
        off_t at = (index * 20 + i) * 64;
        if (pread(fd, &word, 8, at) != 8 || word != (unsigned long)at / 8 * 7 + 1) {
            puts("wrong");
            exit(1);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = atoi(argv[1]);
    static pthread_t thread[1000];
    fd = open(argv[2], O_RDONLY);
    for (int round = 0; round < 2; round++) {
        pthread_barrier_init(&barrier, NULL, threads);
        for (long i = 0; i < threads; i++) {
            int error = pthread_create(&thread[i], NULL, reader, (void *)i);
            if (error) { printf("create: %s\n", strerror(error)); return 1; }
        }
        for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    }
    puts("done");
    return 0;
}
