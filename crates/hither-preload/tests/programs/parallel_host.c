/* Loads plug-ins for themselves alone, and computes with each. Then unloads the second, whose
 * runtime the first still uses, computes with the first, and does all that with the second again.
 * (A runtime that is unloaded takes the code away from its own threads, and the program dies.) */
#include <dlfcn.h>
#include <stdio.h>

static void *run(const char *path)
{
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!plugin) {
        printf("%s\n", dlerror());
        return NULL;
    }
    long (*compute)(long) = (long (*)(long))dlsym(plugin, "compute");
    printf("%ld\n", compute(10));
    return plugin;
}

int main(int argc, char **argv)
{
    void *second = NULL;
    for (int i = 1; i < argc; i++) {
        void *plugin = run(argv[i]);
        if (i == 2)
            second = plugin;
    }
    printf("%d\n", dlclose(second));
    run(argv[1]);
    run(argv[2]);
    return 0;
}
