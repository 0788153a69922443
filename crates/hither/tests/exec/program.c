// A member of a chain of programs: PROGRAM [WAY NEXT...]. Says what it reads from the file `data`
// in two threads, starts the next program in the given way, and ends as that does; the last one
// ends with 7. As the interpreter of a script, WAY is `script`, and the script's path follows.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void *sum(void *unused) {
    static __thread unsigned char buffer[4096];
    unsigned total = 0;
    int file = open("data", O_RDONLY);
    for (ssize_t got; (got = read(file, buffer, sizeof buffer)) > 0;)
        for (ssize_t i = 0; i < got; i++) total = total * 31 + buffer[i];
    close(file);
    return (void *)(unsigned long)total;
}

static int end_of(pid_t child) {
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return 99;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Lets this process and what it starts open nothing but what lies below these folders.
static int confine(void) {
    struct { unsigned long handled; } rules = {0x1fff};
    struct { unsigned long allowed; int folder; } __attribute__((packed)) below = {1 | 4 | 8, -1};
    const char *folders[] = {"/usr", "/lib", "/lib32", "/lib64", "/bin", "/etc", "/proc", "."};
    int set = syscall(444, &rules, sizeof rules, 0);
    if (set < 0) return 77;
    for (unsigned i = 0; i < sizeof folders / sizeof *folders; i++) {
        if ((below.folder = open(folders[i], O_PATH)) < 0) continue;
        if (syscall(445, set, 1, &below, 0)) return 77;
        close(below.folder);
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 77;
    return syscall(446, set, 0) ? 77 : 0;
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    void *sums[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, sum, NULL);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], &sums[i]);
    printf("%s %lx %lx\n", argv[0], (long)sums[0], (long)sums[1]);
    fflush(stdout);
    char **next = argv + 1;
    if (argc > 1 && !strcmp(argv[1], "script")) next += 2;
    if (!*next) return 7;
    const char *way = *next++;
    char *none[] = {NULL};
    char *own[] = {"LD_PRELOAD=./other.so", "OWN=1", NULL};
    // More variables and longer ones than are common.
    static char *many[2002], text[2001][16], libraries[16384] = "LD_PRELOAD=";
    for (int i = 0; i < 2000; i++) {
        sprintf(text[i], "V%d=%d", i, i);
        many[i] = text[i];
    }
    for (int i = 0; i < 800; i++) strcat(libraries, "./././other.so ");
    many[2000] = libraries;
    pid_t child;
    if (!strcmp(way, "landlock")) {
        int status = confine();
        if (status) return status;
        way = *next++;
    }
    if (!strcmp(way, "exec")) execv(next[0], next);
    if (!strcmp(way, "execvp")) execvp(next[0], next);
    if (!strcmp(way, "execl")) execl(next[0], next[0], next[1], NULL);
    if (!strcmp(way, "execle")) execle(next[0], next[0], NULL, own);
    if (!strcmp(way, "empty")) execve(next[0], next, none);
    if (!strcmp(way, "null")) execve(next[0], next, NULL);
    if (!strcmp(way, "own")) execve(next[0], next, own);
    if (!strcmp(way, "many")) execve(next[0], next, many);
    if (!strcmp(way, "fexecve")) fexecve(open(next[0], O_RDONLY | O_CLOEXEC), next, own);
#ifdef __GLIBC__
    if (!strcmp(way, "execveat")) execveat(AT_FDCWD, next[0], next, own, 0);
#endif
    if (!strcmp(way, "clearenv")) {
        clearenv();
        execvp(next[0], next);
    }
    if (!strcmp(way, "system")) {
        clearenv();
        return WEXITSTATUS(system(next[0]));
    }
    if (!strcmp(way, "setenv")) {
        setenv("LD_PRELOAD", "./other.so", 1);
        if (!(child = fork())) _exit(execv(next[0], next));
        return end_of(child);
    }
    if (!strcmp(way, "fork")) {
        if (!(child = fork())) _exit(execv(next[0], next));
        return end_of(child);
    }
    if (!strcmp(way, "vfork")) {
        if (!(child = vfork())) _exit(execve(next[0], next, environ));
        return end_of(child);
    }
    if (!strcmp(way, "spawn"))
        return posix_spawn(&child, next[0], NULL, NULL, next, environ) ? 98 : end_of(child);
    if (!strcmp(way, "spawn_own"))
        return posix_spawnp(&child, next[0], NULL, NULL, next, own) ? 98 : end_of(child);
    return 97;
}
