/* A program with a tool of its own for its OpenMP runtime. */
#include <omp-tools.h>
#include <stdio.h>

static long begun;

static void begins(ompt_data_t *task, const ompt_frame_t *frame, ompt_data_t *parallel,
    unsigned threads, int flags, const void *code) {
    (void)task, (void)frame, (void)parallel, (void)threads, (void)flags, (void)code;
    begun++;
}

static int initialize(ompt_function_lookup_t lookup, int device, ompt_data_t *data)
{
    (void)device, (void)data;
    ((ompt_set_callback_t)lookup("ompt_set_callback"))(
        ompt_callback_parallel_begin, (ompt_callback_t)begins);
    return 1;
}

static void finalize(ompt_data_t *data)
{
    (void)data;
}

ompt_start_tool_result_t *ompt_start_tool(unsigned version, const char *runtime)
{
    static ompt_start_tool_result_t tool = {initialize, finalize, {0}};
    (void)version, (void)runtime;
    return &tool;
}

#ifndef LIBRARY
int main(void)
{
    long all = 0;
    for (int it = 0; it < 10; it++) {
#pragma omp parallel for reduction(+ : all)
        for (int i = 0; i < 100; i++)
            all += i;
    }
    printf("%ld %ld\n", all, begun);
    return 0;
}
#endif
