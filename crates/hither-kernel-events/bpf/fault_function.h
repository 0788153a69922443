/* Touches of mapped pages, by the functions of the kernel that serve them (fentry and fexit): where
 * it has no tracepoints for them. */
#pragma once

#include "fault.h"

/* Of what such a function returns: the page that was touched is mapped. */
#define VM_FAULT_NOPAGE 0x100

/* The last page of the file. None (the largest number) if the file is empty. */
static ALWAYS_INLINE u64 last_page_of(struct address_space *mapping)
{
	return (u64)(mapping->host->i_size - 1) >> PAGE_SHIFT;
}

/* filemap_fault(fault) */
SEC("fentry/filemap_fault")
int fault_function(u64 *context)
{
	struct vm_fault *fault = (void *)context[0];
	struct address_space *mapping = fault->vma->vm_file->f_mapping;
	u64 page = fault->pgoff;

	/* That is SIGBUS. */
	if (page > last_page_of(mapping))
		return 0;
	return report_fault(context, mapping, page);
}

/* filemap_map_pages(fault, first, last), which returns whether it has mapped the touched page.
 * Where it has found a page that it may map, it has looked up the entry of the page table. */
SEC("fexit/filemap_map_pages")
int map_function(u64 *context)
{
	struct vm_fault *fault = (void *)context[0];
	struct address_space *mapping = fault->vma->vm_file->f_mapping;
	u64 first = context[1], last = context[2], end = last_page_of(mapping);

	if (!((u32)context[3] & VM_FAULT_NOPAGE) && !fault->pte)
		return 0;
	if (last > end)
		last = end;
	if (first > last)
		return 0;
	return report_map(context, mapping, first, last);
}
