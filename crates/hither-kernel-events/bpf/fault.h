/* Touches of mapped pages that fault. A page that the processor has in its tables is not seen.
 *
 * First the kernel maps what is cached around the address ("map", up to 16 pages: which of them was
 * touched is not said). If the page itself is not among them, it looks the page up ("fault"), and
 * reads it if it must. Then it drops its lock, and starts anew, with the same page or with what is
 * cached around it by now. The fault is over when the thread's count of faults has changed: until
 * then a page is reported once, and what was mapped beside it is marked.
 */
#pragma once

#include "file.h"

static ALWAYS_INLINE u64 faults_completed(struct task_struct *task)
{
	return task->min_flt + task->maj_flt;
}

static ALWAYS_INLINE int report_fault(u64 *context, struct address_space *mapping, u64 page)
{
	struct pages pages = {
		.first = page,
		.last = page,
		.kind = EVENT_FAULT,
	};
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread;

	if (!observes(task, mapping, &pages))
		return 0;
	thread = thread_of(task);
	if (thread) {
		struct request *fault = &thread->fault;
		/* 0 stands for none. */
		u64 number = faults_completed(task) + 1;

		if (fault->mapping == mapping && fault->number == number &&
		    fault->page == pages.first)
			return 0;
		fault->mapping = mapping;
		fault->number = number;
		fault->page = pages.first;
		if (thread->mapped_by_fault == number)
			pages.flags |= FLAG_SAME_FAULT;
	}
	if (!samples(&pages))
		return 0;
	know(task, thread, &pages);
	report_pages(task, &pages);
	return 0;
}

static ALWAYS_INLINE int report_map(u64 *context, struct address_space *mapping, u64 first,
				    u64 last)
{
	struct pages pages = {
		.first = first,
		.last = last,
		.kind = EVENT_MAP,
	};
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *thread;
	u64 number;

	if (!observes(task, mapping, &pages))
		return 0;
	thread = thread_of(task);
	number = faults_completed(task) + 1;
	if (thread && thread->fault.number == number)
		pages.flags |= FLAG_SAME_FAULT;
	if (!samples(&pages))
		return 0;
	know(task, thread, &pages);
	/* What was not said is not of the same fault as anything. */
	if (!report_pages(task, &pages) && thread)
		thread->mapped_by_fault = number;
	return 0;
}

SEC("tp_btf/mm_filemap_fault")
int fault_page(u64 *context)
{
	return report_fault(context, (void *)context[0], context[1]);
}

SEC("tp_btf/mm_filemap_map_pages")
int map_pages(u64 *context)
{
	return report_map(context, (void *)context[0], context[1], context[2]);
}
