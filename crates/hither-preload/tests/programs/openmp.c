// Three arrays and a loop over them by all threads.
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    enum { N = 1 << 20 };
    double *a = malloc(N * sizeof *a), *b = calloc(N, sizeof *b),
           *c = aligned_alloc(64, N * sizeof *c);
    for (int repeat = 0; repeat < 5; repeat++) {
#pragma omp parallel for
        for (int i = 0; i < N; i++) { a[i] = i; b[i] += a[i]; c[i] = a[i] + b[i]; }
    }
    double sum = 0;
    for (int i = 0; i < N; i++) sum += c[i];
    printf("%.0f\n", sum);
    free(a); free(b); free(c);
    return 0;
}
