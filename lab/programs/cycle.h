/* A random cycle over the lines of an area's part. The address of each load is the result of the
 * load before it, so loads do not overlap. */
#ifndef HITHER_LAB_CYCLE_H
#define HITHER_LAB_CYCLE_H

#include "lab.h"

struct line {
    uint64_t next;   /* index in the part */
    uint64_t value;  /* the line's number in the area, plus one */
    uint64_t visits; /* number of writing visits */
    uint64_t unused[5];
};

/* Links thread `thread`'s lines into one cycle by Sattolo's shuffle (1986), in place and without
 * a pass that initialises the lines. The pages are fresh, so a line that holds 0 counts as its
 * own successor: the stored value is the successor's index xor its own. So the first touches are
 * as random as the shuffle. */
static inline void cycle_link(struct lab_area *area, int thread)
{
    struct line *lines = (struct line *)(area->start + area->bounds[thread]);
    size_t first = area->bounds[thread] / sizeof *lines,
           count = area->bounds[thread + 1] / sizeof *lines - first;
    uint64_t state = 0x9e3779b97f4a7c15 * (uint64_t)(thread + 1);
    for (size_t i = count; i-- > 1;) {
        state ^= state << 13; /* xorshift64: Marsaglia 2003 */
        state ^= state >> 7;
        state ^= state << 17;
        size_t other = state % i;
        uint64_t next = lines[i].next ^ i;
        lines[i].next = lines[other].next ^ other ^ i;
        lines[other].next = next ^ other;
    }
    for (size_t i = 0; i < count; i++)
        lines[i] = (struct line){.next = lines[i].next ^ i, .value = first + i + 1};
}

/* Goes once around thread `thread`'s cycle, and writes to each line if `update`. Returns the sum
 * of the values. */
static inline uint64_t cycle_follow(struct lab_area *area, int thread, bool update)
{
    struct line *lines = (struct line *)(area->start + area->bounds[thread]);
    uint64_t at = 0, sum = 0;
    for (size_t left = (area->bounds[thread + 1] - area->bounds[thread]) / sizeof *lines; left > 0;
         left--) {
        sum += lines[at].value;
        if (update)
            lines[at].visits++;
        at = lines[at].next;
    }
    return sum;
}

/* The sum of `rounds` rounds of all threads, if each visits every one of its lines once per
 * round. */
static inline uint64_t cycle_truth(const struct lab_area *area, uint64_t rounds)
{
    uint64_t lines = area->bytes / sizeof(struct line);
    return rounds * (lines * (lines + 1) / 2);
}

#endif
