/* For programs that want to say where their iterations end. `hither run` finds out by itself where
 * they are loops over OpenMP constructs; a program that uses other threads, or whose loops look
 * otherwise, calls
 *
 *     hither_iteration();
 *
 * from one thread at the end of each iteration. There is nothing to link with: without hither the
 * call is a load and a branch. It is found in the process at its first call, so that it also works
 * in programs that are not linked as position-independent, where a weak symbol would be bound to
 * nothing when they are linked. A static program never finds it. */
#ifndef HITHER_H
#define HITHER_H

#include <dlfcn.h>

#ifdef __cplusplus
extern "C" {
#endif

static inline void hither_nothing(void) {}

/* One to a file that includes this. */
static inline void hither_iteration(void)
{
    static void (*told)(void);
    void (*tell)(void) = __atomic_load_n(&told, __ATOMIC_RELAXED);
    if (!tell) {
        void *found = dlsym((void *)0 /* RTLD_DEFAULT */, "hither_iteration");
        tell = hither_nothing;
        if (found)
            *(void **)&tell = found; /* ISO C has no cast for that */
        __atomic_store_n(&told, tell, __ATOMIC_RELAXED);
    }
    tell();
}

#ifdef __cplusplus
}
#endif

#endif
