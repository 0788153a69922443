/* Every form of write, then truncations. The offsets are in the comments. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char buffer[200] = "";
    struct iovec vector[2] = {{buffer, 60}, {buffer, 40}};
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    write(fd, buffer, 100);                   /* 0 + 100 */
    writev(fd, vector, 2);                    /* 100 + 100 */
    pwrite(fd, buffer, 50, 1000);             /* 1000 + 50 */
    pwritev(fd, vector, 2, 2000);             /* 2000 + 100 */
    pwritev2(fd, vector, 1, 3000, 0);         /* 3000 + 60 */
    close(fd);
    fd = open(argv[1], O_WRONLY | O_APPEND);
    write(fd, buffer, 40);                    /* 3060 + 40 */
    ftruncate(fd, 512);                       /* to 512 */
    close(fd);
    truncate(argv[1], 300);                   /* to 300 */
    puts("written");
    return 0;
}
