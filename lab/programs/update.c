/* Updates of one table at random by all threads, as HPCC's RandomAccess does: no part of the table
 * has a main user, and no line stays in a cache.
 *
 * Which words are updated, and with what, follows from the number of the update alone. So the table
 * is the same in the end for any number of threads, which its checksum shows. How often a word is
 * found in a cache depends on the caches, so there is no expectation for the misses. */
#include "lab.h"

static unsigned long bytes = 24 << 20, updates = 256 << 10;
static struct lab_area *table;
static size_t words;

static void fill(int thread)
{
    struct lab_part part = lab_part(words, thread);
    for (size_t word = part.first; word < part.end; word++)
        ((uint64_t *)table->start)[word] = word;
}

static uint64_t iteration(unsigned long number)
{
    uint64_t *word = (uint64_t *)table->start;
#pragma omp parallel
    {
        struct lab_part part = lab_part(updates, omp_get_thread_num());
        for (size_t update = part.first; update < part.end; update++) {
            uint64_t value = lab_mix(number * updates + update);
            __atomic_fetch_xor(&word[value % words], value, __ATOMIC_RELAXED);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct lab_option own[] = {
        {.key = "bytes", .number = &bytes, .help = "of the table (24M)"},
        {.key = "updates", .number = &updates, .help = "an iteration, by all threads (256K)"},
        {0},
    };
    lab_start(argc, argv, own);
    words = bytes / sizeof(uint64_t);
    if (!words || !updates || bytes > 1ul << 40 || updates > 1ul << 40)
        lab_fail("--bytes must be from 8 to 1T, --updates from 1 to 1T");
    table = lab_area("table", words, sizeof(uint64_t));
    lab_initialise(fill);
    lab_iterate(iteration);

    lab_facts(lab_checksum((const double *)table->start, words), (struct lab_expected){NAN, NAN},
              ", \"updates\": %lu", updates * lab.iterations);
}
