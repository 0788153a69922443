/* Marks that the plugin sees and a real CPU ignores: an 8-byte NOP whose displacement carries a
 * code ("MUN" and one byte). Natively they cost one decoded NOP, so the programs run unchanged
 * outside the lab. */
#ifndef HITHER_LAB_MARK_H
#define HITHER_LAB_MARK_H

#define LAB_MARK(code)                                                                             \
    __asm__ volatile(".byte 0x0f,0x1f,0x84,0x00," #code ",0x4d,0x55,0x4e" ::: "memory")

#define lab_begin()                                                                                \
    LAB_MARK(0x01) /* the region of interest opens: counts start at zero, caches stay warm */
#define lab_end() LAB_MARK(0x02)       /* it closes: the last interval is written out */
#define lab_iteration() LAB_MARK(0x03) /* an interval ends and the next begins */

/* Names [start, start + bytes) as the next address range (numbered from 0). The plugin takes the
 * addresses of the next two loads, since not every plugin API can read registers. It knows
 * virtual addresses but no process, so accesses of another program to the same addresses are
 * counted too. Both bytes must have been touched already. */
static inline void lab_range(const volatile void *start, unsigned long bytes)
{
    const volatile unsigned char *first = (const volatile unsigned char *)start;
    __asm__ volatile(
        ".byte 0x0f,0x1f,0x84,0x00,0x04,0x4d,0x55,0x4e\n\tmovb (%0), %%al\n\tmovb (%1), %%al"
        :
        : "r"(first), "r"(first + bytes - 1)
        : "rax", "memory");
}

#endif
