/* Two regions of equal size: one is streamed, one is accessed at random, and each access depends
 * on the previous one. Each region can be placed on a node, such as one with memory only (CXL).
 * Later moves are up to the kernel or to `--migrate hand`: the random region moves to its
 * threads' node and the stream stays, since near memory is scarce and a page of the random
 * region misses `--rounds` times as often. (On real machines prefetchers and open pages also
 * hide a part of a stream's latency; this is not modelled.)
 *
 * Misses: each line of the stream once per iteration, each line of the random region `--rounds`
 * times (see stream.c and chase.c). */
#include "cycle.h"

enum { NOWHERE = LAB_NODES };

static unsigned long stream_bytes = 32 << 20, random_bytes = 32 << 20, rounds = 2;
static unsigned long stream_node = NOWHERE, random_node = NOWHERE;
static int update;
static struct lab_area *stream, *chain;

static void fill(int thread)
{
    /* One thread for all fills one region after the other. */
    bool alone = lab.init == LAB_SINGLE;
    size_t first = alone ? 0 : stream->bounds[thread],
           end = alone ? thread == 0 ? stream->bytes : 0 : stream->bounds[thread + 1];
    for (size_t i = first / 8; i < end / 8; i++)
        ((uint64_t *)stream->start)[i] = i;
    cycle_link(chain, thread);
}

static uint64_t pass(void)
{
    uint64_t sum = 0;
#pragma omp parallel reduction(+ : sum)
    {
        int thread = omp_get_thread_num();
        const uint64_t *from = (const uint64_t *)stream->start;
        for (size_t i = stream->bounds[thread] / 8; i < stream->bounds[thread + 1] / 8; i++)
            sum += from[i];
        for (unsigned long round = 0; round < rounds; round++)
            sum += cycle_follow(chain, thread, update);
    }
    return sum;
}

static uint64_t iteration(unsigned long number)
{
    uint64_t sum = pass();
    if (number == 0)
        lab_bring_home(chain);
    return sum;
}

int main(int argc, char **argv)
{
    const struct lab_option own[] = {
        {.key = "stream-bytes",
         .number = &stream_bytes,
         .help = "of the streamed region, rounded up to whole pages (32M)"},
        {.key = "random-bytes",
         .number = &random_bytes,
         .help = "of the random region, rounded up to whole pages (32M)"},
        {.key = "rounds", .number = &rounds, .help = "over the random region in an iteration (2)"},
        {.key = "random-access",
         .choice = &update,
         .words = "read|update",
         .help = "whether the random region is written as well"},
        {.key = "stream-node",
         .number = &stream_node,
         .help = "where the streamed region is placed (by --init)"},
        {.key = "random-node",
         .number = &random_node,
         .help = "where the random region is placed (by --init)"},
        {0},
    };
    lab_start(argc, argv, own);
    stream = lab_area("stream", (stream_bytes + lab.page - 1) / lab.page, lab.page);
    stream->passes = 1;
    chain = lab_area("random", (random_bytes + lab.page - 1) / lab.page, lab.page);
    chain->passes = (double)rounds;
    if (stream_node != NOWHERE)
        lab_place(stream, stream_node);
    if (random_node != NOWHERE)
        lab_place(chain, random_node);
    lab_initialise(fill);
    pass();
    uint64_t sum = lab_iterate(iteration);

    uint64_t words = stream->bytes / 8;
    if (sum !=
        lab.iterations * (words * (words - 1) / 2) + cycle_truth(chain, lab.iterations * rounds))
        lab_fail("the sums are wrong");
    lab_facts(sum, lab_expect(), ", \"random_accesses\": %lu",
              lab.iterations * rounds * (chain->bytes / LAB_LINE));
}
