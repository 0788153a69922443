// Does as it is told, a line a command, while its memory is sampled from outside. After each: its
// region, its descriptors that are userfaultfds, and what the command came to.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, PAGE = 4096 };
static char *region;
static size_t length = 4 * MIB;

static int userfaultfds(void) {
    int found = 0;
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    while ((entry = readdir(folder))) {
        char target[256] = "";
        if (readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1) > 0)
            found += !strcmp(target, "anon_inode:[userfaultfd]");
    }
    closedir(folder);
    return found;
}

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
}

// Faults of a write to each page; the first byte of each counts them.
static long write_all(void) {
    long before = faults();
    for (size_t at = 0; at < length; at += PAGE) region[at]++;
    return faults() - before;
}

static long own(void) {
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {.range = {((size_t)region + PAGE - 1) & -PAGE, length - PAGE},
        .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api)) return -1;
    for (int tries = 0; tries < 1000; tries++, usleep(1000))
        if (!ioctl(fd, UFFDIO_REGISTER, &range)) return close(fd), tries;
    return -2;
}

// As programs do that want to know whether there is such a thing.
static long ask(int times) {
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    while (times--) close(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1));
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000;
}

static void *idle(void *nothing) { return nothing; }

int main(void) {
    char command[100];
    while (fgets(command, sizeof command, stdin)) {
        long result = 0;
        if (!strcmp(command, "allocate\n")) {
            region = malloc(length);
            madvise(region, length, MADV_NOHUGEPAGE);
        } else if (!strcmp(command, "thread\n")) {
            pthread_t thread;
            pthread_create(&thread, NULL, idle, NULL);
            pthread_join(thread, NULL);
        } else if (!strcmp(command, "poll\n")) poll(NULL, 0, 0);
        else if (!strcmp(command, "select\n")) select(0, NULL, NULL, NULL, &(struct timeval){0});
        else if (!strcmp(command, "epoll\n")) epoll_wait(-1, NULL, 0, 0);
        else if (!strcmp(command, "ppoll\n")) ppoll(NULL, 0, &(struct timespec){0}, NULL);
        else if (!strcmp(command, "pselect\n"))
            pselect(0, NULL, NULL, NULL, &(struct timespec){0}, NULL);
        else if (!strcmp(command, "epoll_pwait\n")) epoll_pwait(-1, NULL, 0, 0, NULL);
        else if (!strcmp(command, "recv\n")) recv(-1, NULL, 0, 0);
        else if (!strcmp(command, "recvfrom\n")) recvfrom(-1, NULL, 0, 0, NULL, NULL);
        else if (!strcmp(command, "recvmsg\n")) recvmsg(-1, &(struct msghdr){0}, 0);
        else if (!strcmp(command, "first\n")) memset(region, 0, length);
        else if (!strcmp(command, "call\n")) { void *volatile p = malloc(2 * MIB); free(p); }
        else if (!strcmp(command, "ask\n")) result = ask(20);
        else if (!strcmp(command, "ask in a child\n")) {
            int status;
            pid_t child = fork();
            if (!child) _exit(ask(20) / 10);
            waitpid(child, &status, 0);
            result = WIFEXITED(status) ? WEXITSTATUS(status) * 10 : -1;
        } else if (!strcmp(command, "write\n")) result = write_all();
        else if (!strcmp(command, "sum\n"))
            for (size_t at = 0; at < length; at += PAGE) result += region[at];
        else if (!strcmp(command, "read\n")) {
            int zeros = open("/dev/zero", O_RDONLY);
            result = read(zeros, region, length) == (ssize_t)length;
            close(zeros);
        } else if (!strcmp(command, "move\n")) {
            region = realloc(region, length *= 2);
            result = write_all() >= 0;
        } else if (!strcmp(command, "fork\n")) {
            int status;
            pid_t child = fork();
            if (!child) {
                write_all();
                void *volatile p = malloc(2 * MIB);
                free(p);
                _exit(userfaultfds());
            }
            waitpid(child, &status, 0);
            result = status;
        } else if (!strcmp(command, "own\n")) result = own();
        else if (!strcmp(command, "free\n")) free(region);
        else return 1;
        printf("%zu %zu %d %ld\n", (size_t)region, length, userfaultfds(), result);
        fflush(stdout);
    }
    return 0;
}
