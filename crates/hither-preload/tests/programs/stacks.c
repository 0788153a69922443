/* Call sites: reads at offset 64 * SITE come from one call site each, whatever the stack looks
 * like. */
#include <alloca.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int fd;
static volatile int zero;
#define APART __attribute__((noinline, noclone))

APART int wrapper(int site) {
    char byte;
    int got = pread(fd, &byte, 1, 64 * site);
    return got + zero;
}

/* A frame of variable size: the callers of wrapper cannot be found from the stack pointer. */
APART int sized(int site, int bytes, int (*next)(int)) {
    char *room = alloca(bytes);
    memset(room, site, bytes);
    return next(site) + room[bytes - 1] * zero;
}

APART int one(int site) { return wrapper(site) + zero; }
APART int two(int site) { return wrapper(site) + zero; }

APART int recursive(int site, int depth) {
    return depth ? recursive(site, depth - 1) + zero : wrapper(site) + zero;
}

APART int left(int bytes) { return sized(3, bytes, one) + zero; }
APART int right(int bytes) { return sized(4, bytes, one) + zero; }

int main(int argc, char **argv) {
    fd = open(argv[1], O_RDONLY);
    for (int i = 0; i < 200; i++) {
        one(1);
        two(2);
        left(16 + i % 10 * 48);
        right(16 + (i + 3) % 10 * 48);
        recursive(5, 2 + i % 12);
        recursive(6, 500 + i % 12);
    }
    puts("done");
    return 0;
}
