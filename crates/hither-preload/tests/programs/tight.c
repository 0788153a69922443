/* Reads on stacks with next to no room: a thread of the smallest size, a handler's alternative
   stack, a coroutine; then asynchronous cancellation of a thread that does nothing but read. PATH.
   Says what was overwritten below a stack. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

enum { BELOW = 256 << 10, ROOM = 8192 };
static int fd;
static ucontext_t back, coroutine;

static void read_some(void) {
    char byte;
    for (int at = 0; at < 4; at++) pread(fd, &byte, 1, at);
}

static void *in_thread(void *unused) { read_some(); return unused; }
static void in_handler(int signal) { (void)signal; read_some(); }
static void in_coroutine(void) { read_some(); }

static void *forever(void *unused) {
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (char bytes[16];;) for (int at = 0; at < 16; at++) pread(fd, bytes, at + 1, at);
    return unused;
}

/* A stack of ROOM bytes with a pattern below it. */
static char *stack_in(char *area) { memset(area, 0xa5, BELOW); return area + BELOW; }

static int overwritten(const char *area) {
    int intact = 0;
    while (intact < BELOW && (unsigned char)area[intact] == 0xa5) intact++;
    return BELOW - intact;
}

int main(int argc, char **argv) {
    fd = open(argv[1], O_RDONLY);
    pthread_t thread;
    pthread_attr_t smallest;
    pthread_attr_init(&smallest);
    pthread_attr_setstacksize(&smallest, PTHREAD_STACK_MIN);
    if (pthread_create(&thread, &smallest, in_thread, NULL)) return 1;
    pthread_join(thread, NULL);

    static char local[BELOW + ROOM];
    stack_t alternative = {.ss_sp = stack_in(local), .ss_size = ROOM};
    sigaltstack(&alternative, NULL);
    struct sigaction action = {.sa_handler = in_handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    printf("handler: %d\n", overwritten(local));

    char *heap = malloc(BELOW + ROOM);
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = stack_in(heap);
    coroutine.uc_stack.ss_size = ROOM;
    coroutine.uc_link = &back;
    makecontext(&coroutine, in_coroutine, 0);
    swapcontext(&back, &coroutine);
    printf("coroutine: %d\n", overwritten(heap));

    for (int round = 0; round < 20; round++) {
        pthread_create(&thread, NULL, forever, NULL);
        usleep(500);
        pthread_cancel(thread);
        pthread_join(thread, NULL);
    }
    puts("cancelled");
    return 0;
}
