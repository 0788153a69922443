/* A plug-in whose last act is to call the runtime, which gcc -O2 makes a jump: the return address
 * is its caller's. They are written out, so that they are jumps by any compiler. */
#include <omp.h>
#include <stdio.h>

void take_step(void);
/* A barrier, and one that the host makes for us. */
void meet(void);
void (*through_host)(void (*)(void));

enum { THREADS = 64 };
static volatile int came[THREADS];
static int saw_all, members;
static int *volatile kept = &members;

__asm__(".text\n"
        ".globl take_step\n"
        ".type take_step, @function\n"
        "take_step:\n"
        "    lea region(%rip), %rdi\n"
        "    xor %esi, %esi\n"
        "    xor %edx, %edx\n"
        "    xor %ecx, %ecx\n"
        "    jmp GOMP_parallel@PLT\n"
        ".size take_step, . - take_step\n"
        ".globl meet\n"
        ".type meet, @function\n"
        "meet:\n"
        "    jmp GOMP_barrier@PLT\n"
        ".size meet, . - meet\n"
        ".type region, @function\n"
        "region:\n"
        "    sub $8, %rsp\n"
        "    call in_region\n"
        "    add $8, %rsp\n"
        "    jmp GOMP_barrier@PLT\n"
        ".size region, . - region\n");

__attribute__((used)) static void in_region(void)
{
    /* It asks the runtime of its region, in which there are some. */
    int threads = omp_get_num_threads(), all = threads > 1;
    int step = ++came[omp_get_thread_num()];
    if (through_host)
        through_host(meet);
    else
        meet();
    for (int i = 0; i < threads; i++)
        all &= came[i] >= step;
    __atomic_fetch_add(&saw_all, all, __ATOMIC_RELAXED);
    __atomic_fetch_add(kept, 1, __ATOMIC_RELAXED);
}

/* How many threads there were in the steps, and how many of them saw all others behind the barrier.
 */
int told(int what)
{
    return what ? saw_all : members;
}

#ifdef AT_LOAD
/* While the linker holds its lock. */
__attribute__((constructor)) static void loaded(void)
{
    take_step();
}
#endif
