/* Buffered reads, whoever makes them: read(2), splice, io_uring, a static program.
 *
 * The kernel reports each part of a request that it finds in one batch (up to 31 folios), each time
 * with the rest of the request as the range: a read of 1 MiB is [0,255], [31,255], [62,255] and so
 * on. Only the first of them is sent. They belong together if the last page is the same, the first
 * one is later, and the thread has completed no call that reads in between.
 *
 * Of a batch whose last folio is still being read, the kernel takes the others, and does not report
 * it. So the first report of a request may begin too late. Where the thread is in a call of the
 * read(2) family, the call says where it begins.
 */
#pragma once

#include "call.h"
#include "file.h"

/* How many calls that read the thread has completed. */
static ALWAYS_INLINE u64 reads_completed(struct task_struct *task)
{
	return FIELD_EXISTS(task->ioac.syscr) ? task->ioac.syscr : 0;
}

/* Whether these pages are the rest of a request that was reported. */
static ALWAYS_INLINE bool is_rest(struct thread *thread, u64 number, struct address_space *mapping,
				  u64 page, u64 last_page)
{
	struct request *read;
	bool rest;

	if (!thread)
		return 0;
	read = &thread->read;
	rest = read->mapping == mapping && read->number == number &&
	       read->last_page == last_page && read->page < page;
	read->mapping = mapping;
	read->number = number;
	read->page = page;
	read->last_page = last_page;
	return rest;
}

/* The page at which the call begins that the thread is in, if it reads this file and begins before
 * `page`. */
static FUNCTION u64 first_page_of_call(struct task_struct *task, struct address_space *mapping,
				       u64 page)
{
	struct pt_regs *registers = bpf_task_pt_regs(task);
	struct file *file;
	bool has_offset;
	s64 offset;
	u64 call;

	if (!FIELD_EXISTS(registers->orig_ax))
		return page;
	call = registers->orig_ax;
	offset = registers->r10;
	has_offset = call == CALL_PREAD64 || call == CALL_PREADV ||
		     (call == CALL_PREADV2 && offset != -1);
	if (has_offset && offset >> PAGE_SHIFT >= page)
		return page;
	if (!has_offset && call != CALL_READ && call != CALL_READV && call != CALL_PREADV2)
		return page;
	file = file_of(task, registers->di);
	if (read_pointer(&file->f_mapping) != mapping)
		return page;
	/* It moves once the call is done. */
	if (!has_offset)
		bpf_probe_read_kernel(&offset, sizeof(offset), &file->f_pos);
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
