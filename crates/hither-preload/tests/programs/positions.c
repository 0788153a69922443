/* Reads and writes at a descriptor's own position, which is moved in every way there is. For each
 * one that a hook sees it prints where it began, as the kernel says, and how long it was. PATH
 * SEED. */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

extern ssize_t __read(int, void *, size_t);
extern off_t __lseek(int, off_t, int);

static char buffer[4096];
static uint64_t state;

static unsigned roll(unsigned below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

/* Without any function that could be hooked. */
static long position(int fd) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_lseek), "D"(fd), "S"(0), "d"(SEEK_CUR)
        : "rcx", "r11", "memory");
    return result;
}

static long unseen_read(int fd, unsigned bytes) {
    return syscall(SYS_read, fd, buffer, bytes);
}

static void seen(long at, long bytes) {
    if (bytes > 0) printf("read %ld %ld\n", at, bytes);
}

static void written(int fd, long bytes) {
    if (bytes > 0) printf("write %ld %ld\n", position(fd) - bytes, bytes);
}

static void *second(void *fd) {
    long at = position(*(int *)fd);
    seen(at, read(*(int *)fd, buffer, 1 + roll(60)));
    return NULL;
}

static void child_reads(int fd, int by_vfork) {
    /* What it reads it does not print: the parent prints for it. */
    long at = position(fd);
    unsigned bytes = 1 + roll(60);
    fflush(stdout);
    pid_t child = by_vfork ? vfork() : fork();
    if (child == 0) {
        read(fd, buffer, bytes);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    seen(at, position(fd) - at);
}

int main(int argc, char **argv) {
    const char *path = argv[1];
    state = strtoull(argv[2], NULL, 10);
    int out = open("/dev/null", O_WRONLY);
    int fd = open(path, O_RDWR);
    ftruncate(fd, 10000);
    FILE *stream = NULL;
    for (int step = 0; step < 400; step++) {
        long at = position(fd);
        unsigned bytes = 1 + roll(60);
        struct iovec parts[2] = {{buffer, bytes}, {buffer + 100, 7}};
        pthread_t thread;
        /* Seldom what ends it for good. */
        switch (roll(step % 50 == 49 ? 28 : 19)) {
        case 0: case 1: case 2: case 3: seen(at, read(fd, buffer, bytes)); break;
        case 4: seen(at, readv(fd, parts, 2)); break;
        case 5: seen(at, __read(fd, buffer, bytes)); break;
        case 6: seen(at, preadv2(fd, parts, 2, -1, 0)); break;
        case 7: seen(at, sendfile(out, fd, NULL, bytes)); break;
        case 8: pread(fd, buffer, 0, 5); break;
        case 9: lseek(fd, roll(9000), SEEK_SET); break;
        case 10: __lseek(fd, -(long)roll(50), SEEK_CUR); break;
        case 11: lseek64(fd, -(long)roll(500), SEEK_END); break;
        case 12: written(fd, write(fd, buffer, bytes)); break;
        case 13:
            pthread_create(&thread, NULL, second, &fd);
            pthread_join(thread, NULL);
            break;
        case 14: writev(fd, parts, 0); lseek(fd, -1, SEEK_SET); break;
        case 15: read(fd, (void *)1, 10); break;
        case 16: case 17:
            close(fd);
            fd = open(path, O_RDWR | (bytes < 5 ? O_APPEND : 0));
            if (bytes < 5) {
                written(fd, write(fd, buffer, bytes));
                close(fd);
                fd = open(path, O_RDWR);
            }
            break;
        case 18: ftruncate(fd, 10000); break;
        /* From here on others move it, too, or it moves unseen. */
        case 19: unseen_read(fd, bytes); break;
        case 20: syscall(SYS_lseek, fd, roll(9000), SEEK_SET); break;
        case 21:
            fcntl(fd, F_SETFL, O_APPEND);
            written(fd, write(fd, buffer, bytes));
            fcntl(fd, F_SETFL, 0);
            break;
        case 22: child_reads(fd, 0); break;
        case 23: child_reads(fd, 1); break;
        case 24: {
            int copy = dup(fd);
            seen(at, read(copy, buffer, bytes));
            close(copy);
            break;
        }
        case 25:
            stream = fdopen(fd, "r");
            setvbuf(stream, NULL, _IONBF, 0);
            fseek(stream, roll(9000), SEEK_SET);
            at = position(fd);
            seen(at, read(fd, buffer, bytes));
            fclose(stream);
            fd = open(path, O_RDWR);
            break;
        case 27: syscall(SYS_fcntl, fd, F_SETFL, O_APPEND); break;
        case 26: {
            int copy = fcntl(fd, F_DUPFD, 10);
            lseek(copy, roll(9000), SEEK_SET);
            close(copy);
            break;
        }
        }
    }
    return 0;
}
