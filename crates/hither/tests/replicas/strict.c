// Readers and writers of files whose blocks say which version they are of.
//
//   strict make FOLDER
//   strict write FOLDER SEED     until FOLDER/stop is there; prints how many versions it wrote
//   strict read FOLDER READS     so many reads, or with 0 until FOLDER/enough is there, then "READS
//                                STALE TORN"
//
// "inplace" is rewritten, cut or written through a mapping; "replaced" is renamed over, or unlinked
// and made anew. A board in shared memory says which version each is of: odd while a writer is at
// work, and even from when it has closed the file. A reader looks at the board before and after a
// read. A version older than the board said before is stale. If the board said the same even number
// before and after, the block must be of that version and whole; while a writer is at work the
// kernel itself may return half of one.
//
// One reader is a thread beside others, the other one a process with one thread, whose reads at the
// file's own offset replicas serve as well.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096
#define BLOCKS 48
// Replicas serve reads of this size and more.
#define READ_BLOCKS 16
#define READ (READ_BLOCKS * BLOCK)
#define WORDS (BLOCK / 8)

static _Atomic uint64_t *board;
static const char *folder;

static void die(const char *what) {
    perror(what);
    exit(3);
}

static char *path(const char *name, char *buffer) {
    sprintf(buffer, "%s/%s", folder, name);
    return buffer;
}

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint64_t mix(uint64_t value) {
    value *= 0x9e3779b97f4a7c15;
    return value ^ value >> 29;
}

static void fill(uint64_t *block, uint64_t index, uint64_t version) {
    block[0] = version;
    uint64_t sum = version;
    for (int at = 1; at < WORDS - 1; at++) sum += block[at] = mix(version * BLOCKS + index) + at;
    block[WORDS - 1] = sum;
}

static int whole(const uint64_t *block, uint64_t index) {
    uint64_t sum = block[0], first = mix(block[0] * BLOCKS + index);
    for (int at = 1; at < WORDS - 1; at++) {
        if (block[at] != first + at) return 0;
        sum += block[at];
    }
    return sum == block[WORDS - 1];
}

static void fill_all(char *all, uint64_t version) {
    for (uint64_t index = 0; index < BLOCKS; index++)
        fill((uint64_t *)(all + index * BLOCK), index, version);
}

static void write_all(int fd, const char *all) {
    if (fd < 0) die("open");
    for (int at = 0; at < BLOCKS; at++)
        if (pwrite(fd, all + at * BLOCK, BLOCK, at * BLOCK) != BLOCK) die("pwrite");
}

static void map_board(void) {
    char name[4096];
    int fd = open(path("board", name), O_RDWR | O_CREAT, 0644);
    if (fd < 0 || ftruncate(fd, 4096) != 0) die("board");
    board = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (board == MAP_FAILED) die("mmap");
    close(fd);
}

static int writer(uint64_t seed) {
    char all[BLOCKS * BLOCK], name[4096], other[4096];
    uint64_t random = seed * 2 + 1, versions = 0;
    while (access(path("stop", name), F_OK) != 0) {
        int which = next(&random) % 2;
        uint64_t now = atomic_load(&board[which]), version = now + 2;
        int how = next(&random) % 3;
        atomic_store(&board[which], now + 1);
        fill_all(all, version);
        path(which ? "replaced" : "inplace", name);
        if (which) {
            int fd = open(how == 0 ? name : path("other", other), O_WRONLY | O_CREAT | O_EXCL,
                0644);
            if (how == 0) {
                if (fd >= 0) die("it is there");
                if (unlink(name) != 0) die("unlink");
                fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
            }
            write_all(fd, all);
            close(fd);
            if (how != 0 && rename(other, name) != 0) die("rename");
        } else if (how == 2) {
            int fd = open(name, O_RDWR);
            char *map = mmap(NULL, sizeof all, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (map == MAP_FAILED) die("mmap");
            close(fd);
            usleep(next(&random) % 2000);
            memcpy(map, all, sizeof all);
            munmap(map, sizeof all);
        } else {
            if (how == 1 && truncate(name, next(&random) % sizeof all) != 0) die("truncate");
            int fd = open(name, O_WRONLY | (next(&random) % 2 ? O_TRUNC : 0));
            write_all(fd, all);
            close(fd);
        }
        atomic_store(&board[which], version);
        versions++;
        usleep(next(&random) % (next(&random) % 4 ? 60000 : 600000));
    }
    printf("%lu\n", versions);
    return 0;
}

struct found {
    uint64_t seed, reads, stale, torn;
};

// Sends all of the file, and receives it; of that what was asked for.
static ssize_t sent(int fd, char *buffer, uint64_t index) {
    static __thread int ends[2] = {-1, -1};
    static __thread char all[BLOCKS * BLOCK];
    if (ends[0] < 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) die("socketpair");
    off_t at = 0;
    ssize_t sent = sendfile(ends[0], fd, &at, sizeof all);
    if (sent <= 0) return sent;
    if (at != sent || recv(ends[1], all, sent, MSG_WAITALL) != sent) die("recv");
    if (sent != sizeof all) return 0;
    memcpy(buffer, all + index * BLOCK, READ);
    return READ;
}

static ssize_t some_read(int fd, char *buffer, uint64_t index, uint64_t how) {
    if (how / 8 % 128 == 0) return sent(fd, buffer, index);
    if (how % 8 > 1) return pread(fd, buffer, READ, index * BLOCK);
    lseek(fd, index * BLOCK, SEEK_SET);
    return read(fd, buffer, READ);
}

static void *reader(void *argument) {
    struct found *found = argument;
    static __thread char buffer[READ] __attribute__((aligned(8)));
    char name[4096];
    uint64_t random = found->seed * 2 + 1, wanted = found->reads, at_open[2] = {0, 0};
    int fds[2] = {-1, -1};
    for (found->reads = 0; !wanted || found->reads < wanted; found->reads++) {
        if (!wanted && found->reads % 1024 == 0 && access(path("enough", name), F_OK) == 0) break;
        int which = next(&random) % 4 == 0;
        if (fds[which] < 0 || next(&random) % 20000 == 0) {
            if (fds[which] >= 0) close(fds[which]);
            at_open[which] = atomic_load(&board[which]) & ~1ull;
            fds[which] = open(path(which ? "replaced" : "inplace", name), O_RDONLY);
            if (fds[which] < 0 && errno != ENOENT) die("open");
            if (fds[which] < 0) continue;
        }
        uint64_t index = next(&random) % (BLOCKS - READ_BLOCKS + 1);
        uint64_t before = atomic_load(&board[which]);
        ssize_t got = some_read(fds[which], buffer, index, next(&random));
        uint64_t after = atomic_load(&board[which]);
        if (got < 0) die("read");
        int still = before == after && before % 2 == 0;
        if (got != READ) {
            found->torn += which ? before == at_open[1] && after == before : still;
            continue;
        }
        // All of one block, and of the others which version they say that they are: checking takes
        // longer than reading. A read counts once.
        int stale = 0, torn = 0, all_of = next(&random) % READ_BLOCKS;
        for (int at = 0; at < READ_BLOCKS; at++) {
            const uint64_t *block = (const uint64_t *)(buffer + at * BLOCK);
            uint64_t first = mix(block[0] * BLOCKS + index + at) + 1;
            int good = at == all_of ? whole(block, index + at) : block[1] == first;
            if (which) {
                // What is open is one version for good, unless it was being made when it was
                // opened.
                torn |= !good && before == at_open[which] && after == before;
                stale |= good && block[0] < at_open[which];
            } else {
                torn |= still && !good;
                stale |= good && (block[0] < (before & ~1ull) || (still && block[0] != before));
            }
        }
        found->torn += torn;
        found->stale += stale;
    }
    return NULL;
}

int main(int count, char **words) {
    folder = words[2];
    map_board();
    if (strcmp(words[1], "make") == 0) {
        for (int which = 0; which < 2; which++) atomic_store(&board[which], 0);
        char all[BLOCKS * BLOCK], name[4096];
        fill_all(all, 0);
        write_all(open(path("inplace", name), O_WRONLY | O_CREAT, 0644), all);
        write_all(open(path("replaced", name), O_WRONLY | O_CREAT, 0644), all);
        return 0;
    }
    if (strcmp(words[1], "write") == 0) return writer(strtoul(words[3], NULL, 10));
    struct found *found = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
        0);
    for (int at = 0; at < 2; at++) {
        found[at].seed = at + 1 + (count > 4 ? strtoul(words[4], NULL, 10) : 0);
        found[at].reads = strtoul(words[3], NULL, 10) / 2;
    }
    pid_t child = fork();
    if (child < 0) die("fork");
    if (child == 0) {
        reader(&found[0]);
        exit(0);
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, reader, &found[1]) != 0) die("pthread_create");
    pthread_join(thread, NULL);
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) die("the other reader");
    printf("%lu %lu %lu\n", found[0].reads + found[1].reads, found[0].stale + found[1].stale,
        found[0].torn + found[1].torn);
    return 0;
}
