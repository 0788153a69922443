/* Reads of files, by the system calls that make them: where the kernel has neither tracepoints nor
 * functions to attach to. Once a call, as it returns, with the pages that were read.
 *
 * Calls that wait in a ring (io_uring) and those of 32-bit programs are not seen. Of two threads
 * that read through one descriptor at its position, pages may be others'.
 */
#pragma once

#include "call.h"
#include "file.h"

#define OVERLAYFS_SUPER_MAGIC 0x794c7630

/* Whether this is a file: its inode is that of its pages. */
static ALWAYS_INLINE bool is_file(struct file *file)
{
	struct address_space *mapping = read_pointer(&file->f_mapping);
	struct inode *inode = read_pointer(&file->f_inode);

	return inode && read_pointer(&mapping->host) == inode;
}

/* The file that has the pages. One of overlayfs has the layer's file; since 6.13 there is a
 * structure in between, whose first field it is. */
static ALWAYS_INLINE struct file *file_with_pages(struct file *file)
{
	struct inode *inode = read_pointer(&file->f_inode);
	struct super_block *file_system = read_pointer(&inode->i_sb);
	unsigned long magic = 0;
	void *data;

	COPY(magic, file_system->s_magic);
	if (magic != OVERLAYFS_SUPER_MAGIC)
		return file;
	data = read_pointer(&file->private_data);
	return is_file(data) ? data : read_pointer(data);
}

/* Whether reads of the file go through the page cache. Files in memory alone (tmpfs, hugetlbfs)
 * cannot be read into it, and those without content of their own (proc, sysfs), pipes and sockets
 * have no page in it. */
static ALWAYS_INLINE bool is_cached(struct file *file, struct address_space *mapping)
{
	struct address_space_operations *operations = read_pointer(&mapping->a_ops);
	struct address_space_operations___518 *before = (void *)operations;
	unsigned long pages = 0;
	u32 flags = O_DIRECT;

	COPY(flags, file->f_flags);
	COPY(pages, mapping->nrpages);
	/* In older kernels, sysfs has operations of the page cache. */
	if (flags & O_DIRECT || !pages)
		return 0;
	if (FIELD_EXISTS(operations->read_folio))
		return read_pointer(&operations->read_folio) != NULL;
	return read_pointer(&before->readpage) != NULL;
}

/* Fills in the file, as `observes` does, of a pointer that the verifier knows nothing of. */
static ALWAYS_INLINE bool observes_file_at(struct address_space *mapping, struct pages *pages)
{
	struct inode *inode = read_pointer(&mapping->host);
	struct super_block *file_system = read_pointer(&inode->i_sb);
	unsigned long number = 0;

	COPY(number, inode->i_ino);
	pages->inode = inode;
	pages->file.inode = number;
	COPY(pages->file.generation, inode->i_generation);
	COPY(pages->file.device, file_system->s_dev);
	return observes_file(&pages->file);
}

SEC("tp_btf/sys_exit")
int read_call(u64 *context)
{
	struct pt_regs *registers = (void *)context[0];
	struct pages pages = { .kind = EVENT_READ };
	struct task_struct *task = bpf_get_current_task_btf();
	s64 bytes = (s64)context[1], offset = -1;
	u64 call = CALL_OF(registers), to_offset = 0;
	u32 descriptor = ARGUMENT_0(registers);
	struct address_space *mapping;
	struct thread *thread;
	struct file *file, *cached;

	if (bytes <= 0)
		return 0;
	switch (call) {
	case CALL_READ:
	case CALL_READV:
		break;
	case CALL_PREAD64:
	case CALL_PREADV:
	/* Its offset may be -1: the file's position. */
	case CALL_PREADV2:
		offset = ARGUMENT_3(registers);
		break;
	case CALL_SENDFILE64:
		descriptor = ARGUMENT_1(registers);
		to_offset = ARGUMENT_2(registers);
		break;
	case CALL_SPLICE:
	case CALL_COPY_FILE_RANGE:
		to_offset = ARGUMENT_1(registers);
		break;
	default:
		return 0;
	}
	if (!observes_task(task) || IS_32_BIT(task))
		return 0;
	file = file_of(task, descriptor);
	cached = file_with_pages(file);
	mapping = read_pointer(&cached->f_mapping);
	if (!mapping || !is_cached(file, mapping) || !observes_file_at(mapping, &pages))
		return 0;
	/* The new file has the old one's blocks, without a read of them. */
	if (call == CALL_COPY_FILE_RANGE) {
		struct file_operations *operations = read_pointer(&cached->f_op);

		if (read_pointer(&operations->remap_file_range))
			return 0;
	}
	/* The call has moved the offset, and the position. */
	if (to_offset) {
		if (bpf_probe_read_user(&offset, sizeof(offset), (void *)to_offset))
			return 0;
		offset -= bytes;
	} else if (offset == -1) {
		COPY(offset, file->f_pos);
		offset -= bytes;
	}
	if (offset < 0)
		return 0;
	pages.first = offset >> PAGE_SHIFT;
	pages.last = (offset + bytes - 1) >> PAGE_SHIFT;
	if (!samples(&pages))
		return 0;
	thread = thread_of(task);
	know(task, thread, &pages);
	report_pages(task, &pages);
	return 0;
}
