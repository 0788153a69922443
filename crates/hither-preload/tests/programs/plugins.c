/* Loads and unloads two libraries in turn, which tend to land at the same address. FILE ONE TWO. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDONLY);
    for (int i = 0; i < 20; i++) {
        void *library = dlopen(argv[2 + i % 2], RTLD_NOW);
        if (!library) { puts(dlerror()); return 1; }
        int (*plugin)(int) = (int (*)(int))dlsym(library, "plugin");
        if (plugin(fd) != 1) return 1;
        dlclose(library);
    }
    puts("done");
    return 0;
}
