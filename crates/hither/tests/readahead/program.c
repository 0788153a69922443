// Says of each way to read whether the kernel reads ahead through the descriptor then: what comes
// after a page that was read, and after one before it, is cached or not. Of a file of 2 GiB, each
// part of which is read once.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, BLOCK = 16384, SLOT = 16 * BLOCK, SLOTS = 8192 };

static char buffer[BLOCK];
static char *mapped;
static unsigned slot;

static void get(int file, size_t bytes, off_t at) {
    if (pread(file, buffer, bytes, at) != (ssize_t)bytes) {
        perror("pread");
        exit(1);
    }
}

// Far from any one before.
static off_t elsewhere(void) { return (off_t)(slot++ * 5003 % SLOTS) * SLOT; }

// Of a page that was not read.
static int is_cached(off_t at) {
    unsigned char there;
    if (mincore(mapped + at, PAGE, &there)) {
        perror("mincore");
        exit(1);
    }
    return there & 1;
}

// Two reads at one place, which the recorder hears of as one. (Without readahead the kernel reads
// no more than them.)
static int reads_ahead(int file) {
    off_t at = elsewhere();
    get(file, PAGE, at);
    get(file, PAGE, at + PAGE);
    return is_cached(at + 2 * PAGE);
}

static void at_random(int file) {
    for (int read = 0; read < 20; read++) get(file, PAGE, elsewhere());
}

// Until nothing is read ahead, ten times in a row, which is once the agent has heard of all that
// was read before; not for ever. (Once, what was read ahead may have been dropped before the look.)
static void until_quiet(int file, int tries) {
    at_random(file);
    for (int quiet = 0; tries-- > 0 && quiet < 10; usleep(5000))
        quiet = reads_ahead(file) ? 0 : quiet + 1;
}

static void say(const char *what, int file) { printf("%s: %s\n", what, reads_ahead(file) ? "on"
    : "off"); }

// Over a socket, to whoever reads from it: what it is there.
static int passed_on(int file, int among_many) {
    int ends[2], there;
    char byte = 0;
    struct iovec bytes = {&byte, 1};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof file)];
    } control = {{CMSG_LEN(sizeof file), SOL_SOCKET, SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.header), &file, sizeof file);
    struct mmsghdr message = {{.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control,
        .msg_controllen = sizeof control}, 0};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) exit(1);
    int sent = among_many ? sendmmsg(ends[0], &message, 1, 0) : (int)sendmsg(ends[0],
        &message.msg_hdr, 0);
    if (sent != 1 || recvmsg(ends[1], &message.msg_hdr, 0) != 1) {
        perror("passed on");
        exit(1);
    }
    memcpy(&there, CMSG_DATA(&control.header), sizeof there);
    return there;
}

int main(int count, char **words) {
    int tries = atoi(words[2]), file = open(words[1], O_RDONLY);
    // By number, so that the agent takes it for no mapping.
    int looked_at = open(words[1], O_RDONLY);
    mapped = (char *)syscall(SYS_mmap, NULL, (size_t)SLOT * SLOTS, PROT_READ, MAP_SHARED, looked_at,
        0);
    setvbuf(stdout, NULL, _IONBF, 0);
    say("at first", file);
    // More than the budget.
    for (off_t at = 0; at < 24 << 20; at += BLOCK)
        get(file, BLOCK, (off_t)(SLOTS - 1) * SLOT / 2 + at);
    until_quiet(file, tries);
    say("at random", file);
    off_t next = elsewhere();
    for (int read = 0; read < 4; read++) get(file, BLOCK, next + read * BLOCK);
    say("reading on", file);
    at_random(file);
    say("at random again", file);
    // Nothing else was heard of meanwhile.
    int other = open(words[1], O_RDONLY);
    at_random(other);
    say("another descriptor", other);
    posix_fadvise(other, 0, 0, POSIX_FADV_NORMAL);
    at_random(other);
    say("advised by the program", other);
    close(other);
    other = open(words[1], O_RDONLY);
    off_t streams[4] = {elsewhere(), elsewhere(), elsewhere(), elsewhere()};
    for (int read = 0; read < 12 * 4; read++)
        get(other, BLOCK, streams[read % 4] + read / 4 * BLOCK);
    say("four streams", other);
    at_random(other);
    say("the same at random", other);
    int copy = dup(other);
    at_random(other);
    say("duplicated", copy);
    for (int among_many = 0; among_many < 2; among_many++) {
        other = open(words[1], O_RDONLY);
        at_random(other);
        say("to be passed on", other);
        copy = passed_on(other, among_many);
        at_random(other);
        say("passed on", copy);
    }
    at_random(0);
    say("inherited", 0);
    pid_t child = fork();
    if (child == 0) {
        say("in a child", file);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    at_random(file);
    say("after a fork", file);
    return 0;
}
