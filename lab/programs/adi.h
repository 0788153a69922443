/* What BT and SP share (NAS-95-020, sections 3.5 and 4.6): the compressible Navier-Stokes
 * equations on a cube by alternating directions, their arrays, the loops that initialise them and
 * the right-hand side. Written to the specification; which loop runs over which index, and so
 * which thread touches what, is as in NPB's OpenMP version (Jin, Frumkin and Yan, NAS-99-011):
 *
 * - loops run over planes of z, from the first to the last where the whole grid is meant, and
 *   without the boundary (1 to n - 2) or without three planes at each end (3 to n - 4) elsewhere.
 *   OpenMP divides each range anew, so the same plane has different threads in different loops;
 * - the forcing's fluxes along z, the dissipation in the four planes next to the boundaries, and
 *   the sweep along z run over rows of y;
 * - `u` is first touched by `initialise`, `forcing` by `exact_rhs`, and all others by the
 *   right-hand side of a first iteration, which is not part of the main loop.
 *
 * Simpler than the benchmark: the implicit operators are scalar for each component, with
 * diagonals that its eigenvalues bound. They read the same arrays in the same order, do less
 * arithmetic, and lead to the same steady state, in which the exact solution is reached up to
 * rounding: that is what the programs verify. So there are no reference norms to compare with. */
#ifndef HITHER_LAB_ADI_H
#define HITHER_LAB_ADI_H

#include "npb.h"

enum { COMPONENTS = 5 };

#define PADDING_OPTION                                                                             \
    {.key = "padding", .number = &padding, .help = "1: rows have odd lengths (1)"}

static size_t n; /* points along an edge */
/* Points from a row to the next, and from a plane to the next. Padded rows have one more than `n`
 * points where that is even, as in NPB's sources (`0:IMAX/2*2`). Without padding, arrays of class A
 * are multiples of 2 MiB, and the same points of each of them have the same place in a cache. */
static size_t pitch, plane;
static unsigned long padding = 1;
static double per_h, per_h2, time_step;
/* Whether an array of states has the components one after another, not together. */
static int apart;

static const struct npb_array *u, *rhs, *forcing, *velocity[3], *qs, *square, *rho_i, *speed;

static const double C1 = 1.4, C2 = 0.4, C3 = 0.1, C1C5 = 1.96, CON43 = 4.0 / 3.0;
static const double DIFFUSION[3] = {0.75, 0.75, 1.0}, DISSIPATION = 0.25;

/* The exact solution: a constant, then the coefficients of x, y, z, of their squares, cubes and
 * fourth powers (NAS-95-020, table 3.1). */
static const double EXACT[COMPONENTS][13] = {
    {2.0, 0.0, 0.0, 4.0, 5.0, 3.0, 0.5, 0.02, 0.01, 0.03, 0.5, 0.4, 0.3},
    {1.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.01, 0.03, 0.02, 0.4, 0.3, 0.5},
    {2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.04, 0.03, 0.05, 0.3, 0.5, 0.4},
    {2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.03, 0.05, 0.04, 0.2, 0.1, 0.3},
    {5.0, 4.0, 3.0, 2.0, 0.1, 0.4, 0.3, 0.05, 0.04, 0.03, 0.1, 0.3, 0.2},
};

struct state {
    double of[COMPONENTS];
};

/* What the fluxes need of a point besides its state. */
struct derived {
    double velocity[3], qs, square, rho_i;
};

static inline size_t point_of(size_t k, size_t j, size_t i)
{
    return (k * pitch + j) * pitch + i;
}

static inline size_t component(size_t point, size_t m)
{
    return apart ? m * n * plane + point : point * COMPONENTS + m;
}

static inline size_t stride_of(int axis)
{
    return axis == 0 ? 1 : axis == 1 ? pitch : plane;
}

static inline struct state load_state(const struct npb_array *array, size_t point)
{
    struct state state;
    for (size_t m = 0; m < COMPONENTS; m++)
        state.of[m] = npb_load(array, component(point, m));
    return state;
}

static inline void store_state(const struct npb_array *array, size_t point, struct state state)
{
    for (size_t m = 0; m < COMPONENTS; m++)
        npb_store(array, component(point, m), state.of[m]);
}

static inline struct derived load_derived(size_t point)
{
    return (struct derived){
        {npb_load(velocity[0], point), npb_load(velocity[1], point), npb_load(velocity[2], point)},
        npb_load(qs, point),
        npb_load(square, point),
        npb_load(rho_i, point)};
}

static struct derived derived_of(struct state at)
{
    const double *of = at.of;
    double rho = 1 / of[0], half = 0.5 * (of[1] * of[1] + of[2] * of[2] + of[3] * of[3]) * rho;
    return (struct derived){{of[1] * rho, of[2] * rho, of[3] * rho}, half * rho, half, rho};
}

static struct state exact(double x, double y, double z)
{
    struct state state;
    for (size_t m = 0; m < COMPONENTS; m++) {
        const double *c = EXACT[m];
        state.of[m] = c[0] + x * (c[1] + x * (c[4] + x * (c[7] + x * c[10]))) +
                      y * (c[2] + y * (c[5] + y * (c[8] + y * c[11]))) +
                      z * (c[3] + z * (c[6] + z * (c[9] + z * c[12])));
    }
    return state;
}

static struct state exact_at(size_t k, size_t j, size_t i)
{
    return exact((double)i / per_h, (double)j / per_h, (double)k / per_h);
}

/* The weights of the fourth difference at a point of a line: one-sided near its ends. */
static const double *fourth(size_t at)
{
    static const double WEIGHTS[5][5] = {{0, 0, 5, -4, 1},
                                         {0, -4, 6, -4, 1},
                                         {1, -4, 6, -4, 1},
                                         {1, -4, 6, -4, 0},
                                         {1, -4, 5, 0, 0}};
    return WEIGHTS[at == 1 ? 0 : at == 2 ? 1 : at == n - 3 ? 3 : at == n - 2 ? 4 : 2];
}

/* The flux along `axis` at the middle of three points. */
static inline struct state flux(int axis, const struct state at[3], const struct derived of[3])
{
    double central = 0.5 * per_h, viscous = C3 * per_h2;
    const double *before = at[0].of, *here = at[1].of, *after = at[2].of;
    double w[3], q[3], heat[3];
    struct state flux;
    for (int point = 0; point < 3; point++) {
        w[point] = of[point].velocity[axis];
        q[point] = of[point].qs;
        heat[point] = at[point].of[4] * of[point].rho_i;
    }
    for (size_t m = 0; m < COMPONENTS; m++)
        flux.of[m] = DIFFUSION[axis] * per_h2 * (before[m] - 2 * here[m] + after[m]);
    flux.of[0] -= central * (after[axis + 1] - before[axis + 1]);
    for (int other = 0; other < 3; other++) {
        double second = of[0].velocity[other] - 2 * of[1].velocity[other] + of[2].velocity[other];
        flux.of[other + 1] += viscous * (other == axis ? CON43 : 1) * second -
                              central * (after[other + 1] * w[2] - before[other + 1] * w[0]);
    }
    flux.of[axis + 1] -=
        central * C2 * ((after[4] - of[2].square) - (before[4] - of[0].square));
    flux.of[4] += viscous * ((1 - C1C5) * (q[0] - 2 * q[1] + q[2]) +
                             (w[0] * w[0] - 2 * w[1] * w[1] + w[2] * w[2]) / 6 +
                             C1C5 * (heat[0] - 2 * heat[1] + heat[2])) -
                  central * ((C1 * after[4] - C2 * of[2].square) * w[2] -
                             (C1 * before[4] - C2 * of[0].square) * w[0]);
    return flux;
}

/* ---- initialisation ---- */

/* The blend of the exact values on the six faces, as a start that is wrong inside. */
static void blend(size_t k, size_t j, size_t i)
{
    double x = (double)i / per_h, y = (double)j / per_h, z = (double)k / per_h;
    struct state faces[3][2] = {{exact(0, y, z), exact(1, y, z)},
                                {exact(x, 0, z), exact(x, 1, z)},
                                {exact(x, y, 0), exact(x, y, 1)}};
    struct state state;
    for (size_t m = 0; m < COMPONENTS; m++) {
        double a = x * faces[0][1].of[m] + (1 - x) * faces[0][0].of[m];
        double b = y * faces[1][1].of[m] + (1 - y) * faces[1][0].of[m];
        double c = z * faces[2][1].of[m] + (1 - z) * faces[2][0].of[m];
        state.of[m] = a + b + c - a * b - b * c - c * a + a * b * c;
    }
    store_state(u, point_of(k, j, i), state);
}

static void init_ones(size_t first, size_t end)
{
    for (size_t k = first; k < end; k++)
        for (size_t j = 0; j < n; j++)
            for (size_t i = 0; i < n; i++)
                store_state(u, point_of(k, j, i), (struct state){{1, 0, 0, 0, 1}});
}

static void init_blend(size_t first, size_t end)
{
    for (size_t k = first; k < end; k++)
        for (size_t j = 0; j < n; j++)
            for (size_t i = 0; i < n; i++)
                blend(k, j, i);
}

static void init_x_faces(size_t first, size_t end)
{
    for (size_t k = first; k < end; k++)
        for (size_t j = 0; j < n; j++)
            for (size_t i = 0; i < n; i += n - 1)
                store_state(u, point_of(k, j, i), exact_at(k, j, i));
}

static void init_y_faces(size_t first, size_t end)
{
    for (size_t k = first; k < end; k++)
        for (size_t j = 0; j < n; j += n - 1)
            for (size_t i = 0; i < n; i++)
                store_state(u, point_of(k, j, i), exact_at(k, j, i));
}

static void init_z_faces(size_t first, size_t end)
{
    for (size_t k = 0; k < n; k += n - 1)
        for (size_t j = first; j < end; j++)
            for (size_t i = 0; i < n; i++)
                store_state(u, point_of(k, j, i), exact_at(k, j, i));
}

static void initialise(void)
{
    npb_loop("initialise_ones", 0, n, init_ones);
    npb_loop("initialise_blend", 0, n, init_blend);
    npb_loop("initialise_x", 0, n, init_x_faces);
    npb_loop("initialise_y", 0, n, init_y_faces);
    npb_loop("initialise_z", 0, n, init_z_faces);
}

/* The forcing that keeps the exact solution steady, along a line; the exact solution's values are
 * the thread's own. */
static void force_line(int axis, size_t k, size_t j, size_t i)
{
    size_t stride = stride_of(axis), first = point_of(k, j, i);
    struct state at[5], pencil[3];
    struct derived of[3];
    for (size_t point = 1; point < n - 1; point++) {
        for (size_t near = 0; near < 5; near++) {
            size_t where = point + near;
            if (where < 2 || where - 2 >= n)
                continue;
            where -= 2;
            at[near] =
                exact_at(axis == 2 ? where : k, axis == 1 ? where : j, axis == 0 ? where : i);
        }
        for (size_t near = 0; near < 3; near++) {
            pencil[near] = at[near + 1];
            of[near] = derived_of(pencil[near]);
        }
        struct state change = flux(axis, pencil, of);
        const double *weights = fourth(point);
        for (size_t m = 0; m < COMPONENTS; m++) {
            for (size_t near = 0; near < 5; near++)
                if (weights[near] != 0)
                    change.of[m] -= DISSIPATION * weights[near] * at[near].of[m];
            npb_add(forcing, component(first + point * stride, m), change.of[m]);
        }
    }
}

static void forcing_zero(size_t first, size_t end)
{
    for (size_t k = first; k < end; k++)
        for (size_t j = 0; j < n; j++)
            for (size_t i = 0; i < n; i++)
                store_state(forcing, point_of(k, j, i), (struct state){{0}});
}

static void forcing_x(size_t first, size_t end)
{
    for (size_t k = first; k < end; k++)
        for (size_t j = 1; j < n - 1; j++)
            force_line(0, k, j, 0);
}

static void forcing_y(size_t first, size_t end)
{
    for (size_t k = first; k < end; k++)
        for (size_t i = 1; i < n - 1; i++)
            force_line(1, k, 0, i);
}

static void forcing_z(size_t first, size_t end)
{
    for (size_t j = first; j < end; j++)
        for (size_t i = 1; i < n - 1; i++)
            force_line(2, 0, j, i);
}

static void forcing_sign(size_t first, size_t end)
{
    for (size_t k = first; k < end; k++)
        for (size_t j = 1; j < n - 1; j++)
            for (size_t i = 1; i < n - 1; i++)
                for (size_t m = 0; m < COMPONENTS; m++) {
                    size_t at = component(point_of(k, j, i), m);
                    npb_store(forcing, at, -npb_load(forcing, at));
                }
}

static void exact_rhs(void)
{
    npb_loop("forcing_zero", 0, n, forcing_zero);
    npb_loop("forcing_x", 1, n - 1, forcing_x);
    npb_loop("forcing_y", 1, n - 1, forcing_y);
    npb_loop("forcing_z", 1, n - 1, forcing_z);
    npb_loop("forcing_sign", 1, n - 1, forcing_sign);
}

/* ---- the right-hand side ---- */

static void rhs_derived(size_t first, size_t end)
{
    for (size_t k = first; k < end; k++)
        for (size_t j = 0; j < n; j++)
            for (size_t i = 0; i < n; i++) {
                size_t point = point_of(k, j, i);
                struct state at = load_state(u, point);
                struct derived of = derived_of(at);
                npb_store(rho_i, point, of.rho_i);
                for (int axis = 0; axis < 3; axis++)
                    npb_store(velocity[axis], point, of.velocity[axis]);
                npb_store(square, point, of.square);
                npb_store(qs, point, of.qs);
                if (speed)
                    npb_store(speed, point, sqrt(C1 * C2 * of.rho_i * (at.of[4] - of.square)));
            }
}

static void rhs_forcing(size_t first, size_t end)
{
    for (size_t k = first; k < end; k++)
        for (size_t j = 0; j < n; j++)
            for (size_t i = 0; i < n; i++)
                store_state(rhs, point_of(k, j, i), load_state(forcing, point_of(k, j, i)));
}

/* Adds the fluxes along `axis` in planes of z. */
static void rhs_flux(int axis, size_t first, size_t end)
{
    size_t stride = stride_of(axis);
    for (size_t k = first; k < end; k++)
        for (size_t j = 1; j < n - 1; j++)
            for (size_t i = 1; i < n - 1; i++) {
                size_t point = point_of(k, j, i);
                struct state at[3] = {load_state(u, point - stride), load_state(u, point),
                                      load_state(u, point + stride)};
                struct derived of[3] = {load_derived(point - stride), load_derived(point),
                                        load_derived(point + stride)};
                struct state change = flux(axis, at, of);
                for (size_t m = 0; m < COMPONENTS; m++)
                    npb_add(rhs, component(point, m), change.of[m]);
            }
}

/* Subtracts the dissipation along `axis` in a row of x. */
static void dissipate(int axis, size_t k, size_t j)
{
    size_t stride = stride_of(axis);
    for (size_t i = 1; i < n - 1; i++) {
        const double *weights = fourth(axis == 0 ? i : axis == 1 ? j : k);
        size_t point = point_of(k, j, i);
        for (size_t m = 0; m < COMPONENTS; m++) {
            double sum = 0;
            for (size_t near = 0; near < 5; near++)
                if (weights[near] != 0)
                    sum += weights[near] *
                           npb_load(u, component(point + near * stride - 2 * stride, m));
            npb_add(rhs, component(point, m), -DISSIPATION * sum);
        }
    }
}

static void rhs_x(size_t first, size_t end)
{
    for (size_t k = first; k < end; k++) {
        rhs_flux(0, k, k + 1);
        for (size_t j = 1; j < n - 1; j++)
            dissipate(0, k, j);
    }
}

static void rhs_y(size_t first, size_t end)
{
    for (size_t k = first; k < end; k++) {
        rhs_flux(1, k, k + 1);
        for (size_t j = 1; j < n - 1; j++)
            dissipate(1, k, j);
    }
}

static void rhs_z(size_t first, size_t end)
{
    rhs_flux(2, first, end);
}

static size_t edge_plane;

static void rhs_z_edge(size_t first, size_t end)
{
    for (size_t j = first; j < end; j++)
        dissipate(2, edge_plane, j);
}

static void rhs_z_inner(size_t first, size_t end)
{
    for (size_t k = first; k < end; k++)
        for (size_t j = 1; j < n - 1; j++)
            dissipate(2, k, j);
}

static void rhs_scale(size_t first, size_t end)
{
    for (size_t k = first; k < end; k++)
        for (size_t j = 1; j < n - 1; j++)
            for (size_t i = 1; i < n - 1; i++)
                for (size_t m = 0; m < COMPONENTS; m++) {
                    size_t at = component(point_of(k, j, i), m);
                    npb_store(rhs, at, npb_load(rhs, at) * time_step);
                }
}

static void compute_rhs(void)
{
    npb_loop("rhs_derived", 0, n, rhs_derived);
    npb_loop("rhs_forcing", 0, n, rhs_forcing);
    npb_loop("rhs_x", 1, n - 1, rhs_x);
    npb_loop("rhs_y", 1, n - 1, rhs_y);
    npb_loop("rhs_z", 1, n - 1, rhs_z);
    for (edge_plane = 1; edge_plane < 3; edge_plane++)
        npb_loop("rhs_z_edge", 1, n - 1, rhs_z_edge);
    npb_loop("rhs_z_inner", 3, n - 3, rhs_z_inner);
    for (edge_plane = n - 3; edge_plane < n - 1; edge_plane++)
        npb_loop("rhs_z_edge", 1, n - 1, rhs_z_edge);
    npb_loop("rhs_scale", 1, n - 1, rhs_scale);
}

static void add(size_t first, size_t end)
{
    for (size_t k = first; k < end; k++)
        for (size_t j = 1; j < n - 1; j++)
            for (size_t i = 1; i < n - 1; i++)
                for (size_t m = 0; m < COMPONENTS; m++) {
                    size_t at = component(point_of(k, j, i), m);
                    npb_add(u, at, npb_load(rhs, at));
                }
}

/* ---- the program ---- */

static void adi_start(size_t points, double step, bool with_speed)
{
    n = points;
    time_step = step;
    per_h = (double)(n - 1);
    per_h2 = per_h * per_h;
    if (padding > 1)
        lab_fail("--padding must be 0 or 1");
    pitch = n + (padding && n % 2 == 0);
    plane = pitch * pitch;
    size_t count = n * plane;
    static const char *const VELOCITIES[3] = {"us", "vs", "ws"};
    u = npb_array("u", COMPONENTS * count);
    for (int axis = 0; axis < 3; axis++)
        velocity[axis] = npb_array(VELOCITIES[axis], count);
    qs = npb_array("qs", count);
    rho_i = npb_array("rho_i", count);
    square = npb_array("square", count);
    if (with_speed)
        speed = npb_array("speed", count);
    rhs = npb_array("rhs", COMPONENTS * count);
    forcing = npb_array("forcing", COMPONENTS * count);
}

static double worst_error(void)
{
    double worst = 0;
    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; j < n; j++)
            for (size_t i = 0; i < n; i++) {
                struct state right = exact_at(k, j, i);
                for (size_t m = 0; m < COMPONENTS; m++)
                    worst = fmax(worst, fabs(u->values[component(point_of(k, j, i), m)] -
                                             right.of[m]));
            }
    return worst;
}

static uint64_t adi_checksum(void)
{
    return lab_checksum(u->values, COMPONENTS * n * plane);
}

#endif
