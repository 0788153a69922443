/* Every form of read, through descriptors from every form of open; each form has a length of its
 * own. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

static char buffer[8192];

static void expect(ssize_t got, ssize_t wanted) {
    if (got != wanted) { perror("read"); printf("got %zd, not %zd\n", got, wanted); exit(1); }
}

int main(int argc, char **argv) {
    const char *path = argv[1];
    /* Not constants, so that the fortified forms are called. */
    volatile int one = argc - 1;
    volatile int flags = O_RDONLY;
    int fd = open(path, flags);
    expect(read(fd, buffer, 100 * one), 100);               /* 0 + 100 */
    expect(read(fd, buffer, 101 * one), 101);               /* 100 + 101 */
    expect(pread(fd, buffer, 102 * one, 1000), 102);        /* 1000 + 102 */
    close(fd);
    fd = openat(AT_FDCWD, path, flags);
    expect(pread64(fd, buffer, 103 * one, 2000), 103);      /* 2000 + 103 */
    struct iovec vector[2] = {{buffer, 50}, {buffer + 50, 54}};
    lseek(fd, 3000, SEEK_SET);
    expect(readv(fd, vector, 2), 104);                      /* 3000 + 104 */
    close(fd);
    fd = open64(path, flags);
    expect(preadv(fd, vector, 2, 4000), 104);               /* 4000 + 104 */
    expect(preadv64(fd, vector, 1, 5000), 50);              /* 5000 + 50 */
    close(fd);
    fd = openat64(AT_FDCWD, path, flags);
    expect(preadv2(fd, vector, 2, 6000, 0), 104);           /* 6000 + 104 */
    lseek(fd, 7000, SEEK_SET);
    expect(preadv2(fd, vector, 2, -1, 0), 104);             /* 7000 + 104: at the file position */
    expect(preadv64v2(fd, vector, 1, 8000, 0), 50);         /* 8000 + 50 */
    expect(lseek(fd, 0, SEEK_END) > 0, 1);
    expect(read(fd, buffer, 10 * one), 0);                  /* end of file: nothing */
    expect(read(-1, buffer, 10 * one), -1);                 /* fails: nothing */
    close(fd);
    puts("done");
    return 0;
}
