/* Programs in parallel constructs, by name: `parallel NAME [ITERATIONS]`. Each prints sums of whole
 * numbers, which do not depend on the order of threads. */
#include <dlfcn.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../include/hither.h"

enum { N = 4096 };
static long u[N], v[N], w[N];

static void fill(void)
{
#pragma omp parallel for
    for (int i = 0; i < N; i++)
        u[i] = i % 17, v[i] = i % 5, w[i] = 0;
}

static long sum(const long *of)
{
    long all = 0;
#pragma omp parallel for reduction(+ : all)
    for (int i = 0; i < N; i++)
        all += of[i];
    return all;
}

/* BT: a right-hand side, sweeps along three directions, an update; 15 constructs: 5 regions, of
 * which one has 10 barriers in it. */
static void bt(long iterations)
{
    for (long it = 0; it < iterations; it++) {
#pragma omp parallel
        {
#pragma omp for
            for (int i = 0; i < N; i++)
                w[i] = u[i] + it;
#pragma omp for
            for (int i = 1; i < N; i++)
                v[i] += w[i - 1] & 3;
#pragma omp for schedule(dynamic, 64)
            for (int i = 0; i < N; i++)
                w[i] ^= v[i];
#pragma omp for schedule(guided)
            for (int i = 0; i < N; i++)
                w[i] += 1;
#pragma omp sections
            {
#pragma omp section
                u[0]++;
#pragma omp section
                u[1]++;
            }
#pragma omp barrier
#pragma omp single
            u[2]++;
#pragma omp for
            for (int i = 0; i < N; i++)
                w[i] &= 0xffff;
#pragma omp for
            for (int i = 0; i < N; i++)
                v[i] &= 0xffff;
#pragma omp barrier
        }
#pragma omp parallel for
        for (int i = 0; i < N; i++)
            w[i] += u[i];
#pragma omp parallel for schedule(dynamic, 128)
        for (int i = 0; i < N; i++)
            v[i] += w[i] & 7;
#pragma omp parallel for schedule(guided)
        for (int i = 0; i < N; i++)
            w[i] -= v[i] & 1;
#pragma omp parallel for schedule(runtime)
        for (int i = 0; i < N; i++)
            u[i] += w[i] & 1;
    }
}

/* CG: an inner solver of 25 iterations within each. */
static void cg(long iterations)
{
    for (long it = 0; it < iterations; it++) {
        fill();
        long rho = sum(u);
        for (int inner = 0; inner < 25; inner++) {
#pragma omp parallel for
            for (int i = 0; i < N; i++)
                w[i] = u[i] + v[(i * 7) % N];
            rho += sum(w);
#pragma omp parallel for
            for (int i = 0; i < N; i++)
                v[i] = (w[i] + rho) & 0xff;
        }
#pragma omp parallel for
        for (int i = 0; i < N; i++)
            u[i] = v[i];
        rho += sum(u);
#pragma omp parallel for
        for (int i = 0; i < N; i++)
            u[i] += rho & 1;
    }
}

/* Jacobi: two sweeps an iteration, and a norm with every tenth. */
static void jacobi(long iterations)
{
    for (long it = 1; it <= iterations; it++) {
#pragma omp parallel for
        for (int i = 1; i < N - 1; i++)
            v[i] = (u[i - 1] + u[i + 1]) / 2 + 1;
#pragma omp parallel for
        for (int i = 1; i < N - 1; i++)
            u[i] = v[i];
        if (it % 10 == 0)
            printf("%ld: %ld\n", it, sum(u));
    }
}

/* One region for the whole program, iterations within it. */
static void inside(long iterations)
{
#pragma omp parallel
    for (long it = 0; it < iterations; it++) {
#pragma omp for
        for (int i = 0; i < N; i++)
            w[i] = u[i] + it;
#pragma omp for
        for (int i = 0; i < N; i++)
            u[i] = w[N - 1 - i] & 0xffff;
#pragma omp single
        v[0] += u[0] & 1;
    }
}

/* Regions within regions: only the outer ones count. */
static void nested(long iterations)
{
    omp_set_max_active_levels(2);
    for (long it = 0; it < iterations; it++) {
#pragma omp parallel num_threads(2)
        {
            int half = omp_get_thread_num();
            int count = omp_get_num_threads();
#pragma omp parallel num_threads(2)
            {
#pragma omp for
                for (int i = 0; i < N; i++)
                    if (i % count == half)
                        w[i] += u[i];
#pragma omp barrier
            }
#pragma omp barrier
        }
#pragma omp parallel for
        for (int i = 0; i < N; i++)
            u[i] = w[i] & 0xfff;
    }
}

static long fibonacci(int n)
{
    if (n < 2)
        return n;
    long a, b;
#pragma omp task shared(a) if (n > 8)
    a = fibonacci(n - 1);
    b = fibonacci(n - 2);
#pragma omp taskwait
    return a + b;
}

static void tasks(long iterations)
{
    for (long it = 0; it < iterations; it++) {
        long all = 0;
#pragma omp parallel reduction(task, + : all)
        {
#pragma omp single
            for (int i = 0; i < 8; i++)
#pragma omp task in_reduction(+ : all)
                all += fibonacci(10 + i % 3);
        }
        u[it % N] += all;
#pragma omp parallel
#pragma omp single
#pragma omp taskloop
        for (int i = 0; i < N; i++)
            v[i] += u[i] & 1;
    }
}

/* A search that is cancelled when something is found. */
static void cancel(long iterations)
{
    for (long it = 0; it < iterations; it++) {
        long found = 0;
#pragma omp parallel
        {
#pragma omp for
            for (int i = 0; i < N; i++) {
                if (u[i] == 16) {
#pragma omp atomic write
                    found = 1;
#pragma omp cancel for
                }
#pragma omp cancellation point for
            }
#pragma omp barrier
#pragma omp atomic
            w[1] += found;
        }
        w[0] += found;
    }
    w[1] = w[1] > 0;
}

/* The child of a fork goes on by itself; libgomp lets it have no team. */
static void forks(long iterations)
{
    jacobi(iterations);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        omp_set_num_threads(1);
        jacobi(iterations);
        fflush(stdout);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    jacobi(iterations);
    printf("child %d\n", WEXITSTATUS(status));
}

/* The program says where its iterations end. */
static void told(long iterations)
{
    for (long it = 0; it < iterations; it++) {
        for (long step = 0; step <= it % 3; step++)
            jacobi(1);
        hither_iteration();
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(long);
    } programs[] = {{"bt", bt}, {"cg", cg}, {"jacobi", jacobi}, {"inside", inside},
        {"nested", nested}, {"tasks", tasks}, {"cancel", cancel}, {"forks", forks}, {"told", told}};
    long iterations = argc > 2 ? atol(argv[2]) : 20;
    fill();
    for (size_t i = 0; argc > 1 && i < sizeof programs / sizeof *programs; i++)
        if (!strcmp(argv[1], programs[i].name)) {
            programs[i].run(iterations);
            printf("%ld %ld %ld\n", sum(u), sum(v), sum(w));
            return 0;
        }
    return 2;
}
