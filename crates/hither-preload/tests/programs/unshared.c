// A thread gets descriptors of its own, and a number means another file to it than to the other
// thread: unshared A B HOW
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *other, *how;
static int number;
static pthread_barrier_t turn;

static int unshare_descriptors(void) {
    if (!strcmp(how, "unshare")) return unshare(CLONE_FILES);
    if (!strcmp(how, "syscall")) return syscall(SYS_unshare, (long)CLONE_FILES);
    return close_range(1000, 1001, CLOSE_RANGE_UNSHARE);
}

static void *with_its_own(void *failed) {
    char bytes[100];
    *(int *)failed = unshare_descriptors() || close(number) || open(other, O_RDONLY) != number;
    pread(number, bytes, 11, 5000);
    pthread_barrier_wait(&turn);
    // Here the main thread reads.
    pthread_barrier_wait(&turn);
    pread(number, bytes, 13, 9000);
    return NULL;
}

int main(int argc, char **argv) {
    char bytes[100];
    int failed = 0;
    pthread_t thread;
    if (argc < 4) return 1;
    other = argv[2];
    how = argv[3];
    number = open(argv[1], O_RDONLY);
    pread(number, bytes, 10, 0);
    pthread_barrier_init(&turn, NULL, 2);
    pthread_create(&thread, NULL, with_its_own, &failed);
    pthread_barrier_wait(&turn);
    pread(number, bytes, 12, 5000);
    pthread_barrier_wait(&turn);
    pthread_join(thread, NULL);
    puts(failed ? "failed" : "done");
    return failed;
}
