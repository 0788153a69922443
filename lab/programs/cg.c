/* CG of the NAS parallel benchmarks (NAS-95-020, section 2.4): the smallest eigenvalue of a sparse
 * matrix by inverse iteration, each with 25 steps of the conjugate gradient method. Written to the
 * specification, random numbers included, so the estimate is the benchmark's own and is verified.
 *
 * All loops run over rows. The matrix is a sum of outer products of sparse vectors, which one
 * thread draws; each thread writes the rows that it owns, as in NPB's OpenMP version, so first
 * touch is right but for the vector `p`, which all read, and for pages with rows of two threads. */
#include "npb.h"

/* By class: rows, non-zeros of a vector, shift, and the estimate after 15 iterations (NPB 2.3). */
static const struct {
    size_t rows, nonzeros;
    double shift, zeta;
} CLASSES[] = {{1400, 7, 10, 8.5971775078648},
               {7000, 8, 12, 10.362595087124},
               {14000, 11, 20, 17.130235054029}};
enum { STEPS = 25, NONZEROS_MAX = 16, VERIFIED_AFTER = 15 };
static const double CONDITION = 0.1;

static size_t n, nonzeros;
static double shift;

static const struct npb_array *a, *columns, *row_start, *x, *z, *p, *q, *r;

/* ---- the matrix ---- */

/* The benchmark's random numbers: 5^13 times the last one, modulo 2^46. */
static uint64_t seed = 314159265;

static double draw(void)
{
    seed = seed * 1220703125 & ((1ul << 46) - 1);
    return (double)seed / (double)(1ul << 46);
}

/* The sparse vectors. */
static struct {
    size_t count;
    uint32_t at[NONZEROS_MAX];
    double value[NONZEROS_MAX];
} *vectors;

static void draw_vector(size_t i)
{
    size_t power = 1, count = 0;
    while (power < n)
        power *= 2;
    while (count < nonzeros) {
        double value = draw();
        size_t at = (size_t)((double)power * draw()), same = 0;
        if (at >= n)
            continue;
        while (same < count && vectors[i].at[same] != at)
            same++;
        if (same < count)
            continue;
        vectors[i].at[count] = (uint32_t)at;
        vectors[i].value[count++] = value;
    }
    size_t own = 0;
    while (own < count && vectors[i].at[own] != i)
        own++;
    vectors[i].at[own] = (uint32_t)i;
    vectors[i].value[own] = 0.5;
    vectors[i].count = own == count ? count + 1 : count;
}

/* The vectors that have a non-zero in each row, in order: `list` from `starts` of the row on. */
static size_t *starts;
static uint32_t *list;
static double *scales; /* the weight of each vector */
static size_t *row_ends;

static void *cleared_memory(size_t count, size_t size)
{
    void *made = calloc(count, size);
    if (!made)
        lab_fail("out of memory");
    return made;
}

static void draw_matrix(void)
{
    vectors = cleared_memory(n, sizeof *vectors);
    starts = cleared_memory(n + 2, sizeof *starts);
    scales = cleared_memory(n, sizeof *scales);
    list = cleared_memory(n * (nonzeros + 1), sizeof *list);
    draw();
    double ratio = pow(CONDITION, 1 / (double)n), scale = 1;
    for (size_t i = 0; i < n; i++) {
        draw_vector(i);
        scales[i] = scale;
        scale *= ratio;
        for (size_t at = 0; at < vectors[i].count; at++)
            starts[vectors[i].at[at] + 2]++;
    }
    for (size_t row = 0; row <= n; row++)
        starts[row + 1] += starts[row];
    for (size_t i = 0; i < n; i++)
        for (size_t at = 0; at < vectors[i].count; at++)
            list[starts[vectors[i].at[at] + 1]++] = (uint32_t)i;
}

/* The entries of a row, sums over the vectors; `sums` and `seen` are zero before and after.
 * Returns their number. */
static size_t gather_row(size_t row, double *sums, bool *seen, uint32_t *found)
{
    size_t count = 0;
    for (size_t entry = starts[row]; entry < starts[row + 1]; entry++) {
        size_t i = list[entry];
        double own = 0;
        for (size_t at = 0; at < vectors[i].count; at++)
            if (vectors[i].at[at] == row)
                own = vectors[i].value[at] * scales[i];
        for (size_t at = 0; at < vectors[i].count; at++) {
            size_t column = vectors[i].at[at];
            if (!seen[column])
                found[count++] = (uint32_t)column;
            seen[column] = true;
            sums[column] += own * vectors[i].value[at];
        }
        if (i == row)
            sums[row] += CONDITION - shift;
    }
    for (size_t at = 0; at < count; at++)
        seen[found[at]] = false;
    return count;
}

/* Where each row ends. It is not of the arrays: the benchmark counts in scratch memory. */
static void size_rows(void)
{
    double *sums = cleared_memory(n, sizeof *sums);
    bool *seen = cleared_memory(n, sizeof *seen);
    uint32_t *found = cleared_memory(n, sizeof *found);
    row_ends = cleared_memory(n, sizeof *row_ends);
    for (size_t row = 0; row < n; row++)
        row_ends[row] = (row ? row_ends[row - 1] : 0) + gather_row(row, sums, seen, found);
    free(sums);
    free(seen);
    free(found);
}

static void make_rows(size_t first, size_t end)
{
    double *sums = cleared_memory(n, sizeof *sums);
    bool *seen = cleared_memory(n, sizeof *seen);
    uint32_t *found = cleared_memory(n, sizeof *found);
    for (size_t row = first; row < end; row++) {
        size_t start = row ? row_ends[row - 1] : 0, count = gather_row(row, sums, seen, found);
        npb_store(row_start, row, (double)start);
        for (size_t at = 0; at < count; at++) {
            /* Columns are 4 bytes, two to a double. */
            npb_touch(columns, (start + at) / 2, true);
            ((uint32_t *)columns->values)[start + at] = found[at];
            npb_store(a, start + at, sums[found[at]]);
            sums[found[at]] = 0;
        }
    }
    if (end == n)
        npb_store(row_start, n, (double)row_ends[n - 1]);
    free(sums);
    free(seen);
    free(found);
}

/* ---- the solver ---- */

static double factor;

static void start_vectors(size_t first, size_t end)
{
    for (size_t at = first; at < end; at++) {
        npb_store(q, at, 0);
        npb_store(z, at, 0);
        double value = npb_load(x, at);
        npb_store(r, at, value);
        npb_store(p, at, value);
    }
}

static void ones(size_t first, size_t end)
{
    for (size_t at = first; at < end; at++)
        npb_store(x, at, 1);
}

static void multiply(const struct npb_array *by, const struct npb_array *to, size_t first,
                     size_t end)
{
    for (size_t row = first; row < end; row++) {
        double sum = 0;
        size_t entry = (size_t)npb_load(row_start, row);
        size_t stop = (size_t)npb_load(row_start, row + 1);
        for (; entry < stop; entry++) {
            npb_touch(columns, entry / 2, false);
            sum += npb_load(a, entry) *
                   npb_load(by, ((const uint32_t *)columns->values)[entry]);
        }
        npb_store(to, row, sum);
    }
}

static void multiply_p(size_t first, size_t end)
{
    multiply(p, q, first, end);
}

static void multiply_z(size_t first, size_t end)
{
    multiply(z, r, first, end);
}

static void move_on(size_t first, size_t end)
{
    for (size_t at = first; at < end; at++) {
        npb_add(z, at, factor * npb_load(p, at));
        npb_add(r, at, -factor * npb_load(q, at));
    }
}

static void turn(size_t first, size_t end)
{
    for (size_t at = first; at < end; at++)
        npb_store(p, at, npb_load(r, at) + factor * npb_load(p, at));
}

static void normalise(size_t first, size_t end)
{
    for (size_t at = first; at < end; at++)
        npb_store(x, at, factor * npb_load(z, at));
}

/* Each share's sum has the place of its first row, and they are added in order, so the result does
 * not depend on timing. */
enum { PLACES = 1024 };
static const struct npb_array *left, *right;
static double partial[PLACES];

static void dot_part(size_t first, size_t end)
{
    double sum = 0;
    for (size_t at = first; at < end; at++)
        sum += npb_load(left, at) * npb_load(right, at);
    partial[first * PLACES / n] = sum;
}

static double dot(const struct npb_array *one, const struct npb_array *other)
{
    left = one;
    right = other;
    memset(partial, 0, sizeof partial);
    npb_loop("dot", 0, n, dot_part);
    double sum = 0;
    for (size_t at = 0; at < PLACES; at++)
        sum += partial[at];
    return sum;
}

static double zeta;

/* A step of the inverse iteration. */
static void step(void)
{
    npb_loop("start", 0, n, start_vectors);
    double rho = dot(r, r);
    for (int at = 0; at < STEPS; at++) {
        npb_loop("multiply", 0, n, multiply_p);
        factor = rho / dot(p, q);
        npb_loop("move_on", 0, n, move_on);
        double before = rho;
        rho = dot(r, r);
        factor = rho / before;
        npb_loop("turn", 0, n, turn);
    }
    npb_loop("residual", 0, n, multiply_z);
    zeta = shift + 1 / dot(x, z);
    factor = 1 / sqrt(dot(z, z));
    npb_loop("normalise", 0, n, normalise);
}

static void prepare(void)
{
    npb_loop("matrix", 0, n, make_rows);
    npb_loop("ones", 0, n, ones);
    step();
    npb_loop("ones", 0, n, ones);
}

int main(int argc, char **argv)
{
    const struct lab_option own[] = {npb_class_option, {0}};
    npb_start(argc, argv, own);
    n = CLASSES[npb_class].rows;
    nonzeros = CLASSES[npb_class].nonzeros;
    shift = CLASSES[npb_class].shift;
    draw_matrix();
    size_rows();
    a = npb_array("a", row_ends[n - 1]);
    columns = npb_array("columns", (row_ends[n - 1] + 1) / 2);
    row_start = npb_array("row_start", n + 1);
    static const char *const NAMES[] = {"x", "z", "p", "q", "r"};
    const struct npb_array **const VECTORS[] = {&x, &z, &p, &q, &r};
    for (size_t at = 0; at < 5; at++)
        *VECTORS[at] = npb_array(NAMES[at], n);
    npb_run(prepare, step);
    double right = CLASSES[npb_class].zeta;
    if (!npb_counts && lab.iterations == VERIFIED_AFTER && !(fabs(zeta - right) < 1e-9))
        lab_fail("the estimate is %.13g, not %.13g", zeta, right);
    npb_facts(lab_checksum(x->values, n), "zeta", zeta);
}
