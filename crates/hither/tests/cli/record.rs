//! `hither record`: what the program sees of it (nothing), and what it leaves.

use hither_testing::memory_group::MemoryGroup;
use insta::assert_snapshot;
use serde_json::Value;

use crate::{Lab, text};

#[test]
fn exit_code_and_output_pass_through() {
    let lab = Lab::new();
    assert_snapshot!(
        lab.run("hither record -o t.hither -- sh -c 'echo out; echo err >&2; exit 3'"),
        @"
    exit code: 3
    ----- stdout -----
    out

    ----- stderr -----
    err
    hither: seen: all; nothing was read of files
    hither: [COUNTS]
    hither: the trace is t.hither
    "
    );
    assert_eq!(lab.names(), ["t.hither"]);
}

#[test]
fn a_signal_that_ends_the_program_is_told_as_a_shell_tells_it() {
    let lab = Lab::new();
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("SEGV", 139), ("PIPE", 141)] {
        let ran = lab.run(&format!(
            "hither record -q --force -- sh -c 'ulimit -c 0; kill -{signal} $$'"
        ));
        assert_eq!(ran.code, code, "{signal}: {ran}");
        // What was recorded until then is a whole trace.
        lab.json("hither stat trace.hither --json");
    }
    assert_eq!(lab.names(), ["trace.hither"]);
}

#[test]
fn programs_print_the_same_bytes_under_the_recorder() {
    let lab = Lab::new();
    lab.write("data", text(20_000));
    let noise: Vec<u8> = text(4_000)
        .bytes()
        .map(|byte| byte.wrapping_mul(37))
        .collect();
    lab.write("noise", noise);
    for line in [
        "cat noise data",
        "grep -n 0042 data",
        "sort -r data",
        "sh -c 'cat data | sort | head -100; wc -c <noise'",
    ] {
        let plain = lab.run(line);
        let recorded = lab.run(&format!("hither record -q --force -o t.hither -- {line}"));
        assert!(!plain.stdout.is_empty(), "{line}");
        assert!(plain.stdout == recorded.stdout, "{line}: other output");
        assert_eq!(
            (plain.code, plain.stderr),
            (recorded.code, recorded.stderr),
            "{line}"
        );
    }
}

#[test]
fn standard_input_is_the_programs() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("echo hello | hither record -q -- tr a-z A-Z"), @"
    exit code: 0
    ----- stdout -----
    HELLO

    ----- stderr -----
    ");
}

#[test]
fn every_byte_that_was_read_is_in_the_trace() {
    let lab = Lab::new();
    lab.write("a", text(5_000));
    lab.write("b", text(300));
    // Children of children, by read and by stdio.
    lab.run("hither record -q -- sh -c 'cat a >/dev/null; sh -c \"sort b\"; grep -c . a b'");
    let document = lab.json("hither stat trace.hither --json");
    let read = |name: &str| {
        let rows = document["stats"]["by_object"].as_array().unwrap();
        let path = format!("/{name}");
        let mut named = rows
            .iter()
            .filter(|row| row["name"].as_str().unwrap().ends_with(&path));
        let (row, other) = (named.next().unwrap(), named.next());
        assert!(other.is_none(), "{name} is there twice");
        row["read_bytes"].as_u64().unwrap()
    };
    assert_eq!(read("a"), 2 * 5_000 * 16);
    assert_eq!(read("b"), 2 * 300 * 16);
    assert_eq!(document["trace"]["losses"]["dropped_events"], 0);
}

#[test]
fn a_trace_is_replaced_on_request_only() {
    let lab = Lab::new();
    lab.write("data", "one\n");
    lab.run("hither record -q -o t.hither -- true");
    assert_snapshot!(lab.run("hither record -o t.hither -- cat data"), @"
    exit code: 1
    ----- stdout -----

    ----- stderr -----
    hither: t.hither: already exists (--force replaces it, -o names another)
    ");
    assert_eq!(lab.json("hither stat t.hither --json")["bytes"]["read"], 0);
    assert_snapshot!(lab.run("hither record -o t.hither --force -- cat data"), @"
    exit code: 0
    ----- stdout -----
    one

    ----- stderr -----
    hither: seen: all 4 B that the program read of files
    hither: [COUNTS]
    hither: the trace is t.hither
    ");
    assert_eq!(lab.json("hither stat t.hither --json")["bytes"]["read"], 4);
}

#[test]
fn a_call_site_has_one_signature_for_a_number_of_frames() {
    let lab = Lab::new();
    lab.write("data", text(300));
    let signature = |frames: u32| {
        lab.run(&format!(
            "hither record -q --force --frames {frames} -- cat data"
        ));
        let document = lab.json("hither advise trace.hither -p lru,opt -s 1 --json");
        document["sites"][0]["signature"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(signature(32), signature(32));
    assert_ne!(signature(32), signature(1));
}

#[test]
fn a_program_without_dashes_before_it_is_corrected() {
    let lab = Lab::new();
    assert_snapshot!(lab.run("hither record -o t.hither grep -rc 'a b' ."), @"
    exit code: 2
    ----- stdout -----

    ----- stderr -----
    error: unexpected argument 'grep' found

      tip: put `--` before the program: hither record -o t.hither -- grep -rc 'a b' .

    Usage: hither record [OPTIONS] [-- <CMD>...]

    For more information, try '--help'.
    ");
    assert_eq!(lab.names(), [""; 0]);
}

#[test]
fn what_the_recorder_cannot_see_is_said_first_and_there_is_no_verdict() {
    let lab = Lab::new();
    let source = "#include <fcntl.h>\n#include <sys/mman.h>\n\
        #include <unistd.h>\nstatic char b[65536];\n\
        int main(int n, char **v) {\n\
          int f = open(\"data\", O_RDONLY);\n\
          if (n > 1) {\n\
            char *p = mmap(0, 4 << 20, PROT_READ, MAP_SHARED, f, 0);\n\
            for (int i = 0; i < 4 << 20; i += 4096) b[0] += p[i];\n\
            usleep(500000);\n\
            for (int i = 0; i < 4 << 20; i += 4096) b[0] += p[i];\n\
          } else {\n\
            while (read(f, b, sizeof b) > 0);\n\
          }\n\
          return 0;\n\
        }\n";
    lab.write("a.c", source);
    lab.write("data", vec![b'x'; 4 << 20]);
    let compiled = lab.run("sh -c 'gcc -static -o fixed a.c && gcc -o plain a.c'");
    assert_eq!(compiled.code, 0, "{compiled}");
    let of = |command: &str| {
        let recorded = lab.run(&format!(
            "hither record --force -o t.hither --seen-by=library -- {command}"
        ));
        assert_eq!(recorded.code, 0, "{recorded}");
        let first = recorded.stderr.lines().next().unwrap_or("").to_owned();
        let text = lab
            .run("hither advise --explain t.hither")
            .stdout()
            .to_owned();
        let line = first.trim_start_matches("hither: seen: ").to_owned();
        assert_eq!(text.lines().next(), Some(&*format!("Seen: {line}.")));
        let stat = lab.run("hither stat t.hither").stdout().to_owned();
        assert!(stat.contains(&format!("seen          {line}\n")), "{stat}");
        (line, text, lab.json("hither advise -q t.hither --json"))
    };
    let (line, _, document) = of("./plain");
    assert_eq!(line, "all 4.00 MiB that the program read of files");
    assert_eq!(document["trace"]["coverage"]["share"], 1.0);
    assert_eq!(document["trace"]["memory"]["files_bytes"], 4 << 20);

    let (line, text, document) = of("./fixed");
    let begins = "0 B that the program read of files, 0.0 % or more; not seen: 4.00 MiB read of \
                  files or pipes by calls that the recorder did not see (";
    assert!(line.starts_with(begins), "{line}");
    assert!(line.contains("/fixed: statically linked)"), "{line}");
    assert!(text.contains("\nNo verdict: "), "{text}");
    assert_eq!(document["advice"]["change"], "unknown");

    let (line, text, document) = of("./plain mapped");
    assert!(
        line.contains("what was touched of 4.00 MiB in 1 mapped file, of which "),
        "{line}"
    );
    assert!(text.contains("--maps counts each mapping"), "{text}");
    assert!(text.contains("`record --mapped` records touches"), "{text}");
    assert_eq!(document["advice"]["change"], "unknown");
    let counted = lab.json("hither advise -q t.hither --maps --json");
    assert_ne!(counted["advice"]["change"], "unknown");

    // Where the kernel reports page faults, touches are recorded; without a capability the first.
    let line = "record --force -o t.hither --mapped -- ./plain mapped";
    let recorded = lab.run(&format!("hither {line}"));
    if recorded.code == 0 {
        let seen = " that the program read of files, and touches of 4.00 MiB in 1 mapped file, ";
        assert!(recorded.stderr.contains(seen), "{recorded}");
        let text = lab
            .run("hither advise --explain t.hither")
            .stdout()
            .to_owned();
        assert!(!text.contains("No verdict"), "{text}");
        let document = lab.json("hither stat t.hither --json");
        let blocks = document["stats"]["blocks"].as_u64();
        assert_eq!(blocks, Some(1024), "{}", document["stats"]);
        let bare = lab.run(&format!("setpriv --bounding-set=-all hither {line}"));
        let said = &bare.stderr;
        assert!(said.contains("CAP_SYS_NICE") || bare.code != 0, "{bare}");
        assert!(
            said.contains("only the first by each process") || bare.code != 0,
            "{bare}"
        );
    } else {
        assert!(recorded.stderr.contains("--mapped: "), "{recorded}");
        hither_testing::skip::skip_on_this_machine(&recorded.stderr);
    }

    // A program that reads a pipe has not read a file that was missed.
    let (line, ..) = of("sh -c 'cat data | cat | tail -c 1'");
    assert_eq!(line, "all 4.00 MiB that the program read of files");
}

#[test]
fn summaries_begin_on_a_line_of_their_own() {
    let lab = Lab::new();
    for command in ["record -o t.hither", "run --page-cache --cache 64MiB"] {
        for print in ["printf last", "echo last"] {
            let ran = lab.run(&format!(
                "hither {command} -- sh -c '{print} >&2' 2> said; rm -rf t.hither; cat said"
            ));
            assert!(ran.stdout().starts_with("last\nhither: "), "{ran}");
        }
    }
}

/// The recorder and what the kernel keeps for it are in the program's memory cgroup. They take
/// little, and it is known what they take: the program itself takes next to nothing here.
#[test]
fn the_trace_knows_what_the_recorder_takes_of_a_memory_limit() {
    let Some(group) = MemoryGroup::new(128) else {
        return;
    };
    let lab = Lab::new();
    let record = "exec hither record -q -o t.hither -- sleep 0.3";
    let ran = lab.run(&format!("{} && {record}", group.enter()));
    assert_eq!(ran.code, 0, "{ran}");
    let meta = lab.json("cat t.hither/meta.json");
    let mib = |value: &Value| value.as_u64().expect("bytes") >> 20;
    for left in meta["memory_left"].as_array().expect("samples") {
        let kernel = mib(&left["recorder_kernel_bytes"]);
        assert!(kernel < 128 / 8, "{left}");
        let programs = mib(&left["bytes"]) + mib(&left["recorder_bytes"]) + kernel;
        assert!((128 * 7 / 8..=128).contains(&programs), "{left}");
    }
    assert!(
        mib(&meta["seen"]["memory_left_bytes"]) >= 128 * 7 / 8,
        "{meta}"
    );
}
