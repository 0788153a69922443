/* Has no OpenMP, and takes steps with plug-ins that are loaded for themselves alone: each by
 * itself, then in turns. What calls them is this program in one turn, and code that was made at run
 * time, and lies in no library, in the next. A library after a '+' is loaded for all, and one after
 * a '-' is unloaded at once. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PLUGINS = 64 };
typedef void caller(void (*)(void));

static void program(void (*function)(void))
{
    function();
    /* So that the call is none in the end. */
    __asm__ volatile("");
}

static caller *made(void)
{
    /* sub $8, %rsp; call *%rdi; add $8, %rsp; ret */
    static const char code[] = "\x48\x83\xec\x08\xff\xd7\x48\x83\xc4\x08\xc3";
    void *page =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, code, sizeof code);
    return (caller *)page;
}

int main(int argc, char **argv)
{
    caller *callers[] = {program, made()}, **through[PLUGINS];
    void (*steps[PLUGINS])(void), (*meets[PLUGINS])(void);
    int (*told[PLUGINS])(int);
    int plugins = 0, binding = getenv("LAZY") ? RTLD_LAZY : RTLD_NOW;
    for (int argument = 1; argument < argc && plugins < PLUGINS; argument++) {
        int other = argv[argument][0];
        int for_all = other == '+' ? RTLD_GLOBAL : RTLD_LOCAL;
        other = other == '+' || other == '-';
        void *plugin = dlopen(argv[argument] + other, binding | for_all);
        if (!plugin) {
            printf("%s\n", dlerror());
            return 1;
        }
        if (other) {
            if (!for_all)
                dlclose(plugin);
            continue;
        }
        int i = plugins++;
        steps[i] = (void (*)(void))dlsym(plugin, "take_step");
        meets[i] = (void (*)(void))dlsym(plugin, "meet");
        told[i] = (int (*)(int))dlsym(plugin, "told");
        through[i] = (caller **)dlsym(plugin, "through_host");
        *through[i] = callers[i % 2];
        /* In no region it is passed at once. */
        if (meets[i])
            program(meets[i]);
        steps[i]();
    }
    for (int turn = 0; turn < 10; turn++)
        for (int i = 0; i < plugins; i++) {
            *through[i] = callers[turn % 2];
            callers[turn / 2 % 2](steps[i]);
            if (meets[i])
                callers[turn % 2](meets[i]);
        }
    for (int i = 0; i < plugins; i++)
        printf("%d of %d\n", told[i](1), told[i](0));
    return 0;
}
