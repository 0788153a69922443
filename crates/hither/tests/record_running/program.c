// Reads a file once for each line on stdin, and says so:
//
//   program FILE
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **arguments) {
    static char buffer[1 << 16];
    char line[16];
    while (count == 2 && fgets(line, sizeof line, stdin)) {
        int file = open(arguments[1], O_RDONLY);
        while (read(file, buffer, sizeof buffer) > 0) {}
        close(file);
        puts("read");
        fflush(stdout);
    }
    return 0;
}
