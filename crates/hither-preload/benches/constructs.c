// Begins and ends parallel regions of one thread, and says how many nanoseconds of a CPU it took:
// ROUNDS.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv) {
    (void)argc;
    long rounds = strtol(argv[1], NULL, 10), sum = 0;
    struct timespec from, to;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    for (long i = 0; i < rounds; i++) {
#pragma omp parallel num_threads(1)
        {
#pragma omp atomic
            sum += i;
#pragma omp barrier
        }
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    if (sum < 0) return 1;
    printf("%lld\n", (to.tv_sec - from.tv_sec) * 1000000000LL + to.tv_nsec - from.tv_nsec);
    return 0;
}
