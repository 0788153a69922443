/* Streams over arrays, each thread over its own contiguous part: the sum of one array, or the
 * triad a = b + 3c.
 *
 * Misses: every line of every array once per iteration (those of a by the store's write
 * allocate): `lines` x `iterations`.
 *
 * With `--file PATH` thread 0 reads a file of `--file-bytes` from start to end before each
 * iteration. The kernel's misses as it reads come on top. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "lab.h"

enum { FILE_BLOCK = 64 << 10 };

static unsigned long bytes = 32 << 20, file_bytes = 4 << 20;
static int triad;
static const char *path;
static int file = -1;
static struct lab_area *a, *b, *c;

/* Writes the file to its disk and drops it from the page cache. */
static void create_file(void)
{
    static char block[FILE_BLOCK];
    int made = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    for (unsigned long at = 0; at < file_bytes; at += FILE_BLOCK)
        if (write(made, block, FILE_BLOCK) != FILE_BLOCK)
            lab_fail("%s: %s", path, strerror(errno));
    if (fsync(made) != 0 || posix_fadvise(made, 0, 0, POSIX_FADV_DONTNEED) != 0)
        lab_fail("%s: %s", path, strerror(errno));
    close(made);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        lab_fail("%s: %s", path, strerror(errno));
}

static void read_file(void)
{
    static char block[FILE_BLOCK];
    for (unsigned long at = 0; at < file_bytes; at += FILE_BLOCK)
        if (pread(file, block, FILE_BLOCK, (off_t)at) != FILE_BLOCK)
            lab_fail("%s: %s", path, strerror(errno));
}

static void fill(int thread)
{
    for (size_t i = a->bounds[thread] / 8; i < a->bounds[thread + 1] / 8; i++) {
        ((uint64_t *)a->start)[i] = i;
        if (triad) {
            ((uint64_t *)b->start)[i] = i;
            ((uint64_t *)c->start)[i] = i ^ 5;
        }
    }
}

/* Integers, so that the sum is the same for any number of threads. */
static uint64_t sum_part(int thread)
{
    uint64_t sum = 0;
    const uint64_t *from = (const uint64_t *)a->start;
    for (size_t i = a->bounds[thread] / 8; i < a->bounds[thread + 1] / 8; i++)
        sum += from[i];
    return sum;
}

static void triad_part(int thread)
{
    uint64_t *restrict to = (uint64_t *)a->start;
    const uint64_t *left = (const uint64_t *)b->start, *right = (const uint64_t *)c->start;
    for (size_t i = a->bounds[thread] / 8; i < a->bounds[thread + 1] / 8; i++)
        to[i] = left[i] + 3 * right[i];
}

static uint64_t pass(void)
{
    uint64_t sum = 0;
#pragma omp parallel reduction(+ : sum)
    {
        int thread = omp_get_thread_num();
        if (triad)
            triad_part(thread);
        else
            sum += sum_part(thread);
    }
    return sum;
}

static uint64_t iteration(unsigned long number)
{
    if (file >= 0)
        read_file();
    uint64_t sum = pass();
    if (number == 0) {
        lab_bring_home(a);
        if (triad) {
            lab_bring_home(b);
            lab_bring_home(c);
        }
    }
    return sum;
}

int main(int argc, char **argv)
{
    const struct lab_option own[] = {
        {.key = "bytes",
         .number = &bytes,
         .help = "of each array, rounded up to whole pages (32M)"},
        {.key = "kernel",
         .choice = &triad,
         .words = "sum|triad",
         .help = "one array read, or two read and one written"},
        {.key = "file", .text = &path, .help = "a file that thread 0 reads before each iteration"},
        {.key = "file-bytes", .number = &file_bytes, .help = "of the file, a multiple of 64K (4M)"},
        {0},
    };
    lab_start(argc, argv, own);
    size_t pages = (bytes + lab.page - 1) / lab.page;
    struct lab_area **arrays[] = {&a, &b, &c};
    const char *names[] = {"a", "b", "c"};
    for (int i = 0; i < (triad ? 3 : 1); i++) {
        *arrays[i] = lab_area(names[i], pages, lab.page);
        (*arrays[i])->passes = 1;
    }
    if (path)
        create_file();
    lab_initialise(fill);
    pass();
    uint64_t sum = lab_iterate(iteration);

    for (int thread = 0; triad && thread < (int)lab.threads; thread++)
        sum += sum_part(thread);
    lab_facts(sum, lab_expect(), ", \"kernel\": \"%s\"", triad ? "triad" : "sum");
}
