// Programs that change descriptors and memory in ways that nobody who watches libc's calls sees.
// Each reads files that may have replicas, and checks every byte that it gets.
//
//   hostile make FOLDER          makes FOLDER/a and FOLDER/b
//   hostile list                 prints the kinds
//   hostile KIND FOLDER ROUNDS   0: all is well; 1: it is not, which is said; 4: not possible here
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (1 << 20)
#define PIECE (128 << 10)
#define PAGE 4096
#define GUARD_INSTALL 102
#define GUARD_REMOVE 103

static char path_a[4096], path_b[4096];
static char *buffer;
static long rounds;
static atomic_int over;

static void wrong(const char *what, ...) {
    va_list arguments;
    va_start(arguments, what);
    vfprintf(stderr, what, arguments);
    fprintf(stderr, " (errno %d)\n", errno);
    _exit(1);
}

static void impossible(const char *what) {
    perror(what);
    _exit(4);
}

// A system call that no library sees.
static long inlined(long number, long a, long b, long c, long d) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = 0;
    register long r9 __asm__("r9") = 0;
    __asm__ volatile("syscall"
        : "=a"(result)
        : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
        : "rcx", "r11", "memory");
    return result;
}

static uint64_t word(char file, uint64_t at) {
    return (uint64_t)file << 56 | at;
}

static int holds(const void *bytes, ssize_t count, char file, uint64_t offset) {
    const uint64_t *words = bytes;
    for (ssize_t at = 0; at + 8 <= count; at += 8)
        if (words[at / 8] != word(file, offset + at)) return 0;
    return 1;
}

static void check(const char *what, ssize_t got, ssize_t wanted, char file, uint64_t offset) {
    if (got != wanted) wrong("%s: %zd bytes of %c, not %zd", what, got, file, wanted);
    if (!holds(buffer, got, file, offset)) wrong("%s: not %c at %lu", what, file, offset);
}

// A read into memory of which `good` bytes may be written: as many, or an error if there are none.
static void check_bad(const char *what, ssize_t got, ssize_t good, const char *at,
    uint64_t offset) {
    if (good == 0 && got < 0 && errno == EFAULT) return;
    if (got != good || got == 0) wrong("%s: %zd bytes, not %zd", what, got, good);
    if (!holds(at, got, 'a', offset)) wrong("%s: not a at %lu", what, offset);
}

// A read into memory that may be written.
static void check_good(const char *what, int fd, char *at, char file) {
    ssize_t got = pread(fd, at, PIECE, 0);
    if (got != PIECE || !holds(at, got, file, 0)) wrong("%s: not %c", what, file);
}

static int opened(const char *path) {
    int fd = open(path, O_RDONLY);
    if (fd < 0) impossible(path);
    return fd;
}

static void make(const char *path, char file) {
    uint64_t *words = malloc(BYTES);
    for (uint64_t at = 0; at < BYTES; at += 8) words[at / 8] = word(file, at);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, words, BYTES) != BYTES) impossible(path);
    close(fd);
    free(words);
}

// A file that only this program reads.
static const char *own_file(char file) {
    static char path[4200];
    snprintf(path, sizeof path, "%s.%d", path_a, (int)getpid());
    make(path, file);
    return path;
}

// Reads all of a file again and again, with pauses in which it gets replicas.
static void warm(int fd, char file) {
    for (int round = 0; round < 10; round++) {
        for (uint64_t at = 0; at < BYTES; at += PIECE)
            check("warm", pread(fd, buffer, PIECE, at), PIECE, file, at);
        usleep(20000);
    }
}

static uint64_t offset_of(long round) {
    return (round * 5 % 8) * PIECE;
}

static char *mapped(size_t bytes) {
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) impossible("mmap");
    memset(at, 0, bytes);
    return at;
}

static pthread_t started(void *(*body)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, argument) != 0) impossible("pthread_create");
    return thread;
}

// A number that means one file to one thread and another to the next.
static pthread_barrier_t barrier;

static void *with_own_descriptors(void *argument) {
    int number = *(int *)argument;
    char *own = mapped(PIECE);
    if (close_range(3, ~0u, CLOSE_RANGE_UNSHARE) != 0) impossible("close_range");
    int fd = opened(path_b);
    if (fd != number && dup2(fd, number) != number) impossible("dup2");
    for (long round = 0; round < rounds; round++) {
        uint64_t at = offset_of(round);
        ssize_t got = pread(number, own, PIECE, at);
        if (got != PIECE || !holds(own, got, 'b', at)) wrong("unshared: not b");
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static void unshared(void) {
    int fd = opened(path_a), b = opened(path_b);
    warm(fd, 'a');
    warm(b, 'b');
    close(b);
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t thread = started(with_own_descriptors, &fd);
    for (long round = 0; round < rounds; round++) {
        uint64_t at = offset_of(round);
        pthread_barrier_wait(&barrier);
        check("unshared", pread(fd, buffer, PIECE, at), PIECE, 'a', at);
        pthread_barrier_wait(&barrier);
    }
    pthread_join(thread, NULL);
}

// A number that stdio closes, and that comes back in a message.
static void passed(void) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) != 0) impossible("socketpair");
    for (long round = 0; round < rounds; round++) {
        char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec part = {&byte, 1};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
            .msg_controllen = sizeof control};
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        int fd = opened(path_b), other;
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
        if (sendmsg(ends[0], &message, 0) != 1) impossible("sendmsg");
        close(fd);
        FILE *stream = fopen(path_a, "rm");
        if (!stream) impossible("fopen");
        fgetc(stream);
        fd = fileno(stream);
        if (round == 0) warm(fd, 'a');
        uint64_t at = offset_of(round);
        check("passed", pread(fd, buffer, PIECE, at), PIECE, 'a', at);
        fclose(stream);
        message.msg_controllen = sizeof control;
        if (recvmsg(ends[1], &message, 0) != 1) impossible("recvmsg");
        memcpy(&other, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof other);
        check("passed", pread(other, buffer, PIECE, at), PIECE, 'b', at);
        close(other);
    }
}

static void closed(void) {
    int fd = opened(path_a);
    warm(fd, 'a');
    for (long round = 0; round < rounds; round++) {
        uint64_t at = offset_of(round);
        check("closed", pread(fd, buffer, PIECE, at), PIECE, 'a', at);
        if (inlined(SYS_close, fd, 0, 0, 0) != 0) impossible("close");
        int other = inlined(SYS_open, (long)path_b, O_RDONLY, 0, 0);
        if (other != fd) impossible("open");
        check("closed", pread(fd, buffer, PIECE, at), PIECE, 'b', at);
        check("closed, read", read(fd, buffer, PIECE), PIECE, 'b', 0);
        inlined(SYS_close, fd, 0, 0, 0);
        check("closed", pread(fd, buffer, PIECE, at), -1, 'b', at);
        if (inlined(SYS_open, (long)path_a, O_RDONLY, 0, 0) != fd) impossible("open");
    }
}

static void duplicated(void) {
    int fd = opened(path_a), a = opened(path_a), b = opened(path_b);
    warm(fd, 'a');
    warm(b, 'b');
    for (long round = 0; round < rounds; round++) {
        uint64_t at = offset_of(round);
        char file = round % 2 ? 'a' : 'b';
        inlined(SYS_dup2, file == 'a' ? a : b, fd, 0, 0);
        check("duplicated", pread(fd, buffer, PIECE, at), PIECE, file, at);
    }
}

// Neither the flags nor the kind of a descriptor are what they were.
static void reopened(void) {
    int fd = opened(path_a);
    warm(fd, 'a');
    for (long round = 0; round < rounds; round++) {
        uint64_t at = offset_of(round);
        int flags = round % 2 ? O_PATH : O_DIRECTORY;
        int other = inlined(SYS_open, (long)(round % 2 ? path_a : "/"), flags, 0, 0);
        inlined(SYS_dup2, other, fd, 0, 0);
        inlined(SYS_close, other, 0, 0, 0);
        int wanted = round % 2 ? EBADF : EISDIR;
        if (pread(fd, buffer, PIECE, at) != -1 || errno != wanted) wrong("reopened: it was read");
        other = inlined(SYS_open, (long)path_a, O_RDONLY, 0, 0);
        inlined(SYS_dup2, other, fd, 0, 0);
        inlined(SYS_close, other, 0, 0, 0);
        check("reopened", pread(fd, buffer, PIECE, at), PIECE, 'a', at);
    }
}

static void direct(void) {
    int fd = opened(path_a);
    warm(fd, 'a');
    for (long round = 0; round < rounds; round++) {
        uint64_t at = offset_of(round);
        if (inlined(SYS_fcntl, fd, F_SETFL, round % 2 ? O_DIRECT : 0, 0) != 0) impossible("fcntl");
        check("direct", pread(fd, buffer, PIECE, at), PIECE, 'a', at);
    }
}

// Another thread gives the number to another file and back.
static int swapped[3];

static void *swaps(void *argument) {
    (void)argument;
    for (long round = 0; !over; round++) inlined(SYS_dup2, swapped[round % 2], swapped[2], 0, 0);
    return NULL;
}

static void swapping(void) {
    swapped[0] = opened(path_a);
    swapped[1] = opened(path_b);
    int fd = swapped[2] = opened(path_a);
    warm(fd, 'a');
    pthread_t thread = started(swaps, NULL);
    for (long round = 0; round < rounds; round++) {
        uint64_t at = offset_of(round);
        ssize_t got = pread(fd, buffer, PIECE, at);
        char file = buffer[7];
        if (file != 'a' && file != 'b') wrong("swapping: neither");
        check("swapping", got, PIECE, file, at);
    }
    over = 1;
    pthread_join(thread, NULL);
}

static void guarded(void) {
    int fd = opened(path_a);
    warm(fd, 'a');
    char *at = mapped(PIECE);
    for (long round = 0; round < rounds; round++) {
        ssize_t good = round % (PIECE / PAGE) * PAGE;
        if (madvise(at + good, PAGE, GUARD_INSTALL) != 0) impossible("MADV_GUARD_INSTALL");
        check_bad("guarded", pread(fd, at, PIECE, offset_of(round)), good, at, offset_of(round));
        madvise(at + good, PAGE, GUARD_REMOVE);
        check_good("guarded, after", fd, at, 'a');
    }
}

static void truncated(void) {
    int fd = opened(path_a), memory = memfd_create("truncated", 0);
    warm(fd, 'a');
    for (long round = 0; round < rounds; round++) {
        if (ftruncate(memory, PIECE) != 0) impossible("ftruncate");
        char *at = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
        check_good("truncated, before", fd, at, 'a');
        ssize_t good = round % (PIECE / PAGE) * PAGE;
        if (ftruncate(memory, good) != 0) impossible("ftruncate");
        check_bad("truncated", pread(fd, at, PIECE, offset_of(round)), good, at, offset_of(round));
        munmap(at, PIECE);
    }
}

static void protected(void) {
    int fd = opened(path_a);
    warm(fd, 'a');
    char *at = mapped(PIECE);
    for (long round = 0; round < rounds; round++) {
        ssize_t good = round % (PIECE / PAGE) * PAGE;
        inlined(SYS_mprotect, (long)at + good, PAGE, round % 2 ? PROT_READ : PROT_NONE, 0);
        check_bad("protected", pread(fd, at, PIECE, offset_of(round)), good, at, offset_of(round));
        inlined(SYS_mprotect, (long)at, PIECE, PROT_READ | PROT_WRITE, 0);
        check_good("protected, after", fd, at, 'a');
    }
}

static void unmapped(void) {
    int fd = opened(path_a);
    warm(fd, 'a');
    for (long round = 0; round < rounds; round++) {
        char *at = mapped(PIECE);
        check_good("unmapped, before", fd, at, 'a');
        ssize_t good = round % (PIECE / PAGE) * PAGE;
        inlined(SYS_munmap, (long)at + good, PIECE - good, 0, 0);
        check_bad("unmapped", pread(fd, at, PIECE, offset_of(round)), good, at, offset_of(round));
        if (good) inlined(SYS_munmap, (long)at, good, 0, 0);
    }
}

static void freed(void) {
    int fd = opened(path_a);
    warm(fd, 'a');
    for (long round = 0; round < rounds; round++) {
        // So large that it is a mapping of its own.
        char *volatile at = malloc(64 << 20);
        char *volatile keep = at;
        check_good("freed, before", fd, at, 'a');
        free(at);
        if (pread(fd, keep, PIECE, 0) != -1 || errno != EFAULT) wrong("freed: it was written");
    }
}

static void shrunk(void) {
    int fd = opened(path_a);
    warm(fd, 'a');
    for (long round = 0; round < rounds; round++) {
        char *end = (char *)inlined(SYS_brk, 0, 0, 0, 0);
        inlined(SYS_brk, (long)end + 2 * PIECE, 0, 0, 0);
        char *at = (char *)(((long)end + PAGE - 1) & -PAGE);
        check_good("shrunk, before", fd, at, 'a');
        inlined(SYS_brk, (long)end, 0, 0, 0);
        if (pread(fd, at, PIECE, 0) != -1 || errno != EFAULT) wrong("shrunk: it was written");
    }
}

static void nowhere(void) {
    int fd = opened(path_a);
    warm(fd, 'a');
    long end = (long)1 << 47, places[] = {0, 8, -PAGE, -PIECE, -1, end - 2 * PAGE, end, -end};
    for (long round = 0; round < rounds; round++) {
        void *volatile at = (void *)places[round % 8];
        if (pread(fd, at, PIECE, 0) != -1 || errno != EFAULT) wrong("nowhere: %p was written", at);
        lseek(fd, 0, SEEK_SET);
        if (read(fd, at, PIECE) != -1 || errno != EFAULT) wrong("nowhere: %p was written", at);
        if (lseek(fd, 0, SEEK_CUR) != 0) wrong("nowhere: the offset has moved");
        check_good("nowhere, after", fd, buffer, 'a');
    }
}

// Another thread takes the buffer away and gives it back, each time by one of many calls.
static char *contested;

static void *takes(void *argument) {
    (void)argument;
    int anew = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    for (long round = 0; !over; round++) {
        char *at = contested + round * 3 % (PIECE / PAGE) * PAGE;
        switch (round % 5) {
        case 0:
            inlined(SYS_munmap, (long)at, PAGE, 0, 0);
            break;
        case 1:
            inlined(SYS_mprotect, (long)at, PAGE, PROT_READ, 0);
            break;
        case 2:
            inlined(SYS_madvise, (long)at, PAGE, GUARD_INSTALL, 0);
            break;
        case 3:
            inlined(SYS_madvise, (long)at, PAGE, MADV_DONTNEED, 0);
            break;
        case 4:
            munmap(at, PAGE);
            break;
        }
        mmap(at, PAGE, PROT_READ | PROT_WRITE, anew, -1, 0);
    }
    return NULL;
}

static void taken(void) {
    int fd = opened(path_a);
    warm(fd, 'a');
    contested = mapped(PIECE);
    pthread_t thread = started(takes, NULL);
    for (long round = 0; round < rounds; round++) {
        ssize_t got = pread(fd, contested, PIECE, offset_of(round));
        if (got <= 0 ? errno != EFAULT : got > PIECE) wrong("taken: %zd", got);
    }
    over = 1;
    pthread_join(thread, NULL);
    check_good("taken, after", fd, contested, 'a');
}

// A child that nobody has seen made reads into its own memory, not its parent's.
static void forked(void) {
    int fd = opened(path_a), b = opened(path_b);
    warm(fd, 'a');
    warm(b, 'b');
    for (long round = 0; round < rounds / 20 + 1; round++) {
        check("forked", pread(fd, buffer, PIECE, 0), PIECE, 'a', 0);
        long child = inlined(SYS_fork, 0, 0, 0, 0);
        if (child < 0) impossible("fork");
        if (child == 0) {
            for (int again = 0; again < 20; again++)
                check("forked", pread(b, buffer, PIECE, PIECE), PIECE, 'b', PIECE);
            _exit(0);
        }
        int status;
        if (inlined(SYS_wait4, child, (long)&status, 0, 0) != child || status != 0)
            wrong("forked: a child ended with %x", status);
        if (!holds(buffer, PIECE, 'a', 0)) wrong("forked: a child has written to its parent");
    }
}

// Two processes share an offset, which nobody has seen come about: between them they read each byte
// once.
static void shared(void) {
    for (long round = 0; round < rounds / 20 + 1; round++) {
        int fd = opened(path_a);
        if (round == 0) warm(fd, 'a');
        atomic_uint *seen = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
            0);
        long child = inlined(SYS_fork, 0, 0, 0, 0);
        if (child < 0) impossible("fork");
        ssize_t got;
        while ((got = read(fd, buffer, PIECE)) > 0) {
            uint64_t at = *(uint64_t *)buffer & 0xffffffffffffff;
            check("shared", got, PIECE, 'a', at);
            if (atomic_fetch_or(seen, 1u << at / PIECE) & 1u << at / PIECE) wrong("shared: twice");
        }
        if (got < 0) wrong("shared: it failed");
        if (child == 0) _exit(0);
        int status;
        if (inlined(SYS_wait4, child, (long)&status, 0, 0) != child || status != 0)
            wrong("shared: a child ended with %x", status);
        if (*seen != (1u << BYTES / PIECE) - 1) wrong("shared: %x were read", *seen);
        munmap(seen, PAGE);
        close(fd);
    }
}

// A child of a vfork changes its descriptors, which are its own, by calls that nobody sees.
static void borrowed(void) {
    int fd = opened(path_a), b = opened(path_b);
    warm(fd, 'a');
    for (long round = 0; round < rounds / 20 + 1; round++) {
        uint64_t at = offset_of(round);
        pid_t child = vfork();
        if (child == 0) {
            inlined(SYS_dup2, b, fd, 0, 0);
            check("borrowed", pread(fd, buffer, PIECE, at), PIECE, 'b', at);
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status != 0) wrong("borrowed: %x", status);
        check("borrowed", pread(fd, buffer, PIECE, at), PIECE, 'a', at);
    }
}

// A handler that reads, and one that leaves by a jump.
static sigjmp_buf jump;
static int interrupted = -1;
static volatile sig_atomic_t may_jump;

static void on_alarm(int signal) {
    (void)signal;
    static char own[PIECE];
    int saved = errno;
    ssize_t got = pread(interrupted, own, PIECE, PIECE);
    if (got != PIECE || !holds(own, got, 'b', PIECE)) wrong("interrupted: not b");
    errno = saved;
    if (may_jump) siglongjmp(jump, 1);
}

static void interrupts(void) {
    int fd = opened(path_a);
    interrupted = opened(path_b);
    warm(fd, 'a');
    warm(interrupted, 'b');
    signal(SIGALRM, on_alarm);
    struct itimerval often = {{0, 700}, {0, 700}};
    setitimer(ITIMER_REAL, &often, NULL);
    for (volatile long round = 0; round < rounds; round++) {
        uint64_t at = offset_of(round);
        if (sigsetjmp(jump, 1) != 0) continue;
        may_jump = round % 2;
        ssize_t got = pread(fd, buffer, PIECE, at);
        may_jump = 0;
        check("interrupts", got, PIECE, 'a', at);
    }
    often = (struct itimerval){0};
    setitimer(ITIMER_REAL, &often, NULL);
}

static void *reads_for_good(void *argument) {
    char *own = malloc(PIECE);
    pthread_cleanup_push(free, own);
    for (;;) {
        ssize_t got = pread(*(int *)argument, own, PIECE, 0);
        if (got != PIECE || !holds(own, got, 'a', 0)) wrong("cancelled: not a");
    }
    pthread_cleanup_pop(1);
    return NULL;
}

static void cancelled(void) {
    int fd = opened(path_a);
    warm(fd, 'a');
    for (long round = 0; round < rounds / 20 + 1; round++) {
        pthread_t thread = started(reads_for_good, &fd);
        usleep(round * 37 % 1000);
        pthread_cancel(thread);
        pthread_join(thread, NULL);
    }
}

// Offsets that a send is to read and write lie where it may not.
static void offset_nowhere(void) {
    int fd = opened(path_a), ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) impossible("socketpair");
    int room = 4 << 20;
    setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    warm(fd, 'a');
    off_t *at = (off_t *)mapped(PAGE);
    for (long round = 0; round < rounds; round++) {
        if (round < 5) usleep(20000);
        *at = offset_of(round);
        ssize_t got = sendfile(ends[0], fd, at, PIECE);
        if (got > PIECE || got <= 0 || *at != (off_t)offset_of(round) + got)
            wrong("offset: %zd", got);
        for (ssize_t some, left = got; left > 0; left -= some) {
            some = recv(ends[1], buffer + got - left, left, 0);
            if (some <= 0) impossible("recv");
        }
        check("offset", got, got, 'a', offset_of(round));
        if (round % 2) inlined(SYS_mprotect, (long)at, PAGE, PROT_NONE, 0);
        else inlined(SYS_munmap, (long)at, PAGE, 0, 0);
        if (sendfile(ends[0], fd, at, PIECE) != -1 || errno != EFAULT) wrong("offset: it was sent");
        mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
}

// Who watches a file is told of every read, as without replicas.
static void watched(void) {
    const char *path = own_file('a');
    int fd = opened(path), watch = inotify_init1(IN_NONBLOCK);
    warm(fd, 'a');
    if (watch < 0 || inotify_add_watch(watch, path, IN_ACCESS) < 0) impossible("inotify");
    for (long round = 0; round < rounds; round++) {
        char event[4096];
        uint64_t at = offset_of(round);
        check("watched", pread(fd, buffer, PIECE, at), PIECE, 'a', at);
        // Whoever makes replicas reads as well, perhaps amid this read of events.
        if (read(watch, event, sizeof event) < (ssize_t)sizeof(struct inotify_event))
            wrong("watched: no event");
    }
    unlink(path);
}

// The program's own leases: one for writing is not broken by whoever makes replicas, and one for
// reading is granted beside theirs.
static void leased(void) {
    const char *path = own_file('c');
    int fd = opened(path);
    sigset_t io;
    sigemptyset(&io);
    sigaddset(&io, SIGIO);
    sigprocmask(SIG_BLOCK, &io, NULL);
    if (fcntl(fd, F_SETLEASE, F_WRLCK) != 0) impossible("F_SETLEASE");
    warm(fd, 'c');
    sigset_t pending;
    sigpending(&pending);
    if (sigismember(&pending, SIGIO) || fcntl(fd, F_GETLEASE) != F_WRLCK) wrong("leased: broken");
    fcntl(fd, F_SETLEASE, F_UNLCK);
    for (long round = 0; round < rounds; round++) {
        uint64_t at = offset_of(round);
        if (round % 10 == 0) usleep(1000);
        check("leased", pread(fd, buffer, PIECE, at), PIECE, 'c', at);
        if (fcntl(fd, F_SETLEASE, F_RDLCK) != 0) wrong("leased: for reading");
        // Whoever makes replicas has the file open.
        int got = fcntl(fd, F_SETLEASE, F_WRLCK);
        if (got != 0 && errno != EAGAIN && errno != EBUSY) wrong("leased: for writing");
        fcntl(fd, F_SETLEASE, F_UNLCK);
    }
    unlink(path);
}

// An open that does not wait may have to be tried again. Then it writes, and the next read sees it.
static void nonblocking(void) {
    const char *path = own_file('c');
    int fd = opened(path);
    warm(fd, 'c');
    for (long round = 0; round < rounds / 20 + 1; round++) {
        char file = round % 2 ? 'c' : 'd';
        int to;
        while ((to = open(path, O_WRONLY | O_NONBLOCK)) < 0)
            if (errno != EAGAIN) wrong("nonblocking: open");
        for (uint64_t at = 0; at < BYTES; at += PIECE) {
            for (uint64_t of = 0; of < PIECE; of += 8)
                *(uint64_t *)(buffer + of) = word(file, at + of);
            if (pwrite(to, buffer, PIECE, at) != PIECE) impossible("pwrite");
        }
        close(to);
        warm(fd, file);
    }
    unlink(path);
}

static const struct {
    const char *name;
    void (*run)(void);
} kinds[] = {
    {"unshared", unshared}, {"passed", passed}, {"closed", closed}, {"duplicated", duplicated},
    {"reopened", reopened}, {"direct", direct}, {"swapping", swapping}, {"guarded", guarded},
    {"truncated", truncated}, {"protected", protected}, {"unmapped", unmapped}, {"freed", freed},
    {"shrunk", shrunk}, {"nowhere", nowhere}, {"taken", taken}, {"forked", forked},
    {"shared", shared}, {"borrowed", borrowed}, {"interrupts", interrupts},
    {"cancelled", cancelled}, {"offset_nowhere", offset_nowhere}, {"watched", watched},
    {"leased", leased}, {"nonblocking", nonblocking},
};
#define KINDS (sizeof kinds / sizeof *kinds)

int main(int count, char **words) {
    if (count > 2) {
        snprintf(path_a, sizeof path_a, "%s/a", words[2]);
        snprintf(path_b, sizeof path_b, "%s/b", words[2]);
    }
    if (count == 2) {
        for (size_t kind = 0; kind < KINDS; kind++) puts(kinds[kind].name);
        return 0;
    }
    if (count == 3) {
        make(path_a, 'a');
        make(path_b, 'b');
        return 0;
    }
    rounds = strtol(words[3], NULL, 10);
    // Others are to get on beside all kinds at once.
    if (nice(10) == -1) errno = 0;
    buffer = mapped(PIECE);
    for (size_t kind = 0; kind < KINDS; kind++) {
        if (strcmp(kinds[kind].name, words[1]) != 0) continue;
        kinds[kind].run();
        return 0;
    }
    return 2;
}
