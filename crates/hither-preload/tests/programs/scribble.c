// Writes noise over a session's segment, except over the header's page, which says how large the
// rest is: scribble NAME ROUNDS. Does so for ever where ROUNDS is 0.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>

enum { PAGE = 4096, WORDS = 64 << 10 };

int main(int argc, char **argv) {
    if (argc < 3) return 1;
    struct shmid_ds about;
    int id = atoi(argv[1]);
    if (shmctl(id, IPC_STAT, &about) || about.shm_segsz < PAGE + 8 * WORDS) return 2;
    char *segment = shmat(id, NULL, 0);
    if (segment == (char *)-1) return 3;
    uint64_t state = 1, *words = (uint64_t *)(segment + PAGE);
    long rounds = atol(argv[2]);
    for (long round = 0; rounds == 0 || round < rounds; round++)
        for (int word = 0; word < WORDS; word++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Small numbers too: states, modes, lengths.
            words[word] = state >> (state % 64);
        }
    return 0;
}
