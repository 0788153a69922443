/* Whole files through stdio in several ways; MODE chooses one. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

static unsigned long sum_of(FILE *file) {
    unsigned long sum = 0;
    int letter;
    while ((letter = getc(file)) != EOF) sum = sum * 31 + letter;
    return sum;
}

int main(int argc, char **argv) {
    const char *mode = argv[1], *path = argv[2], *other = argv[3];
    static char buffer[3000];
    if (!strcmp(mode, "getc")) {
        FILE *file = fopen(path, "r");
        printf("%lu\n", sum_of(file));
        fclose(file);
        /* The descriptor is used again, for another file. */
        file = fopen(other, "r");
        printf("%lu\n", sum_of(file));
        fclose(file);
    } else if (!strcmp(mode, "fread")) {
        FILE *file = fopen64(path, "rb");
        size_t got, total = 0;
        while ((got = fread(buffer, 1, sizeof buffer, file)) > 0) total += got;
        printf("%zu\n", total);
        fclose(file);
    } else if (!strcmp(mode, "fdopen")) {
        FILE *file = fdopen(open(path, O_RDONLY), "r");
        printf("%lu\n", sum_of(file));
        file = freopen(other, "r", file);
        printf("%lu\n", sum_of(file));
        fclose(file);
    } else if (!strcmp(mode, "wide")) {
        FILE *file = fopen(path, "r");
        unsigned long count = 0;
        while (getwc(file) != WEOF) count++;
        printf("%lu\n", count);
        fclose(file);
    } else if (!strcmp(mode, "seek")) {
        FILE *file = fopen(path, "r");
        for (long at = 0; at < 64; at++) {
            fseek(file, (at * 37 % 64) * 4096, SEEK_SET);
            if (fread(buffer, 1, 100, file) != 100) return 1;
        }
        fclose(file);
        puts("sought");
    } else if (!strcmp(mode, "write")) {
        FILE *file = fopen(path, "w");
        for (int line = 0; line < 1000; line++) fprintf(file, "line %d of many\n", line);
        fclose(file);
        puts("written");
    }
    return 0;
}
