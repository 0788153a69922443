// Has its own malloc, but no reallocarray. Where a library looks that up, another thread calls it
// at the same moment. Says whether the block that it resized has kept what was in it.
#include "allocator.c"
#include <dlfcn.h>
#include <stdlib.h>

static const char *found = "not looked up";

static void *resize(void *block) {
    char *resized = reallocarray(block, 2, 100 << 10);
    found = resized && !strcmp(resized, "block") ? "kept" : "lost";
    return NULL;
}

void *dlsym(void *handle, const char *name) {
    static int once;
    void *(*real)(void *, const char *) = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!strcmp(name, "reallocarray") && !once++) {
        char *block = malloc(100);
        pthread_t thread;
        strcpy(block, "block");
        if (pthread_create(&thread, NULL, resize, block)) abort();
        pthread_join(thread, NULL);
    }
    // Jumps there, so that the caller of this is the one whom "next" is of.
    return real(handle, name);
}

int main(void) {
    puts(found);
    return 0;
}
