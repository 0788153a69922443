// Limits its own resources and does what a program does then:
//
//   program HOW RESOURCE BYTES FILE
//
// HOW is "set" (setrlimit), "number" (prlimit by number), "thread" (setrlimit beside a thread that
// reads), "lock" (setrlimit, and then it locks its memory) or "vfork" (setrlimit in a child that
// has its parent's memory). It says how much memory it gets in pieces of 1 MiB, whether reads and
// threads work, and what a child of an exec gets.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK (64 << 10)

static const char *path;
static char buffer[BLOCK];

// How many reads were right, of 100 by descriptors and by a stream each.
static long right_reads(char *into) {
    long right = 0;
    int file = open(path, O_RDONLY);
    for (int at = 0; at < 100; at++)
        if (pread(file, into, BLOCK, 0) == BLOCK && into[0] == 'x' && into[BLOCK - 1] == 'x')
            right++;
    close(file);
    FILE *stream = fopen(path, "r");
    for (int at = 0; stream && at < 100; at++)
        if (fgetc(stream) == 'x') right++;
    if (stream) fclose(stream);
    return right;
}

static _Atomic int go_on = 1;

static void *reads_beside(void *nothing) {
    static char into[BLOCK];
    while (go_on) right_reads(into);
    return NULL;
}

static void *reads(void *nothing) {
    static char into[BLOCK];
    return (void *)right_reads(into);
}

static int resource(const char *name) {
    const char *names[] = {"as", "data", "stack", "nofile", "nproc", "fsize", "memlock", "rttime",
        "cpu", "sigpending"};
    int numbers[] = {RLIMIT_AS, RLIMIT_DATA, RLIMIT_STACK, RLIMIT_NOFILE, RLIMIT_NPROC,
        RLIMIT_FSIZE, RLIMIT_MEMLOCK, RLIMIT_RTTIME, RLIMIT_CPU, RLIMIT_SIGPENDING};
    for (int at = 0; at < 10; at++)
        if (!strcmp(names[at], name)) return numbers[at];
    exit(2);
}

// Of MiB: what is left below the limit, not what it says.
static void say_memory(const char *who) {
    int pieces = 0;
    while (pieces < 2048 && mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        pieces++;
    printf("%s memory %d\n", who, pieces);
}

// Of 1000 MiB, what is not locked.
static void say_unlocked(void) {
    if (mlockall(MCL_CURRENT | MCL_FUTURE)) exit(5);
    FILE *status = fopen("/proc/self/status", "r");
    char line[200];
    long kib = -1;
    while (status && fgets(line, sizeof line, status)) sscanf(line, "VmLck: %ld", &kib);
    if (status) fclose(status);
    printf("unlocked memory %ld\n", 1000 - kib / 1024);
}

static void use(const char *who) {
    printf("%s reads %ld\n", who, right_reads(buffer));
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    pthread_t thread;
    void *result = NULL;
    int error = pthread_create(&thread, &attributes, reads, NULL);
    if (!error) pthread_join(thread, &result);
    printf("%s thread %d reads %ld\n", who, error, (long)result);
    fflush(stdout);
}

int main(int count, char **arguments) {
    if (count == 4) {
        path = arguments[3];
        use("child");
        say_memory("child");
        return 0;
    }
    if (count != 5) return 2;
    const char *how = arguments[1];
    int which = resource(arguments[2]);
    path = arguments[4];
    int made = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    memset(buffer, 'x', BLOCK);
    if (write(made, buffer, BLOCK) != BLOCK) return 2;
    close(made);
    for (int at = 0; at < 20; at++) {
        if (right_reads(buffer) != 200) return 3;
        usleep(2000);
    }
    pthread_t beside;
    if (!strcmp(how, "thread")) pthread_create(&beside, NULL, reads_beside, NULL);
    struct rlimit limit = {atol(arguments[3]), atol(arguments[3])};
    if (!strcmp(how, "vfork")) {
        int ended;
        pid_t limited = vfork();
        if (limited == 0) {
            if (setrlimit(which, &limit) == 0)
                execl("/proc/self/exe", "program", "in", "child", path, NULL);
            _exit(8);
        }
        waitpid(limited, &ended, 0);
        use("itself");
        say_memory("itself");
        return ended != 0;
    }
    int failed = strcmp(how, "number") ? setrlimit(which, &limit)
                                       : (int)syscall(SYS_prlimit64, 0, which, &limit, NULL);
    if (failed) return 4;
    if (!strcmp(how, "thread")) {
        usleep(20000);
        go_on = 0;
        pthread_join(beside, NULL);
    }
    if (!strcmp(how, "lock")) say_unlocked();
    use("itself");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "program", "in", "child", path, NULL);
        _exit(9);
    }
    int status;
    waitpid(child, &status, 0);
    printf("child ended %x\n", status);
    if (!strcmp(arguments[2], "as") || !strcmp(arguments[2], "data")) say_memory("itself");
    return 0;
}
