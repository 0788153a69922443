/* Processes that begin, become another program, and end: those of a followed one are followed. */
#pragma once

#include "observer.h"

static FUNCTION long send_process(struct process_event *event)
{
	return send(event, sizeof(*event), event->common.kind);
}

static ALWAYS_INLINE long report_process(struct task_struct *task, u32 parent, u8 kind)
{
	struct process_event event = {};

	fill(&event.common, task, kind, 0);
	event.parent = parent;
	bpf_probe_read_kernel_str(event.name, sizeof(event.name), task->comm);
	return send_process(&event);
}

/* What runs in a fork is told of where its parent is, whoever has had its number before. */
static ALWAYS_INLINE void inherit(u32 parent, u32 process)
{
	u64 *began = bpf_map_lookup_elem(&executed, &parent);
	u64 *told = bpf_map_lookup_elem(&told_of, &parent);

	if (began)
		bpf_map_update_elem(&executed, &process, began, 0);
	if (told)
		bpf_map_update_elem(&told_of, &process, told, 0);
	else
		bpf_map_delete_elem(&told_of, &process);
}

SEC("tp_btf/sched_process_fork")
int follow_fork(u64 *context)
{
	struct task_struct *parent = (void *)context[0];
	struct task_struct *child = (void *)context[1];
	u32 process = child->tgid;
	u8 followed = 1;

	/* A thread is no process. */
	if (process == parent->tgid)
		return 0;
	if (!observes_task(parent) && !(with_started && parent->tgid == own_process))
		return 0;
	if (scope == SCOPE_PROCESSES &&
	    bpf_map_update_elem(&processes, &process, &followed, 0)) {
		count_lost(EVENT_FORK);
		return 0;
	}
	if (with_calls)
		inherit(parent->tgid, process);
	report_process(child, parent->tgid, EVENT_FORK);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int follow_exec(u64 *context)
{
	struct task_struct *task = (void *)context[0];

	if (!observes_task(task))
		return 0;
	if (with_calls) {
		u32 process = task->tgid;
		u64 now = bpf_ktime_get_ns();

		if (bpf_map_update_elem(&executed, &process, &now, 0))
			bpf_map_delete_elem(&told_of, &process);
	}
	report_process(task, 0, EVENT_EXEC);
	return 0;
}

/* What threads that have ended had transferred. */
struct transferred {
	u64 called_bytes;
	u64 read_bytes;
	u64 written_bytes;
};

struct {
	int (*type)[BPF_MAP_TYPE_PERCPU_ARRAY];
	int (*max_entries)[1];
	u32 *key;
	struct transferred *value;
} ended SEC(".maps");

static ALWAYS_INLINE void count_transferred(struct task_struct *task)
{
	u32 only = 0;
	struct transferred *sum = bpf_map_lookup_elem(&ended, &only);

	if (!sum || !FIELD_EXISTS(task->ioac.read_bytes))
		return;
	sum->called_bytes += task->ioac.rchar;
	sum->read_bytes += task->ioac.read_bytes;
	sum->written_bytes += task->ioac.write_bytes;
}

SEC("tp_btf/sched_process_exit")
int follow_exit(u64 *context)
{
	struct task_struct *task = (void *)context[0];
	u32 process = task->tgid;

	if (!observes_task(task))
		return 0;
	count_transferred(task);
	/* It ends with its last thread. */
	if (task->signal->live.counter)
		return 0;
	if (with_calls) {
		bpf_map_delete_elem(&told_of, &process);
		bpf_map_delete_elem(&executed, &process);
	}
	/* Other threads may be on their way here, so user space forgets it, a little later. */
	if (report_process(task, 0, EVENT_EXIT) && scope == SCOPE_PROCESSES)
		bpf_map_delete_elem(&processes, &process);
	return 0;
}
