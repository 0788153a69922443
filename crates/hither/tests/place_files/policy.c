// Reads a file again and again after its pages have left the cache, and looks whether its own
// memory policy is ever another than it should be: between the reads, in a signal handler that
// comes at any moment and leaves by a jump now and then, and in the children of another thread.
//
//   policy FOLDER default|own|control      prints how often it was another one, and how many reads
//   were wrong
//
// With `own` it sets a policy itself. With `control` it sets one around its reads, as one should
// not who is not to be seen: until that is noticed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (4 << 20)

static int expected = MPOL_DEFAULT, may_jump;
static atomic_int others, jumps, ended;
static sigjmp_buf out;
static char buffer[256 << 10];

static int policy(void) {
    int mode = -1;
    unsigned long nodes = 0;
    if (syscall(SYS_get_mempolicy, &mode, &nodes, 8 * sizeof nodes, NULL, 0) != 0) return -1;
    return mode;
}

static int set(int mode) {
    unsigned long node = 1;
    expected = mode;
    return syscall(SYS_set_mempolicy, mode, mode ? &node : NULL, mode ? 8 * sizeof node : 0);
}

static void look(void) {
    others += policy() != expected;
}

static void on_alarm(int signal) {
    (void)signal;
    look();
    static int count;
    if (may_jump && ++count % 16 == 0) {
        jumps++;
        siglongjmp(out, 1);
    }
}

// This thread has the default, whatever the main thread does meanwhile, and no signals.
static void *forks(void *nothing) {
    while (!ended) {
        pid_t child = fork();
        if (child == 0) _exit(policy() != MPOL_DEFAULT);
        int status;
        if (waitpid(child, &status, 0) == child) others += status != 0;
        usleep(2000);
    }
    return nothing;
}

static uint64_t word(uint64_t at) {
    return (at + 1) * 0x9e3779b97f4a7c15;
}

static int wrong(size_t at, ssize_t got, size_t wanted) {
    if (got != (ssize_t)wanted) return 1;
    for (size_t i = 0; i < wanted / 8; i++)
        if (((uint64_t *)buffer)[i] != word(at / 8 + i)) return 1;
    return 0;
}

int main(int count, char **words) {
    (void)count;
    char path[4096];
    sprintf(path, "%s/policy.data", words[1]);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (size_t at = 0; at < BYTES; at += sizeof buffer) {
        for (size_t i = 0; i < sizeof buffer / 8; i++) ((uint64_t *)buffer)[i] = word(at / 8 + i);
        if (write(fd, buffer, sizeof buffer) != sizeof buffer) return 3;
    }
    if (fsync(fd) != 0) return 3;
    close(fd);
    int control = !strcmp(words[2], "control");
    if (policy() != MPOL_DEFAULT || set(MPOL_PREFERRED) != 0 || set(MPOL_DEFAULT) != 0) {
        printf("refused\n");
        return 0;
    }
    pthread_t other;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pthread_create(&other, NULL, forks, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!strcmp(words[2], "own")) set(MPOL_PREFERRED);
    // Without SA_RESTART, so that a read that a signal can end is seen.
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_NODEFER};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 150}, {0, 150}};
    setitimer(ITIMER_REAL, &often, NULL);
    unsigned bad = 0;
    static volatile int round;
    for (round = 0; control ? !others && round < 100000 : round < 60; round++) {
        fd = open(path, O_RDONLY);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        for (volatile size_t at = 0; at + 20000 < BYTES; at += 24576 * (1 + round % 3)) {
            size_t some = 8 << (at / 24576 % 12);
            struct iovec parts[2] = {{buffer, 8}, {buffer + 8, some}};
            may_jump = sigsetjmp(out, 1) == 0;
            if (!may_jump) continue;
            if (control) syscall(SYS_set_mempolicy, MPOL_PREFERRED, &(unsigned long){1}, 64);
            ssize_t got = round % 2 ? pread(fd, buffer, some, at) : preadv(fd, parts, 2, at);
            may_jump = 0;
            if (control) syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0);
            bad += wrong(at, got, round % 2 ? some : some + 8);
            look();
        }
        close(fd);
        FILE *stream = fopen(path, "r");
        setvbuf(stream, NULL, _IOFBF, 16384);
        posix_fadvise(fileno(stream), 0, 0, POSIX_FADV_DONTNEED);
        for (size_t at = 0; at < BYTES; at += 65536)
            bad += wrong(at, fread(buffer, 1, 65536, stream), 65536);
        look();
        fclose(stream);
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    ended = 1;
    pthread_join(other, NULL);
    unlink(path);
    fprintf(stderr, "%d rounds, %d jumps\n", round, jumps);
    printf("%d %u\n", others, bad);
    return 0;
}
