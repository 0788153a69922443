/* A library that reads; SITE sets which offset. */
#include <fcntl.h>
#include <unistd.h>

#ifndef SITE
#define SITE 1
#endif

int plugin(int fd) {
    char byte;
    volatile int got = pread(fd, &byte, 1, 64 * SITE);
    return got;
}
