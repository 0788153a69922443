/* User stacks: which call site of the program an event is of.
 *
 * Few programs have frame pointers, so user space follows a stack by the unwind information of the
 * program. For that the top of the stack is copied, with the registers. That is done once a call
 * site: user space then says which words of the stack hold its return addresses, and what the site
 * is called. An event whose words are the same has the name alone, and nothing is copied to the
 * ring. That is the memo of hither-preload/src/signature/memo.rs, with the same exactness.
 */
#pragma once

#include "kernel.h"

/* The most bytes of a stack that are copied. */
#define STACK_BYTES_MAX 16384

/* The most words of a stack that are compared. */
#define CHECKS_MAX 96

/* Stacks of one program, instruction and stack pointer that are known at the same time. */
#define WAYS 4

#define PAGE_BYTES 4096

/* How a user stack is sent: the first word alone if the site is known. */
struct user_stack {
	/* As user space has named it, or 0. */
	u64 signature;
	u64 ip;
	u64 sp;
	u64 bp;
	/* In a system call; else where the instruction touched a page. */
	u64 in_call;
#ifdef LINK_REGISTER
	u64 link;
#endif
	/* From the stack pointer on. No more than STACK_BYTES_MAX: the rest is for the verifier. */
	u64 words[(STACK_BYTES_MAX + PAGE_BYTES) / 8];
};

struct stack_key {
	u64 ip;
	u64 sp;
	u32 process;
	u32 way;
};

/* A stack that user space has followed. */
struct known_stack {
	u64 signature;
	u64 bp;
#ifdef LINK_REGISTER
	u64 link;
#endif
	/* How far above the stack pointer the words reach, how many they are, and whether the frame
	 * pointer counts, too. */
	u32 bytes;
	u16 count;
	u16 needs_bp;
	u16 words[CHECKS_MAX];
	u64 values[CHECKS_MAX];
};

/* The top of the stack is copied up to so many bytes. 0: events have no stacks. */
const volatile u32 stack_bytes = 0;

struct {
	int (*type)[BPF_MAP_TYPE_LRU_HASH];
	int (*max_entries)[1 << 15];
	struct stack_key *key;
	struct known_stack *value;
} known_stacks SEC(".maps");

/* Whether the words of the stack are those of a known one. They are copied for that. */
static FUNCTION bool is_same_stack(struct user_stack *stack, struct known_stack *known)
{
	u32 bytes = known->bytes;
	u32 count = known->count;

	if (bytes > STACK_BYTES_MAX || (known->needs_bp && known->bp != stack->bp))
		return 0;
#ifdef LINK_REGISTER
	if (known->link != stack->link)
		return 0;
#endif
	if (bytes && bpf_probe_read_user(stack->words, bytes, (void *)stack->sp))
		return 0;
	for (u32 check = 0; check < CHECKS_MAX; check++) {
		u32 word;

		if (check >= count)
			break;
		word = known->words[check];
		if (word >= STACK_BYTES_MAX / 8 || stack->words[word] != known->values[check])
			return 0;
	}
	return 1;
}

/* Copies the top of the stack as far as it is there, page by page. Returns the bytes. */
static FUNCTION u32 copy_top_of_stack(struct user_stack *stack)
{
	u64 sp = stack->sp;
	u32 copied = 0;

	for (int page = 0; page <= STACK_BYTES_MAX / PAGE_BYTES; page++) {
		u32 part = PAGE_BYTES - ((sp + copied) & (PAGE_BYTES - 1));

		if (copied >= stack_bytes || copied > STACK_BYTES_MAX || part > PAGE_BYTES)
			break;
		if (bpf_probe_read_user((void *)stack->words + copied, part,
					(void *)(sp + copied)))
			break;
		copied += part;
	}
	if (copied > stack_bytes)
		copied = stack_bytes;
	return copied & ~7u;
}

/* Finds out where the program is. Returns the bytes of what is to be sent: none if it is not known,
 * as in kernel threads and 32-bit programs. */
static ALWAYS_INLINE u32 user_stack(void *ring, struct task_struct *task, struct user_stack *stack)
{
	struct pt_regs *registers = bpf_task_pt_regs(task);
	struct stack_key key = { .process = task->tgid };

	if (!FIELD_EXISTS(INSTRUCTION_POINTER(registers)))
		return 0;
	stack->signature = 0;
	stack->ip = key.ip = INSTRUCTION_POINTER(registers);
	stack->sp = key.sp = STACK_POINTER(registers);
	stack->bp = FRAME_POINTER(registers);
	stack->in_call = IS_IN_CALL(registers);
#ifdef LINK_REGISTER
	stack->link = LINK_REGISTER(registers);
#endif
	if (!(key.sp >> 32) || key.sp & 7)
		return 0;
	for (u32 way = 0; way < WAYS; way++) {
		struct known_stack *known;

		key.way = way;
		known = bpf_map_lookup_elem(&known_stacks, &key);
		if (known && is_same_stack(stack, known)) {
			stack->signature = known->signature;
			return sizeof(stack->signature);
		}
	}
	/* Room for events comes first. */
	if (bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) > bpf_ringbuf_query(ring, BPF_RB_RING_SIZE) / 2)
		return 0;
	return __builtin_offsetof(struct user_stack, words) + copy_top_of_stack(stack);
}
