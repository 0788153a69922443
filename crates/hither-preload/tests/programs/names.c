/* Opens files by every kind of path. Prints, for each read, its length and the file's path as /proc
 * has it. FOLDER with the files one, two, three and the folders a/b and c, each with the files x, y
 * and z. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int length = 10;
static char buffer[4096];

static void expect(int truth, const char *what) {
    if (!truth) { perror(what); exit(1); }
}

static void use(int fd, const char *what) {
    char link[64], path[4096] = "";
    expect(fd >= 0, what);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    expect(readlink(link, path, sizeof path - 1) > 0, "readlink");
    expect(read(fd, buffer, length) == length, what);
    printf("%d %s\n", length++, path);
    fflush(stdout);
}

static void use_and_close(int fd, const char *what) {
    use(fd, what);
    close(fd);
}

static void *in_thread(void *folder) {
    use_and_close(open("two", O_RDONLY), "thread");
    use_and_close(openat(*(int *)folder, "x", O_RDONLY), "thread at");
    return NULL;
}

int main(int argc, char **argv) {
    char path[4096];
    expect(chdir(argv[1]) == 0, "chdir");
    snprintf(path, sizeof path, "%s/one", argv[1]);
    use_and_close(open(path, O_RDONLY), "absolute");
    use_and_close(open("two", O_RDONLY), "relative");
    use_and_close(open("./three", O_RDONLY), "dot");
    use_and_close(open("a//b/./x", O_RDONLY), "slashes");
    use_and_close(open("a/../c/x", O_RDONLY), "parent");
    expect(chdir("a") == 0, "chdir");
    use_and_close(open("b/x", O_RDONLY), "after chdir");
    int folder = open("../c", O_RDONLY | O_DIRECTORY);
    use_and_close(openat(folder, "x", O_RDONLY), "at");
    use_and_close(openat(folder, "../one", O_RDONLY), "at, parent");
    /* The number of a folder's descriptor is another folder's next. */
    close(folder);
    int again = open("b", O_RDONLY | O_DIRECTORY);
    expect(again == folder, "the same number");
    use_and_close(openat(folder, "z", O_RDONLY), "another at");
    close(again);
    DIR *opened = opendir("../c");
    expect(dirfd(opened) == folder, "the same number");
    use_and_close(openat(folder, "y", O_RDONLY), "opendir");
    closedir(opened);
    opened = opendir("b");
    expect(dirfd(opened) == folder, "the same number");
    use_and_close(openat(dirfd(opened), "y", O_RDONLY), "another opendir");
    fchdir(dirfd(opened));
    use_and_close(open("x", O_RDONLY), "after fchdir");
    expect(chdir(argv[1]) == 0, "chdir");
    pthread_t thread;
    int number = dirfd(opened);
    pthread_create(&thread, NULL, in_thread, &number);
    pthread_join(thread, NULL);
    closedir(opened);
    /* A child opens other files in its parent's memory, under the parent's numbers. */
    int fd = open("one", O_RDONLY);
    pid_t child = vfork();
    if (child == 0) {
        close(fd);
        if (open("two", O_RDONLY) != fd) _exit(1);
        if (chdir("a") != 0) _exit(1);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    expect(status == 0, "vfork");
    use_and_close(fd, "after vfork");
    use_and_close(open("three", O_RDONLY), "after vfork");
    child = fork();
    if (child == 0) {
        expect(chdir("c") == 0, "chdir");
        use_and_close(open("x", O_RDONLY), "child");
        exit(0);
    }
    waitpid(child, NULL, 0);
    length++;
    use_and_close(open("one", O_RDONLY), "after fork");
    use_and_close(open("made", O_RDWR | O_CREAT, 0600), "made");
    char template[] = "c/temporary-XXXXXX";
    fd = mkstemp(template);
    expect(write(fd, buffer, 4000) == 4000 && lseek(fd, 0, SEEK_SET) == 0, "write");
    use_and_close(fd, "mkstemp");
    FILE *stream = fopen("three", "r");
    use(fileno(stream), "stream");
    fclose(stream);
    use_and_close(open("/proc/self/cwd/two", O_RDONLY), "by /proc");
    use_and_close(open("/dev/fd/../cwd/two", O_RDONLY), "by /dev");
    return 0;
}
