/* Chases pointers: one random cycle over all lines (with several threads, over each thread's own
 * part), serially dependent.
 *
 * Misses: a cycle returns to a line only after all others, so an LRU cache smaller than the
 * cycle has evicted it by then: `lines` x `iterations`. */
#include "cycle.h"

static unsigned long bytes = 32 << 20;
static struct lab_area *area;

static void fill(int thread)
{
    cycle_link(area, thread);
}

static uint64_t round_of_all(void)
{
    uint64_t sum = 0;
#pragma omp parallel reduction(+ : sum)
    sum += cycle_follow(area, omp_get_thread_num(), false);
    return sum;
}

static uint64_t iteration(unsigned long number)
{
    uint64_t sum = round_of_all();
    if (number == 0)
        lab_bring_home(area);
    return sum;
}

int main(int argc, char **argv)
{
    const struct lab_option own[] = {
        {.key = "bytes", .number = &bytes, .help = "of the lines, rounded up to whole pages (32M)"},
        {0},
    };
    lab_start(argc, argv, own);
    area = lab_area("lines", (bytes + lab.page - 1) / lab.page, lab.page);
    area->passes = 1;
    lab_initialise(fill);
    round_of_all();
    uint64_t sum = lab_iterate(iteration);

    if (sum != cycle_truth(area, lab.iterations))
        lab_fail("the cycles did not meet every line once");
    lab_facts(sum, lab_expect(), ", \"cycles\": %lu", lab.threads);
}
