/* Names of files. The first event about a file is preceded by one with its names.
 *
 * The tracepoints have an inode and no path. So the names come from a directory entry of the inode
 * and from its parents, up to the root of the file system: without the mount point, and of one of
 * the file's links.
 */
#pragma once

#include "observer.h"

/* Whether something was reported of the file, and more is wanted. */
static ALWAYS_INLINE bool is_known(struct file_key *file)
{
	u8 *known;

	if (!with_files)
		return 0;
	known = bpf_map_lookup_elem(&files, file);
	return known && *known == FILE_NAMED;
}

static ALWAYS_INLINE bool is_excluded(struct file_key *file)
{
	u8 *known;

	if (!with_excluded)
		return 0;
	known = bpf_map_lookup_elem(&files, file);
	return known && *known == FILE_EXCLUDED;
}

static ALWAYS_INLINE bool observes_file(struct file_key *file)
{
	return observes_device(file->device) && !is_excluded(file);
}

/* Whether the pages that a task uses are observed: of the file of this mapping. */
static ALWAYS_INLINE bool observes(struct task_struct *task, struct address_space *mapping,
				   struct pages *pages)
{
	bool outside = !observes_task(task);

	if (outside && (!with_others || task->tgid == own_process))
		return 0;
	pages->inode = mapping->host;
	pages->file = key_of(pages->inode);
	if (!outside)
		return observes_file(&pages->file);
	pages->flags = FLAG_OUTSIDE;
	return observes_device(pages->file.device) && is_known(&pages->file);
}

/* Copies names into the event, from the file on. */
static ALWAYS_INLINE void copy_names(struct file_event *event, struct inode *inode)
{
	struct dentry *dentry = read_pointer(&inode->i_dentry.first);
	u32 used = 0;

	event->common.flags = FLAG_CUT;
	if (dentry) {
		struct dentry___73 *later = (void *)dentry;

		if (FIELD_EXISTS(later->d_alias))
			dentry = (void *)dentry - FIELD_OFFSET(struct dentry___73, d_alias);
		else
			dentry = (void *)dentry - FIELD_OFFSET(struct dentry, d_u.d_alias);
		for (int depth = 0; depth < DEPTH_MAX; depth++) {
			struct dentry *parent = read_pointer(&dentry->d_parent);
			long bytes;

			if (parent == dentry) {
				event->common.flags = 0;
				break;
			}
			if (!parent || used >= NAMES_MAX)
				break;
			bytes = bpf_probe_read_kernel_str(event->names + used, NAME_MAX,
							  read_pointer(&dentry->d_name.name));
			if (bytes <= 1 || bytes > NAME_MAX)
				break;
			used += bytes;
			dentry = parent;
		}
	}
	event->common.payload = used;
}

/* Whether the thread has used the file last, too. Every 256th time it is said not to be so: the map
 * of files forgets those that nobody looks up. */
static ALWAYS_INLINE bool is_used_again(struct thread *thread, struct file_key *key)
{
	struct file_key *last;

	if (!thread)
		return 0;
	last = &thread->file;
	if (last->inode == key->inode && last->device == key->device &&
	    last->generation == key->generation && (++thread->uses & 0xff))
		return 1;
	*last = *key;
	return 0;
}

/* Sends the names of the file, if nothing was reported of it yet. It is known once they are
 * sent: so they come before the events about its pages, from whichever processor. */
static FUNCTION void know(struct task_struct *task, struct thread *thread, struct pages *pages)
{
	struct inode *inode = pages->inode;
	struct file_key key = pages->file;
	struct file_event *event;
	u32 slot = pages->kind;
	u32 payload;
	u16 mode;
	u8 known = FILE_NAMED;

	if (!with_files || is_used_again(thread, &key) || bpf_map_lookup_elem(&files, &key))
		return;
	event = bpf_map_lookup_elem(&file_scratch, &slot);
	if (!event)
		return;
	fill(&event->common, task, EVENT_FILE, 0);
	fill_file(&event->common, &key);
	COPY(event->size, inode->i_size);
	COPY(mode, inode->i_mode);
	event->mode = mode;
	event->unused = 0;
	copy_names(event, inode);
	payload = event->common.payload;
	if (payload > sizeof(event->names))
		payload = 0;
	if (!send(event, __builtin_offsetof(struct file_event, names) + payload, EVENT_FILE))
		/* By now it may be excluded. */
		bpf_map_update_elem(&files, &key, &known, BPF_NOEXIST);
	else if (thread)
		thread->file.inode = 0;
}
