/* roi COMMAND [ARGUMENT]...: runs an unmodified program as the region of interest, between a
 * begin and an end mark.
 *
 * Signals of other processes are passed on. roi ends like the command: with its exit status, or
 * by the same signal. 127 and 126 have the meaning of env(1): not found, not executable. The
 * region includes the cost of starting and reaping the process. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lab.h"

static volatile sig_atomic_t child;

/* Signals of the terminal (SI_KERNEL) have already reached the whole foreground group. */
static void pass_on(int signal, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code != SI_KERNEL)
        kill(child, signal);
}

static int die_of(int signal)
{
    sigset_t only;
    const struct rlimit no_core = {0, 0}; /* the command has written one already, if enabled */
    setrlimit(RLIMIT_CORE, &no_core);
    sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    sigemptyset(&only);
    sigaddset(&only, signal);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
    raise(signal);
    return 128 + signal;
}

int main(int argc, char **argv)
{
    static const int passed[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,
                                 SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH};
    sigset_t signals, before;
    if (argc < 2) {
        fputs("usage: roi COMMAND [ARGUMENT]...\n", stderr);
        return 125;
    }
    /* Blocked until the handlers know the child, so that no signal is lost. */
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        sigaddset(&signals, passed[i]);
    sigprocmask(SIG_BLOCK, &signals, &before);

    lab_balance(true);
    lab_begin();
    child = fork();
    if (child < 0) {
        fprintf(stderr, "roi: fork: %s\n", strerror(errno));
        return 125;
    }
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        execvp(argv[1], argv + 1);
        fprintf(stderr, "roi: %s: %s\n", argv[1], strerror(errno));
        _exit(errno == ENOENT ? 127 : 126);
    }
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        sigaction(passed[i],
                  &(struct sigaction){.sa_sigaction = pass_on, .sa_flags = SA_SIGINFO | SA_RESTART},
                  NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    int status;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            fprintf(stderr, "roi: waitpid: %s\n", strerror(errno));
            return 125;
        }
    }
    lab_end();
    lab_balance(false);
    return WIFSIGNALED(status) ? die_of(WTERMSIG(status)) : WEXITSTATUS(status);
}
