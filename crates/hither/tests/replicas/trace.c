// trace PID: stops a process as a debugger does, says so, and holds on to it until its own standard
// input is closed.
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **words) {
    (void)count;
    pid_t pid = atoi(words[1]);
    if (ptrace(PTRACE_ATTACH, pid, 0, 0) != 0) return 1;
    if (waitpid(pid, NULL, __WALL) != pid) return 2;
    puts("stopped");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}
