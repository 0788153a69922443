/* What depends on the processor, for x86-64. */
#pragma once

#define PAGE_SHIFT 12

#define O_DIRECT 040000

struct pt_regs {
	unsigned long bp;
	unsigned long r10;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long sp;
} RELOCATED;

struct thread_info {
	u32 status;
} RELOCATED;

/* Of thread_info.status: the call is one of 32-bit x86, whose numbers are others. */
#define TS_COMPAT 2

#define IS_32_BIT(task) ((task)->thread_info.status & TS_COMPAT)

#define HAS_REGISTERS(registers) FIELD_EXISTS((registers)->orig_ax)
/* The number of the system call. */
#define CALL_OF(registers) ((registers)->orig_ax)
#define IS_IN_CALL(registers) ((s64)(registers)->orig_ax >= 0)
#define ARGUMENT_0(registers) ((registers)->di)
#define ARGUMENT_1(registers) ((registers)->si)
#define ARGUMENT_2(registers) ((registers)->dx)
#define ARGUMENT_3(registers) ((registers)->r10)
#define INSTRUCTION_POINTER(registers) ((registers)->ip)
#define STACK_POINTER(registers) ((registers)->sp)
#define FRAME_POINTER(registers) ((registers)->bp)

enum {
	CALL_READ = 0,
	CALL_PREAD64 = 17,
	CALL_READV = 19,
	CALL_SENDFILE64 = 40,
	CALL_SPLICE = 275,
	CALL_PREADV = 295,
	CALL_COPY_FILE_RANGE = 326,
	CALL_PREADV2 = 327,
};

/* Others that make pages come, or become dirty. */
enum {
	CALL_WRITE = 1,
	CALL_PWRITE64 = 18,
	CALL_WRITEV = 20,
	CALL_EXECVE = 59,
	CALL_TRUNCATE = 76,
	CALL_FTRUNCATE = 77,
	CALL_FALLOCATE = 285,
	CALL_PWRITEV = 296,
	CALL_EXECVEAT = 322,
	CALL_PWRITEV2 = 328,
};
