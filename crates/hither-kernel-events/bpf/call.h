/* System calls that read, and the files of their descriptors. */
#pragma once

#include "kernel.h"

/* Of task_struct.flags: it works for an io_uring. */
#define PF_IO_WORKER 0x10

/* Whether the task is in a call that reads or writes files, or that executes one. What io_uring
 * does for it is in none, or in one of its own; what a fault does is in none. */
static FUNCTION bool is_in_call(struct task_struct *task)
{
	struct pt_regs *registers = bpf_task_pt_regs(task);

	if (!HAS_REGISTERS(registers) || task->flags & PF_IO_WORKER)
		return 0;
	switch (CALL_OF(registers)) {
	case CALL_READ:
	case CALL_WRITE:
	case CALL_PREAD64:
	case CALL_PWRITE64:
	case CALL_READV:
	case CALL_WRITEV:
	case CALL_SENDFILE64:
	case CALL_EXECVE:
	case CALL_TRUNCATE:
	case CALL_FTRUNCATE:
	case CALL_SPLICE:
	case CALL_FALLOCATE:
	case CALL_PREADV:
	case CALL_PWRITEV:
	case CALL_EXECVEAT:
	case CALL_COPY_FILE_RANGE:
	case CALL_PREADV2:
	case CALL_PWRITEV2:
		return 1;
	default:
		return 0;
	}
}

/* The file of a descriptor. Another thread may close it meanwhile: what is read of it is read with
 * helpers, which cannot fault. */
static ALWAYS_INLINE struct file *file_of(struct task_struct *task, u32 descriptor)
{
	struct fdtable *table = task->files->fdt;
	struct file **descriptors;

	if (descriptor >= table->max_fds)
		return NULL;
	descriptors = table->fd;
	return read_pointer(descriptors + descriptor);
}
