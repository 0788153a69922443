/* fork, vfork, posix_spawn and exec in the ways that programs do them. MODE PATH; a child is "read
 * PATH OFFSET". */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char buffer[256];

static void read_at(int fd, int length, off_t at) {
    if (pread(fd, buffer, length, at) != length) { perror("pread"); exit(1); }
}

static int finish(pid_t pid) {
    int status = -1;
    if (waitpid(pid, &status, 0) != pid) perror("waitpid");
    printf("child: %d\n", status);
    return 0;
}

int main(int argc, char **argv) {
    const char *mode = argv[1], *path = argv[2];
    int fd = open(path, O_RDONLY);
    if (!strcmp(mode, "read")) { read_at(fd, 10, atoi(argv[3])); return 0; }
    char *child[] = {argv[0], "read", argv[2], "5000", NULL};
    setvbuf(stdout, NULL, _IONBF, 0);
    read_at(fd, 1, 0);
    if (!strcmp(mode, "fork")) {
        pid_t pid = fork();
        if (!pid) {
            read_at(fd, 2, 1000);
            pid = fork();
            if (!pid) { read_at(fd, 3, 2000); _exit(0); }
            waitpid(pid, NULL, 0);
            exit(0);
        }
        read_at(fd, 4, 3000);
        return finish(pid);
    }
    if (!strcmp(mode, "clone")) {
        pid_t pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (!pid) { read_at(fd, 2, 1000); _exit(0); }
        return finish(pid);
    }
    if (!strcmp(mode, "vfork")) {
        pid_t pid = vfork();
        if (!pid) {
            int other = open("/dev/null", O_RDWR);
            dup2(other, fd);
            close(fd);
            execv(argv[0], child);
            _exit(127);
        }
        finish(pid);
        read_at(fd, 6, 4000); /* it is still the file here */
        return 0;
    }
    if (!strcmp(mode, "spawn")) {
        pid_t pid;
        if (posix_spawn(&pid, argv[0], NULL, NULL, child, environ)) return 1;
        return finish(pid);
    }
    if (!strcmp(mode, "spawn-empty")) {
        pid_t pid;
        char *nothing[] = {NULL};
        if (posix_spawnp(&pid, argv[0], NULL, NULL, child, nothing)) return 1;
        return finish(pid);
    }
    if (!strcmp(mode, "exec-empty")) {
        char *some[] = {"ONE=1", NULL};
        execve(argv[0], child, some);
    }
    if (!strcmp(mode, "execl")) execl(argv[0], argv[0], "read", path, "5000", (char *)NULL);
    if (!strcmp(mode, "execle"))
        execle(argv[0], argv[0], "read", path, "5000", (char *)NULL, (char *[]){NULL});
    if (!strcmp(mode, "fexecve")) fexecve(open(argv[0], O_RDONLY | O_CLOEXEC), child, environ);
    if (!strcmp(mode, "exec-fails")) {
        execv("/nonexistent/program", child);
        printf("errno %d\n", errno);
        read_at(fd, 7, 6000);
    }
    if (!strcmp(mode, "_exit")) { read_at(fd, 8, 7000); _exit(0); }
    return 0;
}
