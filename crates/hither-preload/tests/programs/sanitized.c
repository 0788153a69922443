// Correct, or with an argument not: for the address sanitizer.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    (void)argv;
    char *p = malloc(2 << 20), *q = calloc(3, 1 << 20);
    memset(p, 1, 2 << 20);
    p = realloc(p, 4 << 20);
    free(q);
    volatile char last = p[(4 << 20) - (argc > 1 ? 0 : 1)];
    free(p);
    printf("fine %d\n", last * 0);
    return 0;
}
