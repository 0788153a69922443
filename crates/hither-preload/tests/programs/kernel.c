/* Files that are mapped, and bytes that the kernel moves. PATH, and a file to write. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int from = open(argv[1], O_RDONLY), to = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
    char *map = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, from, 4096);
    if (map == MAP_FAILED) { perror("mmap"); return 1; }
    printf("%d\n", map[0]);
    munmap(map, 8192);
    off_t at = 1000;
    printf("%zd\n", sendfile(to, from, &at, 500));      /* from 1000 + 500, to 0 + 500 */
    loff_t in = 2000;
    printf(
        "%zd\n", copy_file_range(from, &in, to, NULL, 600, 0)); /* from 2000 + 600, to 500 + 600 */
    int ends[2];
    loff_t splice_from = 3000;
    if (pipe(ends)) return 1;
    printf("%zd\n", splice(from, &splice_from, ends[1], NULL, 700, 0)); /* from 3000 + 700 */
    return 0;
}
