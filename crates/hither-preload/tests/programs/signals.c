/* Reads, interrupted by a timer whose handler reads too. Prints how many reads were made. With a
   second argument, the handler leaves by siglongjmp at last, and 100 undisturbed reads at offset 0
   follow. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

static int fd;
static sigjmp_buf out;
static int jump;
static volatile unsigned long in_handler, wrong;

static void check(off_t at) {
    unsigned long word = 0;
    if (pread(fd, &word, 8, at) != 8 || word != (unsigned long)at / 8 * 7 + 1) wrong++;
}

static void handler(int signal) {
    check(8 + 8 * (in_handler++ % 999));
    if (jump) siglongjmp(out, 1);
}

int main(int argc, char **argv) {
    fd = open(argv[1], O_RDONLY);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 100}, {0, 100}};
    setitimer(ITIMER_REAL, &every, NULL);
    unsigned long volatile plain = 0;
    jump = argc > 2;
    sigsetjmp(out, 1);
    for (; jump ? in_handler < 200 : plain < 300000 || in_handler < 200; plain++)
        check(8 + 8 * (plain % 999));
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    if (jump)
        for (int i = 0; i < 100; i++) check(0);
    printf("%lu %lu\n", plain + in_handler, wrong);
    return 0;
}
