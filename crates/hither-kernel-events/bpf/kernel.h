/* What the programs need of the kernel: helpers and the fields of its structures.
 *
 * The structures name only the fields that are read. preserve_access_index has the loader look up
 * where each field is in the running kernel, by name, in the kernel's BTF. So this header stands in
 * for a generated vmlinux.h of a hundred thousand lines, and no header of libbpf is needed.
 */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;
typedef _Bool bool;

#define NULL ((void *)0)
#define SEC(name) __attribute__((section(name), used))
#define ALWAYS_INLINE inline __attribute__((always_inline))
/* One copy for all programs. The verifier follows each call of it. */
#define FUNCTION __attribute__((noinline))
#define RELOCATED __attribute__((preserve_access_index))

/* Whether the running kernel has the field. */
#define FIELD_EXISTS(field) __builtin_preserve_field_info(field, 2)
/* Where a field of a structure is, in bytes. */
#define FIELD_OFFSET(type, field) __builtin_preserve_field_info(((type *)0)->field, 0)
/* The running kernel's value of an enumerator. */
#define ENUM_VALUE(type, value) __builtin_preserve_enum_value(*(type *)value, 1)

/* The helpers that are called, by their numbers, which are part of the kernel's interface. */
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value,
				   u64 flags) = (void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static long (*bpf_probe_read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*bpf_probe_read_kernel_str)(void *to, u32 size, const void *from) = (void *)115;
static long (*bpf_ringbuf_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;
static u64 (*bpf_ringbuf_query)(void *ring, u64 flags) = (void *)134;

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,

	BPF_F_NO_PREALLOC = 1,

	BPF_NOEXIST = 1,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_RB_AVAIL_DATA = 0,
	BPF_RB_RING_SIZE = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};

/* arch_x86_64.h or arch_arm64.h */
#include ARCH

struct qstr {
	u32 len;
	const u8 *name;
} RELOCATED;

struct hlist_node {
	struct hlist_node *next;
} RELOCATED;

struct hlist_head {
	struct hlist_node *first;
} RELOCATED;

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	union {
		struct hlist_node d_alias;
	} d_u;
} RELOCATED;

/* In 7.3 the union has no name. */
struct dentry___73 {
	struct hlist_node d_alias;
} RELOCATED;

struct super_block {
	u32 s_dev;
	unsigned long s_magic;
} RELOCATED;

struct inode {
	u16 i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	s64 i_size;
	struct hlist_head i_dentry;
	u32 i_generation;
} RELOCATED;

struct address_space_operations {
	void *read_folio;
} RELOCATED;

/* Before 5.19. */
struct address_space_operations___518 {
	void *readpage;
} RELOCATED;

struct address_space {
	struct inode *host;
	unsigned long nrpages;
	struct address_space_operations *a_ops;
} RELOCATED;

struct file_operations {
	void *remap_file_range;
} RELOCATED;

struct file {
	struct address_space *f_mapping;
	struct inode *f_inode;
	struct file_operations *f_op;
	void *private_data;
	u32 f_flags;
	s64 f_pos;
} RELOCATED;

struct kiocb {
	struct file *ki_filp;
	s64 ki_pos;
} RELOCATED;

struct vm_area_struct {
	struct file *vm_file;
} RELOCATED;

struct vm_fault {
	struct vm_area_struct *vma;
	unsigned long pgoff;
	void *pte;
} RELOCATED;

struct fdtable {
	u32 max_fds;
	struct file **fd;
} RELOCATED;

struct files_struct {
	struct fdtable *fdt;
} RELOCATED;

struct kernfs_node {
	u64 id;
} RELOCATED;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
} RELOCATED;

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
} RELOCATED;

struct css_set {
	struct cgroup_subsys_state *subsys[16];
	struct cgroup *dfl_cgrp;
} RELOCATED;

enum cgroup_subsys_id {
	memory_cgrp_id = 0,
};

typedef struct {
	s32 counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
} RELOCATED;

struct task_io_accounting {
	u64 rchar;
	u64 syscr;
	u64 read_bytes;
	u64 write_bytes;
} RELOCATED;

struct ns_common {
	u32 inum;
} RELOCATED;

struct pid_namespace {
	struct ns_common ns;
} RELOCATED;

/* The number of a task in one namespace. */
struct upid {
	s32 nr;
	struct pid_namespace *ns;
};

struct pid {
	/* Of its own namespace; the initial one's is 0. */
	u32 level;
	struct upid numbers[1];
} RELOCATED;

struct task_struct {
	struct thread_info thread_info;
	u32 flags;
	s32 pid;
	s32 tgid;
	unsigned long min_flt;
	unsigned long maj_flt;
	struct pid *thread_pid;
	struct task_struct *group_leader;
	struct signal_struct *signal;
	struct css_set *cgroups;
	struct files_struct *files;
	struct task_io_accounting ioac;
	char comm[16];
} RELOCATED;

static struct task_struct *(*bpf_get_current_task_btf)(void) = (void *)158;
static void *(*bpf_task_storage_get)(void *map, struct task_struct *task, void *value,
				     u64 flags) = (void *)156;
static struct pt_regs *(*bpf_task_pt_regs)(struct task_struct *task) = (void *)175;

static ALWAYS_INLINE void *read_pointer(const void *from)
{
	void *pointer = NULL;

	bpf_probe_read_kernel(&pointer, sizeof(pointer), from);
	return pointer;
}

/* Copies a field of the kernel's into a variable of the same size. */
#define COPY(to, field) bpf_probe_read_kernel(&(to), sizeof(to), &(field))
