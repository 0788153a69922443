/* Iterated sparse matrix-vector products: x' = A x / 2 + b, with A in compressed rows. Each row
 * is the mean of some neighbours and as many random entries. Rows, and so y, are divided among
 * the threads. All threads read all of x, which the next iteration takes from y.
 *
 * Misses: the matrix (row ends, columns, values) streams, each line once per iteration:
 * `streamed_lines` x `iterations`, of which `streamed_local_share` are local. How often x and y
 * miss depends on the caches, so there is no expectation for the total: each node fetches x at
 * least once per iteration, mostly from the caches that wrote it last. */
#include "lab.h"

static unsigned long rows = 128 << 10, entries = 16;
static struct lab_area *row_ends, *columns, *values, *x, *y;

static void fill(int thread)
{
    struct lab_part part = lab_part(rows, thread);
    for (uint64_t row = part.first; row < part.end; row++) {
        for (uint64_t i = row * entries; i < (row + 1) * entries; i++) {
            bool near = i % 2;
            ((uint32_t *)columns->start)[i] =
                (uint32_t)((near ? row + i % entries : lab_mix(i)) % rows);
            ((double *)values->start)[i] = 1 / (double)entries;
        }
        ((uint64_t *)row_ends->start)[row] = (row + 1) * entries;
        ((double *)x->start)[row] = (double)(row % 7);
        ((double *)y->start)[row] = 0;
    }
}

/* Each row is computed by one thread in one order, so the result is the same to the last bit for
 * any number of threads. */
static void multiply(void)
{
    const uint64_t *end = (const uint64_t *)row_ends->start;
    const uint32_t *column = (const uint32_t *)columns->start;
    const double *value = (const double *)values->start, *from = (const double *)x->start;
    double *restrict to = (double *)y->start;
#pragma omp parallel
    {
        struct lab_part part = lab_part(rows, omp_get_thread_num());
        uint64_t i = part.first ? end[part.first - 1] : 0;
        for (uint64_t row = part.first; row < part.end; row++) {
            double sum = 0;
            for (; i < end[row]; i++)
                sum += value[i] * from[column[i]];
            to[row] = sum / 2 + (double)(row % 5);
        }
    }
    struct lab_area *swap = x;
    x = y;
    y = swap;
}

static uint64_t iteration(unsigned long number)
{
    multiply();
    if (number == 0) {
        struct lab_area *all[] = {row_ends, columns, values, x, y};
        for (int i = 0; i < 5; i++)
            lab_bring_home(all[i]);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct lab_option own[] = {
        {.key = "rows", .number = &rows, .help = "rows and columns of the matrix (128K)"},
        {.key = "entries",
         .number = &entries,
         .help = "in each row, half of them near the diagonal (16)"},
        {0},
    };
    lab_start(argc, argv, own);
    if (rows < 1 || rows > UINT32_MAX || entries < 1 || entries > 1024)
        lab_fail("--rows must be from 1 to %u, --entries from 1 to 1024", UINT32_MAX);
    row_ends = lab_area("row_ends", rows, sizeof(uint64_t));
    columns = lab_area("columns", rows, entries * sizeof(uint32_t));
    values = lab_area("values", rows, entries * sizeof(double));
    x = lab_area("x", rows, sizeof(double));
    y = lab_area("y", rows, sizeof(double));
    row_ends->passes = columns->passes = values->passes = 1;
    lab_initialise(fill);
    multiply();
    lab_iterate(iteration);

    /* The entries of x begin within 0 to 6, those of b within 0 to 4: x stays below twice the
     * latter, or comes down to it. */
    for (size_t row = 0; row < rows; row++) {
        double entry = ((const double *)x->start)[row];
        if (!(entry >= 0 && entry <= 8))
            lab_fail("x[%zu] is %g", row, entry);
    }
    struct lab_expected streamed = lab_expect();
    lab_facts(lab_checksum((const double *)x->start, rows), (struct lab_expected){NAN, NAN},
              ", \"streamed_lines\": %.0f, \"streamed_local_share\": %s",
              streamed.misses / (double)lab.iterations, lab_share_text(streamed.local_share).text);
}
