// Does as it is told, a line a command, and says after each what became of its region: "default" or
// "prefer:0" for the policy that /proc/self/numa_maps gives the page in its middle.
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MIB = 1 << 20 };
static char *region;
static size_t length = 8 * MIB;

static char *allocate(void) { return malloc(length); }

static void policy(void) {
    size_t middle = (size_t)region + length / 2;
    static char line[4096];
    char found[64] = "nothing";
    // Read without stdio's buffers being allocated where the heap was.
    static char buffer[1 << 16];
    FILE *maps = fopen("/proc/self/numa_maps", "r");
    setvbuf(maps, buffer, _IOFBF, sizeof buffer);
    while (fgets(line, sizeof line, maps)) {
        size_t start;
        char policy[64];
        if (sscanf(line, "%zx %63s", &start, policy) == 2 && start <= middle) strcpy(found, policy);
    }
    fclose(maps);
    printf("%zu %zu %s\n", (size_t)region, length, found);
    fflush(stdout);
}

int main(int argc, char **argv) {
    (void)argv;
    char command[100];
    // From the heap, whose memory stays mapped.
    if (argc > 1) mallopt(M_MMAP_THRESHOLD, 64 * MIB), mallopt(M_TRIM_THRESHOLD, 256 * MIB);
    while (fgets(command, sizeof command, stdin)) {
        if (!strcmp(command, "allocate\n")) region = allocate();
        else if (!strcmp(command, "touch\n")) memset(region, 1, length);
        else if (!strcmp(command, "call\n")) { void *volatile p = malloc(2 * MIB); free(p); }
        else if (!strcmp(command, "grow\n")) length *= 2, region = realloc(region, length);
        else if (!strcmp(command, "shrink\n")) length /= 2, region = realloc(region, length);
        else if (!strcmp(command, "free\n")) free(region);
        else if (!strcmp(command, "bind\n")) {
            // As libnuma does: MPOL_PREFERRED, node 0, whole pages within.
            size_t start = ((size_t)region + 4095) & ~(size_t)4095, nodes = 1;
            syscall(SYS_mbind, start, ((size_t)region + length - start) & ~(size_t)4095, 1, &nodes,
                64, 0);
        } else if (!strcmp(command, "unbind\n") || !strcmp(command, "unbind most\n")) {
            // All whole pages, or all but the last.
            size_t start = ((size_t)region + 4095) & ~(size_t)4095,
                   rest = command[6] == ' ' ? 4096 : 0;
            syscall(SYS_mbind, start, (((size_t)region + length - start) & ~(size_t)4095) - rest, 0,
                0, 0, 0);
        } else if (!strcmp(command, "prefer\n") || !strcmp(command, "interleave\n")) {
            // As numactl does.
            size_t nodes = 1;
            syscall(SYS_set_mempolicy, *command == 'p' ? 1 : 3, &nodes, 64);
        }
        else return 1;
        policy();
    }
    return 0;
}
