/* What is sent to user space. src/event.rs reads the same layout; a test compares the two. */
#pragma once

#include "stack.h"

/* The most bytes of one name, with the NUL byte that ends it. */
#define NAME_MAX 256

/* The most names of a path, and bytes of them. */
#define DEPTH_MAX 64
#define NAMES_MAX 4096

enum event_kind {
	/* Of pages. */
	EVENT_READ = 1,
	EVENT_FAULT = 2,
	EVENT_MAP = 3,
	EVENT_INSERT = 4,
	EVENT_EVICT = 5,
	EVENT_DIRTY = 6,
	/* Of files and processes. */
	EVENT_FILE = 8,
	EVENT_FORK = 9,
	EVENT_EXEC = 10,
	EVENT_EXIT = 11,
};

#define PAGE_KINDS 8
#define EVENT_KINDS 16

enum event_flag {
	/* Of a fault or a map event: the last one of the thread is of the same fault. */
	FLAG_SAME_FAULT = 1,
	/* Of a file: there are more names than were copied. */
	FLAG_CUT = 2,
	/* Of pages: the process is not one that is observed. */
	FLAG_OUTSIDE = 4,
	/* Of a read or of pages that become dirty: in a call that reads or writes files, or that
	 * executes one. */
	FLAG_IN_CALL = 8,
};

struct event {
	u64 time_ns;
	u64 inode;
	/* As the kernel numbers devices: the minor number in the low 20 bits. */
	u32 device;
	u32 generation;
	u32 process;
	u32 thread;
	u64 cgroup;
	/* Bytes of what follows the fixed part. */
	u32 payload;
	u16 cpu;
	u8 kind;
	u8 flags;
	/* The inode of the pid namespace, if it is not the initial one, and the numbers in it. */
	u32 namespace;
	u32 own_process;
	u32 own_thread;
	u32 unused;
};

/* Pages of a file, and the user stack. */
struct pages_event {
	struct event common;
	/* Both included. */
	u64 first_page;
	u64 last_page;
	struct user_stack stack;
};

/* A file, before the first event about its pages. */
struct file_event {
	struct event common;
	u64 size;
	u32 mode;
	u32 unused;
	/* From the file to the root of its file system, each ended by a NUL byte. */
	u8 names[NAMES_MAX + NAME_MAX];
};

/* A process has begun, become another program, or ended. */
struct process_event {
	struct event common;
	u32 parent;
	u32 unused;
	/* The program's, cut, with the NUL byte that ends it. */
	char name[16];
};
