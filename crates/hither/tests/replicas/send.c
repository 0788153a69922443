// Sends a file again and again, and checks what is received: to a socket that does not wait, and to
// one that does, while signals come.
//
//   send FILE ROUNDS [late]  prints how many sends were cut short; `late`: after the first thread
//                            has ended
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define BYTES (1 << 20)

static char content[BYTES];
static uint64_t state = 88172645463325252, cut;
static int file, ends[2];

static uint64_t next(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % below;
}

static void die(const char *what) {
    perror(what);
    exit(3);
}

static void connect_ends(int over_tcp) {
    if (!over_tcp) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) die("socketpair");
        return;
    }
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&at, length) != 0 || listen(listener, 1) != 0) die("listen");
    getsockname(listener, (void *)&at, &length);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(ends[0], (void *)&at, length) != 0) die("connect");
    ends[1] = accept(listener, NULL, NULL);
    close(listener);
}

// What is received is the file, over and over.
static size_t receive(size_t at, int flags) {
    static char buffer[BYTES];
    ssize_t got = recv(ends[1], buffer, BYTES - at % BYTES, flags);
    if (got < 0 && errno != EAGAIN && errno != EINTR) die("recv");
    if (got > 0 && memcmp(buffer, content + at % BYTES, got) != 0) {
        fprintf(stderr, "wrong within %zd bytes at %zu\n", got, at);
        exit(1);
    }
    return got > 0 ? got : 0;
}

static size_t send_some(size_t at) {
    off_t offset = at % BYTES;
    size_t count = 1 + next(500000);
    ssize_t got;
    if (next(2)) {
        off_t before = offset;
        got = sendfile(ends[0], file, &offset, count);
        if (offset != before + (got > 0 ? got : 0)) die("offset");
    } else {
        if (lseek(file, offset, SEEK_SET) != offset) die("lseek");
        got = sendfile(ends[0], file, NULL, count);
        if (lseek(file, 0, SEEK_CUR) != offset + (got > 0 ? got : 0)) die("the file's offset");
    }
    if (got < 0 && errno != EAGAIN && errno != EINTR) die("sendfile");
    size_t wanted = count < BYTES - at % BYTES ? count : BYTES - at % BYTES;
    cut += got < (ssize_t)wanted;
    return got > 0 ? got : 0;
}

static void without_waiting(long rounds) {
    size_t sent = 0, received = 0;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    for (long round = 0; round < rounds; round++) {
        sent += send_some(sent);
        for (int some = next(4); some > 0; some--) received += receive(received, MSG_DONTWAIT);
    }
    while (received < sent) received += receive(received, 0);
}

static void *receiver(void *end) {
    size_t received = 0;
    while (received < *(volatile size_t *)end) {
        received += receive(received, 0);
        if (received % 7 == 0) usleep(100);
    }
    return NULL;
}

static void ignore(int number) { (void)number; }

static void waiting(long rounds) {
    size_t sent = 0, end = SIZE_MAX;
    pthread_t thread;
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarms, NULL);
    pthread_create(&thread, NULL, receiver, &end);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    struct sigaction action = {.sa_handler = ignore};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 900}, {0, 900}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    for (long round = 0; round < rounds; round++) sent += send_some(sent);
    setitimer(ITIMER_REAL, &never, NULL);
    end = sent;
    // It may be waiting for more.
    shutdown(ends[0], SHUT_WR);
    pthread_join(thread, NULL);
}

static void *all(void *given) {
    char **words = given;
    for (int at = 0; at < BYTES; at++) content[at] = next(256);
    int to = open(words[1], O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (to < 0 || write(to, content, BYTES) != BYTES) die(words[1]);
    close(to);
    file = open(words[1], O_RDONLY);
    for (int over_tcp = 0; over_tcp < 2; over_tcp++) {
        connect_ends(over_tcp);
        without_waiting(atol(words[2]));
        close(ends[0]);
        close(ends[1]);
        connect_ends(over_tcp);
        waiting(atol(words[2]));
        close(ends[0]);
        close(ends[1]);
    }
    // No descriptor was left behind.
    int lowest = dup(file);
    printf("%lu %d\n", cut, lowest);
    exit(lowest == file + 1 ? 0 : 4);
}

static void *late(void *words) {
    // The first thread is a zombie then.
    usleep(100000);
    return all(words);
}

int main(int count, char **words) {
    pthread_t thread;
    if (count < 4) all(words);
    pthread_create(&thread, NULL, late, words);
    pthread_exit(NULL);
}
