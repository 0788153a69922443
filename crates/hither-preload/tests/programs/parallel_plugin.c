/* A plug-in that brings OpenMP into a program that has none. */
enum { N = 1024 };
static long u[N];

long compute(long iterations)
{
    long all = 0;
    for (long it = 0; it < iterations; it++) {
#pragma omp parallel for
        for (int i = 0; i < N; i++)
            u[i] += i;
#pragma omp parallel
        {
#pragma omp for
            for (int i = 0; i < N; i++)
                u[i] &= 0xfff;
#pragma omp barrier
        }
    }
    for (int i = 0; i < N; i++)
        all += u[i];
    return all;
}

#ifdef AT_LOAD
/* Some compute as they are loaded, while the linker holds its lock. */
__attribute__((constructor)) static void loaded(void)
{
    compute(3);
}
#endif
