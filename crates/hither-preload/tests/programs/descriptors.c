/* Descriptors that are copied, closed in bulk, and used again for another file. MODE PATH OTHER. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static char buffer[4096];

static void expect(int truth, const char *what) {
    if (!truth) { perror(what); exit(1); }
}

int main(int argc, char **argv) {
    const char *mode = argv[1], *path = argv[2], *other = argv[3];
    int fd = open(path, O_RDONLY);
    if (!strcmp(mode, "dup")) {
        int copies[] = {dup(fd), dup2(fd, 50), dup3(fd, 51, O_CLOEXEC), fcntl(fd, F_DUPFD, 60),
            fcntl(fd, F_DUPFD_CLOEXEC, 60)};
        close(fd);
        for (int i = 0; i < 5; i++)
            expect(pread(copies[i], buffer, 10 + i, 100 * i) == 10 + i, "copy");
        expect(open(other, O_RDONLY) == fd, "lowest");
        expect(pread(fd, buffer, 20, 0) == 20, "other");
        expect(dup2(fd, 50) == 50, "over");
        expect(pread(50, buffer, 21, 100) == 21, "other");
    } else if (!strcmp(mode, "close-all")) {
        for (int i = 3; i < 1024; i++) close(i);
        expect(open(other, O_RDONLY) == 3, "open");
        expect(read(3, buffer, 30) == 30, "read");
        close_range(3, ~0U, 0);
        expect(open(path, O_RDONLY) == 3, "open");
        expect(read(3, buffer, 31) == 31, "read");
        closefrom(3);
        expect(open(other, O_RDONLY) == 3, "open");
        expect(read(3, buffer, 32) == 32, "read");
    } else if (!strcmp(mode, "behind")) {
        /* Closed and opened past every hook: the library has to notice, or at least not to invent.
         */
        expect(read(fd, buffer, 40) == 40, "read");
        syscall(SYS_close, fd);
        expect(syscall(SYS_openat, AT_FDCWD, "/dev/zero", O_RDONLY) == fd, "open");
        expect(read(fd, buffer, 41) == 41, "zero");
    } else if (!strcmp(mode, "pipe")) {
        int ends[2];
        expect(pipe(ends) == 0, "pipe");
        expect(write(ends[1], "hello", 5) == 5 && read(ends[0], buffer, 10) == 5, "pipe");
        expect(read(open("/proc/self/status", O_RDONLY), buffer, 100) == 100, "proc");
    }
    puts("done");
    return 0;
}
