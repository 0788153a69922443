/* Calls each function that interposer.c wraps, and its 64-bit form, which it does not wrap. */
#undef _FILE_OFFSET_BITS
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc > 2) { puts("again"); return 0; }
    if (dlerror() != NULL) { puts("an error that is not ours"); return 1; }
    char byte;
    int fd = open(argv[1], O_RDONLY);
    int other = open64(argv[1], O_RDONLY);
    pread(fd, &byte, 1, 10);
    pread64(other, &byte, 1, 20);
    munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0), 4096);
    munmap(mmap64(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0), 4096);
    close(fcntl(fd, F_DUPFD, 50));
    close(fcntl64(fd, F_DUPFD, 50));
    fclose(fopen(argv[1], "r"));
    fclose(fopen64(argv[1], "r"));
    char *arguments[] = {argv[0], argv[1], "again", NULL};
    execv("/proc/self/exe", arguments);
    return 1;
}
