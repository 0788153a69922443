/* An iterative program like the NAS benchmarks SP and BT (Bailey et al. 1991): the diffusion
 * equation on a cube by approximate factorisation (Beam and Warming 1978), with three arrays. In
 * an iteration, the right-hand side and the sweeps along x and y are divided by planes of z, and
 * the sweep along z by planes of y. So first touch by planes of z suits all but one sweep.
 * Optionally the threads move on between iterations, as when a scheduler moves them: then no
 * placement stays right. Or they use one half of the CPUs from some iteration on, as when
 * another program starts and each gets one half.
 *
 * Verification: the forcing is an eigenvector of the discrete operator, so the error shrinks by
 * a factor per step that is known in closed form.
 *
 * Misses: eight passes per iteration over the inner rows of an array (u twice, the forcing once,
 * the right-hand side four times by z and once by y), if a node's parts are much larger than its
 * caches and five planes for each of its threads fit. Rows that share lines, and planes read
 * across the borders of parts, add a little. */
#include <stdlib.h>

#include "lab.h"

static const double TAU = 0.05; /* the time step */
static const double PASSES_U = 2, PASSES_FORCING = 1, PASSES_RHS_BY_Z = 4, PASSES_RHS_BY_Y = 1;

static unsigned long n = 96, rotate_every, rotate_by = 1, halve_after, half;
static struct lab_area *u, *rhs, *forcing;
static double *sine; /* of pi times the position along an edge */
static double
    eigenvalue; /* of the second difference along one edge; the operator's is three times that */
static double off_diagonal, *inverse, *eliminated; /* I - TAU D along an edge, factored */

static double *row(struct lab_area *area, size_t z, size_t y)
{
    return (double *)area->start + (z * n + y) * n;
}

/* A thread's planes, without those of the boundary, which is always zero. */
static struct lab_part interior(int thread)
{
    struct lab_part part = lab_part(n, thread);
    part.first = part.first < 1 ? 1 : part.first;
    part.end = part.end > n - 1 ? n - 1 : part.end;
    return part;
}

static void prepare(void)
{
    double step = 1 / (double)(n - 1), half = sin(M_PI * step / 2) / step;
    sine = calloc(3 * n, sizeof *sine);
    if (!sine)
        lab_fail("out of memory");
    inverse = sine + n;
    eliminated = sine + 2 * n;
    eigenvalue = -4 * half * half;
    off_diagonal = -TAU / (step * step);
    for (size_t i = 1; i < n - 1; i++) {
        sine[i] = sin(M_PI * (double)i * step);
        inverse[i] = 1 / (1 - 2 * off_diagonal - off_diagonal * eliminated[i - 1]);
        eliminated[i] = off_diagonal * inverse[i];
    }
}

static void fill(int thread)
{
    struct lab_part part = lab_part(n, thread);
    for (size_t z = part.first; z < part.end; z++)
        for (size_t y = 0; y < n; y++)
            for (size_t x = 0; x < n; x++) {
                row(u, z, y)[x] = 0;
                row(rhs, z, y)[x] = 0;
                row(forcing, z, y)[x] = -3 * eigenvalue * sine[z] * sine[y] * sine[x];
            }
}

/* rhs = TAU (L u + forcing) on one row. */
static void right_hand_side(size_t z, size_t y)
{
    double *restrict to = row(rhs, z, y);
    const double *f = row(forcing, z, y), *here = row(u, z, y);
    const double *south = row(u, z, y - 1), *north = row(u, z, y + 1), *below = row(u, z - 1, y),
                 *above = row(u, z + 1, y);
    double scale = (double)(n - 1) * (double)(n - 1);
    for (size_t x = 1; x < n - 1; x++)
        to[x] = TAU * (scale * (here[x - 1] + here[x + 1] + south[x] + north[x] + below[x] +
                                above[x] - 6 * here[x]) +
                       f[x]);
}

static void solve_x(double *line)
{
    for (size_t i = 1; i < n - 1; i++)
        line[i] = (line[i] - off_diagonal * line[i - 1]) * inverse[i];
    for (size_t i = n - 2; i > 0; i--)
        line[i] -= eliminated[i] * line[i + 1];
}

/* The same across rows that are `stride` doubles apart: a plane of y and x, or of z and x. */
static void solve_across(double *plane, size_t stride)
{
    for (size_t i = 1; i < n - 1; i++)
        for (size_t x = 1; x < n - 1; x++)
            plane[i * stride + x] =
                (plane[i * stride + x] - off_diagonal * plane[(i - 1) * stride + x]) * inverse[i];
    for (size_t i = n - 2; i > 0; i--)
        for (size_t x = 1; x < n - 1; x++)
            plane[i * stride + x] -= eliminated[i] * plane[(i + 1) * stride + x];
}

static void step(void)
{
#pragma omp parallel
    {
        struct lab_part part = interior(omp_get_thread_num());
        for (size_t z = part.first; z < part.end; z++)
            for (size_t y = 1; y < n - 1; y++)
                right_hand_side(z, y);
        for (size_t z = part.first; z < part.end; z++)
            for (size_t y = 1; y < n - 1; y++)
                solve_x(row(rhs, z, y));
        for (size_t z = part.first; z < part.end; z++)
            solve_across(row(rhs, z, 0), n);
#pragma omp barrier
        for (size_t y = part.first; y < part.end; y++)
            solve_across(row(rhs, 0, y), n * n);
#pragma omp barrier
        for (size_t z = part.first; z < part.end; z++)
            for (size_t y = 1; y < n - 1; y++)
                for (size_t x = 1; x < n - 1; x++)
                    row(u, z, y)[x] += row(rhs, z, y)[x];
    }
}

static double error_after(unsigned long steps)
{
    double shrunk = 1 - TAU * eigenvalue,
           factor = 1 + 3 * TAU * eigenvalue / (shrunk * shrunk * shrunk);
    double reached = 1 - pow(factor, (double)steps), worst = 0;
    for (size_t z = 0; z < n; z++)
        for (size_t y = 0; y < n; y++)
            for (size_t x = 0; x < n; x++)
                worst = fmax(worst, fabs(row(u, z, y)[x] - reached * sine[z] * sine[y] * sine[x]));
    return worst;
}

/* The page in which a row begins. */
static size_t page_of(size_t z, size_t y)
{
    return (z * n + y) * n * sizeof(double) / lab.page;
}

/* The local share of an iteration, from the nodes of pages and threads. */
static double local_share(bool after, size_t shift)
{
    const int *of_u = after ? u->after : u->before, *of_rhs = after ? rhs->after : rhs->before;
    const int *of_forcing = after ? forcing->after : forcing->before;
    double local = 0;
    for (int by_z = 0; by_z < (int)lab.threads; by_z++) {
        struct lab_part planes = interior(by_z);
        int z_node = lab_thread_node(by_z, shift);
        for (int by_y = 0; by_y < (int)lab.threads; by_y++) {
            struct lab_part rows = interior(by_y);
            int y_node = lab_thread_node(by_y, shift);
            for (size_t z = planes.first; z < planes.end; z++)
                for (size_t y = rows.first; y < rows.end; y++) {
                    size_t page = page_of(z, y);
                    local += PASSES_U * (of_u[page] == z_node) +
                             PASSES_FORCING * (of_forcing[page] == z_node);
                    local += PASSES_RHS_BY_Z * (of_rhs[page] == z_node) +
                             PASSES_RHS_BY_Y * (of_rhs[page] == y_node);
                }
        }
    }
    double passes = PASSES_U + PASSES_FORCING + PASSES_RHS_BY_Z + PASSES_RHS_BY_Y;
    return local / (passes * (double)(n - 2) * (double)(n - 2));
}

static struct lab_expected expect(void)
{
    double lines = (double)(n - 2) * (double)(n - 2) * (double)n * sizeof(double) / LAB_LINE;
    struct lab_expected expected = {
        (PASSES_U + PASSES_FORCING + PASSES_RHS_BY_Z + PASSES_RHS_BY_Y) * lines *
            (double)lab.iterations,
        NAN};
    if (halve_after) {
        /* Which node a thread is on changes on the way. */
    } else if (!rotate_every) {
        expected.local_share = lab_over_iterations(local_share(false, 0), local_share(true, 0));
    } else if (!lab.hand) {
        double sum = 0;
        for (unsigned long i = 0; i < lab.iterations; i++)
            sum += local_share(false, i / rotate_every * rotate_by);
        expected.local_share = lab_over_iterations(sum / (double)lab.iterations, NAN);
    } /* Moved threads and moved pages: where the pages lay in between is not noted. */
    return expected;
}

static uint64_t iteration(unsigned long number)
{
    bool moved = rotate_every && number > 0 && number % rotate_every == 0;
    if (moved)
        lab_rotate(rotate_by);
    if (halve_after && number == halve_after) {
        lab_halve(half);
        moved = true;
    }
    step();
    if (number == 0 || moved) {
        lab_bring_home(u);
        lab_bring_home(rhs);
        lab_bring_home(forcing);
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct lab_option own[] = {
        {.key = "size", .number = &n, .help = "points along each edge of the three cubes (96)"},
        {.key = "rotate-every",
         .number = &rotate_every,
         .help = "iterations after which the threads move on (0: never)"},
        {.key = "rotate-by", .number = &rotate_by, .help = "CPUs that they move on by (1)"},
        {.key = "halve-after",
         .number = &halve_after,
         .help = "iterations after which the threads keep to one half of the CPUs (0: never)"},
        {.key = "half", .number = &half, .help = "which one: 0 or 1 (0)"},
        {0},
    };
    lab_start(argc, argv, own);
    if (n < 3 || n > 4096)
        lab_fail("--size must be from 3 to 4096");
    prepare();
    u = lab_area("u", n, n * n * sizeof(double));
    rhs = lab_area("rhs", n, n * n * sizeof(double));
    forcing = lab_area("forcing", n, n * n * sizeof(double));
    lab_initialise(fill);
    step();
    lab_iterate(iteration);

    double error = error_after(lab.iterations + 1);
    if (!(error < 1e-9))
        lab_fail("the result is wrong by %g", error);
    lab_facts(lab_checksum((const double *)u->start, n * n * n), expect(),
              ", \"error\": %.3g, \"moves\": %lu", error,
              rotate_every ? (lab.iterations - 1) / rotate_every : 0);
}
