/* The same as folio.h where the kernel has no folios yet (before 5.16, and 5.18 for what becomes
 * dirty): its tracepoints have a page, which may be the first of a large one.
 */
#pragma once

#include "folio.h"

struct page {
	unsigned long flags;
	struct address_space *mapping;
	unsigned long index;
	/* Of the second page of a large one. */
	u8 compound_order;
} RELOCATED;

/* Of x86-64. */
#define PAGE_STRUCTURE_BYTES 64

static ALWAYS_INLINE u64 pages_of(struct page *page)
{
	struct page *second = (void *)page + PAGE_STRUCTURE_BYTES;
	u8 order = 0;

	if (!(page->flags >> ENUM_VALUE(enum pageflags, PG_head) & 1))
		return 1;
	COPY(order, second->compound_order);
	return 1ull << (order & 31);
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int insert_page(u64 *context)
{
	struct page *page = (void *)context[0];

	report_folio(page->mapping, page->index, pages_of(page), EVENT_INSERT);
	return 0;
}

SEC("tp_btf/mm_filemap_delete_from_page_cache")
int evict_page(u64 *context)
{
	struct page *page = (void *)context[0];

	report_folio(page->mapping, page->index, pages_of(page), EVENT_EVICT);
	return 0;
}

SEC("tp_btf/writeback_dirty_page")
int dirty_page(u64 *context)
{
	struct page *page = (void *)context[0];
	struct address_space *mapping = (void *)context[1];

	/* Swapped memory has none. */
	if (mapping)
		report_folio(mapping, page->index, pages_of(page), EVENT_DIRTY);
	return 0;
}
