/* What the lab's programs share: options, threads pinned by node, areas of memory whose pages'
 * nodes are known, the region of interest, facts.
 *
 * A program allocates its areas, fills them by parts (`lab_initialise`), makes one pass so that the
 * caches are warm, iterates within the region of interest (`lab_iterate`) and prints one line of
 * JSON. Which thread owns which part of an area follows from the thread's number alone; which node
 * a thread is on, from the pinning. So the truth about locality (whose page lies where) is known
 * from inside, by move_pages(2), without any counting.
 *
 * The raw system calls stand for libnuma, which a static program of a guest need not carry. */
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

/* An option `--KEY VALUE`: a number (with K, M or G for powers of 1024), a text, or one of several
 * words. */
struct lab_option {
    const char *key;
    const char *help;
    unsigned long *number;
    const char **text;
    int *choice;       /* set to the place of VALUE in: */
    const char *words; /* "none|hand" */
};

/* An area of memory, divided among the threads: thread t owns the bytes from bounds[t] to bounds[t
 * + 1]. */
struct lab_area {
    const char *name;
    char *start;
    size_t bytes;
    size_t *bounds; /* NULL for an adopted area */
    double passes;  /* over the area's lines in an iteration, each part by its owner; 0 where
                       arithmetic cannot tell */
    bool bound;     /* it was given a policy */
    int *before;    /* each page's node as the region opened */
    int *after;     /* and as it closed */
};

struct lab_part {
    size_t first, end;
};

extern struct lab {
    unsigned long threads, iterations;
    int init;
    int whole;    /* the region begins before the first touch rather than after a warm pass */
    int hand;     /* bring pages home by move_pages after the first iteration, within the region */
    size_t page;  /* bytes: 4 KiB, or 2 MiB with `--pages huge` */
    int nodes;    /* one more than the highest node's number */
    size_t shift; /* CPUs that the threads have moved on, of those that they keep to */
    size_t migrated; /* pages moved by hand */
} lab;

/* What arithmetic says of the region's user code; NAN where it says nothing. */
struct lab_expected {
    double misses, local_share;
};

void lab_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Reads the options (the common ones and the program's own, ended by a zero entry), starts the
 * threads and pins them. */
void lab_start(int argc, char **argv, const struct lab_option *own);

/* The share of thread `thread` in `total` things. */
struct lab_part lab_part(size_t total, int thread);

/* The node of the CPU that `thread` is pinned to once the threads have moved on by `shift` CPUs of
 * those that they keep to. */
int lab_thread_node(int thread, size_t shift);

/* Moves every thread on by `by` CPUs, past the last to the first. */
void lab_rotate(size_t by);

/* From here on the threads keep to the first half of the CPUs (0) or to the second (1), as where a
 * scheduler gives each of two programs one. */
void lab_halve(size_t half);

/* An area of `units` x `unit_bytes`, divided by units; not touched yet. It lives until the program
 * ends. */
struct lab_area *lab_area(const char *name, size_t units, size_t unit_bytes);

/* Binds the area's pages, none touched yet, to a node. */
void lab_place(struct lab_area *area, unsigned long node);

/* A read-only mapping of a file as an area of nobody's, to see where the file's pages lie: it is no
 * range, and its policy is left alone. */
struct lab_area *lab_adopt(const char *name, void *start, size_t bytes);

/* The calling thread allocates (in the kernel too) interleaved over all nodes with memory, and
 * again by first touch. */
void lab_allocate_interleaved(void);
void lab_allocate_by_touch(void);

/* Calls `fill` for each thread's part: in that thread, or in thread 0 for all with `--init single`.
 * With `--region all` the region of interest opens here. */
void lab_initialise(void (*fill)(int thread));

/* The region of interest: calls `iteration` for each number from 0, an interval each, with the
 * areas named as ranges and their pages' nodes noted before and after. (With `--region all` what
 * came before is one interval more.) Returns the sum of what the calls return. */
uint64_t lab_iterate(uint64_t (*iteration)(unsigned long number));

/* Switches the kernel's NUMA balancing to the mode that LAB_BALANCING in the environment names, or
 * off: for the region alone, so that every placement is whole as it opens, and the scanner as
 * fresh. (Left on from the start it mends part of the data before; and over memory that has a
 * policy, which it skips, it backs off.) */
void lab_balance(bool on);

/* With `--migrate hand`, each thread moves the pages of its part of the area to its own node. A
 * page belongs to the part that its first byte is in. */
void lab_bring_home(struct lab_area *area);

/* A share of the region, from that in the first iteration and that in all later ones. Without
 * migration by hand these are one, unless the kernel moved pages: then NAN. */
double lab_over_iterations(double before, double after);

/* What follows from the areas' `passes`, provided that a node's parts are well beyond its caches (a
 * cyclic pass over twice an LRU cache's size misses every line). */
struct lab_expected lab_expect(void);

/* A share as JSON writes it, NAN as null. */
struct lab_text {
    char text[32];
} lab_share_text(double share);

/* Mixes the bits of `count` doubles: equal only for equal results in equal order. */
uint64_t lab_checksum(const double *values, size_t count);

/* Prints the facts as one line of JSON; `format` gives further members. With `--region all`, what
 * is expected of the iterations alone is left out. */
void lab_facts(uint64_t checksum, struct lab_expected expected, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
