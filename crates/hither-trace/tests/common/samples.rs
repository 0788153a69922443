//! A small valid trace in every format that is a stream of bytes, for tests that damage it or
//! compare readers.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::io::Write as _;

/// The samples, one per format, by the format's name.
pub(crate) fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let text = |text: &str| text.as_bytes().to_vec();
    let keys = [7u64, 8, 7, 42, 8, 7, 1 << 20];
    let bytes = |of: &dyn Fn(u64) -> Vec<u8>| keys.iter().flat_map(|&key| of(key)).collect();
    vec![
        (
            "address",
            text("s 0x1fffff50 1\nl 0x1fffff58 1\nl 0x2fffff88 6\nl 0x7fff00001f90 2\n"),
        ),
        (
            "alibaba",
            text(
                "400,W,10922496,512,1577808000000710\n401,R,8513536,4096,1577808000000903\n\
                 400,R,10922496,16384,1577808000001760\n",
            ),
        ),
        ("arc", text("7 3 0 0\n100 1 0 1\n7 2 5 2\n")),
        (
            "blkparse",
            text(
                "  8,0    3        1   0.000664000   697  Q   W 21333 + 1 [kjournald]\n\
                 8,0 3 2 0.000764000 697 D W 21333 + 1 [kjournald]\n\
                 8,1 0 1 0.001000000 9 Q FWS [a b]\n8,1 0 2 0.002 9 Q RA 16 + 24 [c]\n\
                 CPU0 (8,0):\n Reads Queued: 1, 12KiB\n",
            ),
        ),
        (
            "darshan-dxt",
            text(
                "# darshan log version: 3.41\n\n# DXT, file_id: 9, file_name: /out/a b\n\
                 # DXT, rank: 0, hostname: n1\n X_POSIX 1 write 0 0 4096 0.2 0.3\n \
                 X_MPIIO 1 write 0 0 4096 0.2 0.3\n\
                 # DXT, file_id: 7, file_name: /in\n X_POSIX 4 read 0 8192 512 0.1 0.15 [2]\n",
            ),
        ),
        (
            "fio-iolog",
            text(
                "fio version 2 iolog\n/dev/sda add\n/dev/sda open\n/dev/sda write 8192 512\n\
                 /dev/sda read 0 4096\nfio version 3 iolog\n5 b open\n\
                 7 b read 4096 8192\n8 b close\n",
            ),
        ),
        (
            "ibm-cos",
            text(
                "1219008 REST.PUT.OBJECT 8d4fcda3d675bac9 10560\n\
                 1221974 REST.HEAD.OBJECT 39d177fb735ac5df 528\n\
                 1232488 REST.GET.OBJECT 8d4fcda3d675bac9 10560 4096 8191\n\
                 1232500 REST.GET.OBJECT 95d363d3fbdc0b03 100\n1232600 REST.DELETE.OBJECT a\n",
            ),
        ),
        ("lcs", lcs(1024, 2, &keys)),
        (
            "libcachesim-csv",
            text(
                "# time, object, size, op, next_access_vtime\n0, 7, 512, r, 2\n1, 7, 512, write, \
                 -1\n",
            ),
        ),
        ("libcachesim-txt", text("alpha\nbeta\n42\nalpha\n\n042\n")),
        ("lirs", text("7\r\n*\r\n\r\n8\n  7  \n7\n0\n9")),
        (
            "mooncake",
            text(
                "{\"timestamp\": 0, \"input_length\": 600, \"hash_ids\": [0, 7, 33]}\n\
                 {\"timestamp\": 9, \"hash_ids\": [0, 7, 8], \"output_length\": 2}\n",
            ),
        ),
        (
            "msr",
            text(
                "128166372003061629,usr,0,Read,7014609920,24576,41286\n\
                 128166372016382155,usr,1,Write,1317441536,8192,1963\n\
                 128166372026382245,web,0,Read,7014609920,24576,3\n",
            ),
        ),
        ("oracle-general", oracle_general(&keys)),
        (
            "page-counts",
            text(
                "page-counts 1\nobject u 32768\nobject rhs 5000\nthread 0 0\nthread 1 1\n\
                 loop add\nl 0 0 0 3\ns 1 0 16384 2\nend\niteration 2\nthread 1 0\n\
                 loop add\ns 1 1 4096 1\nend\niteration 1\n",
            ),
        ),
        ("perf-trace", text(PERF_TRACE)),
        (
            "spc",
            text("0,303567,3584,w,0.000000\n1,55590,3072,R,0.026214\n0,303574,3584,w,0.5,more\n"),
        ),
        ("strace", text(STRACE)),
        (
            "systor",
            text(
                "Timestamp,Response,IOType,LUN,Offset,Size\n\
                 1455592800.000663996,0.000170,W,0,8192,512\n\
                 1455592800.000857115,,R,1,8513536,4096\n",
            ),
        ),
        (
            "tencent",
            text(
                "1538323200,21333,1,1,1283\n1538323201,16628,8,0,1284\n1538323201,21333,1,0,1283\n",
            ),
        ),
        (
            "twitter",
            text(
                "0,q:q:1:8WTfjZU14ee,17,213,4,get,0\n1,a,b,3,0,5,set,60\n\
                 2,q:q:1:8WTfjZU14ee,17,0,4,delete,0\n",
            ),
        ),
        ("u32be", bytes(&|key| (key as u32).to_be_bytes().to_vec())),
        ("u32le", bytes(&|key| (key as u32).to_le_bytes().to_vec())),
        ("u64be", bytes(&|key| key.to_be_bytes().to_vec())),
        ("u64le", bytes(&|key| key.to_le_bytes().to_vec())),
        ("vscsi", bytes(&vscsi_1)),
        ("vscsi-requests", bytes(&vscsi_1)),
        (
            "webcachesim",
            text("0 658 4900\n1 312 12600 3 0.5\n2 658 4900\n"),
        ),
    ]
}

/// A log of `strace -f -k`: two processes that share a position, a thread that interrupts, a copy
/// inside the kernel.
pub(crate) const STRACE: &str = concat!(
    r#"100 execve("/bin/prog", ["prog", "a\"b"], "#,
    r#"0x7ffe328b1a20 /* 35 vars */) = 0
100 openat(AT_FDCWD, "/data/a", O_RDONLY|O_CLOEXEC) = 3
100 read(3, "\177ELF) = 7"..., 8192) = 8192
 > /usr/lib/x86_64-linux-gnu/libc.so.6(__read+0xd) [0xf833d]
 > /bin/prog(scan(int, char*)+0x26) [0x1234]
 > /bin/prog() [0x2222]
100 dup2(3, 5)                        = 5
100 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD <unfinished ...>
101 read(5,  <unfinished ...>
100 <... clone resumed>, child_tidptr=0x7f351f441a10) = 101
101 <... read resumed>"x"..., 4096)   = 4096
 > /usr/lib/x86_64-linux-gnu/libc.so.6(__read+0xd) [0xf833d]
 > /bin/prog(scan(int, char*)+0x26) [0x1234]
 > /bin/prog() [0x2222]
101 pread64(5, "x", 100, 4096)        = 100
101 --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED} ---
101 +++ exited with 0 +++
100 read(3, "", 4096)                 = 0
100 read(9, "x", 1)                   = 1
100 openat(AT_FDCWD, "out", O_WRONLY|O_CREAT|O_APPEND, 0666) = 4
100 write(4, "hello\n", 6)           = 6
100 sendfile(4, 3, [0] => [4096], 4096) = 4096
100 lseek(3, 0, SEEK_SET)             = 0
100 read(3, "x", 10)                  = -1 EIO (Input/output error)
100 mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, 3, 0x1000) = 0x7f5bf81aa000
100 close(3)                          = 0
100 exit_group(0)                     = ?
"#
);

/// What `perf trace` prints of a program that opens a file, forks, starts a thread, copies and
/// executes another program: in the order and the words of perf 6.1.
pub(crate) const PERF_TRACE: &str = r#"
         ? (         ): pp/100  ... [continued]: execve()) = 0
     0.867 ( 0.011 ms): pp/100 rseq(rseq: 0x7f60, rseq_len: 32, sig: 1392848979) = 0
     1.134 ( 0.017 ms): pp/100 openat(dfd: CWD, filename: 0xec2e402b) = 4
     2.200 ( 0.058 ms): pp/100 read(fd: 4, buf: 0x55e0, count: 100) = 100
     2.283 ( 0.058 ms): pp/100 read(fd: 4</data/a b>, buf: 0x55e0, count: 8000) = 8000
     2.354 ( 0.012 ms): pp/100 pread64(fd: 4</data/a b>, buf: 0x55e0, count: 50) = 50
     2.378 ( 0.012 ms): pp/100 pread64(fd: 4</data/a b>, buf: 0x55e0, count: 50, pos: 70000) = 50
     2.451 ( 0.012 ms): pp/100 dup(fildes: 4) = 5
     2.498 ( 0.012 ms): pp/100 fcntl(fd: 4</data/a b>, cmd: DUPFD_CLOEXEC, arg: 20) = 20</data/a b>
     2.544 ( 0.170 ms): pp/100 clone(clone_flags: CHILD_SETTID|0x11, child_tidptr: 0x7) = 101 (pp)
         ? (         ): pp/101  ... [continued]: clone()) =
     2.740 (         ): pp/100 wait4(upid: 101 (pp)) ...
     6.534 ( 0.028 ms): pp/101 read(fd: 5</data/a b>, buf: 0x55e0, count: 4096) = 4096
     8.728 (         ): pp/101 exit_group() = ?
     2.740 ( 6.210 ms): pp/100  ... [continued]: wait4()) = 101 (pp)
     9.281 ( 0.148 ms): pp/100 clone3(uargs: 0x7fff48da1970, size: 88) = 102
         ? (         ): pp/102  ... [continued]: clone3()) = 0
     9.467 (         ): pp/100 futex(uaddr: 0x7f90, op: WAIT_BITSET|CLOCK_REALTIME, val: 102) ...
     9.502 ( 0.011 ms): pp/102 rseq(rseq: 0x7f9aea639fe0, rseq_len: 32, sig: 1392848979) = 0
     9.571 ( 0.012 ms): pp/102 read(fd: 20, buf: 0x55e0, count: 10) = 10
     9.653 (         ): pp/102 exit() = ?
     9.467 ( 4.875 ms): pp/100  ... [continued]: futex()) = 0
    14.368 ( 3.982 ms): pp/100 openat(dfd: CWD, filename: "out", flags: APPEND|TRUNC|WRONLY) = 6
    19.550 ( 0.157 ms): pp/100 write(fd: 6</data/out>, buf: 0x55e0, count: 6000) = 6000
    19.901 ( 0.014 ms): pp/100 sendfile(out_fd: 6, in_fd: 4, offset: 0x7f68, count: 1000) = 1000
    20.056 ( 0.013 ms): pp/100 read(fd: 4, buf: 0x1, count: 100) = -1 EIO (Input/output error)
    20.189 ( 0.033 ms): pp/100 mmap(len: 8192, prot: READ, flags: PRIVATE, fd: 4, off: 0x1000) = 0x7
         ? (         ): pp/103  ... [continued]: clone3()) = 0
    20.381 (         ): pp/100 clone3(uargs: 0x7fff48da18c0, size: 88) ...
    20.649 ( 0.012 ms): pp/103 rt_sigprocmask(how: BLOCK, oset: 0x7f9aea828ea0, sigsetsize: 8) = 0
    20.700 ( 0.012 ms): pp/103 close(fd: 4) = 0
    20.846 ( 0.251 ms): cat/103 execve(filename: 0x89ab3af0, argv: 0x7fc0, envp: 0x7fe0) = 0
    20.381 ( 1.001 ms): pp/100  ... [continued]: clone3()) = 103 (cat)
    21.900 ( 0.014 ms): cat/103 read(fd: 4</data/c>, buf: 0x55b9, count: 4096) = 2996
    21.950 ( 0.014 ms): pp/100 read(fd: 4</data/a b>, buf: 0x55b9, count: 4096) = 4096
    22.003 (         ): cat/103 exit_group() = ?
"#;

/// oracleGeneral records of references to these keys, a second apart, with their next accesses.
pub(crate) fn oracle_general(keys: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, key) in keys.iter().enumerate() {
        let next = keys[at + 1..].iter().position(|later| later == key);
        let next = next.map_or(-1, |ahead| (at + 1 + ahead + 1) as i64);
        bytes.extend((at as u32).to_le_bytes());
        bytes.extend(key.to_le_bytes());
        bytes.extend(4096u32.to_le_bytes());
        bytes.extend(next.to_le_bytes());
    }
    bytes
}

/// References to these keys as lcs, with a header of so many bytes and records of this version.
/// From version 2 on, every second one is a write.
pub(crate) fn lcs(header_bytes: usize, version: u64, keys: &[u64]) -> Vec<u8> {
    const MAGIC: u64 = 0x1234_5678_9abc_def0;
    let objects = keys.iter().collect::<std::collections::BTreeSet<_>>().len();
    let begin = [MAGIC, version, 1, keys.len() as u64, objects as u64];
    let mut bytes = begin.map(u64::to_le_bytes).concat();
    bytes.resize(header_bytes - 8, 0);
    bytes.extend(MAGIC.to_le_bytes());
    for (at, record) in oracle_general(keys).chunks(24).enumerate() {
        let (time_and_object, size, next) = (&record[..12], &record[12..16], &record[16..]);
        bytes.extend(time_and_object);
        bytes.extend(size);
        if version > 2 {
            bytes.extend([0; 4]);
        }
        if version > 1 {
            // Get or set, and a tenant.
            bytes.extend([1 + 2 * (at as u8 % 2), 9, 9, 9]);
        }
        if version > 2 {
            bytes.extend([60, 0, 0, 0]);
        }
        bytes.extend(next);
        let features = if version > 3 { 1 << (version - 4) } else { 0 };
        bytes.extend(vec![7; 4 * features]);
    }
    bytes
}

/// A read of version 1 of vscsi.
pub(crate) fn vscsi_1(lbn: u64) -> Vec<u8> {
    let mut record = [1u32, 512, 1].map(u32::to_le_bytes).concat();
    record.extend([0x28u16, 0x0100].map(u16::to_le_bytes).concat());
    record.extend([lbn, 5].map(u64::to_le_bytes).concat());
    record
}

/// A write of version 2 of vscsi.
pub(crate) fn vscsi_2(lbn: u64) -> Vec<u8> {
    let mut record = [0x2au16, 0x0200].map(u16::to_le_bytes).concat();
    record.extend([1u32, 512, 1].map(u32::to_le_bytes).concat());
    record.extend([lbn, 5, 6].map(u64::to_le_bytes).concat());
    record
}

pub(crate) fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

pub(crate) fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 6);
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
