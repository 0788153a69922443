/* Counting within a program, included by npb.h: no guest, and no threads. Within a loop the
 * threads run one after another. Each element that they touch goes through the modelled cache of
 * the thread's processor, by default an Origin2000's: 32 KiB before 4 MiB of two ways, lines of
 * 128 bytes. The misses by page, thread and loop are written in the format `page-counts` of
 * hither, which says what each line means.
 *
 * Coherence is MESI with a directory: for each line who has it. A line that no other cache has is
 * written without a request. A store to a shared line is a request to the memory's directory (an
 * upgrade), no miss, and is left out unless `--upgrades 1` counts it. The kernel colours pages, as
 * IRIX does (Bugnion et al., ASPLOS 1996): neighbours in memory are neighbours in the cache.
 * Private data (a line of the solver), instructions and write-backs are not modelled.
 *
 * A program's iterations soon cost the same misses, so only `--counted` iterations of the main
 * loop run, and the last one stands for the others. The facts say how far the last two differ: in
 * class A by less than 0.03 % of the misses after three, and not at all after four. */

#include <stdio.h>

enum { LINE_SHIFT = 7, LINE_BYTES = 1 << LINE_SHIFT };
enum { THREADS_MAX = 64, NEAR_LINES = 256, WAYS_MAX = 16 };

static const bool npb_counts = true;

static unsigned long cache_kib = 4096, cache_ways = 2, counted = 4, count_upgrades,
                     each_node = 2, halve_after, half, page_kib = 16, shared_ways;
static int scattered;
static const char *trace_path = "/dev/null";
static FILE *trace;

/* Who has each line: one bit for each processor. */
static uint64_t *holders;
static size_t line_count, sets, page_lines, ways_now;
/* By processor: lines by set, the most recent first. One that the processor does not hold any
 * more has been invalidated. */
static uint32_t *ways[THREADS_MAX];
/* The first level of the running processor, empty whenever another one runs: a line, plus one,
 * and whether it may be written. */
static struct {
    uint32_t line;
    bool exclusive;
} near_lines[NEAR_LINES];
static size_t processor;

/* The misses of the loop by page and op, of each thread: row numbers, plus one. */
struct miss_row {
    uint32_t key, count;
};
static uint32_t *row_of;
static struct miss_row *rows[THREADS_MAX];
static size_t row_counts[THREADS_MAX], running;

static size_t threads_now;
static uint64_t misses_now, differing;
static uint32_t *before, *now; /* misses by page and thread, of two iterations */

static void npb_map(struct npb_array *array)
{
    size_t page = page_lines * LINE_BYTES, pages = (array->area->bytes + page - 1) / page;
    array->first_line = line_count;
    line_count += pages * page_lines;
    fprintf(trace, "object %s %zu\n", array->area->name, array->area->bytes);
}

static void missed(uint32_t line, bool store)
{
    uint32_t key = line / page_lines * 2 + store;
    uint32_t *at = &row_of[key];
    if (!*at) {
        rows[running][row_counts[running]++] = (struct miss_row){key, 0};
        *at = (uint32_t)row_counts[running];
    }
    rows[running][*at - 1].count++;
    now[key / 2 * THREADS_MAX + running]++;
    misses_now++;
}

/* The set of a line, of `ways_now` lines of `cache_ways`, in the cache of the running processor. */
static uint32_t *set_of(uint32_t line)
{
    uint64_t page = line / page_lines, colours = sets / page_lines;
    size_t colour = (scattered ? lab_mix(page) : page) % colours;
    return &ways[processor][(colour * page_lines + line % page_lines) * cache_ways];
}

/* A set gets a line: its last one goes, or one that was invalidated. */
static void fetch(uint32_t line)
{
    uint64_t self = 1ul << processor;
    uint32_t *set = set_of(line);
    size_t victim = ways_now - 1;
    for (size_t way = 0; way < ways_now; way++)
        if (!set[way] || !(holders[set[way] - 1] & self))
            victim = way;
    uint32_t old = set[victim];
    if (old && (holders[old - 1] & self)) {
        holders[old - 1] &= ~self;
        if (near_lines[(old - 1) % NEAR_LINES].line == old)
            near_lines[(old - 1) % NEAR_LINES].line = 0;
    }
    memmove(set + 1, set, victim * sizeof *set);
    set[0] = line + 1;
}

/* Puts a line of the cache before the others of its set. */
static void used(uint32_t line)
{
    uint32_t *set = set_of(line);
    for (size_t way = 1; way < ways_now; way++)
        if (set[way] == line + 1) {
            memmove(set + 1, set, way * sizeof *set);
            set[0] = line + 1;
            return;
        }
}

static void __attribute__((noinline)) far_touch(uint32_t line, bool store)
{
    uint64_t self = 1ul << processor, *held = &holders[line];
    bool shared = *held & ~self;
    if (!(*held & self)) {
        missed(line, store);
        fetch(line);
        *held |= self;
    } else {
        used(line);
        if (store && shared && count_upgrades)
            missed(line, true);
    }
    if (store)
        *held = self;
    near_lines[line % NEAR_LINES].line = line + 1;
    near_lines[line % NEAR_LINES].exclusive = store || !shared;
}

static inline void npb_touch(const struct npb_array *array, size_t at, bool store)
{
    uint32_t line = (uint32_t)(array->first_line + (at * sizeof(double) >> LINE_SHIFT));
    size_t slot = line % NEAR_LINES;
    if (near_lines[slot].line != line + 1 || (store && !near_lines[slot].exclusive))
        far_touch(line, store);
}

/* The processor of a thread. After `--halve-after` iterations the program has half of the
 * processors, and half as many threads. */
static size_t processor_of(size_t thread)
{
    return threads_now == lab.threads ? thread : thread + half * threads_now;
}

static void say_threads(void)
{
    for (size_t thread = 0; thread < threads_now; thread++)
        fprintf(trace, "thread %zu %zu\n", thread, processor_of(thread) / each_node);
}

static void *cleared(size_t count, size_t size)
{
    void *made = calloc(count, size);
    if (!made)
        lab_fail("out of memory");
    return made;
}

static void open_caches(void)
{
    size_t keys = line_count / page_lines * 2;
    sets = (cache_kib << 10 >> LINE_SHIFT) / cache_ways;
    if (!sets || sets % page_lines || lab.threads > THREADS_MAX || !each_node)
        lab_fail("a way must consist of pages, and there are at most %d threads", THREADS_MAX);
    holders = cleared(line_count, sizeof *holders);
    row_of = cleared(keys, sizeof *row_of);
    before = cleared(keys / 2 * THREADS_MAX, sizeof *before);
    now = cleared(keys / 2 * THREADS_MAX, sizeof *now);
    for (size_t thread = 0; thread < lab.threads; thread++) {
        ways[thread] = cleared(sets * cache_ways, sizeof **ways);
        rows[thread] = cleared(keys, sizeof **rows);
    }
    threads_now = lab.threads;
    ways_now = halve_after && shared_ways ? shared_ways : cache_ways;
    say_threads();
}

/* The rows of a loop, the threads in turn, as if they had run side by side. */
static void write_rows(const char *name)
{
    bool more = true;
    fprintf(trace, "loop %s\n", name);
    for (size_t at = 0; more; at++) {
        more = false;
        for (size_t thread = 0; thread < threads_now; thread++) {
            if (at >= row_counts[thread])
                continue;
            more = true;
            struct miss_row row = rows[thread][at];
            size_t page = row.key / 2, line = page * page_lines, object = 0;
            while (object + 1 < npb_array_count && npb_arrays[object + 1].first_line <= line)
                object++;
            fprintf(trace, "%c %zu %zu %zu %u\n", row.key % 2 ? 's' : 'l', thread, object,
                    (line - npb_arrays[object].first_line) << LINE_SHIFT, row.count);
        }
    }
    memset(row_counts, 0, sizeof row_counts);
    fputs("end\n", trace);
}

static void npb_loop(const char *name, size_t first, size_t end, npb_body body)
{
    if (!holders)
        open_caches();
    for (running = 0; running < threads_now; running++) {
        struct lab_part part = npb_share(first, end, threads_now, running);
        if (npb_initialising && lab.init == LAB_SINGLE)
            part = (struct lab_part){running ? end : first, end};
        processor = processor_of(running);
        memset(near_lines, 0, sizeof near_lines);
        if (part.first < part.end)
            body(part.first, part.end);
        for (size_t row = 0; row < row_counts[running]; row++)
            row_of[rows[running][row].key] = 0;
    }
    write_rows(name);
}

/* The iteration that just ended, and so many like it. */
static void end_iteration(unsigned long times)
{
    size_t cells = line_count / page_lines * THREADS_MAX;
    fprintf(trace, "iteration %lu\n", times);
    differing = 0;
    for (size_t cell = 0; cell < cells; cell++)
        differing += now[cell] > before[cell] ? now[cell] - before[cell] : before[cell] - now[cell];
    uint32_t *swapped = before;
    before = now;
    now = memset(swapped, 0, cells * sizeof *now);
}

static double differing_share;
static uint64_t iteration_misses;

/* Runs so many iterations, of which the first ones are counted. */
static void iterate(void (*step)(void), unsigned long iterations)
{
    for (unsigned long number = 0; number < iterations && number < counted; number++) {
        misses_now = 0;
        step();
        end_iteration(number + 1 == counted ? iterations - number : 1);
    }
    iteration_misses = misses_now;
    differing_share = misses_now ? (double)differing / (double)misses_now : 0;
}

static void npb_run(void (*initialise)(void), void (*step)(void))
{
    initialise();
    npb_initialising = false;
    end_iteration(1);
    iterate(step, halve_after ? halve_after : lab.iterations);
    if (halve_after) {
        threads_now = lab.threads / 2;
        ways_now = cache_ways;
        say_threads();
        iterate(step, lab.iterations - halve_after);
    }
    if (fclose(trace))
        lab_fail("%s: writing failed", trace_path);
}

static void npb_start(int argc, char **argv, const struct lab_option *own)
{
    static const struct lab_option tracing[] = {
        {.key = "trace", .text = &trace_path, .help = "the file that is written"},
        {.key = "counted",
         .number = &counted,
         .help = "iterations that run; the last one stands for the others (4)"},
        {.key = "cache-kib", .number = &cache_kib, .help = "a second-level cache (4096)"},
        {.key = "cache-ways", .number = &cache_ways, .help = "its ways (2)"},
        {.key = "colours",
         .choice = &scattered,
         .words = "yes|no",
         .help = "whether neighbouring pages lie side by side in the cache (yes)"},
        {.key = "page-kib", .number = &page_kib, .help = "a page (16)"},
        {.key = "upgrades", .number = &count_upgrades, .help = "1: upgrades are counted, too (0)"},
        {.key = "each-node", .number = &each_node, .help = "processors of a node (2)"},
        {.key = "halve-after",
         .number = &halve_after,
         .help = "iterations after which it has half of the threads and processors (0: never)"},
        {.key = "half", .number = &half, .help = "which half: 0 or 1 (0)"},
        {.key = "shared-ways",
         .number = &shared_ways,
         .help = "ways that it has until then, as another program has the rest (0: all)"},
    };
    struct lab_option all[sizeof tracing / sizeof *tracing + 8];
    size_t count = sizeof tracing / sizeof *tracing;
    memcpy(all, tracing, sizeof tracing);
    do
        all[count++] = *own;
    while ((own++)->key);
    lab_start(argc, argv, all);
    if (!counted || half > 1 || (halve_after && halve_after >= lab.iterations))
        lab_fail("--counted must be at least 1, --half 0 or 1, --halve-after below --iterations");
    if (shared_ways > cache_ways || (shared_ways && !halve_after))
        lab_fail("--shared-ways is at most --cache-ways, and needs --halve-after");
    if (!page_kib || page_kib > 1 << 20 || !cache_ways || cache_ways > WAYS_MAX)
        lab_fail("--page-kib must be at least 1, --cache-ways from 1 to %d", WAYS_MAX);
    page_lines = (page_kib << 10) / LINE_BYTES;
    trace = fopen(trace_path, "we");
    if (!trace)
        lab_fail("%s: cannot be written", trace_path);
    fputs("page-counts 1\n", trace);
}

static void npb_facts(uint64_t checksum, const char *name, double value)
{
    lab_facts(checksum, (struct lab_expected){NAN, NAN},
              ", \"%s\": %.13g, \"iteration_misses\": %lu, \"differing_share\": %.3g", name, value,
              (unsigned long)iteration_misses, differing_share);
}
