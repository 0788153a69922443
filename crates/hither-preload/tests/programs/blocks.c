/* Small reads: on in a block, back and forth between two, and of two files in turn. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char buffer[8192];

static void get(int fd, size_t count, off_t offset) {
    if (pread(fd, buffer, count, offset) != (ssize_t)count) { perror("pread"); exit(1); }
}

int main(int argc, char **argv) {
    int one = open(argv[1], O_RDWR), other = open(argv[2], O_RDONLY);
    for (off_t offset = 0; offset < 32768; offset += 512) get(one, 512, offset);  /* 0, 16384 */
    get(one, 512, 20000);                           /* 32768: so far it came; 20000: back */
    get(one, 512, 100);                             /* 100: back */
    get(one, 512, 0);                               /* 0: back */
    get(one, 512, 16200);                           /* 16200: two blocks */
    get(one, 512, 16384);                           /* 16384: back in the second of them */
    get(other, 512, 16384);                         /* another file's 16384 */
    get(one, 512, 16384);                           /* 16384 */
    if (pwrite(one, buffer, 8, 16400) != 8) return 1;  /* every write is told */
    get(one, 512, 17000);                           /* 17000: a read after a write */
    lseek(one, 16384, SEEK_SET);
    if (read(one, buffer, 7) != 7) return 1; /* 16384 + 7: back */
    int copy = dup(one);
    if (read(copy, buffer, 7) != 7) return 1; /* 16391 + 7: where it stands is asked, and told */
    if (fork() == 0) {
        get(one, 9, 16384);                         /* 16384 + 9: another thread's first */
        _exit(0);
    }
    wait(NULL);
    close(one);
    one = open(argv[2], O_RDONLY);
    get(one, 10, 16384);                            /* the other file's, by this number */
    puts("done");
    return argc - 3;
}
