// Reads a file some times, takes memory bit by bit, reads it again, and says what it has read: in a
// memory cgroup that has room for what it takes, but not for replicas beside it. It takes no more
// than there is room for, and gives up where nobody makes room.
//
//   cramped FILE MIB GROUP LIMIT
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1 << 20)

static uint64_t sum_of(int fd) {
    static unsigned char block[128 << 10];
    uint64_t sum = 0;
    ssize_t count;
    for (off_t at = 0; (count = pread(fd, block, sizeof block, at)) > 0; at += count)
        for (ssize_t i = 0; i < count; i++) sum = sum * 31 + block[i];
    return count < 0 ? 0 : sum;
}

static void read_some_times(int fd) {
    for (int pass = 0; pass < 6; pass++) {
        printf("%llx\n", (unsigned long long)sum_of(fd));
        usleep(50000);
    }
}

// What the group has for itself and cannot give up, by its memory.stat: of version 1, with the
// groups in it, or of version 2.
static long held(const char *group) {
    char line[256], name[128];
    long first = 0, second = 0, bytes;
    snprintf(line, sizeof line, "%s/memory.stat", group);
    FILE *stat = fopen(line, "r");
    if (!stat) return 0;
    while (fgets(line, sizeof line, stat)) {
        if (sscanf(line, "%127s %ld", name, &bytes) != 2) continue;
        if (!strcmp(name, "total_rss") || !strcmp(name, "total_shmem")) first += bytes;
        if (!strcmp(name, "anon") || !strcmp(name, "shmem")) second += bytes;
    }
    fclose(stat);
    return first ? first : second;
}

int main(int count, char **arguments) {
    int fd = count > 4 ? open(arguments[1], O_RDONLY) : -1;
    if (fd < 0) return 1;
    long most = atol(arguments[4]) - 8 * MIB;
    read_some_times(fd);
    for (int mib = atoi(arguments[2]); mib > 0; mib--) {
        for (int waits = 0; held(arguments[3]) > most; waits++) {
            if (waits == 6000) return 3;
            usleep(10000);
        }
        char *taken = malloc(MIB);
        if (!taken) return 2;
        memset(taken, mib, MIB);
    }
    read_some_times(fd);
    return 0;
}
