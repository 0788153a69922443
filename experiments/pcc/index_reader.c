/* Reads as cscope does, and can step back in the index as the cscope of the PCC paper did.
 *
 *     index_reader INDEX NAMES READS BACK
 *
 * For each of six words: five scans of INDEX in reads of 8 KiB, then two scans of all files that
 * NAMES lists. After each READS reads of the index it steps back by BACK bytes; 0 reads: never. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 6, INDEX_SCANS = 5, TEXT_SCANS = 2 };

static char block[8192];

static void scan_index(const char *name, long reads, long back) {
    int file = open(name, O_RDONLY);
    for (long turn = 1; read(file, block, sizeof block) > 0; turn++)
        if (reads && turn % reads == 0)
            lseek(file, -back, SEEK_CUR);
    close(file);
}

static void scan_source(const char *name) {
    int file = open(name, O_RDONLY);
    while (read(file, block, sizeof block) > 0)
        ;
    close(file);
}

int main(int count, char **words) {
    char name[4096];
    if (count != 5)
        return 2;
    for (int word = 0; word < WORDS; word++) {
        for (int scan = 0; scan < INDEX_SCANS; scan++)
            scan_index(words[1], atol(words[3]), atol(words[4]));
        for (int scan = 0; scan < TEXT_SCANS; scan++) {
            FILE *names = fopen(words[2], "r");
            while (names && fgets(name, sizeof name, names)) {
                name[strcspn(name, "\n")] = 0;
                scan_source(name);
            }
            if (names)
                fclose(names);
        }
    }
    return 0;
}
