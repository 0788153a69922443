// Programs in which code reads when its thread, or the process, is about to end:
//
//   program KIND FILE
//
// FILE is made, of 16 blocks of 64 KiB, each of bytes that say which one it is. Each kind says what
// it has read, and ends with a status of its own.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS 16
#define BLOCK (64 << 10)

static const char *path;
static int file;

static void say(const char *what, long wrong) {
    char line[80];
    int length = snprintf(line, sizeof line, "%s: %ld wrong\n", what, wrong);
    if (write(1, line, length) != length) _exit(90);
}

// Reads some blocks, at offsets and from the start, by one descriptor and by a fresh one. No libc
// function that is not safe in a signal handler.
static long wrong_reads(int rounds, char *into) {
    long wrong = 0;
    for (int at = 0; at < rounds; at++) {
        int block = at % BLOCKS;
        into[0] = into[BLOCK - 1] = 99;
        if (pread(file, into, BLOCK, (off_t)block * BLOCK) != BLOCK || into[0] != block ||
            into[BLOCK - 1] != block)
            wrong++;
        if (at % 8) continue;
        int own = open(path, O_RDONLY);
        into[0] = 99;
        if (read(own, into, BLOCK) != BLOCK || into[0] != 0) wrong++;
        close(own);
    }
    return wrong;
}

// For so long that the agent takes part.
static long wrong_in_a_while(void) {
    long wrong = 0;
    char *into = malloc(BLOCK);
    for (int round = 0; round < 60; round++) {
        wrong += wrong_reads(40, into);
        usleep(5000);
    }
    free(into);
    return wrong;
}

static void *reads_on_and_exits(void *nothing) {
    say("thread", wrong_in_a_while());
    exit(3);
}

static void *exits(void *nothing) {
    usleep(300000);
    exit(4);
}

static void *reads_for_ever(void *nothing) {
    char *into = malloc(BLOCK);
    for (;;) wrong_reads(40, into);
}

static void *reads_some(void *nothing) {
    char *into = malloc(BLOCK);
    long wrong = wrong_reads(40, into);
    free(into);
    return (void *)wrong;
}

static char at_end[BLOCK];

static void handler_at_exit(void) { say("atexit", wrong_reads(40, at_end)); }

static void (*at_unload)(void);

__attribute__((destructor)) static void unload(void) {
    if (at_unload) at_unload();
}

static void destructor(void) { say("destructor", wrong_reads(40, at_end)); }

// Keys whose destructors read, and set their keys again.
static pthread_key_t keys[3];
static __thread char in_destructor[BLOCK];
static _Atomic long wrong_in_destructors;

static void key_destructor(void *rounds) {
    wrong_in_destructors += wrong_reads(9, in_destructor);
    long left = (long)rounds - 1;
    for (int key = 0; left > 0 && key < 3; key++) pthread_setspecific(keys[key], (void *)left);
}

static void *with_keys(void *reads_before) {
    if (reads_before) wrong_in_destructors += wrong_reads(9, in_destructor);
    for (int key = 0; key < 3; key++) pthread_setspecific(keys[key], (void *)60L);
    return NULL;
}

static long address_space(void) {
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || fscanf(statm, "%ld", &pages) != 1) _exit(91);
    fclose(statm);
    return pages / 256;
}

static __thread char in_handler[BLOCK];
static _Atomic long wrong_in_handlers;

static void handler(int signal) { wrong_in_handlers += wrong_reads(1, in_handler); }

static void *forks_and_ends(void *nothing) {
    char *into = malloc(BLOCK);
    long wrong = wrong_reads(40, into);
    pid_t child = fork();
    if (child == 0) {
        wrong += wrong_reads(40, into);
        if (wrong) _exit(92);
        pthread_exit(NULL);
    }
    int status;
    waitpid(child, &status, 0);
    return (void *)(wrong + status);
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    const char *kind = arguments[1];
    path = arguments[2];
    int made = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    static char content[BLOCK];
    for (int block = 0; block < BLOCKS; block++) {
        memset(content, block, BLOCK);
        if (write(made, content, BLOCK) != BLOCK) return 2;
    }
    close(made);
    file = open(path, O_RDONLY);
    pthread_t thread;
    long wrong = wrong_in_a_while();
    say(kind, wrong);
    if (!strcmp(kind, "main")) {
        pthread_create(&thread, NULL, reads_on_and_exits, NULL);
        pthread_detach(thread);
        pthread_exit(NULL);
    } else if (!strcmp(kind, "atexit")) {
        atexit(handler_at_exit);
        at_unload = destructor;
        pthread_create(&thread, NULL, exits, NULL);
        pthread_exit(NULL);
    } else if (!strcmp(kind, "last")) {
        // The process ends with its last thread, which runs the handlers.
        atexit(handler_at_exit);
        at_unload = destructor;
        pthread_create(&thread, NULL, reads_some, NULL);
        pthread_exit(NULL);
    } else if (!strcmp(kind, "keys")) {
        for (int key = 0; key < 3; key++) pthread_key_create(&keys[key], key_destructor);
        long before = 0;
        for (int at = 0; at < 200; at++) {
            pthread_create(&thread, NULL, with_keys, (void *)(long)(at % 2));
            pthread_join(thread, NULL);
            if (at == 100) before = address_space();
        }
        say("keys", wrong_in_destructors);
        say("growth", address_space() - before > 64);
        return 5;
    } else if (!strcmp(kind, "detached")) {
        for (int at = 0; at < 6; at++) {
            pthread_create(&thread, NULL, reads_for_ever, NULL);
            pthread_detach(thread);
        }
        atexit(handler_at_exit);
        usleep(200000);
        return 6;
    } else if (!strcmp(kind, "_exit")) {
        for (int at = 0; at < 6; at++) pthread_create(&thread, NULL, reads_for_ever, NULL);
        usleep(200000);
        _exit(7);
    } else if (!strcmp(kind, "fork")) {
        void *result = NULL;
        for (int at = 0; at < 10; at++) {
            pthread_create(&thread, NULL, forks_and_ends, NULL);
            pthread_join(thread, &result);
            say("child", (long)result);
        }
        return 8;
    } else if (!strcmp(kind, "signals")) {
        struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
        struct itimerval often = {{0, 300}, {0, 300}};
        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_REAL, &often, NULL);
        atexit(handler_at_exit);
        void *result = NULL;
        for (int at = 0; at < 200; at++) {
            pthread_create(&thread, NULL, reads_some, NULL);
            pthread_join(thread, &result);
            wrong += (long)result;
        }
        say("signals", wrong);
        return wrong_in_handlers ? 93 : 9;
    }
    return 2;
}
