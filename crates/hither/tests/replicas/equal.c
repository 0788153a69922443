// Random operations on a few files, whose every result goes into the output: the same with replicas
// and without.
//
//   equal FOLDER SEED ROUNDS
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FILES 3
#define OPEN 6
#define MOST (160 * 1024)
#define LIMITED (80 * 1024)

static uint64_t hash = 0xcbf29ce484222325, state;
static char names[FILES][4096];
static char *buffer, *limited;
// Of which the compiler knows nothing.
static void *volatile nowhere;

static uint64_t next(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % below;
}

static void add(const void *bytes, size_t count) {
    for (size_t at = 0; at < count; at++)
        hash = (hash ^ ((const unsigned char *)bytes)[at]) * 0x100000001b3;
}

static void told(const char *what, long result, const void *bytes) {
    int error = result < 0 ? errno : 0;
    add(what, strlen(what));
    add(&result, sizeof result);
    add(&error, sizeof error);
    if (result > 0 && bytes) add(bytes, result);
}

// Reads of what has replicas: the same few blocks again and again, with pauses in which they can be
// made.
static void warm(int fd) {
    for (int round = 0; round < 5; round++) {
        pread(fd, buffer, MOST, 0);
        usleep(8000);
    }
}

static void in_child(int fd, int by_vfork) {
    int to[2];
    if (pipe(to) != 0) {
        told("no pipe", -1, NULL);
        return;
    }
    pid_t child = by_vfork ? vfork() : fork();
    if (child == 0) {
        // The same number, another file: what the parent knows of it must not be used here.
        if (by_vfork) {
            int other = open("/proc/self/status", O_RDONLY);
            dup2(other, fd);
        }
        char some[64] = {0};
        ssize_t got = read(fd, some, by_vfork ? 5 : 50);
        if (write(to[1], &got, sizeof got) < 0 || write(to[1], some, sizeof some) < 0) _exit(3);
        _exit(0);
    }
    char some[64];
    ssize_t got;
    if (read(to[0], &got, sizeof got) < 0 || read(to[0], some, sizeof some) < 0) exit(3);
    waitpid(child, NULL, 0);
    told("child", got, some);
    close(to[0]);
    close(to[1]);
}

// Most of a file to a socket with room for it: at an offset or at the file's own, as a stream or
// not, and to nobody.
static void sent(int fd) {
    int ends[2], kind = next(6) ? SOCK_STREAM : SOCK_SEQPACKET;
    if (socketpair(AF_UNIX, kind, 0, ends) != 0) {
        told("no sockets", -1, NULL);
        return;
    }
    int is_heard = next(6) != 0;
    if (!is_heard) close(ends[1]);
    off_t offset = next(MOST / 4), *at = next(3) ? &offset : NULL;
    if (!at && next(2)) lseek(fd, offset, SEEK_SET);
    size_t odd[] = {next(MOST), SIZE_MAX, (size_t)INT64_MAX + 1, INT64_MAX, INT64_MAX - MOST};
    ssize_t got = sendfile(ends[0], fd, at, next(6) ? 128 * 1024 + next(MOST / 2) : odd[next(5)]);
    told("sent", got, NULL);
    told("sent from", offset, NULL);
    told("sent until", lseek(fd, 0, SEEK_CUR), NULL);
    for (ssize_t some, left = got; is_heard && left > 0; left -= some) {
        some = recv(ends[1], buffer, left, MSG_DONTWAIT);
        if (some <= 0) break;
        add(buffer, some);
    }
    if (is_heard) close(ends[1]);
    close(ends[0]);
}

static void *in_thread(void *argument) {
    int fd = *(int *)argument;
    char some[256];
    for (int at = 0; at < 20; at++) told("thread", pread(fd, some, sizeof some, at * 777), some);
    return NULL;
}

int main(int count, char **words) {
    state = strtoul(words[2], NULL, 10) * 2 + 1;
    long rounds = strtol(words[3], NULL, 10), threads = state / 2 % 2;
    (void)count;
    signal(SIGPIPE, SIG_IGN);
    buffer = malloc(MOST * 2);
    memset(buffer, 0, MOST * 2);
    limited = mmap(NULL, LIMITED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fds[OPEN];
    for (int file = 0; file < FILES; file++) {
        sprintf(names[file], "%s/file%d", words[1], file);
        int fd = open(names[file], O_WRONLY | O_CREAT | O_TRUNC, 0644);
        for (int at = 0; at < MOST; at++) buffer[at] = next(256);
        if (write(fd, buffer, MOST - file * 5000) < 0) return 3;
        close(fd);
    }
    for (int at = 0; at < OPEN; at++) {
        fds[at] = open(names[at % FILES], O_RDONLY);
        warm(fds[at]);
    }
    for (long round = 0; round < rounds; round++) {
        int which = next(OPEN), fd = fds[which];
        size_t length = next(4) ? next(MOST) : next(5000);
        off_t offset = next(10) ? (off_t)next(MOST) : (off_t)next(3 * MOST);
        struct iovec parts[3] = {{buffer, length / 3}, {buffer + MOST, length - length / 3},
            {limited, next(3) * 50}};
        switch (next(42)) {
        default:
            told("pread", pread(fd, buffer, length, offset), buffer);
            break;
        case 8 ... 15:
            told("read", read(fd, buffer, length), buffer);
            break;
        case 16 ... 18:
            told("lseek", lseek(fd, offset, SEEK_SET), NULL);
            break;
        case 19:
            told("end", lseek(fd, -(off_t)next(300), SEEK_END), NULL);
            break;
        case 20:
            told("where", lseek(fd, 0, SEEK_CUR), NULL);
            break;
        case 21 ... 23: {
            ssize_t got = readv(fd, parts, 3);
            told("readv", got, NULL);
            for (int at = 0; at < 3 && got > 0; got -= parts[at++].iov_len)
                add(parts[at].iov_base, (size_t)got < parts[at].iov_len ? (size_t)got
                    : parts[at].iov_len);
            break;
        }
        case 24:
            told("preadv", preadv(fd, parts, 2, offset), NULL);
            add(buffer, length / 3);
            break;
        case 25:
            told("negative", pread(fd, buffer, length, -1), NULL);
            break;
        case 26:
            // Memory that is not there, may not be written, or was good until a moment ago.
            told("null", pread(fd, nowhere, LIMITED, 0), NULL);
            told("far", read(fd, (void *)-4096, LIMITED), NULL);
            told("good", pread(fd, limited, LIMITED, 5), limited);
            told("good", pread(fd, limited, LIMITED, 5), limited);
            if (mprotect(limited, LIMITED, PROT_READ) != 0) return 3;
            told("protected", pread(fd, limited, LIMITED, 5), NULL);
            if (mprotect(limited, LIMITED, PROT_READ | PROT_WRITE) != 0) return 3;
            told("good", pread(fd, limited, LIMITED, 5), limited);
            munmap(limited, LIMITED);
            told("unmapped", pread(fd, limited, LIMITED, 5), NULL);
            limited = mmap(limited, LIMITED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                -1, 0);
            told("vector", readv(fd, nowhere, 2), NULL);
            break;
        case 27: {
            int other = dup(fd);
            told("dup", read(other, buffer, length), buffer);
            told("dup", read(fd, buffer, length), buffer);
            close(other);
            break;
        }
        case 28:
            in_child(fd, 0);
            break;
        case 29:
            in_child(fd, 1);
            break;
        case 30: {
            // Another file under the same number.
            int file = next(FILES);
            close(fd);
            fds[which] = open(names[file], O_RDONLY);
            told("again", fds[which] == fd, NULL);
            told("again", read(fds[which], buffer, length), buffer);
            break;
        }
        case 31: {
            int other = open(names[next(FILES)], O_RDONLY);
            told("over", dup2(other, fd) == fd, NULL);
            close(other);
            break;
        }
        case 32 ... 33: {
            if (next(6)) break;
            // A socket that nobody empties has room for no larger file.
            length %= MOST + 32 * 1024 - offset % MOST;
            int to = open(names[next(FILES)], O_WRONLY);
            for (size_t at = 0; at < length; at++) buffer[at] = next(256);
            told("pwrite", pwrite(to, buffer, length, offset % MOST), NULL);
            close(to);
            break;
        }
        case 34: {
            if (next(6)) break;
            int file = next(FILES);
            told("cut", truncate(names[file], MOST / 2 + next(MOST / 2)), NULL);
            break;
        }
        case 35: {
            FILE *stream = fopen(names[next(FILES)], "r");
            if (!stream) {
                told("no stream", -1, NULL);
                break;
            }
            fseek(stream, offset % MOST, SEEK_SET);
            size_t got = fread(buffer, 1, length, stream);
            told("stream", got, buffer);
            told("stream", fgetc(stream), NULL);
            fclose(stream);
            break;
        }
        case 36: {
            // From then on the library counts on further threads.
            if (!threads) break;
            pthread_t id;
            pthread_create(&id, NULL, in_thread, &fd);
            pthread_join(id, NULL);
            break;
        }
        case 37: {
            int to = open(words[1], O_TMPFILE | O_RDWR, 0600);
            off_t from = offset % MOST;
            told("sent", to < 0 ? 0 : sendfile(to, fd, &from, length), NULL);
            told("sent", to < 0 ? 0 : pread(to, buffer, length, 0), buffer);
            if (to >= 0) close(to);
            break;
        }
        case 38: {
            if (next(6)) break;
            int other = open(names[next(FILES)], O_RDWR);
            told("both", read(other, buffer, length), buffer);
            told("both", pwrite(other, "x", 1, offset % MOST), NULL);
            told("both", pread(other, buffer, length, 0), buffer);
            close(other);
            break;
        }
        case 39:
            warm(fd);
            break;
        case 40 ... 41:
            sent(fd);
            break;
        }
        struct stat about;
        if (fstat(fds[which], &about) == 0) add(&about.st_size, sizeof about.st_size);
    }
    printf("%016lx\n", hash);
    return 0;
}
