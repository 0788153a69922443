/* What the programs share: settings, maps, the filter, and how an event is sent. */
#pragma once

#include "call.h"
#include "event.h"

enum scope {
	SCOPE_EVERYTHING = 0,
	SCOPE_PROCESSES = 1,
	SCOPE_CGROUP = 2,
};

/* Settings: constants once loaded, so that the verifier removes what is switched off. */
const volatile u32 own_process = 0;
const volatile u32 scope = SCOPE_EVERYTHING;
const volatile u32 with_devices = 0;
const volatile u32 with_files = 0;
/* Whether user space may exclude files. */
const volatile u32 with_excluded = 0;
/* Whether what the observing process starts is followed. */
const volatile u32 with_started = 0;
/* Whether it is said what others use of the files that observed processes have used. */
const volatile u32 with_others = 0;
/* Whether it is said what was in a call that reads or writes. */
const volatile u32 with_calls = 0;
/* A page is sampled if the upper half of its hash is less. 0: all are. */
const volatile u32 sampled_below = 0;
/* Whether cgroups are those of the memory controller in the first version's hierarchies. */
const volatile u32 memory_hierarchy = 0;
const volatile u64 cgroup_id = 0;

struct {
	int (*type)[BPF_MAP_TYPE_RINGBUF];
	int (*max_entries)[1 << 24];
} ring SEC(".maps");

/* Events that found the ring full, by kind. */
struct {
	int (*type)[BPF_MAP_TYPE_PERCPU_ARRAY];
	int (*max_entries)[EVENT_KINDS];
	u32 *key;
	u64 *value;
} lost SEC(".maps");

/* Where events are made that are too large for the stack, by the kind that is reported: no program
 * interrupts itself. */
struct {
	int (*type)[BPF_MAP_TYPE_PERCPU_ARRAY];
	int (*max_entries)[PAGE_KINDS];
	u32 *key;
	struct pages_event *value;
} scratch SEC(".maps");

struct {
	int (*type)[BPF_MAP_TYPE_PERCPU_ARRAY];
	int (*max_entries)[PAGE_KINDS];
	u32 *key;
	struct file_event *value;
} file_scratch SEC(".maps");

/* The processes that are followed. */
struct {
	int (*type)[BPF_MAP_TYPE_HASH];
	int (*map_flags)[BPF_F_NO_PREALLOC];
	int (*max_entries)[1 << 16];
	u32 *key;
	u8 *value;
} processes SEC(".maps");

/* When processes have become another program, and when another reporter has begun in them, which
 * tells of their calls: those calls are left out until the next exec. */
struct {
	int (*type)[BPF_MAP_TYPE_HASH];
	int (*map_flags)[BPF_F_NO_PREALLOC];
	int (*max_entries)[1 << 16];
	u32 *key;
	u64 *value;
} executed SEC(".maps");

/* User space may tell of one that has ended by then: such entries are forgotten at last. */
struct {
	int (*type)[BPF_MAP_TYPE_LRU_HASH];
	int (*max_entries)[1 << 16];
	u32 *key;
	u64 *value;
} told_of SEC(".maps");

static ALWAYS_INLINE bool is_told_of(u32 process)
{
	u64 *told = bpf_map_lookup_elem(&told_of, &process);
	u64 *began;

	if (!told)
		return 0;
	began = bpf_map_lookup_elem(&executed, &process);
	return !began || *began < *told;
}

/* The devices that are observed. */
struct {
	int (*type)[BPF_MAP_TYPE_HASH];
	int (*max_entries)[256];
	u32 *key;
	u8 *value;
} devices SEC(".maps");

struct file_key {
	u64 inode;
	u32 device;
	u32 generation;
};

/* What is known of a file. */
enum known_file {
	/* Its names were sent. */
	FILE_NAMED = 1,
	/* User space wants to know no more of it. */
	FILE_EXCLUDED = 2,
};

/* The files of which something is known, those used last. */
struct {
	int (*type)[BPF_MAP_TYPE_LRU_HASH];
	int (*max_entries)[1 << 16];
	struct file_key *key;
	u8 *value;
} files SEC(".maps");

/* A request that may be reported in parts. */
struct request {
	struct address_space *mapping;
	/* Which one of the thread. */
	u64 number;
	u64 page;
	u64 last_page;
};

/* The requests of a thread that may be reported in parts: those of io_uring are read in turns. */
#define REQUESTS 16

/* What a thread is in. A read can fault where it copies to. */
struct thread {
	struct request reads[REQUESTS];
	/* How many there were. */
	u32 read_count;
	u32 unused;
	struct request fault;
	u64 mapped_by_fault;
	/* The file that it used last, and how often. */
	struct file_key file;
	u64 uses;
};

struct {
	int (*type)[BPF_MAP_TYPE_TASK_STORAGE];
	int (*map_flags)[BPF_F_NO_PREALLOC];
	u32 *key;
	struct thread *value;
} threads SEC(".maps");

static ALWAYS_INLINE struct thread *thread_of(struct task_struct *task)
{
	return bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* What happened to which pages of a file. */
struct pages {
	struct inode *inode;
	struct file_key file;
	u64 first;
	u64 last;
	u8 kind;
	u8 flags;
};

static ALWAYS_INLINE struct file_key key_of(struct inode *inode)
{
	return (struct file_key){
		.inode = inode->i_ino,
		.device = inode->i_sb->s_dev,
		.generation = inode->i_generation,
	};
}

static ALWAYS_INLINE struct cgroup *cgroup_of(struct task_struct *task)
{
	struct css_set *set = task->cgroups;

	if (memory_hierarchy) {
		u64 index = ENUM_VALUE(enum cgroup_subsys_id, memory_cgrp_id);
		struct cgroup_subsys_state **states = set->subsys;

		return states[index]->cgroup;
	}
	return set->dfl_cgrp;
}

/* Whether it is in the cgroup or in one below. */
static ALWAYS_INLINE bool in_cgroup(struct task_struct *task)
{
	struct cgroup *cgroup = cgroup_of(task);

	for (int level = 0; level < 32; level++) {
		struct cgroup_subsys_state *parent;

		if (cgroup->kn->id == cgroup_id)
			return 1;
		parent = cgroup->self.parent;
		if (!parent)
			return 0;
		cgroup = parent->cgroup;
	}
	return 0;
}

static ALWAYS_INLINE bool observes_task(struct task_struct *task)
{
	u32 process = task->tgid;

	if (process == own_process)
		return 0;
	if (scope == SCOPE_PROCESSES)
		return bpf_map_lookup_elem(&processes, &process) != NULL;
	if (scope == SCOPE_CGROUP)
		return in_cgroup(task);
	return 1;
}

static ALWAYS_INLINE bool observes_device(u32 device)
{
	return !with_devices || bpf_map_lookup_elem(&devices, &device);
}

/* The finalizer of splitmix64. */
static ALWAYS_INLINE u64 mix(u64 value)
{
	value += 0x9e3779b97f4a7c15;
	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
	value = (value ^ value >> 27) * 0x94d049bb133111eb;
	return value ^ value >> 31;
}

/* Whether one of the pages is sampled, or there are too many to look. src/sampling.rs has the same
 * rule and looks at all of them. */
static ALWAYS_INLINE bool samples(struct pages *pages)
{
	u64 first = pages->first, last = pages->last;
	u64 device = pages->file.device, file;

	if (!sampled_below)
		return 1;
	file = mix(pages->file.inode ^ device << 32);
	for (u32 page = 0; page < 32; page++) {
		if (first + page > last)
			return 0;
		if (mix(file ^ (first + page)) >> 32 < sampled_below)
			return 1;
	}
	return first + 32 <= last;
}

static ALWAYS_INLINE void count_lost(u32 kind)
{
	u64 *count = bpf_map_lookup_elem(&lost, &kind);

	if (count)
		*count += 1;
}

static ALWAYS_INLINE long send_by(void *event, u64 size, u32 kind, u64 flags)
{
	long error = bpf_ringbuf_output(&ring, event, size, flags);

	if (error)
		count_lost(kind);
	return error;
}

/* Sends an event. Nobody is woken: who reads the ring looks into it from time to time. */
static ALWAYS_INLINE long send(void *event, u64 size, u32 kind)
{
	return send_by(event, size, kind, BPF_RB_NO_WAKEUP);
}

/* The number of a task that is so deep in pid namespaces. */
static ALWAYS_INLINE struct upid own_number(struct task_struct *task, u32 level)
{
	void *pid = read_pointer(&task->thread_pid);
	struct upid number = {};

	bpf_probe_read_kernel(&number, sizeof(number),
			      pid + FIELD_OFFSET(struct pid, numbers) + level * sizeof(number));
	return number;
}

/* What the task is called in its own pid namespace. */
static FUNCTION void fill_numbers(struct event *event, struct task_struct *task)
{
	struct pid *pid = task->thread_pid;
	u32 level = pid->level;
	struct upid number;

	event->namespace = 0;
	event->own_process = 0;
	event->own_thread = 0;
	event->unused = 0;
	if (!level)
		return;
	number = own_number(task->group_leader, level);
	event->own_process = number.nr;
	number = own_number(task, level);
	event->own_thread = number.nr;
	COPY(event->namespace, number.ns->ns.inum);
}

static ALWAYS_INLINE void fill(struct event *event, struct task_struct *task, u8 kind, u8 flags)
{
	event->time_ns = bpf_ktime_get_ns();
	event->inode = 0;
	event->device = 0;
	event->generation = 0;
	event->process = task->tgid;
	event->thread = task->pid;
	event->cgroup = cgroup_of(task)->kn->id;
	event->payload = 0;
	event->cpu = bpf_get_smp_processor_id();
	event->kind = kind;
	event->flags = flags;
	fill_numbers(event, task);
}

static ALWAYS_INLINE void fill_file(struct event *event, struct file_key *file)
{
	event->inode = file->inode;
	event->device = file->device;
	event->generation = file->generation;
}

/* Reports pages of a file: 0 if there was room. The user stack says where a program was that asked
 * for them. */
static FUNCTION long report_pages(struct task_struct *task, struct pages *pages)
{
	u8 kind = pages->kind, flags = pages->flags;

	if (with_calls && (kind == EVENT_READ || kind == EVENT_DIRTY) && is_in_call(task)) {
		if (is_told_of(task->tgid))
			return 0;
		flags |= FLAG_IN_CALL;
	}
	if (stack_bytes && kind != EVENT_INSERT && kind != EVENT_EVICT) {
		u64 fixed = __builtin_offsetof(struct pages_event, stack);
		u32 slot = kind;
		struct pages_event *event = bpf_map_lookup_elem(&scratch, &slot);
		u32 bytes;

		if (!event)
			return -1;
		fill(&event->common, task, kind, flags);
		fill_file(&event->common, &pages->file);
		event->first_page = pages->first;
		event->last_page = pages->last;
		bytes = user_stack(&ring, task, &event->stack);
		if (bytes > sizeof(event->stack))
			bytes = 0;
		event->common.payload = bytes;
		/* A stack that is copied is to be followed before its process ends. */
		return send_by(event, fixed + bytes, kind,
			       bytes > __builtin_offsetof(struct user_stack, words) ?
				       BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
	} else {
		struct {
			struct event common;
			u64 first_page;
			u64 last_page;
		} event;

		fill(&event.common, task, kind, flags);
		fill_file(&event.common, &pages->file);
		event.first_page = pages->first;
		event.last_page = pages->last;
		return send(&event, sizeof(event), kind);
	}
}
