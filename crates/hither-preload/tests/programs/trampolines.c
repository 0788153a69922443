/* Calls through code made at run time, as CPython's -X perf makes it. A read at offset 64 * SITE
 * goes through the trampoline of that number. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))
enum { PAGE = 4096 };

typedef long evaluator(long site, long depth, long unused);
typedef long trampoline(long site, long depth, long unused, evaluator *called);

static const unsigned char adds[] = {0x48, 0x83, 0xec, 8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3};
static const unsigned char pops[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd1, 0x5d, 0xc3};
/* A nop after the call: nobody can tell what such code does. */
static const unsigned char other[] = {0x48, 0x83, 0xec, 8,    0xff, 0xd1,
                                      0x90, 0x48, 0x83, 0xc4, 8,    0xc3};

static trampoline *through[6];
static int fd;
static volatile int zero;

APART long leaf(long site, long depth, long unused) {
    char byte;
    return pread(fd, &byte, 1, 64 * site) + zero;
}

APART long inner(long site, long depth, long unused) {
    return through[site](site, depth, unused, leaf) + zero;
}

/* Every trampoline is called twice in a stack, from two places. */
APART long outer(long site) { return through[site](site, 0, 0, inner) + zero; }

static trampoline *made(const unsigned char *code, int length, int offset, int protection) {
    char *pages = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(pages + offset, code, length);
    mprotect(pages, PAGE, protection);
    munmap(pages + PAGE, PAGE);
    return (trampoline *)(pages + offset);
}

int main(int argc, char **argv) {
    fd = open(argv[1], O_RDONLY);
    int readable = PROT_READ | PROT_EXEC;
    through[1] = made(adds, sizeof adds, 3, readable);
    through[2] = made(pops, sizeof pops, 0, readable);
    /* Nothing is mapped behind it. */
    through[3] = made(adds, sizeof adds, PAGE - sizeof adds, readable);
    through[4] = made(other, sizeof other, 0, readable);
    through[5] = made(adds, sizeof adds, 0, PROT_EXEC);
    for (int round = 0; round < 20; round++)
        for (int site = 1; site <= 5; site++)
            outer(site);
    return 0;
}
