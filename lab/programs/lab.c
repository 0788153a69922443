/* See lab.h. */
#include "lab.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Pages per call of move_pages. The kernel allocates a call's pages before it copies, and
 * Debian's kernel zeroes them. With 512 pages (2 MiB) the zeroed pages had left the modelled LLC
 * before they were copied to, and a page cost 198 misses. It costs 134 if they have not, as on
 * the modelled machines (2026-11). */
enum { PAGES_PER_CALL = 64, AREAS_MAX = 16 };

struct lab lab = {.iterations = 10};

static struct lab_area areas[AREAS_MAX];
static size_t area_count;

/* The CPUs on which the process may run, node by node. */
static struct {
    int cpu, node;
} cpus[CPU_SETSIZE];
static size_t cpu_count;

static pid_t tids[CPU_SETSIZE]; /* by thread */

/* The range of these CPUs that the threads use. */
static size_t seats_first, seats;

static unsigned long memory_nodes; /* one bit per node */

void lab_fail(const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "%s: ", program_invocation_short_name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

/* ---- options ---- */

static void parse_number(const struct lab_option *option, const char *value)
{
    char *end;
    errno = 0;
    *option->number = strtoul(value, &end, 10);
    int power = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    bool whole = end != value && end[power != 0] == '\0' && value[0] >= '0' && value[0] <= '9';
    if (errno || !whole || *option->number > ~0ul >> power)
        lab_fail("--%s: `%s` is not a number", option->key, value);
    *option->number <<= power;
}

static void parse_word(const struct lab_option *option, const char *value)
{
    const char *word = option->words;
    for (int place = 0;; place++) {
        size_t length = strcspn(word, "|");
        if (strlen(value) == length && !strncmp(word, value, length)) {
            *option->choice = place;
            return;
        }
        if (!word[length])
            lab_fail("--%s: `%s` is none of %s", option->key, value, option->words);
        word += length + 1;
    }
}

static const struct lab_option *find(const struct lab_option *options, const char *key)
{
    for (; options->key; options++)
        if (!strcmp(options->key, key))
            return options;
    return NULL;
}

static void print_help(const struct lab_option *options)
{
    for (; options->key; options++)
        printf("  --%s %s: %s\n", options->key,
               options->words  ? options->words
               : options->text ? "TEXT"
                               : "N",
               options->help);
}

static void parse(int argc, char **argv, const struct lab_option *common,
                  const struct lab_option *own)
{
    for (int i = 1; i < argc; i += 2) {
        if (!strcmp(argv[i], "--help")) {
            printf("%s [--KEY VALUE]...\n", program_invocation_short_name);
            print_help(common);
            print_help(own);
            exit(0);
        }
        const struct lab_option *option = NULL;
        if (!strncmp(argv[i], "--", 2)) {
            option = find(common, argv[i] + 2);
            option = option ? option : find(own, argv[i] + 2);
        }
        if (!option)
            lab_fail("unknown option `%s` (see --help)", argv[i]);
        if (i + 1 == argc)
            lab_fail("%s: its value is missing", argv[i]);
        if (option->number)
            parse_number(option, argv[i + 1]);
        else if (option->text)
            *option->text = argv[i + 1];
        else
            parse_word(option, argv[i + 1]);
    }
}

/* ---- nodes and threads ---- */

/* Reads a list such as `0-2,5` from /sys/devices/system/node. Returns false if the kernel has no
 * such file (built without NUMA). */
static bool read_list(const char *name, cpu_set_t *set)
{
    char path[96], text[4096] = "";
    CPU_ZERO(set);
    snprintf(path, sizeof path, "/sys/devices/system/node/%s", name);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    if (!fgets(text, sizeof text, file) && ferror(file))
        lab_fail("%s: %s", path, strerror(errno));
    fclose(file);
    for (char *at = text; *at >= '0' && *at <= '9'; at += *at == ',') {
        unsigned long first = strtoul(at, &at, 10), last = first;
        if (*at == '-')
            last = strtoul(at + 1, &at, 10);
        for (; first <= last; first++)
            CPU_SET(first, set);
    }
    return true;
}

static void find_nodes(void)
{
    cpu_set_t allowed, online, set;
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        lab_fail("sched_getaffinity: %s", strerror(errno));
    if (!read_list("online", &online))
        CPU_SET(0, &online);
    for (int node = 0; node < LAB_NODES; node++) {
        if (!CPU_ISSET(node, &online))
            continue;
        char name[32];
        lab.nodes = node + 1;
        snprintf(name, sizeof name, "node%d/cpulist", node);
        if (!read_list(name, &set))
            set = allowed;
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            if (CPU_ISSET(cpu, &set) && CPU_ISSET(cpu, &allowed)) {
                cpus[cpu_count].cpu = cpu;
                cpus[cpu_count++].node = node;
            }
        }
    }
    seats = cpu_count;
    if (!read_list("has_memory", &set))
        CPU_SET(0, &set);
    for (int node = 0; node < LAB_NODES; node++)
        memory_nodes |= (unsigned long)CPU_ISSET(node, &set) << node;
}

/* Threads are spread evenly. With one per CPU, thread t runs on the t-th CPU; with fewer, every
 * node still gets the same share. */
static size_t seat(int thread, size_t shift)
{
    return seats_first + ((size_t)thread * seats / lab.threads + shift) % seats;
}

int lab_thread_node(int thread, size_t shift)
{
    return cpus[seat(thread, shift)].node;
}

/* Sets the affinities from outside, as a scheduler does. A parallel region would be an
 * additional construct for a tool that detects iterations by constructs. */
void lab_rotate(size_t by)
{
    lab.shift += by;
    for (int thread = 0; thread < (int)lab.threads; thread++) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpus[seat(thread, lab.shift)].cpu, &one);
        if (sched_setaffinity(tids[thread], sizeof one, &one))
            lab_fail("sched_setaffinity: %s", strerror(errno));
    }
}

void lab_halve(size_t half)
{
    size_t middle = cpu_count / 2;
    if (half > 1 || middle == 0)
        lab_fail("no half number %zu of %zu CPUs: there are 0 and 1, of two CPUs or more", half,
                 cpu_count);
    seats_first = half ? middle : 0;
    seats = half ? cpu_count - middle : middle;
    lab_rotate(0);
}

struct lab_part lab_part(size_t total, int thread)
{
    return (struct lab_part){total * (size_t)thread / lab.threads,
                             total * (size_t)(thread + 1) / lab.threads};
}

void lab_start(int argc, char **argv, const struct lab_option *own)
{
    /* A thread that spins at a barrier executes instructions that are not work. libgomp reads
     * the variable before main, so the program restarts itself. */
    if (!getenv("OMP_WAIT_POLICY")) {
        setenv("OMP_WAIT_POLICY", "passive", 1);
        execv("/proc/self/exe", argv);
        lab_fail("starting again through /proc/self/exe: %s", strerror(errno));
    }
    find_nodes();
    lab.threads = cpu_count;
    int huge = 0;
    const struct lab_option common[] = {
        {.key = "threads",
         .number = &lab.threads,
         .help = "threads, spread over the nodes' CPUs (one for each CPU)"},
        {.key = "iterations", .number = &lab.iterations, .help = "iterations within the region"},
        {.key = "init",
         .choice = &lab.init,
         .words = "parallel|single|interleave",
         .help = "who touches the pages first"},
        {.key = "migrate",
         .choice = &lab.hand,
         .words = "none|hand",
         .help = "whether the program moves its pages home after iteration 1"},
        {.key = "region",
         .choice = &lab.whole,
         .words = "iterations|all",
         .help = "whether first touches and the warm pass are counted as well"},
        {.key = "pages",
         .choice = &huge,
         .words = "small|huge",
         .help = "4 KiB pages, or transparent ones of 2 MiB"},
        {0},
    };
    parse(argc, argv, common, own);
    if (lab.threads < 1 || lab.threads > CPU_SETSIZE || lab.iterations < 1)
        lab_fail("--threads must be from 1 to %d, --iterations at least 1", CPU_SETSIZE);
    lab.page = huge ? 2 << 20 : 4 << 10;
    omp_set_dynamic(0);
    omp_set_num_threads((int)lab.threads);
#pragma omp parallel
    tids[omp_get_thread_num()] = (pid_t)syscall(SYS_gettid);
    lab_rotate(0);
}

/* ---- memory ---- */

/* A kernel without NUMA, or a container that forbids these calls, is no error on a single node. */
static void check_policy(const char *call, long result)
{
    if (result && (lab.nodes > 1 || (errno != ENOSYS && errno != EPERM)))
        lab_fail("%s: %s", call, strerror(errno));
}

/* The kernel subtracts one from the number of bits (mm/mempolicy.c, get_nodes). */
static void bind_range(char *start, size_t bytes, int policy, unsigned long mask)
{
    check_policy("mbind", syscall(SYS_mbind, start, bytes, policy, mask ? &mask : NULL,
                                  mask ? LAB_NODES + 1ul : 0ul, 0));
}

static void bind_thread(int policy, unsigned long mask)
{
    check_policy("set_mempolicy", syscall(SYS_set_mempolicy, policy, mask ? &mask : NULL,
                                          mask ? LAB_NODES + 1ul : 0ul));
}

void lab_allocate_interleaved(void)
{
    bind_thread(MPOL_INTERLEAVE, memory_nodes);
}

void lab_allocate_by_touch(void)
{
    bind_thread(MPOL_DEFAULT, 0);
}

static size_t page_count(const struct lab_area *area)
{
    return (area->bytes + lab.page - 1) / lab.page;
}

/* One call of move_pages: queries the pages' nodes (`to` is NULL) or moves the pages. */
static void move_batch(size_t count, void **pages, const int *to, int *status)
{
    memset(status, 0, count * sizeof *status);
    long left = syscall(SYS_move_pages, 0, count, pages, to, status, MPOL_MF_MOVE);
    check_policy("move_pages", left < 0 ? left : 0);
}

/* Stores each page's node; negative if it is not in memory or the process has not mapped it. Own
 * pages are not touched: with NUMA balancing a read here would count for this thread, and moved
 * some pages that the scanner had just unmapped to thread 0's node (stream on four nodes,
 * 2026-11: 99.8 % local became 77 to 96 %). Pages of an adopted area are read, since only mapped
 * pages can be queried; no other mechanism moves pages that a program has mapped. */
static void note_nodes(const struct lab_area *area, int *nodes)
{
    void *pages[PAGES_PER_CALL];
    for (size_t page = 0; !area->bounds && page < page_count(area); page++)
        (void)*(volatile char *)(area->start + page * lab.page);
    for (size_t done = 0; done < page_count(area); done += PAGES_PER_CALL) {
        size_t left = page_count(area) - done;
        size_t count = left < PAGES_PER_CALL ? left : PAGES_PER_CALL;
        for (size_t i = 0; i < count; i++)
            pages[i] = area->start + (done + i) * lab.page;
        move_batch(count, pages, NULL, nodes + done);
    }
    if (!area->bounds && madvise(area->start, area->bytes, MADV_DONTNEED))
        lab_fail("%s: %s", area->name, strerror(errno));
}

static struct lab_area *next_area(const char *name, size_t bytes)
{
    if (area_count == AREAS_MAX)
        lab_fail("more than %d areas", AREAS_MAX);
    struct lab_area *area = &areas[area_count++];
    *area = (struct lab_area){.name = name, .bytes = bytes};
    area->before = calloc(page_count(area), sizeof *area->before);
    area->after = calloc(page_count(area), sizeof *area->after);
    if (!area->before || !area->after)
        lab_fail("%s: out of memory", name);
    return area;
}

struct lab_area *lab_area(const char *name, size_t units, size_t unit_bytes)
{
    size_t bytes;
    if (__builtin_mul_overflow(units, unit_bytes, &bytes) || !bytes || bytes >> 46)
        lab_fail("%s: no area of %zu times %zu bytes", name, units, unit_bytes);
    struct lab_area *area = next_area(name, bytes);
    size_t rounded = page_count(area) * lab.page, mapped = rounded + lab.page;
    char *start = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        lab_fail("%s: mapping %zu bytes: %s", name, mapped, strerror(errno));
    area->start = start + (lab.page - (uintptr_t)start % lab.page) % lab.page;
    /* A kernel without transparent huge pages knows neither advice, and needs none for small pages.
     */
    bool huge = lab.page > 4096;
    if (madvise(area->start, rounded, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) &&
        (huge || errno != EINVAL))
        lab_fail("%s: madvise: %s", name, strerror(errno));
    area->bound = lab.init == LAB_INTERLEAVE;
    if (area->bound)
        bind_range(area->start, rounded, MPOL_INTERLEAVE, memory_nodes);
    area->bounds = calloc(lab.threads + 1, sizeof *area->bounds);
    if (!area->bounds)
        lab_fail("%s: out of memory", name);
    for (size_t t = 0; t < lab.threads; t++)
        area->bounds[t + 1] = lab_part(units, (int)t).end * unit_bytes;
    return area;
}

struct lab_area *lab_adopt(const char *name, void *start, size_t bytes)
{
    struct lab_area *area = next_area(name, bytes);
    area->start = start;
    note_nodes(area, area->before);
    memcpy(area->after, area->before, page_count(area) * sizeof *area->after);
    return area;
}

void lab_place(struct lab_area *area, unsigned long node)
{
    if (node >= LAB_NODES || !(memory_nodes >> node & 1))
        lab_fail("%s: node %lu has no memory", area->name, node);
    area->bound = true;
    bind_range(area->start, page_count(area) * lab.page, MPOL_BIND, 1ul << node);
}

static void open_region(void);

void lab_initialise(void (*fill)(int thread))
{
    if (lab.whole)
        open_region();
#pragma omp parallel
    {
        int thread = omp_get_thread_num();
        if (lab.init != LAB_SINGLE)
            fill(thread);
        else if (thread == 0)
            for (int part = 0; part < (int)lab.threads; part++)
                fill(part);
    }
    /* The policies have done their work. NUMA balancing skips ranges with a policy, so with one
     * it could not correct the placements with which it is compared. */
    for (size_t i = 0; i < area_count; i++)
        if (areas[i].bound)
            bind_range(areas[i].start, page_count(&areas[i]) * lab.page, MPOL_DEFAULT, 0);
}

/* Moves the pages that begin within [first, end) and are on other nodes to `node`. Returns their
 * number. */
static size_t move_range(char *first, char *end, int node)
{
    void *pages[PAGES_PER_CALL];
    int status[PAGES_PER_CALL], to[PAGES_PER_CALL];
    size_t moved = 0;
    for (size_t i = 0; i < PAGES_PER_CALL; i++)
        to[i] = node;
    char *page = first + (lab.page - (uintptr_t)first % lab.page) % lab.page;
    while (page < end) {
        size_t count = 0, away = 0;
        for (; page < end && count < PAGES_PER_CALL; page += lab.page)
            pages[count++] = page;
        move_batch(count, pages, NULL, status);
        for (size_t i = 0; i < count; i++)
            if (status[i] >= 0 && status[i] != node)
                pages[away++] = pages[i];
        if (!away)
            continue;
        move_batch(away, pages, to, status);
        for (size_t i = 0; i < away; i++)
            moved += status[i] == node;
    }
    return moved;
}

void lab_bring_home(struct lab_area *area)
{
    size_t moved = 0;
    if (!lab.hand)
        return;
#pragma omp parallel reduction(+ : moved)
    {
        int thread = omp_get_thread_num();
        moved +=
            move_range(area->start + area->bounds[thread], area->start + area->bounds[thread + 1],
                       lab_thread_node(thread, lab.shift));
    }
    lab.migrated += moved;
}

/* ---- the region and its facts ---- */

/* A run that only trains a profile (`hither run --profile`), or that runs beside another copy,
 * has no region of interest. */
static bool marked(void)
{
    return !getenv("LAB_UNMARKED");
}

void lab_balance(bool on)
{
    const char *mode = getenv("LAB_BALANCING"), *path = "/proc/sys/kernel/numa_balancing";
    if (!mode || !marked())
        return;
    FILE *file = fopen(path, "we");
    if (!file || fputs(on ? mode : "0", file) < 0 || fclose(file))
        lab_fail("%s: %s", path, strerror(errno));
}

static void open_region(void)
{
    for (size_t i = 0; i < area_count; i++) {
        note_nodes(&areas[i], areas[i].before);
        if (areas[i].bounds && marked())
            lab_range(areas[i].start, areas[i].bytes);
    }
    lab_balance(true);
    if (marked())
        lab_begin();
}

static void mark_iteration(void)
{
    if (marked())
        lab_iteration();
}

static void close_region(void)
{
    if (marked())
        lab_end();
    lab_balance(false);
    for (size_t i = 0; i < area_count; i++)
        note_nodes(&areas[i], areas[i].after);
}

uint64_t lab_iterate(uint64_t (*iteration)(unsigned long number))
{
    uint64_t sum = 0;
    if (lab.whole)
        mark_iteration();
    else
        open_region();
    for (unsigned long number = 0; number < lab.iterations; number++) {
        if (number > 0)
            mark_iteration();
        sum += iteration(number);
    }
    close_region();
    return sum;
}

/* Pages on the node of the thread that owns their first byte. 0 for an adopted area, which no
 * thread owns. */
static size_t local_pages(const struct lab_area *area, const int *nodes)
{
    size_t local = 0;
    for (size_t page = 0, thread = 0; area->bounds && page < page_count(area); page++) {
        while (area->bounds[thread + 1] <= page * lab.page)
            thread++;
        local += nodes[page] == lab_thread_node((int)thread, lab.shift);
    }
    return local;
}

static size_t changed_pages(void)
{
    size_t changed = 0;
    for (size_t i = 0; i < area_count; i++)
        for (size_t page = 0; page < page_count(&areas[i]); page++)
            changed += areas[i].before[page] != areas[i].after[page];
    return changed;
}

static size_t line_count(const struct lab_area *area)
{
    return (area->bytes + LAB_LINE - 1) / LAB_LINE;
}

double lab_over_iterations(double before, double after)
{
    if (lab.hand)
        return (before + after * (double)(lab.iterations - 1)) / (double)lab.iterations;
    return changed_pages() ? NAN : before;
}

struct lab_expected lab_expect(void)
{
    double all = 0, before = 0, after = 0;
    for (size_t i = 0; i < area_count; i++) {
        const struct lab_area *area = &areas[i];
        double misses = area->passes * (double)line_count(area),
               page = misses / (double)page_count(area);
        all += misses;
        before += page * (double)local_pages(area, area->before);
        after += page * (double)local_pages(area, area->after);
    }
    return (struct lab_expected){all * (double)lab.iterations,
                                 lab_over_iterations(before / all, after / all)};
}

uint64_t lab_checksum(const double *values, size_t count)
{
    uint64_t sum = 0xcbf29ce484222325; /* FNV-1a, by words */
    for (size_t i = 0; i < count; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        sum = (sum ^ bits) * 0x100000001b3;
    }
    return sum;
}

struct lab_text lab_share_text(double share)
{
    struct lab_text text = {"null"};
    if (!isnan(share))
        snprintf(text.text, sizeof text.text, "%.6f", share);
    return text;
}

static void print_placement(void)
{
    printf(", \"pages\": {");
    for (size_t i = 0; i < area_count; i++) {
        size_t on[LAB_NODES] = {0};
        for (size_t page = 0; page < page_count(&areas[i]); page++)
            if (areas[i].after[page] >= 0 && areas[i].after[page] < LAB_NODES)
                on[areas[i].after[page]]++;
        printf("%s\"%s\": [", i ? ", " : "", areas[i].name);
        for (int node = 0; node < lab.nodes; node++)
            printf("%s%zu", node ? ", " : "", on[node]);
        putchar(']');
    }
    putchar('}');
}

void lab_facts(uint64_t checksum, struct lab_expected expected, const char *format, ...)
{
    size_t bytes = 0, lines = 0, local = 0;
    if (lab.whole)
        expected = (struct lab_expected){NAN, NAN};
    for (size_t i = 0; i < area_count; i++) {
        bytes += areas[i].bytes;
        lines += line_count(&areas[i]);
        local += local_pages(&areas[i], areas[i].after);
    }
    printf("{\"program\": \"%s\", \"threads\": %lu, \"iterations\": %lu, \"nodes\": %d, ",
           program_invocation_short_name, lab.threads, lab.iterations, lab.nodes);
    printf("\"bytes\": %zu, \"lines\": %zu, \"page_bytes\": %zu, ", bytes, lines, lab.page);
    printf("\"migrated_pages\": %zu, \"changed_pages\": %zu, \"local_pages\": %zu", lab.migrated,
           changed_pages(), local);
    print_placement();
    if (isnan(expected.misses))
        printf(", \"expected_misses\": null");
    else
        printf(", \"expected_misses\": %.0f", expected.misses);
    printf(", \"expected_local_share\": %s", lab_share_text(expected.local_share).text);
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf(", \"checksum\": \"%016lx\"}\n", (unsigned long)checksum);
    if (fflush(stdout))
        lab_fail("writing the facts: %s", strerror(errno));
}
