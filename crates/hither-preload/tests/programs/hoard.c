// Allocates many pages, keeps them all, then frees them.
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    (void)argc;
    int count = atoi(argv[1]);
    char **blocks = calloc(count, sizeof *blocks);
    for (int i = 0; i < count; i++) (blocks[i] = malloc(4096))[4095] = (char)i;
    int wrong = 0;
    for (int i = 0; i < count; i++) wrong += blocks[i][4095] != (char)i, free(blocks[i]);
    free(blocks);
    printf("%d wrong\n", wrong);
    return 0;
}
