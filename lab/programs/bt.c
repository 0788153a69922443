/* BT of the NAS parallel benchmarks (adi.h): in each direction systems with three diagonals. The
 * sweeps along x and y run over planes of z, that along z over rows of y. */
#include "adi.h"

/* The points and time steps of the classes (NPB 2.3; the number of iterations is the caller's: 60
 * for S, 200 for W and A). */
static const size_t POINTS[] = {12, 24, 64};
static const double STEPS[] = {0.010, 0.0008, 0.0008};

/* How much a point spreads along an axis, and carries: what a system's diagonals are made of. The
 * Jacobians need the state and what follows from it. */
static inline void coefficients(int axis, size_t point, double *carried, double *spread)
{
    struct state at = load_state(u, point);
    double rho = npb_load(rho_i, point), q = npb_load(qs, point), half = npb_load(square, point);
    double sound = sqrt(fabs(C1 * C2 * rho * (at.of[4] - half)) + 1e-9 * q);
    *carried = 0.5 * time_step * per_h * at.of[axis + 1] * rho;
    *spread = time_step * per_h2 * (DIFFUSION[axis] + C3 * rho * C1C5) +
              0.5 * time_step * per_h * sound + 4 * time_step * DISSIPATION;
}

/* Eliminates along a line, and substitutes back. */
static void solve_line(int axis, size_t first)
{
    size_t stride = stride_of(axis);
    double upper[512];
    double carried[3], spread[3];
    struct state before = load_state(rhs, first);
    coefficients(axis, first, &carried[1], &spread[1]);
    coefficients(axis, first + stride, &carried[2], &spread[2]);
    store_state(rhs, first, before);
    upper[0] = 0;
    for (size_t at = 1; at < n - 1; at++) {
        size_t point = first + at * stride;
        carried[0] = carried[1], carried[1] = carried[2];
        spread[0] = spread[1], spread[1] = spread[2];
        coefficients(axis, point + stride, &carried[2], &spread[2]);
        double below = -carried[0] - spread[0], above = carried[2] - spread[2];
        double main = 1 + 2 * spread[1] - below * upper[at - 1];
        upper[at] = above / main;
        struct state here = load_state(rhs, point);
        for (size_t m = 0; m < COMPONENTS; m++)
            here.of[m] = (here.of[m] - below * before.of[m]) / main;
        store_state(rhs, point, here);
        before = here;
    }
    struct state after = load_state(rhs, first + (n - 1) * stride);
    store_state(rhs, first + (n - 1) * stride, after);
    for (size_t at = n - 1; at-- > 0;) {
        struct state here = load_state(rhs, first + at * stride);
        for (size_t m = 0; m < COMPONENTS; m++)
            here.of[m] -= upper[at] * after.of[m];
        store_state(rhs, first + at * stride, here);
        after = here;
    }
}

static void x_solve(size_t first, size_t end)
{
    for (size_t k = first; k < end; k++)
        for (size_t j = 1; j < n - 1; j++)
            solve_line(0, point_of(k, j, 0));
}

static void y_solve(size_t first, size_t end)
{
    for (size_t k = first; k < end; k++)
        for (size_t i = 1; i < n - 1; i++)
            solve_line(1, point_of(k, 0, i));
}

static void z_solve(size_t first, size_t end)
{
    for (size_t j = first; j < end; j++)
        for (size_t i = 1; i < n - 1; i++)
            solve_line(2, point_of(0, j, i));
}

static void step(void)
{
    compute_rhs();
    npb_loop("x_solve", 1, n - 1, x_solve);
    npb_loop("y_solve", 1, n - 1, y_solve);
    npb_loop("z_solve", 1, n - 1, z_solve);
    npb_loop("add", 1, n - 1, add);
}

static void prepare(void)
{
    initialise();
    exact_rhs();
    step();
    initialise();
}

int main(int argc, char **argv)
{
    const struct lab_option own[] = {npb_class_option, PADDING_OPTION, {0}};
    npb_start(argc, argv, own);
    adi_start(POINTS[npb_class], STEPS[npb_class], false);
    npb_run(prepare, step);
    npb_facts(adi_checksum(), "error", worst_error());
}
