/* What depends on the processor, for 64-bit Arm. */
#pragma once

/* Pages have 4, 16 or 64 KiB: the loader says which. */
const volatile u32 page_shift = 12;
#define PAGE_SHIFT page_shift

#define O_DIRECT 0200000

struct pt_regs {
	u64 regs[31];
	u64 sp;
	u64 pc;
	/* The first argument; the first register has the result by the end of a call. */
	u64 orig_x0;
	/* -1 outside of calls. */
	s32 syscallno;
} RELOCATED;

struct thread_info {
	unsigned long flags;
} RELOCATED;

/* Of thread_info.flags: the program is one of 32 bits, whose numbers of calls are others. */
#define TIF_32BIT 22

#define IS_32_BIT(task) ((task)->thread_info.flags >> TIF_32BIT & 1)

#define HAS_REGISTERS(registers) FIELD_EXISTS((registers)->syscallno)
/* The number of the system call. */
#define CALL_OF(registers) ((s64)(registers)->syscallno)
#define IS_IN_CALL(registers) ((registers)->syscallno >= 0)
#define ARGUMENT_0(registers) ((registers)->orig_x0)
#define ARGUMENT_1(registers) ((registers)->regs[1])
#define ARGUMENT_2(registers) ((registers)->regs[2])
#define ARGUMENT_3(registers) ((registers)->regs[3])
#define INSTRUCTION_POINTER(registers) ((registers)->pc)
#define STACK_POINTER(registers) ((registers)->sp)
#define FRAME_POINTER(registers) ((registers)->regs[29])
/* Where the innermost function returns to, or the last that it has called has returned to. */
#define LINK_REGISTER(registers) ((registers)->regs[30])

enum {
	CALL_READ = 63,
	CALL_READV = 65,
	CALL_PREAD64 = 67,
	CALL_PREADV = 69,
	CALL_SENDFILE64 = 71,
	CALL_SPLICE = 76,
	CALL_COPY_FILE_RANGE = 285,
	CALL_PREADV2 = 286,
};

/* Others that make pages come, or become dirty. */
enum {
	CALL_TRUNCATE = 45,
	CALL_FTRUNCATE = 46,
	CALL_FALLOCATE = 47,
	CALL_WRITE = 64,
	CALL_WRITEV = 66,
	CALL_PWRITE64 = 68,
	CALL_PWRITEV = 70,
	CALL_EXECVE = 221,
	CALL_EXECVEAT = 281,
	CALL_PWRITEV2 = 287,
};
