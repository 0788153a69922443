/* Shared by the lab's programs: options, threads pinned by node, areas of memory with known
 * nodes of their pages, the region of interest, facts.
 *
 * A program allocates its areas, fills them by parts (`lab_initialise`), makes one pass to warm
 * the caches, iterates within the region of interest (`lab_iterate`) and prints one line of
 * JSON. The number of a thread determines which part of an area it owns, and the pinning
 * determines the thread's node. So the true locality (which page is on which node) is known from
 * inside, by move_pages(2), without any counting.
 *
 * Raw system calls replace libnuma, which a static program would have to include. */
#ifndef HITHER_LAB_H
#define HITHER_LAB_H

#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mark.h"

enum { LAB_LINE = 64, LAB_NODES = 64 };

enum lab_init {
    LAB_PARALLEL,   /* each thread first-touches its own parts */
    LAB_SINGLE,     /* thread 0 first-touches everything */
    LAB_INTERLEAVE, /* page by page over the nodes with memory */
};

/* An option `--KEY VALUE`: a number (with K, M or G for powers of 1024), a text, or one of
 * several words. */
struct lab_option {
    const char *key;
    const char *help;
    unsigned long *number;
    const char **text;
    int *choice;       /* set to the index of VALUE in words: */
    const char *words; /* "none|hand" */
};

/* An area of memory, divided among the threads: thread t owns bytes bounds[t] to bounds[t + 1]. */
struct lab_area {
    const char *name;
    char *start;
    size_t bytes;
    size_t *bounds; /* NULL for an adopted area */
    double passes;  /* over the area's lines per iteration, each part by its owner; 0 if
                       unknown */
    bool bound;     /* a memory policy was set */
    int *before;    /* each page's node when the region opened */
    int *after;     /* and when it closed */
};

struct lab_part {
    size_t first, end;
};

extern struct lab {
    unsigned long threads, iterations;
    int init;
    int whole;    /* the region begins before the first touch, not after a warm pass */
    int hand;     /* move pages to their owners' nodes after the first iteration, in the region */
    size_t page;  /* bytes: 4 KiB, or 2 MiB with `--pages huge` */
    int nodes;    /* one more than the highest node's number */
    size_t shift; /* CPUs by which the threads have moved on, of those that they use */
    size_t migrated; /* pages moved by hand */
} lab;

/* Expected figures of the region's user code. NAN if arithmetic gives none. */
struct lab_expected {
    double misses, local_share;
};

void lab_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Reads the options (the common ones and the program's own, which end with a zero entry), starts
 * the threads and pins them. */
void lab_start(int argc, char **argv, const struct lab_option *own);

/* The share of thread `thread` in `total` units. */
struct lab_part lab_part(size_t total, int thread);

/* The node of `thread`'s CPU after the threads have moved on by `shift` CPUs of those that they
 * use. */
int lab_thread_node(int thread, size_t shift);

/* Moves every thread on by `by` CPUs, from the last to the first. */
void lab_rotate(size_t by);

/* Restricts the threads to the first half of the CPUs (0) or to the second (1), as when a
 * scheduler gives each of two programs one half. */
void lab_halve(size_t half);

/* An area of `units` x `unit_bytes`, divided by units and not yet touched. It lives until the
 * program ends. */
struct lab_area *lab_area(const char *name, size_t units, size_t unit_bytes);

/* Binds the area's pages, none of them touched yet, to a node. */
void lab_place(struct lab_area *area, unsigned long node);

/* A read-only mapping of a file, as an area that no thread owns, to see the nodes of the file's
 * pages. It is not a range, and its policy is not changed. */
struct lab_area *lab_adopt(const char *name, void *start, size_t bytes);

/* Makes the calling thread allocate (also in the kernel) interleaved over all nodes with memory,
 * or again by first touch. */
void lab_allocate_interleaved(void);
void lab_allocate_by_touch(void);

/* Calls `fill` for each thread's part: in that thread, or with `--init single` for all parts in
 * thread 0. With `--region all` the region of interest opens here. */
void lab_initialise(void (*fill)(int thread));

/* The region of interest. Calls `iteration` for each number from 0, one interval each. The areas
 * are named as ranges, and their pages' nodes are stored before and after. (With `--region all`,
 * one more interval has the time before.) Returns the sum of the results. */
uint64_t lab_iterate(uint64_t (*iteration)(unsigned long number));

/* Switches the kernel's NUMA balancing to the mode in the environment variable LAB_BALANCING, or
 * off. It is on in the region only, so that every placement is intact and the scanner is fresh
 * when the region opens. (Otherwise it would correct some of the placement before, and it would
 * back off over memory with a policy, which it skips.) */
void lab_balance(bool on);

/* With `--migrate hand`, each thread moves the pages of its part of the area to its own node. A
 * page belongs to the part that has its first byte. */
void lab_bring_home(struct lab_area *area);

/* The share over the region, from that of the first iteration and that of all later ones.
 * Without migration by hand both are the same, unless the kernel moved pages: then NAN. */
double lab_over_iterations(double before, double after);

/* The figures that follow from the areas' `passes`, if a node's parts are much larger than its
 * caches (a cyclic pass over twice an LRU cache's size misses every line). */
struct lab_expected lab_expect(void);

/* A share in JSON, with null for NAN. */
struct lab_text {
    char text[32];
} lab_share_text(double share);

/* A number that looks random for each: splitmix64: Steele, Lea, Flood 2014. */
static inline uint64_t lab_mix(uint64_t state)
{
    state += 0x9e3779b97f4a7c15;
    state = (state ^ state >> 30) * 0xbf58476d1ce4e5b9;
    state = (state ^ state >> 27) * 0x94d049bb133111eb;
    return state ^ state >> 31;
}

/* A hash of `count` doubles: equal only for equal values in equal order. */
uint64_t lab_checksum(const double *values, size_t count);

/* Prints the facts as one line of JSON; `format` adds members. With `--region all`, figures
 * expected of the iterations alone are left out. */
void lab_facts(uint64_t checksum, struct lab_expected expected, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
