// Looks keys of an LMDB database up at random, without readahead. For by_kernel.py.
//
//     lmdb make FOLDER ENTRIES        makes a database with values of 400 bytes
//     lmdb get FOLDER ENTRIES READS
//
// "get" says "ready" and waits for a line on its stdin. Then it prints as JSON how many pages of
// the map are newly in its page tables, how many of the map were cached before, without being in
// its page tables, and how many major faults it had.

#define _GNU_SOURCE
#include <fcntl.h>
#include <lmdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PAGE = 4096, VALUE = 400 };

static void check(int status) {
    if (status != 0) {
        fprintf(stderr, "%s\n", mdb_strerror(status));
        exit(1);
    }
}

// How many pages of the file are in this process's page tables, and how many are cached.
static long present(const char *path, long *cached) {
    FILE *maps = fopen("/proc/self/maps", "r");
    int table = open("/proc/self/pagemap", O_RDONLY);
    char line[5000];
    long found = 0;
    *cached = 0;
    while (fgets(line, sizeof line, maps)) {
        uintptr_t start, end;
        if (!strstr(line, path) || sscanf(line, "%lx-%lx", &start, &end) != 2) continue;
        unsigned char *is_cached = malloc((end - start) / PAGE);
        int status = mincore((void *)start, end - start, is_cached);
        for (uintptr_t n = 0; status == 0 && n < (end - start) / PAGE; n++)
            *cached += is_cached[n] & 1;
        free(is_cached);
        for (uintptr_t at = start; at < end; at += PAGE) {
            uint64_t entry = 0;
            if (pread(table, &entry, sizeof entry, at / PAGE * sizeof entry) != sizeof entry) break;
            found += entry >> 63;
        }
    }
    fclose(maps);
    close(table);
    return found;
}

int main(int count, char **words) {
    if (count < 4) return 2;
    int makes = strcmp(words[1], "make") == 0;
    long entries = atol(words[3]);
    char path[4200], key[24], value[VALUE];
    snprintf(path, sizeof path, "%s/data.mdb", words[2]);
    MDB_env *environment;
    MDB_txn *transaction;
    MDB_dbi database;
    check(mdb_env_create(&environment));
    check(mdb_env_set_mapsize(environment, (size_t)1 << 30));
    check(mdb_env_open(environment, words[2], makes ? 0 : MDB_RDONLY | MDB_NORDAHEAD, 0600));
    check(mdb_txn_begin(environment, NULL, makes ? 0 : MDB_RDONLY, &transaction));
    check(mdb_dbi_open(transaction, NULL, 0, &database));
    MDB_val one = {8, key}, found = {VALUE, value};
    if (makes) {
        for (long n = 0; n < entries; n++) {
            snprintf(key, sizeof key, "%08ld", n);
            memset(value, (int)n, VALUE);
            check(mdb_put(transaction, database, &one, &found, 0));
        }
        check(mdb_txn_commit(transaction));
        mdb_env_close(environment);
        return 0;
    }
    long cached, cached_after, before = present(path, &cached);
    printf("ready\n");
    fflush(stdout);
    getchar();
    struct rusage usage[2];
    getrusage(RUSAGE_SELF, &usage[0]);
    uint64_t state = 88172645463325252u;
    for (long n = atol(words[4]), sum = 0; n > 0; n--) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        snprintf(key, sizeof key, "%08ld", (long)(state % entries));
        check(mdb_get(transaction, database, &one, &found));
        sum += ((volatile char *)found.mv_data)[VALUE - 1];
    }
    getrusage(RUSAGE_SELF, &usage[1]);
    printf("{\"pages\": %ld, \"cached_before\": %ld, \"major_faults\": %ld}\n",
           present(path, &cached_after) - before, cached - before,
           usage[1].ru_majflt - usage[0].ru_majflt);
    return 0;
}
