/* Buffered reads, by the functions of the kernel that make them (fexit): where it has no tracepoint
 * for them. Once a request, as it ends, with the pages that were read.
 *
 * Ext4, XFS, Btrfs and NFS read by filemap_read, and splice(2) and sendfile(2) by
 * filemap_splice_read, since 6.5. Before, these came to filemap_read, too. A file system that calls
 * neither is not seen.
 */
#pragma once

#include "file.h"

/* `bytes` were read, up to the position `end`. */
static ALWAYS_INLINE int report_read(u64 *context, struct address_space *mapping, s64 end,
				     s64 bytes)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pages pages = {
		.first = (u64)(end - bytes) >> PAGE_SHIFT,
		.last = (u64)(end - 1) >> PAGE_SHIFT,
		.kind = EVENT_READ,
	};
	struct thread *thread;

	if (bytes <= 0 || end < bytes || !observes(task, mapping, &pages) || !samples(&pages))
		return 0;
	thread = thread_of(task);
	know(task, thread, &pages);
	report_pages(task, &pages);
	return 0;
}

/* filemap_read(request, to, already_read), which returns already_read and what it has read, or an
 * error. A request that would have to wait fails at first, and comes once more (io_uring). */
SEC("fexit/filemap_read")
int read_function(u64 *context)
{
	struct kiocb *request = (void *)context[0];
	s64 already_read = (s64)context[2], read = (s64)context[3];

	return report_read(context, request->ki_filp->f_mapping, request->ki_pos,
			   read - already_read);
}

/* filemap_splice_read(file, position, pipe, length, flags), which moves the position. */
SEC("fexit/filemap_splice_read")
int splice_function(u64 *context)
{
	struct file *file = (void *)context[0];
	s64 position = -1;

	bpf_probe_read_kernel(&position, sizeof(position), (void *)context[1]);
	return report_read(context, file->f_mapping, position, (s64)context[5]);
}
