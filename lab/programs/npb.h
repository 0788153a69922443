/* What the programs after the NAS parallel benchmarks share: arrays, loops that are divided among
 * the threads as OpenMP's static schedule divides them, and counting.
 *
 * A loop is a function of a range of its outermost index. Each thread runs its share, and at the
 * end all wait. In an initialisation with `--init single`, thread 0 runs all of it.
 *
 * Compiled with LAB_TRACE, a program counts its own misses without a guest (npb_trace.h). The text
 * of the program is the same. */
#ifndef HITHER_LAB_NPB_H
#define HITHER_LAB_NPB_H

#include <stdlib.h>
#include <string.h>

#include "lab.h"

/* The size classes, by NPB 2.3 (NAS-95-020). */
enum npb_class { NPB_S, NPB_W, NPB_A };
static int npb_class;
static const struct lab_option npb_class_option = {
    .key = "class", .choice = &npb_class, .words = "S|W|A", .help = "the size by NPB 2.3 (S)"};

/* An array of doubles, on pages of its own. */
struct npb_array {
    double *values;
    struct lab_area *area;
    size_t first_line; /* of the counted lines */
};

enum { NPB_ARRAYS_MAX = 16 };
static struct npb_array npb_arrays[NPB_ARRAYS_MAX];
static size_t npb_array_count;

static bool npb_initialising = true;

typedef void (*npb_body)(size_t first, size_t end);

/* The share of `thread` of `threads` in [first, end), as OpenMP's static schedule has it: the
 * first threads have one more where it does not come out even. */
static inline struct lab_part npb_share(size_t first, size_t end, size_t threads, size_t thread)
{
    size_t total = end - first, each = total / threads, more = total % threads;
    size_t start = first + each * thread + (thread < more ? thread : more);
    return (struct lab_part){start, start + each + (thread < more)};
}

static void npb_map(struct npb_array *array);

static const struct npb_array *npb_array(const char *name, size_t count)
{
    if (npb_array_count == NPB_ARRAYS_MAX)
        lab_fail("more than %d arrays", NPB_ARRAYS_MAX);
    struct npb_array *array = &npb_arrays[npb_array_count++];
    array->area = lab_area(name, count, sizeof(double));
    array->values = (double *)array->area->start;
    npb_map(array);
    return array;
}

#ifdef LAB_TRACE
#include "npb_trace.h"
#else

static const bool npb_counts = false;

static void npb_map(struct npb_array *array)
{
    (void)array;
}

static inline void npb_touch(const struct npb_array *array, size_t at, bool store)
{
    (void)array;
    (void)at;
    (void)store;
}

static void npb_start(int argc, char **argv, const struct lab_option *own)
{
    lab_start(argc, argv, own);
}

static void npb_loop(const char *name, size_t first, size_t end, npb_body body)
{
    (void)name;
    bool alone = npb_initialising && lab.init == LAB_SINGLE;
#pragma omp parallel
    {
        size_t thread = (size_t)omp_get_thread_num();
        struct lab_part part = npb_share(first, end, lab.threads, thread);
        if (alone)
            part = (struct lab_part){thread ? end : first, end};
        if (part.first < part.end)
            body(part.first, part.end);
    }
}

static void npb_nothing(int thread)
{
    (void)thread;
}

static void (*npb_step)(void);

static uint64_t npb_iteration(unsigned long number)
{
    npb_step();
    for (size_t i = 0; number == 0 && i < npb_array_count; i++)
        lab_bring_home(npb_arrays[i].area);
    return 0;
}

/* Runs the initialisation and the main loop. */
static void npb_run(void (*initialise)(void), void (*step)(void))
{
    initialise();
    npb_initialising = false;
    lab_initialise(npb_nothing);
    npb_step = step;
    lab_iterate(npb_iteration);
}

static void npb_facts(uint64_t checksum, const char *name, double value)
{
    lab_facts(checksum, (struct lab_expected){NAN, NAN}, ", \"%s\": %.13g", name, value);
}

#endif

static inline double npb_load(const struct npb_array *array, size_t at)
{
    npb_touch(array, at, false);
    return array->values[at];
}

static inline void npb_store(const struct npb_array *array, size_t at, double value)
{
    npb_touch(array, at, true);
    array->values[at] = value;
}

static inline void npb_add(const struct npb_array *array, size_t at, double value)
{
    npb_store(array, at, npb_load(array, at) + value);
}

#endif
