/* Threads on every node each read one whole file, block by block: from one copy, or from a copy
 * on their own node (made before the region with `--copies node`, or in it after the first
 * iteration with `--migrate hand`). The file's pages are in the page cache on the nodes of their
 * writers (`--init`): on tmpfs, or on any file system whose pages stay cached. With `--cold yes`
 * the file is on a disk, and `--init` chooses the threads that read it in before all threads
 * read it.
 *
 * Blocks are read by pread. With `--call sendfile` they are sent to a socket, as web servers do,
 * and received by the same thread.
 *
 * With `--readers far` the threads of node 0 stop reading when the file exists, so its pages are
 * on a node without readers.
 *
 * With `--take BYTES` each thread takes that much memory in the second quarter of the
 * iterations, step by step, and releases it after three quarters, so copies must fit less
 * memory. `--pause MS` between iterations gives an agent time to work: the clock of a sleeping
 * guest advances at once.
 *
 * Misses: all in the kernel, which copies each line of the file for each reading thread:
 * `file_lines` x `threads` x `iterations`, if the file is much larger than the caches. The
 * threads of a node read far apart, so that none profits from lines that another fetched. Their
 * buffers stay in their caches. The counts are 4 % higher (2026-11), for the kernel's own
 * records of pages: a line or two per page of 64 lines. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "lab.h"

static unsigned long bytes = 16 << 20, block = 16 << 10, take, pause_ms;
static const char *path = "readers.data";
static int copies_at_start, by_sendfile, cold, far_alone;
static int file = -1, copies[LAB_NODES]; /* 0: no copy */

static size_t transfer(ssize_t (*call)(int, void *, size_t, off_t), int from, void *buffer,
                       size_t offset, size_t end)
{
    size_t size = end - offset < block ? end - offset : block;
    if (call(from, buffer, size, (off_t)offset) != (ssize_t)size)
        lab_fail("%s: %zu bytes at %zu: %s", path, size, offset, strerror(errno));
    return size;
}

static ssize_t put(int to, void *buffer, size_t size, off_t offset)
{
    return pwrite(to, buffer, size, offset);
}

/* Readable by all, since an agent does not copy files that only root may read. */
static int create(const char *name)
{
    int made = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (made < 0)
        lab_fail("%s: %s", name, strerror(errno));
    return made;
}

/* After the writes through `made`, the file is only read. */
static int reopen(int made, const char *name)
{
    close(made);
    int opened = open(name, O_RDONLY | O_CLOEXEC);
    if (opened < 0)
        lab_fail("%s: %s", name, strerror(errno));
    return opened;
}

/* Both ends of a connection of the calling thread. */
static struct ends {
    int to, from;
} connection(void)
{
    static _Thread_local struct ends ends = {-1, -1};
    if (ends.to >= 0)
        return ends;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool made = listener >= 0 && !bind(listener, (struct sockaddr *)&address, size) &&
                !listen(listener, 1) &&
                !getsockname(listener, (struct sockaddr *)&address, &size) &&
                (ends.to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0 &&
                !connect(ends.to, (struct sockaddr *)&address, size) &&
                (ends.from = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0 &&
                !setsockopt(ends.to, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (!made)
        lab_fail("a connection over the loopback interface: %s", strerror(errno));
    close(listener);
    return ends;
}

static ssize_t send_and_receive(int from, void *buffer, size_t size, off_t offset)
{
    struct ends ends = connection();
    for (size_t done = 0; done < size;) {
        ssize_t sent = sendfile(ends.to, from, &offset, size - done);
        if (sent <= 0)
            return sent;
        if (recv(ends.from, (char *)buffer + done, (size_t)sent, MSG_WAITALL) != sent)
            return -1;
        done += (size_t)sent;
    }
    return (ssize_t)size;
}

static uint64_t *block_buffer(void)
{
    uint64_t *buffer = aligned_alloc(4096, block);
    if (!buffer)
        lab_fail("out of memory");
    return buffer;
}

/* Writes thread `thread`'s part: each word its own number. */
static void fill(int thread)
{
    struct lab_part part = lab_part(bytes / lab.page, thread);
    uint64_t *buffer = block_buffer();
    if (lab.init == LAB_INTERLEAVE)
        lab_allocate_interleaved();
    for (size_t at = part.first * lab.page, end = part.end * lab.page; at < end;) {
        for (size_t word = 0; word < block / 8; word++)
            buffer[word] = at / 8 + word;
        at += transfer(put, file, buffer, at, end);
    }
    if (lab.init == LAB_INTERLEAVE)
        lab_allocate_by_touch();
    free(buffer);
}

/* Reads thread `thread`'s part. */
static void read_in(int thread)
{
    struct lab_part part = lab_part(bytes / lab.page, thread);
    uint64_t *buffer = block_buffer();
    if (lab.init == LAB_INTERLEAVE)
        lab_allocate_interleaved();
    for (size_t at = part.first * lab.page, end = part.end * lab.page; at < end;)
        at += transfer(pread, file, buffer, at, end);
    if (lab.init == LAB_INTERLEAVE)
        lab_allocate_by_touch();
    free(buffer);
}

/* Drops the file from the page cache. */
static void evict(void)
{
    int error = fsync(file) ? errno : posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    if (error)
        lab_fail("%s: %s", path, strerror(error));
}

/* Whether the thread is the first of its node. */
static bool leads(int thread)
{
    for (int other = 0; other < thread; other++)
        if (lab_thread_node(other, 0) == lab_thread_node(thread, 0))
            return false;
    return true;
}

static void name_copy(char *name, size_t size, int node)
{
    snprintf(name, size, "%s.node%d", path, node);
}

/* Makes a copy for each node, written and so allocated there. */
static void replicate(void)
{
#pragma omp parallel
    {
        int thread = omp_get_thread_num(), node = lab_thread_node(thread, 0);
        if (leads(thread)) {
            char name[4096];
            uint64_t *buffer = block_buffer();
            name_copy(name, sizeof name, node);
            int copy = create(name);
            for (size_t at = 0; at < bytes;) {
                transfer(pread, file, buffer, at, bytes);
                at += transfer(put, copy, buffer, at, bytes);
            }
            copies[node] = reopen(copy, name);
            free(buffer);
        }
    }
}

/* The start of a thread: those of one node are as far apart as possible, and no two are equal. */
static size_t beginning(int thread)
{
    size_t before = 0, rank = 0;
    int node = lab_thread_node(thread, 0), seen[LAB_NODES] = {0};
    for (int other = 0; other < thread; other++)
        rank += lab_thread_node(other, 0) == node;
    for (int other = 0; other < (int)lab.threads; other++) {
        size_t others = (size_t)seen[lab_thread_node(other, 0)]++;
        before += others < rank || (others == rank && lab_thread_node(other, 0) < node);
    }
    return bytes / block * before / lab.threads * block;
}

/* Whether the thread reads. */
static bool reads(int thread)
{
    return !far_alone || lab_thread_node(thread, 0) > 0;
}

static unsigned long readers(void)
{
    unsigned long count = 0;
    for (int thread = 0; thread < (int)lab.threads; thread++)
        count += reads(thread);
    return count;
}

/* Each reading thread reads everything once. The first word of each line is added to the sum. */
static uint64_t read_all(void)
{
    uint64_t sum = 0;
#pragma omp parallel reduction(+ : sum)
    if (reads(omp_get_thread_num())) {
        int thread = omp_get_thread_num(), copy = copies[lab_thread_node(thread, 0)];
        static _Thread_local uint64_t *buffer;
        buffer = buffer ? buffer : block_buffer();
        size_t at = beginning(thread);
        for (size_t left = bytes; left > 0;) {
            size_t size = transfer(by_sendfile ? send_and_receive : pread, copy ? copy : file,
                                   buffer, at, bytes);
            for (size_t word = 0; word < size / 8; word += LAB_LINE / 8)
                sum += buffer[word];
            left -= size;
            at = at + size == bytes ? 0 : at + size;
        }
    }
    return sum;
}

static struct lab_area *adopt(const char *name, int from)
{
    void *start = mmap(NULL, bytes, PROT_READ, MAP_SHARED, from, 0);
    if (start == MAP_FAILED)
        lab_fail("%s: %s", name, strerror(errno));
    return lab_adopt(name, start, bytes);
}

static struct lab_area *whole, *replicas[LAB_NODES];

static void adopt_copies(void)
{
    static char names[LAB_NODES][8];
    for (int node = 0; node < LAB_NODES; node++) {
        if (copies[node]) {
            snprintf(names[node], sizeof names[node], "copy%d", node);
            replicas[node] = adopt(names[node], copies[node]);
        }
    }
}

/* The share of all threads' reads whose page is on the thread's node. */
static double local_share(bool from_copies)
{
    size_t local = 0, pages = bytes / lab.page;
    for (int thread = 0; thread < (int)lab.threads; thread++) {
        if (!reads(thread))
            continue;
        int node = lab_thread_node(thread, 0);
        const struct lab_area *area = from_copies ? replicas[node] : whole;
        for (size_t page = 0; page < pages; page++)
            local += area->after[page] == node;
    }
    return (double)local / (double)(pages * readers());
}

/* Takes one more part of the memory before each iteration of the second quarter, on each
 * thread's node, and releases all of it after three quarters. */
static void take_memory(unsigned long number)
{
    static char *memory;
    unsigned long first = lab.iterations / 4, steps = lab.iterations / 2 - first,
                  step = number - first;
    size_t all = take * lab.threads;
    if (!take || number < first)
        return;
    if (number == lab.iterations * 3 / 4)
        munmap(memory, all);
    if (step >= steps)
        return;
    if (!memory)
        memory = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        lab_fail("mapping %zu bytes: %s", all, strerror(errno));
#pragma omp parallel
    memset(memory + take * (size_t)omp_get_thread_num() + take * step / steps, 1,
           take * (step + 1) / steps - take * step / steps);
}

static uint64_t iteration(unsigned long number)
{
    struct timespec pause = {(time_t)(pause_ms / 1000), (long)(pause_ms % 1000) * 1000000};
    if (pause_ms)
        nanosleep(&pause, NULL);
    take_memory(number);
    uint64_t sum = read_all();
    if (number == 0 && lab.hand && !copies_at_start)
        replicate();
    return sum;
}

int main(int argc, char **argv)
{
    const struct lab_option own[] = {
        {.key = "bytes", .number = &bytes, .help = "of the file, rounded up to whole blocks (16M)"},
        {.key = "block", .number = &block, .help = "bytes of a read, a multiple of the page (16K)"},
        {.key = "file", .text = &path, .help = "the file, made and removed again (readers.data)"},
        {.key = "cold",
         .choice = &cold,
         .words = "no|yes",
         .help = "whether the file is read in from a disk first, as --init says, or cached where "
                 "it is written (no)"},
        {.key = "readers",
         .choice = &far_alone,
         .words = "all|far",
         .help = "who reads the file once it is there: all threads, or those of other nodes than 0 "
                 "(all)"},
        {.key = "call",
         .choice = &by_sendfile,
         .words = "pread|sendfile",
         .help = "what reads: pread, or sendfile to a socket and recv from it"},
        {.key = "take",
         .number = &take,
         .help = "memory that each thread takes in the second quarter of the iterations, and has "
                 "in the third (0)"},
        {.key = "pause", .number = &pause_ms, .help = "milliseconds before each iteration (0)"},
        {.key = "copies",
         .choice = &copies_at_start,
         .words = "one|node",
         .help = "one copy, or one on each node from the start"},
        {0},
    };
    lab_start(argc, argv, own);
    if (lab.page > 4096)
        lab_fail("--pages huge: the pages of files are small ones");
    if (!block || block % lab.page || block > 1 << 30 || !bytes || bytes > 1ul << 46)
        lab_fail("--block must be a multiple of %zu up to 1G, --bytes from 1 to 64T", lab.page);
    if (!readers())
        lab_fail("--readers far: no thread is on another node than 0");
    bytes = (bytes + block - 1) / block * block;
    file = create(path);
    if (cold) {
        for (int thread = 0; thread < (int)lab.threads; thread++)
            fill(thread);
        evict();
        file = reopen(file, path);
    }
    lab_initialise(cold ? read_in : fill);
    file = cold ? file : reopen(file, path);
    if (copies_at_start)
        replicate();
    read_all();
    whole = adopt("file", file);
    adopt_copies();
    uint64_t sum = lab_iterate(iteration);

    if (!copies_at_start)
        adopt_copies();
    bool copied = copies_at_start || lab.hand;
    double after = local_share(copied), before = copies_at_start ? after : local_share(false);
    for (int node = 0; node < LAB_NODES; node++) {
        char name[4096];
        name_copy(name, sizeof name, node);
        if (copies[node])
            unlink(name);
    }
    unlink(path);
    uint64_t lines = bytes / LAB_LINE, once = lines * (lines - 1) / 2 * (LAB_LINE / 8);
    if (sum != once * readers() * lab.iterations)
        lab_fail("the sums are wrong");
    lab_facts(once,
              (struct lab_expected){(double)lines * (double)readers() * (double)lab.iterations,
                                    lab_over_iterations(before, after)},
              ", \"file_lines\": %lu, \"copies\": %s", lines, copied ? "true" : "false");
}
