/* Folios that come into the page cache, leave it, or become dirty.
 *
 * One event a folio, which may have many pages. The thread is who did it: for what comes in, the
 * program whose read it serves, or a kernel thread; for what leaves, whoever needed memory. So
 * these are reported, too, of files that something was reported of. A folio that is dirty already
 * does not become so by another write.
 */
#pragma once

#include "file.h"

/* Since 6.18 the flags are a structure. */
typedef struct {
	unsigned long f;
} memdesc_flags_t;

struct folio___618 {
	memdesc_flags_t flags;
} RELOCATED;

struct folio {
	unsigned long flags;
	struct address_space *mapping;
	unsigned long index;
	/* The order in the lowest byte, since 6.6. */
	unsigned long _flags_1;
} RELOCATED;

/* Before. */
struct folio___61 {
	u8 _folio_order;
} RELOCATED;

enum pageflags {
	PG_head = 0,
};

static ALWAYS_INLINE u64 pages_in(struct folio *folio)
{
	struct folio___618 *with_structure = (void *)folio;
	struct folio___61 *with_order = (void *)folio;
	unsigned long flags;
	u32 order;

	if (FIELD_EXISTS(with_structure->flags.f))
		flags = with_structure->flags.f;
	else
		flags = folio->flags;
	if (!(flags >> ENUM_VALUE(enum pageflags, PG_head) & 1))
		return 1;
	if (FIELD_EXISTS(with_order->_folio_order))
		order = with_order->_folio_order;
	else
		order = folio->_flags_1 & 0xff;
	return 1ull << (order & 31);
}

static ALWAYS_INLINE void report_folio(struct address_space *mapping, u64 page,
				       u64 count, u8 kind)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pages pages = { .kind = kind };
	bool observed;

	pages.inode = mapping->host;
	if (!pages.inode)
		return;
	pages.file = key_of(pages.inode);
	if (!observes_device(pages.file.device))
		return;
	observed = observes_task(task);
	if (kind == EVENT_EVICT && scope != SCOPE_EVERYTHING)
		observed = 0;
	if (!observed && ((kind == EVENT_DIRTY && !with_others) || task->tgid == own_process ||
			  !is_known(&pages.file)))
		return;
	if (observed && is_excluded(&pages.file))
		return;
	if (!observed)
		pages.flags = FLAG_OUTSIDE;
	pages.first = page;
	pages.last = page + count - 1;
	if (!samples(&pages))
		return;
	if (observed)
		know(task, thread_of(task), &pages);
	report_pages(task, &pages);
}

SEC("tp_btf/mm_filemap_add_to_page_cache")
int insert_folio(u64 *context)
{
	struct folio *folio = (void *)context[0];

	report_folio(folio->mapping, folio->index, pages_in(folio), EVENT_INSERT);
	return 0;
}

SEC("tp_btf/mm_filemap_delete_from_page_cache")
int evict_folio(u64 *context)
{
	struct folio *folio = (void *)context[0];

	report_folio(folio->mapping, folio->index, pages_in(folio), EVENT_EVICT);
	return 0;
}

SEC("tp_btf/writeback_dirty_folio")
int dirty_folio(u64 *context)
{
	struct folio *folio = (void *)context[0];
	struct address_space *mapping = (void *)context[1];

	/* Swapped memory has none. */
	if (mapping)
		report_folio(mapping, folio->index, pages_in(folio), EVENT_DIRTY);
	return 0;
}
