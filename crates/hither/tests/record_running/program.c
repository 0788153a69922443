// Reads files once for each line on stdin, and says so:
//
//   program [--fork] FILE...
//
// With --fork, a child reads them, and ends.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void read_all(char **paths) {
    static char buffer[1 << 16];
    for (; *paths; paths++) {
        int file = open(*paths, O_RDONLY);
        while (read(file, buffer, sizeof buffer) > 0) {}
        close(file);
    }
}

int main(int count, char **arguments) {
    char line[16];
    int forks = count > 1 && strcmp(arguments[1], "--fork") == 0;
    char **paths = arguments + 1 + forks;
    while (fgets(line, sizeof line, stdin)) {
        pid_t child = forks ? fork() : 0;
        if (child == 0)
            read_all(paths);
        if (forks && child == 0)
            _exit(0);
        if (forks)
            waitpid(child, NULL, 0);
        puts("read");
        fflush(stdout);
    }
    return 0;
}
