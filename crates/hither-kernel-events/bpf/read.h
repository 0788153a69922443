/* Buffered reads, whoever makes them: read(2), splice, io_uring, a static program.
 *
 * The kernel reports each part of a request that it finds in one batch (up to 31 folios), each time
 * with the rest of the request as the range: a read of 1 MiB is [0,255], [31,255], [62,255] and so
 * on. Only the first of them is sent. They belong together if the last page is the same, the first
 * one is later, and the thread has completed no call that reads in between.
 *
 * Of a batch whose last folio is still being read, the kernel takes the others, and does not report
 * it. So the first report of a request may begin too late. Where the thread is in a call of the
 * read(2) family, or in sendfile(2) and the like, the call says where it begins.
 */
#pragma once

#include "call.h"
#include "file.h"

/* How many calls that read the thread has completed. */
static ALWAYS_INLINE u64 reads_completed(struct task_struct *task)
{
	return FIELD_EXISTS(task->ioac.syscr) ? task->ioac.syscr : 0;
}

/* The request of the thread that was reported last, in the call that it is in or by io_uring. */
static ALWAYS_INLINE struct request *last_read(struct thread *thread, u64 number)
{
	struct request *last = &thread->reads[(thread->read_count - 1) % REQUESTS];

	return thread->read_count && last->number == number ? last : NULL;
}

/* Whether these pages are the rest of a request that was reported. Requests of one call follow each
 * other. Those of io_uring, in which no call is completed, do not. */
static FUNCTION bool is_rest(struct thread *thread, u64 number, struct address_space *mapping,
			     u64 page, u64 last_page)
{
	struct request *read;

	if (!thread)
		return 0;
	if (!last_read(thread, number))
		thread->read_count = 0;
	for (u32 index = 0; index < REQUESTS; index++) {
		read = &thread->reads[index];
		if (index >= thread->read_count)
			break;
		if (read->mapping == mapping && read->last_page == last_page && read->page < page) {
			read->page = page;
			return 1;
		}
	}
	read = &thread->reads[thread->read_count % REQUESTS];
	thread->read_count++;
	read->mapping = mapping;
	read->number = number;
	read->page = page;
	read->last_page = last_page;
	return 0;
}

/* Where a call begins to read: where it says, or else where the file's position is, which moves
 * once the call is done. */
static ALWAYS_INLINE s64 offset_of_call(struct file *file, const void *told)
{
	s64 offset = -1;

	if (told)
		bpf_probe_read_user(&offset, sizeof(offset), told);
	else
		bpf_probe_read_kernel(&offset, sizeof(offset), &file->f_pos);
	return offset;
}

/* The page at which the request begins that the thread makes, if it reads this file by a call, and
 * begins before `page`. */
static FUNCTION u64 first_page_of_call(struct task_struct *task, struct address_space *mapping,
				       u64 page)
{
	struct pt_regs *registers = bpf_task_pt_regs(task);
	bool has_offset = 0, is_copy = 0;
	struct request *last = NULL;
	const void *told = NULL;
	struct thread *thread;
	struct file *file;
	u32 descriptor;
	s64 offset;
	u64 call;

	if (!HAS_REGISTERS(registers))
		return page;
	call = CALL_OF(registers);
	offset = ARGUMENT_3(registers);
	descriptor = ARGUMENT_0(registers);
	switch (call) {
	case CALL_PREAD64:
	case CALL_PREADV:
		has_offset = 1;
		break;
	case CALL_PREADV2:
		has_offset = offset != -1;
		break;
	case CALL_READ:
	case CALL_READV:
		break;
	case CALL_SENDFILE64:
		descriptor = ARGUMENT_1(registers);
		told = (void *)ARGUMENT_2(registers);
		is_copy = 1;
		break;
	case CALL_SPLICE:
	case CALL_COPY_FILE_RANGE:
		told = (void *)ARGUMENT_1(registers);
		is_copy = 1;
		break;
	default:
		return page;
	}
	/* As a rule that is so. */
	if (has_offset && offset >> PAGE_SHIFT >= page)
		return page;
	file = file_of(task, descriptor);
	if (read_pointer(&file->f_mapping) != mapping)
		return page;
	if (!has_offset)
		offset = offset_of_call(file, told);
	/* These make several requests, each where the one before has ended. Not all of them count
	 * as completed: the last request may be of an earlier call. */
	if (is_copy) {
		thread = thread_of(task);
		if (thread)
			last = last_read(thread, reads_completed(task));
		if (last && last->mapping == mapping && offset >> PAGE_SHIFT <= last->last_page)
			offset = (last->last_page + 1) << PAGE_SHIFT;
	}
	if (offset < 0 || offset >> PAGE_SHIFT >= page)
		return page;
	return offset >> PAGE_SHIFT;
}

SEC("tp_btf/mm_filemap_get_pages")
int read_pages(u64 *context)
{
	struct address_space *mapping = (void *)context[0];
	struct pages pages = {
		.first = context[1],
		.last = context[2],
		.kind = EVENT_READ,
	};
	struct task_struct *task = bpf_get_current_task_btf();
	u64 page = pages.first, last_page = pages.last, size;
	struct thread *thread;

	if (!observes(task, mapping, &pages))
		return 0;
	pages.first = first_page_of_call(task, mapping, page);
	/* The range is what the program asked for, which may go past the end of the file. */
	size = pages.inode->i_size;
	if (size && pages.last > (size - 1) >> PAGE_SHIFT)
		pages.last = (size - 1) >> PAGE_SHIFT;
	if (pages.last < pages.first)
		pages.last = pages.first;
	/* Of a request without a sampled page, the rest has none. */
	if (!samples(&pages))
		return 0;
	thread = thread_of(task);
	if (is_rest(thread, reads_completed(task), mapping, page, last_page))
		return 0;
	know(task, thread, &pages);
	report_pages(task, &pages);
	return 0;
}
