/* COUNT reads of 8 bytes, checked; prints the sum of what was read. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDONLY);
    unsigned long sum = 0, word;
    errno = 77;
    for (int i = 0; i < atoi(argv[2]); i++) {
        if (pread(fd, &word, 8, 8 * (i % 1000)) != 8) return 1;
        sum += word;
    }
    printf("%lu %d\n", sum, errno);
    return 0;
}
