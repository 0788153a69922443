//! Real programs with their large allocations tracked from 64 KiB on: they print and return the
//! same as without.

use std::process::{Command, Stdio};

use hither_session::record::Record;

use crate::support::{check_same, compile, data, follow, placed, regions_session};
use hither_testing::skip::{skip, skip_on_this_machine};

/// Runs a program with and without; skipped where it is not installed. The number of its regions.
fn check(program: &str, arguments: &[&str]) -> usize {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join(program))
        .find(|path| path.is_file());
    let Some(path) = found else {
        skip(format_args!("no {program}"));
        return 0;
    };
    let session = regions_session(64 << 10);
    let mut command = placed(&session, &path);
    command.args(arguments);
    let run = follow(session, command);
    // A script says so itself where a program that it runs is not installed, or it is not root's.
    let said = String::from_utf8_lossy(&run.output.stdout);
    if let Some(missing) = said.trim().strip_prefix("skipped: ") {
        match missing {
            "not root" => skip_on_this_machine(missing),
            _ => skip(missing),
        }
    }
    check_same(&run, Command::new(&path).args(arguments));
    let regions = run
        .recording
        .regions
        .iter()
        .filter(|(_, _, record)| matches!(record, Record::Region { .. }))
        .count();
    println!("{program}: {regions} regions, {:?}", run.recording.lost);
    assert_eq!(run.recording.lost.damaged, 0);
    regions
}

#[test]
fn python() {
    let regions = check(
        "python3",
        &[
            "-c",
            "x = [i * i for i in range(300000)]; y = bytearray(5 << 20); \
             z = sorted(x, reverse=True); \
             import threading, hashlib; \
             t = [threading.Thread(target=lambda: bytearray(3 << 20)) for _ in range(20)]; \
             [a.start() for a in t]; [a.join() for a in t]; \
             import subprocess, os; pid = os.fork(); \
             (os._exit(0) if pid == 0 else os.waitpid(pid, 0)); \
             print(sum(z), hashlib.md5(y).hexdigest(), subprocess.check_output(['echo', 'x']))",
        ],
    );
    println!("{regions} regions");
}

#[test]
fn numpy() {
    let script = "import numpy as np; a = np.arange(1 << 19, dtype=float).reshape(512, 1024); \
                  b = a @ a.T; print(float(b.sum()), np.sort(b.ravel())[::1000].sum())";
    // Where the checks run, numpy is in an environment of its own.
    let python = std::env::var("HITHER_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let there = Command::new(&python)
        .args(["-c", "import numpy"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if there.is_ok_and(|status| status.success()) {
        check(&python, &["-c", script]);
    } else {
        skip("no numpy");
    }
}

#[test]
fn sorting_and_searching() {
    let file = data(4 << 20);
    let path = file.path().to_str().expect("text");
    check("sort", &["-S", "2M", "--parallel=4", path]);
    check("sort", &["-S", "64M", path]);
    check(
        "sqlite3",
        &[
            ":memory:",
            "create table t(a, b); \
             with recursive n(i) as (select 1 union all select i + 1 from n where i < 50000) \
             insert into t select i, hex(i * 7919 % 65537) from n; \
             create index x on t(b); select count(*), sum(a), max(b) from t; \
             select b from t order by b desc limit 5;",
        ],
    );
}

#[test]
fn compilers_and_scripts() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/storm.c");
    check("gcc", &["-O2", "-D_GNU_SOURCE", "-S", "-o", "-", source]);
    check(
        "perl",
        &[
            "-e",
            "my %h; $h{$_ * 7} = 'x' x ($_ % 50) for 1..100000; my $s = join ',', sort keys %h; \
             print length($s), ' ', substr($s, 0, 30), \"\\n\"",
        ],
    );
    check("git", &["hash-object", "/proc/self/exe"]);
    check(
        "bash",
        &[
            "-c",
            "x=$(head -c 300000 /dev/zero | tr '\\0' x); \
             for i in 1 2 3; do echo ${#x} | cat; done; echo \"$x\" | wc -c",
        ],
    );
    check("java", &["-XX:+UseSerialGC", "-version"]);
    check(
        "node",
        &[
            "-e",
            "let a = Buffer.alloc(5 << 20, 3); \
             let b = [...a.subarray(0, 100000)]; console.log(b.length)",
        ],
    );
}

/// A child of the server writes what it has to a file while its parent goes on.
#[test]
fn a_server_under_load() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!(
        "cd {}; command -v redis-server > /dev/null || {{ echo skipped: no redis-server; exit; }}; \
         rm -f dump.rdb; redis-server --port 0 --unixsocket s --save '' --appendonly no > log & \
         cli='redis-cli -s s'; until $cli ping 2>&1 | grep -q PONG; do sleep 0.05; done; \
         redis-benchmark -s s -q -n 5000 -r 1000 -d 2000 -t set,get,lpush > /dev/null; \
         head -c 3000000 /dev/zero | $cli -x set whole; $cli strlen whole; \
         $cli llen mylist; $cli save; $cli flushall; $cli shutdown nosave; wait $!; echo $?",
        folder.path().display()
    );
    check("bash", &["-c", &script]);
}

#[test]
fn a_jvm_with_threads() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("Main.java");
    let text = "import java.nio.*; import java.util.*; import java.util.stream.*; \
                public class Main { \
                static long work(int seed) { Random r = new Random(seed); \
                Map<Integer, byte[]> m = new HashMap<>(); long h = seed; \
                for (int i = 0; i < 4000; i++) { byte[] b = new byte[r.nextInt(20000)]; \
                m.put(r.nextInt(500), b); h = h * 31 + b.length + m.size(); } \
                return h; } \
                public static void main(String[] a) { \
                ByteBuffer d = ByteBuffer.allocateDirect(16 << 20); \
                for (int i = 0; i < d.capacity(); i += 4096) d.put(i, (byte) 1); \
                System.out.println(IntStream.range(0, 8).parallel().mapToLong(Main::work).sum() \
                + d.get(4096)); } }";
    std::fs::write(&source, text).expect("written");
    let script = format!(
        "command -v javac > /dev/null || {{ echo skipped: no javac; exit; }}; exec java {}",
        source.display()
    );
    check("bash", &["-c", &script]);
}

/// Allocators that are preloaded too, before our library and behind it.
#[test]
fn other_allocators() {
    let script = "import threading; x = [bytearray(3 << 20) for _ in range(20)]; \
                  grow = lambda: [bytearray(2 << 20) for _ in range(50)]; \
                  t = [threading.Thread(target=grow) for _ in range(4)]; \
                  [a.start() for a in t]; [a.join() for a in t]; print(sum(map(len, x)))";
    for library in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4"] {
        for order in ["$library:$LD_PRELOAD", "$LD_PRELOAD:$library"] {
            let command = format!(
                "library=$(ldconfig -p | sed -n 's/.*{library}.*=> //p' | head -1); \
                 [ \"$library\" ] || {{ echo skipped: no {library}; exit; }}; \
                 LD_PRELOAD={order} exec python3 -c '{script}'"
            );
            check("bash", &["-c", &command]);
        }
    }
}

/// The dynamic linker leaves our library out of it.
#[test]
fn a_setuid_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!(
        "[ $(id -u) = 0 ] || {{ echo skipped: not root; exit; }}; cd {}; chmod 755 .; \
         cp \"$(command -v id)\" own; \
         chmod 4755 own; setpriv --reuid=65534 --regid=65534 --clear-groups ./own -u",
        folder.path().display()
    );
    check("bash", &["-c", &script]);
}

#[test]
fn openmp() {
    // The runtime's threads, its stacks and pools.
    let program = compile("openmp.c", &["-O2", "-fopenmp"]);
    let session = regions_session(1 << 20);
    let mut command = placed(&session, &program);
    command.env("OMP_NUM_THREADS", "4");
    let run = follow(session, command);
    check_same(&run, Command::new(&program).env("OMP_NUM_THREADS", "4"));
    assert_eq!(
        run.recording.regions.len(),
        6,
        "{:?}",
        run.recording.regions
    );
}
