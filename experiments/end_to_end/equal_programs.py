"""The programs of equal.py, and the modes that they run in.

A command runs in a scratch folder that has what SETUP made of SOURCES: `tree/` (2,000 files), `big`
(24 MiB), `text` (6 MiB), compiled programs in `bin/`, and the empty folder `out/` for what it
makes.
Its output has to be the same in each run.
"""

from dataclasses import dataclass

# Options of the command; the trace of a recording is thrown away.
MODES = {
    "record": ["record", "--seen-by=library", "--force", "-q", "-o", "t.hither"],
    "page cache": ["run", "-q", "--page-cache", "--cache", "16MiB"],
    "no cache": ["run", "-q", "--no-cache"],
    "replicas": ["run", "-q", "--replicas", "--replicate", "all"],
    "file placement": ["run", "-q", "--dry-run", "--file-placement=upm"],
    "memory": ["run", "-q", "--dry-run", "--memory"],
    "automatic": ["run", "-q"],
}

SOURCES = {
    # Reads its file four times, by each kind of call, and prints a sum.
    "reader.c": (
        r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>
static unsigned char data[65536];
static unsigned long add(unsigned long sum, long bytes) {
    for (long i = 0; i < bytes; i++) sum = sum * 31 + data[i];
    return sum;
}
int main(int count, char **arguments) {
    const char *path = count > 1 ? arguments[1] : "text";
    unsigned long sum = 0;
    long bytes;
    int file = open(path, O_RDONLY);
    if (file < 0) { perror(path); return 1; }
    while ((bytes = read(file, data, sizeof data)) > 0) sum = add(sum, bytes);
    for (long at = 0; (bytes = pread(file, data, 4096, at)) > 0; at += 4096) sum = add(sum, bytes);
    struct iovec parts[2] = {{data, 100}, {data + 100, 5000}};
    lseek(file, 0, SEEK_SET);
    while ((bytes = readv(file, parts, 2)) > 0) sum = add(sum, bytes);
    close(file);
    FILE *stream = fopen(path, "r");
    while ((bytes = fread(data, 1, 1000, stream)) > 0) sum = add(sum, bytes);
    fclose(stream);
    printf("%lx\n", sum);
    return 0;
}
"""
    ),
    # Sets a limit for itself, then takes nearly as much memory as it allows.
    "limited.c": (
        r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
int main(int count, char **arguments) {
    int what = atoi(arguments[1]);
    struct rlimit limit = {512 << 20, 512 << 20};
    (void)count;
    if (setrlimit(what ? RLIMIT_DATA : RLIMIT_AS, &limit)) return 1;
    char *memory = malloc(320 << 20);
    if (!memory) { puts("no memory"); return 2; }
    memset(memory, 1, 320 << 20);
    FILE *stream = fopen("text", "r");
    printf("%zu\n", fread(memory, 1, 1 << 20, stream));
    return 0;
}
"""
    ),
    # The main thread ends before another one that reads.
    "last_thread.c": (
        r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void *reads(void *nothing) {
    char line[100];
    (void)nothing;
    usleep(50000);
    FILE *stream = fopen("text", "r");
    for (int i = 0; i < 20000; i++) if (!fgets(line, sizeof line, stream)) return 0;
    fputs(line, stdout);
    exit(3);
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, reads, 0);
    pthread_exit(0);
}
"""
    ),
    # Confines itself by a system call of its own, then reads and writes alone.
    "strict.c": (
        r"""
#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
static long call(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c)
        : "rcx", "r11", "memory");
    return result;
}
int main(void) {
    static char data[65536];
    int file = open("text", O_RDONLY);
    if (read(file, data, 100) != 100) return 1;
    call(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0);
    for (int i = 0; i < 50; i++)
        if (read(file, data, sizeof data) != sizeof data) call(SYS_exit, 2, 0, 0);
    write(1, data, 64);
    call(SYS_exit, 0, 0, 0);
}
"""
    ),
    # Has a variable of its own that is named like libc's, and starts others without an environment.
    "environ.c": (
        r"""
#include <stdio.h>
#include <unistd.h>
char **environ;
int main(void) {
    execlp("sh", "sh", "-c", "echo $HOME $LC_ALL; cat text | md5sum", (char *)0);
    return 1;
}
"""
    ),
    # Passes what points nowhere.
    "nowhere.c": (
        r"""
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <unistd.h>
int main(int count, char **words) {
    char **nowhere = (char **)1;
    (void)count;
    printf("%d %d\n", execve((char *)1, words, words), errno);
    printf("%d %d\n", execve("/bin/true", words, nowhere), errno);
    printf("%d\n", posix_spawn(0, "/bin/true", 0, 0, words, nowhere));
    printf("%ld %d\n", (long)read(0, (char *)1, 1), errno);
    return 0;
}
"""
    ),
    # Stands in for dlsym, as tools that watch graphics libraries do.
    "dlsym.c": (
        r"""
#define _GNU_SOURCE
#include <dlfcn.h>
void *dlsym(void *library, const char *name) {
    static void *(*real)(void *, const char *);
    if (!real) real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!real) real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    void *found = real(library, name);
    __asm__ volatile("");
    return found;
}
"""
    ),
    # Reads in a handler that runs when the process ends.
    "at_exit.c": (
        r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int file;
static void reads(void) {
    static char data[4096];
    long sum = 0;
    for (int i = 0; i < 500; i++) sum += pread(file, data, sizeof data, i * 4096L) + data[7];
    printf("%ld\n", sum);
}
int main(void) {
    file = open("text", O_RDONLY);
    atexit(reads);
    reads();
    return 5;
}
"""
    ),
    "chain.sh": (
        """#!bin/reader-musl
not a shell script: its interpreter prints this file's sum
"""
    ),
}

SETUP = """
mkdir -p bin tree
python3 - <<'END'
import os, random
r = random.Random(7)
words = [bytes(r.choices(b"abcdefghijklmnopqrstuvwxyz", k=r.randint(2, 9))) for _ in range(3000)]
def text(n):
    out, size = [], 0
    while size < n:
        line = b" ".join(r.choices(words, k=9)) + b"\\n"
        out.append(line); size += len(line)
    return b"".join(out)[:n]
open("text", "wb").write(text(6 << 20))
open("big", "wb").write(r.randbytes(24 << 20))
for d in range(40):
    os.mkdir(f"tree/{d}")
    for f in range(50):
        open(f"tree/{d}/{f}.txt", "wb").write(text(r.randint(0, 9000)))
END
for s in reader limited last_thread strict at_exit environ nowhere
do gcc -O1 -pthread -o bin/$s $s.c; done
gcc -O1 -shared -fPIC -o bin/dlsym.so dlsym.c
gcc -O1 -rdynamic -o bin/wraps reader.c dlsym.c
gcc -static -o bin/reader-static reader.c
gcc -static-pie -o bin/reader-static-pie reader.c
musl-gcc -O1 -o bin/reader-musl reader.c || true
musl-gcc -O1 -static -o bin/reader-musl-static reader.c || true
gcc -m32 -o bin/reader-i386 reader.c || true
chmod +x chain.sh
tar -cf tree.tar tree
gzip -k tree.tar
xz -k0 tree.tar
"""


@dataclass
class Program:
    """A shell command and the exit status that it has alone."""

    name: str
    command: str
    status: int = 0
    # Why it is known to differ: one of the limits that docs/effects.md names.
    known: str = ""


JEMALLOC = "$(ldconfig -p | sed -n 's/.*jemalloc.*=> //p' | head -1)"

PROGRAMS = [
    Program("cat", "cat text big | md5sum"),
    Program("grep", "grep -rc needle tree | md5sum; grep -m3 ab text"),
    Program("rg", "rg -c -j2 ab tree | sort | md5sum"),
    Program("sed, awk", "sed s/a/b/g text | awk '{n += NF} END {print n}'"),
    Program("sort, uniq", "tr ' ' '\\n' < text | sort -S 4M -T out | uniq -c | sort -rn | head -9"),
    Program("checksums", "md5sum text big; sha256sum big; cksum text; b2sum text"),
    Program(
        "wc, cmp, diff", "wc text; cp text out/t; echo >> out/t; cmp text out/t; diff text out/t", 1
    ),
    Program("find, xargs", "find tree -type f -print0 | xargs -0 -P2 -n100 cat | wc -c"),
    Program("cp", "cp -a tree out/t && diff -r tree out/t && ls -lR --time-style=+ out/t | md5sum"),
    Program(
        "dd",
        "dd if=big of=out/b bs=64k conv=fsync status=none; dd if=big bs=1M iflag=direct "
        "status=none | cmp - out/b",
    ),
    Program("tar", "tar -cf - tree | md5sum; tar -xf tree.tar -C out && diff -r tree out/tree"),
    Program("gzip", "gzip -1c big | gunzip | md5sum; gunzip -t tree.tar.gz"),
    Program("xz", "xz -dc tree.tar.xz | md5sum; xz -0c text | md5sum"),
    Program("bzip2", "bzip2 -1c text | md5sum"),
    Program("zstd", "zstd -qc text | md5sum; zstd -T2 -qc big | zstd -dqc | md5sum"),
    Program(
        "rsync", "rsync -a tree/ out/t && rsync -ac --delete tree/ out/t && diff -r tree out/t"
    ),
    Program(
        "git",
        "cd out && git init -q . && cp -r ../tree . && git add . && git -c user.name=a "
        "-c user.email=b@c commit -qm x && git fsck && git gc -q && git ls-files | wc -l",
    ),
    Program("gcc", "gcc -O2 -c -o out/r.o reader.c && size out/r.o && objdump -d out/r.o | md5sum"),
    Program(
        "g++",
        "printf '#include <map>\\n#include <iostream>\\nint main() {std::map<int, int> m;"
        " m[1] = 2; std::cout << m.size() << std::endl;}' > out/a.cc && "
        "g++ -o out/a out/a.cc && out/a",
    ),
    Program("clang", "clang -O2 -o out/r reader.c && out/r"),
    Program(
        "make", "printf 'all: a b\\na b:\\n\\t@cat text | md5sum\\n' > out/M && make -f out/M -j2"
    ),
    Program("strip, ld", "cp bin/reader out/r && strip out/r && out/r"),
    Program(
        "python3",
        "python3 -c \"import hashlib,glob;print(hashlib.md5(b''.join(open(f,'rb').read()"
        " for f in sorted(glob.glob('tree/*/*')))).hexdigest())\"",
    ),
    Program(
        "python3, processes",
        'python3 -c "from multiprocessing import Pool;import zlib\n'
        "def f(n): return zlib.crc32(open(f'tree/{n}/1.txt','rb').read())\n"
        'print(sum(Pool(4).map(f, range(40))))"',
    ),
    Program(
        "python3, threads",
        'python3 -c "from concurrent.futures import ThreadPoolExecutor as T\n'
        "f=open('big','rb',0)\nimport os,zlib\n"
        "print(sum(T(8).map(lambda i: zlib.crc32(os.pread(f.fileno(),99999,i*7777)),"
        ' range(2000))))"',
    ),
    Program(
        "python3, mmap",
        "python3 -c \"import mmap;f=open('big','rb');m=mmap.mmap(f.fileno(),0,"
        'prot=1);print(sum(m[::4096]))"',
    ),
    Program(
        "python3, subprocess",
        "python3 -c \"import subprocess as s;print(s.run(['cat','text'],"
        'capture_output=True,env={}).stdout[:60])"',
    ),
    Program("perl", "perl -ne '$n++ if /ab/; END {print \"$n\\n\"}' text"),
    Program(
        "node",
        "node -e \"const f=require('fs');console.log(require('crypto').createHash('md5')"
        ".update(f.readFileSync('big')).digest('hex'))\"",
    ),
    Program(
        "java",
        "printf 'public class A {public static void main(String[] a) throws Exception "
        '{System.out.println(java.nio.file.Files.lines(java.nio.file.Path.of("text")).count())'
        ";}}' > out/A.java && java -Xmx64m out/A.java",
    ),
    Program(
        "sqlite3",
        "sqlite3 out/d 'create table t(a, b); insert into t select value, "
        "value * 7 % 1000 from generate_series(1, 50000); create index i on t(b); "
        "select sum(a) from t where b < 100; vacuum; pragma integrity_check;'",
    ),
    Program("cscope", "cd out && cp ../*.c . && cscope -bk && cscope -dL0 main | sort | wc -l"),
    Program(
        "redis",
        "redis-server --port 0 --unixsocket $PWD/out/s --dir out --daemonize yes "
        "--save '' > out/log; for i in 1 2 3 4 5 6 7 8 9; do redis-cli -s out/s ping && break; "
        "sleep .2; done; head -c 1000000 text | redis-cli -s out/s -x set k; "
        "redis-cli -s out/s get k | md5sum; redis-cli -s out/s save; "
        "redis-cli -s out/s shutdown nosave",
    ),
    Program(
        "redis, jemalloc",
        f"LD_PRELOAD={JEMALLOC} sh -c 'redis-server --version | cut -c1-12; cat text | md5sum'",
    ),
    Program(
        "strace", "strace -f -e trace=openat -o out/log cat text | md5sum; grep -c text out/log"
    ),
    Program(
        "openssl", "openssl dgst -md5 big; openssl enc -aes-128-cbc -K 00 -iv 00 -in text | md5sum"
    ),
    Program(
        "mke2fs",
        "truncate -s 16M out/i && mke2fs -q -d tree out/i && "
        "e2fsck -fn out/i > /dev/null 2>&1; debugfs -R 'cat /3/3.txt' out/i 2>/dev/null | md5sum",
    ),
    Program(
        "squashfs",
        "mksquashfs tree out/q -quiet -no-progress -reproducible > /dev/null && "
        "unsquashfs -q -n -d out/u out/q > /dev/null && diff -r tree out/u",
    ),
    Program(
        "restic",
        "export RESTIC_PASSWORD=x RESTIC_REPOSITORY=out/r; restic -q init && "
        "restic -q --no-cache backup tree && restic -q --no-cache check && "
        "restic -q --no-cache restore latest --target out/t && diff -r tree out/t/tree",
    ),
    Program(
        "busybox", "busybox sh -c 'for i in 1 2 3; do busybox cat text | busybox md5sum; done'"
    ),
    Program("static", "bin/reader-static"),
    Program("static-pie", "bin/reader-static-pie"),
    Program("musl", "bin/reader-musl"),
    Program("musl, static", "bin/reader-musl-static"),
    Program("i386", "bin/reader-i386"),
    Program("a script for musl", "./chain.sh; bin/reader"),
    Program(
        "a chain of kinds",
        "bin/reader; bin/reader-musl; sh -c 'bin/reader-i386; ./chain.sh; "
        "bin/reader-static-pie'; exec env bin/reader",
    ),
    Program(
        "a file that is no program",
        "echo x > out/f; chmod +x out/f; out/f; ./text; nothing; exec bin",
        126,
    ),
    Program("a limit of address space", "bin/limited 0"),
    Program("a limit of data", "bin/limited 1"),
    Program(
        "ulimit -v",
        "ulimit -v 600000; python3 -c 'print(len(bytearray(300 << 20)))'; cat text | wc",
    ),
    Program(
        "ulimit -n",
        "ulimit -n 16; cat text | sort | head -3; python3 -c 'print(open(\"text\").readline())'",
    ),
    Program(
        "ulimit -f, -s",
        "(sh -c 'ulimit -f 8; dd if=text of=out/o bs=1k count=100'; echo $?) 2> out/log; "
        "ls -s out/o; ulimit -s 256; cat text | wc",
    ),
    Program("the last thread", "bin/last_thread", 3),
    Program("handlers at exit", "bin/at_exit", 5),
    Program("its own environ", "bin/environ"),
    Program("pointers to nowhere", "bin/nowhere < text"),
    Program("a library's own dlsym", "LD_PRELOAD=bin/dlsym.so bin/reader; bin/wraps text"),
    Program(
        "seccomp by itself",
        "bin/strict",
        known="a library cannot see a system call that a program makes without libc",
    ),
    Program(
        "an empty environment",
        "env -i /usr/bin/env | grep -v '^LD_PRELOAD=\\|^HITHER\\|^ASAN'; "
        "env -i /bin/cat text | md5sum",
    ),
    Program("variables", "env | grep -v '^LD_PRELOAD\\|^HITHER\\|^ASAN\\|^_=' | sort | md5sum"),
    Program("namespaces", "unshare -r true && unshare -rm sh -c 'cat text | md5sum'"),
    Program("no_new_privs", "setpriv --no-new-privs cat text | md5sum"),
    Program(
        "signals",
        "(timeout -s KILL .2 cat /dev/zero > /dev/null; echo $?; "
        "sh -c 'kill -SEGV $$'; echo $?) 2> out/log; kill -TERM $$",
        143,
    ),
    Program(
        "a pipe that closes", "cat big | head -c 10 | md5sum; yes | head -1; echo ${PIPESTATUS[0]}"
    ),
    Program("flock, timeout, nice", "flock out/l timeout 20 nice -n 5 cat text | md5sum"),
    Program(
        "descriptors",
        "ls -l /proc/self/fd | awk '{print $9}' | sort | tr '\\n' ' '; "
        "exec 5< text; head -c 9 <&5; bash -c 'head -c 9 <&5'",
    ),
]
