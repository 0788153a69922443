/* System calls that read, and the files of their descriptors. The numbers are those of x86-64. */
#pragma once

#include "kernel.h"

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

/* Of thread_info.status: the call is one of 32-bit x86, whose numbers are others. */
#define TS_COMPAT 2

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
