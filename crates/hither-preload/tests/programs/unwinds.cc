// Stacks that are unwound through a hook: a cancelled thread, and an exception thrown by a signal
// handler, while they wait in read.
#include <atomic>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static int ends[2];
static int file;
static std::atomic<bool> waiting;

struct Witness {
    const char *name;
    ~Witness() { printf("unwound %s\n", name); }
};

static void *blocked(void *) {
    Witness witness{"cancelled thread"};
    char byte;
    read(file, &byte, 1);
    waiting = true;
    read(ends[0], &byte, 1);
    puts("not reached");
    return nullptr;
}

static void thrower(int) { throw 42; }

int main(int, char **argv) {
    setvbuf(stdout, nullptr, _IONBF, 0);
    if (pipe(ends)) return 1;
    file = open(argv[1], O_RDONLY);
    for (int round = 0; round < 10; round++) {
        pthread_t thread;
        pthread_create(&thread, nullptr, blocked, nullptr);
        while (!waiting.exchange(false)) usleep(100);
        usleep(1000);
        pthread_cancel(thread);
        void *result = nullptr;
        pthread_join(thread, &result);
        if (result != PTHREAD_CANCELED) puts("not cancelled");
    }
    struct sigaction action = {};
    action.sa_handler = thrower;
    action.sa_flags = SA_NODEFER;
    sigaction(SIGALRM, &action, nullptr);
    for (int round = 0; round < 3; round++) {
        try {
            Witness witness{"blocked read"};
            ualarm(2000, 0);
            char byte;
            read(ends[0], &byte, 1);
            puts("not reached");
        } catch (int value) {
            printf("caught %d\n", value);
        }
    }
    char byte;
    printf("%zd\n", pread(file, &byte, 1, 100));
    return 0;
}
