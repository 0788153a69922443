// Does as it is told, a line a command, with a mapping or an allocation that it keeps full of
// numbers; says after each where that is and how long, and of how many mappings. Fails if a number
// is lost, or a call.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, PAGE = 4096 };
static char *region;
static size_t length, filled;

static void check(int right, const char *what) {
    if (right) return;
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    _exit(1);
}

static void fill(void) {
    for (filled = 0; filled < length; filled += PAGE)
        *(size_t *)(region + filled) = filled / PAGE + 7;
}

static void verify(void) {
    for (size_t at = 0; at < filled && at < length; at += PAGE)
        check(*(size_t *)(region + at) == at / PAGE + 7, "lost");
    for (size_t at = filled; at < length; at += PAGE)
        check(*(size_t *)(region + at) == 0, "not new");
}

static void moved(void *to, size_t now) {
    check(to != MAP_FAILED, "mremap");
    region = to, length = now;
    if (filled > length) filled = length;
    verify();
    fill();
}

static void *elsewhere(size_t bytes) {
    return mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

static void say(void) {
    static char line[4096], buffer[1 << 16];
    size_t start, end, pieces = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    setvbuf(maps, buffer, _IOFBF, sizeof buffer);
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%zx-%zx", &start, &end) == 2)
            pieces += start < (size_t)region + length && end > (size_t)region;
    fclose(maps);
    printf("%zu %zu %zu\n", (size_t)region, length, pieces);
    fflush(stdout);
}

static void obey(const char *command);

// Takes and gives back what is free, as other threads do.
static void *crowd(void *seed) {
    for (unsigned state = (size_t)seed;;) {
        state = state * 1103515245 + 12345;
        size_t bytes = (1 + (state >> 16) % 4096) * (size_t)PAGE;
        size_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        check(at != MAP_FAILED, "crowd");
        *at = state;
        check(*at == state, "not its own");
        munmap(at, bytes);
    }
    return NULL;
}

// What an allocator does that has been given the mapping, behind which it must not grow.
static void wall(void) {
    char *behind = region + length;
    mmap(behind, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

static void obey(const char *command) {
    if (!strcmp(command, "map") || !strcmp(command, "map much")) {
        length = (command[3] ? 256 : 8) * (size_t)MIB, filled = 0;
        region = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        check(region != MAP_FAILED, "mmap");
    } else if (!strcmp(command, "allocate")) length = 8 * MIB, filled = 0, region = malloc(length);
    else if (!strcmp(command, "resize")) length *= 2, region = realloc(region, length);
    else if (!strcmp(command, "crowd")) {
        pthread_t thread;
        for (size_t seed = 1; seed <= 3; seed++) pthread_create(&thread, NULL, crowd, (void *)seed);
    } else if (!strcmp(command, "fill")) fill();
    else if (!strcmp(command, "verify")) verify();
    else if (!strcmp(command, "wall")) wall();
    else if (!strcmp(command, "call"))
        // Not all that there may be to do is done in one.
        for (int i = 0; i < 10; i++) { void *volatile p = malloc(2 * MIB); free(p); }
    else if (!strcmp(command, "grow"))
        moved(mremap(region, length, 2 * length, MREMAP_MAYMOVE), 2 * length);
    else if (!strcmp(command, "shrink"))
        moved(mremap(region, length, length / 2, MREMAP_MAYMOVE), length / 2);
    else if (!strcmp(command, "in vain")) {
        wall();
        errno = 0, check(mremap(region, length, 2 * length, 0) == MAP_FAILED && errno == ENOMEM,
                       "grown in place");
        // No such room; and room, but no such memory, unless the kernel promises any.
        size_t huge = ((size_t)1 << 47) - MIB, much = (size_t)1 << 46;
        errno = 0,
        check(
            mremap(region, length, huge, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM, "huge");
        verify();
        FILE *promises = fopen("/proc/sys/vm/overcommit_memory", "r");
        int any = fgetc(promises) == '1';
        fclose(promises);
        errno = 0, check(any || (mremap(region, length, much, MREMAP_MAYMOVE) == MAP_FAILED &&
                                    errno == ENOMEM),
                       "much");
        verify();
        errno = 0,
        check(mremap(region, length, length, MREMAP_FIXED, region) == MAP_FAILED && errno == EINVAL,
            "fixed");
        verify();
    } else if (!strncmp(command, "to ", 3)) {
        size_t now = atoi(command + 3) * (size_t)MIB;
        char *to = elsewhere(now);
        check(to == mremap(region, length, now, MREMAP_MAYMOVE | MREMAP_FIXED, to), "fixed");
        moved(to, now);
    } else if (!strcmp(command, "leave")) {
        char *before = region;
        region = mremap(region, length, length, MREMAP_MAYMOVE | 4 /* MREMAP_DONTUNMAP */, NULL);
        check(region != MAP_FAILED && region != before, "leave");
        for (size_t at = 0; at < length; at += PAGE) check(before[at] == 0, "left");
        munmap(before, length), moved(region, length);
    } else if (!strncmp(command, "child ", 6)) {
        pid_t child = fork();
        if (child == 0) verify(), obey(command + 6), verify(), _exit(0);
        int status;
        check(waitpid(child, &status, 0) == child && status == 0, "child");
        verify();
    } else if (!strcmp(command, "bind") || !strcmp(command, "bind half")) {
        // As libnuma does: MPOL_INTERLEAVE, node 0, whole pages within.
        size_t start = ((size_t)region + 4095) & ~(size_t)4095, nodes = 1;
        size_t bytes = ((size_t)region + length - start) & ~(size_t)4095;
        syscall(SYS_mbind, start, command[4] ? bytes / 2 & ~(size_t)4095 : bytes, 3, &nodes, 64, 0);
    } else check(0, command);
}

int main(void) {
    char command[100];
    while (fgets(command, sizeof command, stdin)) {
        command[strcspn(command, "\n")] = 0;
        obey(command);
        say();
    }
    return 0;
}
