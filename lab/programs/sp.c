/* SP of the NAS parallel benchmarks (adi.h): in each direction systems with five diagonals, between
 * changes to the characteristic variables and back. The sweeps along x and y, and the changes, run
 * over planes of z, the sweep along z over rows of y. */
#include "adi.h"

/* The points and time steps of the classes (NPB 2.3; the number of iterations is the caller's: 100
 * for S, 400 for W and A). */
static const size_t POINTS[] = {12, 36, 64};
static const double STEPS[] = {0.015, 0.0015, 0.0015};

/* What a point carries along an axis, and spreads. */
static inline void coefficients(int axis, size_t point, double *carried, double *spread)
{
    double rho = npb_load(rho_i, point), w = npb_load(velocity[axis], point);
    double sound = npb_load(speed, point);
    *carried = 0.5 * time_step * per_h * w;
    *spread = time_step * per_h2 * (DIFFUSION[axis] + C3 * rho * C1C5) +
              0.5 * time_step * per_h * sound;
}

static void solve_line(int axis, size_t first)
{
    size_t stride = stride_of(axis);
    double upper[512][2];
    double carried[3], spread[3];
    struct state before[2] = {{{0}}, load_state(rhs, first)};
    coefficients(axis, first, &carried[1], &spread[1]);
    coefficients(axis, first + stride, &carried[2], &spread[2]);
    upper[0][0] = upper[0][1] = 0;
    for (size_t at = 1; at < n - 1; at++) {
        size_t point = first + at * stride;
        carried[0] = carried[1], carried[1] = carried[2];
        spread[0] = spread[1], spread[1] = spread[2];
        coefficients(axis, point + stride, &carried[2], &spread[2]);
        const double *weights = fourth(at);
        double scale = time_step * DISSIPATION;
        double near[2] = {at > 1 ? upper[at - 2][0] : 0, at > 1 ? upper[at - 2][1] : 0};
        double below2 = scale * weights[0];
        double below = scale * weights[1] - carried[0] - spread[0] - below2 * near[0];
        double main = 1 + 2 * spread[1] + scale * weights[2] - below2 * near[1] -
                      below * upper[at - 1][0];
        double above = scale * weights[3] + carried[2] - spread[2] - below * upper[at - 1][1];
        upper[at][0] = above / main;
        upper[at][1] = scale * weights[4] / main;
        struct state here = load_state(rhs, point);
        for (size_t m = 0; m < COMPONENTS; m++)
            here.of[m] =
                (here.of[m] - below2 * before[0].of[m] - below * before[1].of[m]) / main;
        store_state(rhs, point, here);
        before[0] = before[1], before[1] = here;
    }
    struct state after[2] = {load_state(rhs, first + (n - 1) * stride), {{0}}};
    for (size_t at = n - 2; at > 0; at--) {
        struct state here = load_state(rhs, first + at * stride);
        for (size_t m = 0; m < COMPONENTS; m++)
            here.of[m] -= upper[at][0] * after[0].of[m] + upper[at][1] * after[1].of[m];
        store_state(rhs, first + at * stride, here);
        after[1] = after[0], after[0] = here;
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

/* A change of variables, and its inverse: a rotation of two components by an angle that depends on
 * the state, which the benchmark's matrices stand for. `whole`: they need the whole state. */
static void change(size_t first, size_t end, double sign, bool derived, bool whole)
{
    for (size_t k = first; k < end; k++)
        for (size_t j = 1; j < n - 1; j++)
            for (size_t i = 1; i < n - 1; i++) {
                size_t point = point_of(k, j, i);
                double angle = 0.1;
                if (derived)
                    angle += 1e-3 * (npb_load(rho_i, point) + npb_load(qs, point) +
                                     npb_load(speed, point) + npb_load(velocity[0], point) +
                                     npb_load(velocity[1], point) + npb_load(velocity[2], point));
                if (whole)
                    npb_touch(u, component(point, 0), false);
                struct state at = load_state(rhs, point);
                double turn = sign * angle, a = at.of[0], b = at.of[4];
                at.of[0] = a * cos(turn) - b * sin(turn);
                at.of[4] = a * sin(turn) + b * cos(turn);
                store_state(rhs, point, at);
            }
}

static void txinvr(size_t first, size_t end)
{
    change(first, end, 1, true, false);
}

static void ninvr(size_t first, size_t end)
{
    change(first, end, 1, false, false);
}

static void pinvr(size_t first, size_t end)
{
    change(first, end, -1, false, false);
}

static void tzetar(size_t first, size_t end)
{
    change(first, end, -1, true, true);
}

static void step(void)
{
    compute_rhs();
    npb_loop("txinvr", 1, n - 1, txinvr);
    npb_loop("x_solve", 1, n - 1, x_solve);
    npb_loop("ninvr", 1, n - 1, ninvr);
    npb_loop("y_solve", 1, n - 1, y_solve);
    npb_loop("pinvr", 1, n - 1, pinvr);
    npb_loop("z_solve", 1, n - 1, z_solve);
    npb_loop("tzetar", 1, n - 1, tzetar);
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
    apart = 1;
    const struct lab_option own[] = {
        npb_class_option,
        PADDING_OPTION,
        {.key = "components",
         .choice = &apart,
         .words = "together|apart",
         .help = "the five values of a point lie side by side, or in five arrays (apart)"},
        {0},
    };
    npb_start(argc, argv, own);
    adi_start(POINTS[npb_class], STEPS[npb_class], true);
    npb_run(prepare, step);
    npb_facts(adi_checksum(), "error", worst_error());
}
