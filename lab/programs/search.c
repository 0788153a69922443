/* Searches of a tree of files at once, a process on each thread's CPU, again and again: as `grep
 * -r` by several users, or by xargs -P. The program is `grep` unless `--command` says another; it
 * finds the files in the page cache, where `--init` had them written.
 *
 * The sum is of what the searches find, a line in each thousand: `--command` is to print that
 * number, as `grep -rhc` does by file. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lab.h"

enum { LINE = 64, FOUND_EACH = 1000 };

extern char **environ;

static unsigned long files = 32, bytes = 128 << 10;
static const char *folder = "search.tree", *command = "./grep";

static void name_file(char *name, size_t size, size_t file)
{
    snprintf(name, size, "%s/%zu", folder, file);
}

/* Writes thread `thread`'s files, lines of 64 bytes. */
static void fill(int thread)
{
    struct lab_part part = lab_part(files, thread);
    for (size_t file = part.first; file < part.end; file++) {
        char name[4096];
        name_file(name, sizeof name, file);
        FILE *made = fopen(name, "we");
        if (!made)
            lab_fail("%s: %s", name, strerror(errno));
        for (size_t line = file * bytes / LINE; line < (file + 1) * bytes / LINE; line++)
            fprintf(made, "%-10s line %9zu of a file that is searched for a word\n",
                    line % FOUND_EACH ? "some" : "the-needle", line);
        /* For all to read, as what root alone may has no copies. */
        if (fchmod(fileno(made), 0644) || fclose(made))
            lab_fail("%s: %s", name, strerror(errno));
    }
}

/* One search, by a process that runs where this thread does; the sum of the numbers that it prints.
 */
static uint64_t search(void)
{
    char *words[] = {(char *)command, "-rhc", "the-needle", (char *)folder, NULL};
    int ends[2], status;
    posix_spawn_file_actions_t actions;
    pid_t child;
    if (pipe2(ends, O_CLOEXEC) || posix_spawn_file_actions_init(&actions) ||
        posix_spawn_file_actions_adddup2(&actions, ends[1], 1))
        lab_fail("a pipe: %s", strerror(errno));
    int error = posix_spawnp(&child, command, &actions, NULL, words, environ);
    if (error)
        lab_fail("%s: %s", command, strerror(error));
    close(ends[1]);
    posix_spawn_file_actions_destroy(&actions);
    FILE *printed = fdopen(ends[0], "re");
    uint64_t sum = 0;
    for (unsigned long found; printed && fscanf(printed, "%lu", &found) == 1;)
        sum += found;
    if (printed)
        fclose(printed);
    if (waitpid(child, &status, 0) != child || status)
        lab_fail("%s ended with %x", command, (unsigned)status);
    return sum;
}

static uint64_t iteration(unsigned long number)
{
    uint64_t sum = 0;
    (void)number;
#pragma omp parallel reduction(+ : sum)
    sum += search();
    return sum;
}

int main(int argc, char **argv)
{
    const struct lab_option own[] = {
        {.key = "files", .number = &files, .help = "files of the tree (32)"},
        {.key = "bytes", .number = &bytes, .help = "of each, a multiple of 64 (128K)"},
        {.key = "folder",
         .text = &folder,
         .help = "the tree, made and removed again (search.tree)"},
        {.key = "command",
         .text = &command,
         .help = "what searches, called as `grep -rhc WORD FOLDER` (./grep)"},
        {0},
    };
    lab_start(argc, argv, own);
    if (!files || !bytes || bytes % LINE || bytes > 1ul << 40 || files > 1 << 20)
        lab_fail("--bytes must be a multiple of %d, up to 1T, --files from 1 to 1M", LINE);
    if (mkdir(folder, 0755))
        lab_fail("%s: %s", folder, strerror(errno));
    lab_initialise(fill);
    uint64_t sum = lab_iterate(iteration);
    for (size_t file = 0; file < files; file++) {
        char name[4096];
        name_file(name, sizeof name, file);
        unlink(name);
    }
    rmdir(folder);
    uint64_t once = (files * bytes / LINE + FOUND_EACH - 1) / FOUND_EACH;
    if (sum != once * lab.threads * lab.iterations)
        lab_fail("found %lu times in place of %lu", (unsigned long)sum,
                 (unsigned long)(once * lab.threads * lab.iterations));
    lab_facts(once, (struct lab_expected){NAN, NAN}, ", \"file_lines\": %lu", files * bytes / LINE);
}
