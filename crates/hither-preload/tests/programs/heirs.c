// Regions and children. Prints the process and what it allocates itself.
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20 };
extern char **environ;

static void *allocate(size_t n) {
    void *p = malloc(n);
    printf("%d %zu %zu\n", getpid(), (size_t)p, n);
    fflush(stdout);
    return p;
}

static void wait_for(pid_t pid) {
    int status;
    if (waitpid(pid, &status, 0) != pid || status) abort();
}

int main(int argc, char **argv) {
    if (argc > 2) { allocate(5 * MIB); return 0; }
    char *mine = allocate(2 * MIB);
    strcpy(mine, "parent's");
    char *arguments[] = {argv[0], argv[1], "again", NULL};
    pid_t pid;
    if (!strcmp(argv[1], "fork")) {
        if ((pid = fork()) == 0) {
            if (strcmp(mine, "parent's")) abort();
            free(mine);
            char *own = allocate(3 * MIB);
            own = realloc(own, 100);
            free(own);
            if (!fork()) { allocate(4 * MIB); _exit(0); }
            int status; wait(&status);
            _exit(status != 0);
        }
    } else if (!strcmp(argv[1], "exec")) {
        if ((pid = fork()) == 0) { execv(argv[0], arguments); _exit(1); }
    } else if (!strcmp(argv[1], "vfork")) {
        if ((pid = vfork()) == 0) { execv(argv[0], arguments); _exit(1); }
    } else {
        if (posix_spawn(&pid, argv[0], NULL, NULL, arguments, environ)) abort();
    }
    wait_for(pid);
    if (strcmp(mine, "parent's")) abort();
    free(mine);
    return 0;
}
