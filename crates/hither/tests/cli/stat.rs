//! `hither stat`.

use hither_trace::{LoadOptions, Trace};
use insta::assert_snapshot;
use serde_json::Value;

use crate::{DATA_LINES, Lab, keys};

#[test]
fn a_text_trace_in_words() {
    assert_snapshot!(Lab::with_loop().run("hither stat loop.trace"), @"
    exit code: 0
    ----- stdout -----
    references    30 to 10 distinct blocks of 4.00 KiB (40.00 KiB)
    requests      30, 90.0 % sequential
    bytes         120.00 KiB read, 0 B written, 0 B of these inside the kernel; 0 B mapped
    made by       1 call site in 1 thread of 1 process

    LRU stack distances, in blocks: what a cache of that size would add to the hits
          below   share      sum
              1   0.0 %    0.0 %
              2   0.0 %    0.0 %
              4   0.0 %    0.0 %
              8   0.0 %    0.0 %
             16  66.7 %   66.7 %  ###########################
      first use  33.3 %  100.0 %  #############

    ----- stderr -----
    ");
}

/// The part of a JSON document of these names.
fn parts(document: &mut Value, names: &[&str]) -> String {
    let part = |name: &&str| ((*name).to_owned(), document[*name].take());
    let parts: serde_json::Map<String, Value> = names.iter().map(part).collect();
    serde_json::to_string_pretty(&parts).unwrap()
}

#[test]
fn the_document_names_its_trace() {
    let mut document = Lab::with_loop().json("hither stat loop.trace --json");
    assert_eq!(keys(&document), ["bytes", "stats", "trace"]);
    let trace = &mut document["trace"];
    assert_eq!(trace["hither"].take(), env!("CARGO_PKG_VERSION"));
    assert_eq!(trace["sha256"].take().as_str().unwrap().len(), 64);
    assert_snapshot!(parts(&mut document, &["bytes", "trace"]), @r#"
    {
      "bytes": {
        "in_kernel": 0,
        "mapped": 0,
        "read": 122880,
        "written": 0
      },
      "trace": {
        "block_bytes": 4096,
        "command": [],
        "coverage": null,
        "distinct_blocks": 10,
        "format": "lirs",
        "hither": null,
        "loaded_with": {
          "block_bytes": 4096,
          "include_in_kernel": true,
          "include_maps": false,
          "keep_repeats": false,
          "sample": "all"
        },
        "losses": {
          "damaged_records": 0,
          "dropped_bytes": 0,
          "dropped_events": 0,
          "dropped_nested": 0,
          "dropped_no_ring": 0,
          "dropped_ring_full": 0,
          "not_recorded": []
        },
        "memory": null,
        "path": "loop.trace",
        "references": 30,
        "sha256": null,
        "skipped": {
          "empty": 0,
          "in_kernel": 0,
          "left_out": 0,
          "maps": 0,
          "merged": 0,
          "separators": 0
        }
      }
    }
    "#);
}

#[test]
fn the_document_counts_requests_and_bytes() {
    let mut document = Lab::with_loop().json("hither stat loop.trace --json");
    let names = ["by_object", "by_site", "by_thread", "counts", "losses"];
    assert_snapshot!(parts(&mut document["stats"], &names), @r#"
    {
      "by_object": [],
      "by_site": [
        {
          "blocks": 10,
          "faults": 0,
          "in_kernel_bytes": 0,
          "loads": 0,
          "mapped_bytes": 0,
          "name": "unknown",
          "number": 0,
          "read_bytes": 122880,
          "references": 30,
          "requests": 30,
          "sequential": 27,
          "share": 1.0,
          "stores": 0,
          "written_bytes": 0
        }
      ],
      "by_thread": [
        30
      ],
      "counts": {
        "first_ns": 0,
        "last_ns": 0,
        "maps": 0,
        "skipped": {
          "empty": 0,
          "in_kernel": 0,
          "left_out": 0,
          "maps": 0,
          "merged": 0,
          "separators": 0
        },
        "total": {
          "faults": 0,
          "in_kernel_bytes": 0,
          "loads": 0,
          "mapped_bytes": 0,
          "read_bytes": 122880,
          "requests": 30,
          "sequential": 27,
          "stores": 0,
          "written_bytes": 0
        },
        "truncates": 0,
        "unmaps": 0
      },
      "losses": {
        "damaged_records": 0,
        "dropped_bytes": 0,
        "dropped_events": 0,
        "dropped_nested": 0,
        "dropped_no_ring": 0,
        "dropped_ring_full": 0,
        "not_recorded": []
      }
    }
    "#);
}

#[test]
fn the_document_counts_distances_sharing_and_concentration() {
    let mut document = Lab::with_loop().json("hither stat loop.trace --json");
    let names = [
        "object_concentration",
        "reuse",
        "sharing",
        "site_concentration",
    ];
    assert_snapshot!(parts(&mut document["stats"], &names), @r#"
    {
      "object_concentration": {
        "for_50_percent": 0,
        "for_90_percent": 0,
        "for_99_percent": 0
      },
      "reuse": {
        "buckets": [
          0,
          0,
          0,
          0,
          20
        ],
        "cold": 10
      },
      "sharing": {
        "nodes": {
          "accesses": [
            30,
            0,
            0
          ],
          "blocks": [
            10,
            0,
            0
          ]
        },
        "processes": {
          "accesses": [
            30,
            0,
            0
          ],
          "blocks": [
            10,
            0,
            0
          ]
        },
        "threads": {
          "accesses": [
            30,
            0,
            0
          ],
          "blocks": [
            10,
            0,
            0
          ]
        }
      },
      "site_concentration": {
        "for_50_percent": 1,
        "for_90_percent": 1,
        "for_99_percent": 1
      }
    }
    "#);
}

#[test]
fn the_document_has_totals() {
    let document = Lab::with_loop().json("hither stat loop.trace --json");
    let stats = document["stats"].as_object().unwrap().iter();
    let totals: serde_json::Map<String, Value> = stats
        .filter(|(_, value)| !value.is_object() && !value.is_array())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    assert_snapshot!(serde_json::to_string_pretty(&totals).unwrap(), @r#"
    {
      "accesses": 30,
      "block_bytes": 4096,
      "blocks": 10,
      "constructs": 0,
      "footprint_bytes": 40960,
      "iterations": 0,
      "nodes": 1,
      "objects": 0,
      "processes": 1,
      "references": 30,
      "sequential_share": 0.9,
      "sites": 1,
      "threads": 1
    }
    "#);
}

#[test]
fn lines_that_only_separate_are_counted() {
    let lab = Lab::new();
    lab.write("s.trace", "1\n*\n\n2\r\n1\n");
    let document = lab.json("hither stat --format lirs s.trace --json");
    assert_eq!(document["stats"]["references"], 3);
    assert_eq!(document["trace"]["skipped"]["separators"], 2);
}

#[test]
fn a_trace_of_nothing() {
    let lab = Lab::new();
    lab.write("empty.trace", "\n");
    assert_snapshot!(lab.run("hither stat --format lirs empty.trace"), @"
    exit code: 0
    ----- stdout -----
    references    0 to 0 distinct blocks of 4.00 KiB (0 B)

    ----- stderr -----
    ");
}

#[test]
fn a_recording_names_files_call_sites_and_bytes() {
    let lab = Lab::with_recording();
    let document = lab.json("hither stat cat.hither --json");
    assert_eq!(keys(&document), ["bytes", "stats", "trace"]);
    assert_eq!(document["trace"]["format"], "hither");
    assert_eq!(
        document["trace"]["command"],
        serde_json::json!(["cat", "data", "data", "data", "data"])
    );
    let stats = &document["stats"];
    let data = &stats["by_object"][0];
    assert!(data["name"].as_str().unwrap().ends_with("/data"), "{data}");
    let bytes = u64::from(DATA_LINES) * 16;
    assert_eq!(data["read_bytes"], 4 * bytes);
    assert_eq!(data["blocks"], bytes / 4096);
    assert_eq!(data["references"], 4 * bytes / 4096);
    // One loop of one program reads the file: one call site.
    assert_eq!(stats["by_site"][0]["read_bytes"], 4 * bytes);

    let text = lab.run("hither stat cat.hither --top 1");
    assert_eq!((text.code, text.stderr.as_str()), (0, ""));
    let begins: Vec<&str> = text
        .stdout()
        .lines()
        .filter_map(|line| line.split("  ").next())
        .filter(|word| !word.is_empty())
        .collect();
    assert_eq!(
        begins,
        [
            "seen",
            "command",
            "references",
            "requests",
            "bytes",
            "made by",
            "LRU stack distances, in blocks: what a cache of that size would add to the hits"
        ]
    );
    assert!(
        text.stdout()
            .contains("command       cat data data data data\n")
    );
}

#[test]
fn the_size_of_a_block_and_what_counts_are_options() {
    let lab = Lab::with_recording();
    let references = |options: &str| {
        let document = lab.json(&format!("hither stat cat.hither --json {options}"));
        let data = &document["stats"]["by_object"][0];
        (data["references"].as_u64(), data["blocks"].as_u64())
    };
    assert_eq!(references("--block 64KiB"), (Some(100), Some(25)));
    assert_eq!(references("--block 4096"), (Some(1600), Some(400)));
}

#[test]
fn whole_stacks_are_shown_and_folded() {
    let lab = Lab::new();
    let source = "#include <fcntl.h>\n#include <unistd.h>\n#define KEEP __attribute__((noinline))\n\
        static char b[4096]; static int f;\n\
        KEEP int get(void) { return read(f, b, sizeof b) + 1; }\n\
        KEEP int wrap(void) { return get() + 1; }\n\
        KEEP int load(void) { return wrap() + 1; }\n\
        KEEP int save(void) { return wrap() + 2; }\n\
        int main(void) { f = open(\"data\", O_RDONLY); return (load() + save()) & 0; }\n";
    lab.write("a.c", source);
    lab.write("data", vec![b'x'; 8192]);
    let compiled = lab.run("gcc -g -O1 -fno-optimize-sibling-calls -o two a.c");
    assert_eq!(compiled.code, 0, "{compiled}");
    lab.run("hither record -q -o t.hither -- ./two");
    let folded = lab.run("hither stat t.hither --folded");
    let stacks: Vec<&str> = folded.stdout().lines().collect();
    assert_eq!(stacks.len(), 2, "{folded}");
    for caller in ["load", "save"] {
        let ends = format!(";main;{caller};wrap;get 1");
        assert!(
            stacks.iter().any(|stack| stack.ends_with(&ends)),
            "{folded}"
        );
    }
    // The second call reads on in the block that the first one read: both miss once.
    let misses = lab.run("hither sim t.hither -p lru -s 1 --folded");
    assert_eq!(misses.stdout(), folded.stdout());
    let all = lab.run("hither sim t.hither --folded");
    assert_eq!(all.code, 2, "{all}");
    assert!(all.stderr.contains("name one policy and one size"), "{all}");
    let text = lab.run("hither stat t.hither --stacks").stdout().to_owned();
    for line in [
        "50.0 % of the references: get (a.c:5) ← … ← load (a.c:7)",
        "   0  get (a.c:5) in /",
        "   1  wrap (a.c:6) in /",
    ] {
        let found = text.replace(
            &format!("({}/", lab.path(".").display()).replace("/./", "/"),
            "(",
        );
        assert!(found.contains(line), "{line} in {text}");
    }
}

/// Calls functions as CPython does with `-X perf`, and names them as it does. Its own functions are
/// the interpreter's. A forked child goes on without a map of its own.
const PYTHON_LIKE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define APART __attribute__((noinline, noclone))
typedef long loop(const char *file, long times, long unused);
typedef long trampoline(const char *file, long times, long unused, loop *called);
static const unsigned char code[] = {0x48, 0x83, 0xec, 8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3};
static trampoline *load, *scan, *module;
static volatile int zero;
APART long reads(const char *file, long times, long unused) {
    char b[4096];
    int f = open(file, O_RDONLY);
    long got = times == 1 ? read(f, b, sizeof b) : 0;
    while (read(f, b, sizeof b) > 0) got++;
    close(f);
    return got;
}
APART long program(const char *file, long times, long unused) {
    pid_t child = 1;
    for (int i = 0; i < times; i++) {
        load("one", i % 2, 0, reads);
        scan("two", i % 2, 0, reads);
        if (i == 1) child = fork();
    }
    return child ? wait(0) : 0;
}
int main(void) {
    char name[64], *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const char *names[] = {"load:/a/script.py", "scan:/a/script.py", "<module>:/a/script.py"};
    trampoline **made[] = {&load, &scan, &module};
    snprintf(name, sizeof name, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(name, "w");
    // Nowhere the same in two processes.
    at += getpid() % 64 * 16;
    for (int i = 0; i < 3; i++, at += 16) {
        memcpy(at, code, sizeof code);
        *made[i] = (trampoline *)at;
        fprintf(map, "%lx %zx py::%s\n", (long)at, sizeof code, names[i]);
    }
    fclose(map);
    mprotect((void *)((long)at & ~4095l), 4096, PROT_READ | PROT_EXEC);
    puts(name);
    return module("", 4, 0, program) & zero;
}
"#;

#[test]
fn python_functions_are_frames_and_the_same_in_each_process_and_run() {
    let lab = Lab::new();
    lab.write("a.c", PYTHON_LIKE);
    lab.write("one", vec![b'x'; 8192]);
    lab.write("two", vec![b'x'; 16384]);
    let compiled = lab.run("gcc -O1 -o script a.c");
    assert_eq!(compiled.code, 0, "{compiled}");
    let sites = |name: &str| {
        let ran = lab.run(&format!(
            "hither record -q -o {name} -- sh -c './script; ./script'"
        ));
        assert_eq!(ran.code, 0, "{ran}");
        for map in ran.stdout().lines() {
            // A forked child prints it, too.
            let _ = std::fs::remove_file(map);
        }
        let trace = Trace::load(lab.path(name), None, &LoadOptions::default()).unwrap();
        let all = trace.sites().iter();
        let mut python: Vec<(String, u64, bool)> = all
            .map(|site| (site.label(), site.signature, site.truncated))
            .filter(|(label, ..)| label.starts_with("py::"))
            .collect();
        python.sort();
        python
    };
    // Of two programs of two processes each, which do not read from one place of the interpreter.
    let first = sites("a.hither");
    let labels: Vec<(&str, bool)> = first
        .iter()
        .map(|(label, _, truncated)| (label.as_str(), *truncated))
        .collect();
    assert_eq!(
        labels,
        [
            ("py::load (/a/script.py)", false),
            ("py::scan (/a/script.py)", false),
        ]
    );
    assert_eq!(sites("b.hither"), first);
    let folded = lab.run("hither stat a.hither --folded");
    let python = folded.stdout().lines().filter(|line| line.contains("py::"));
    let inner: Vec<&str> = python
        .map(|line| line.rsplit_once(' ').unwrap().0)
        .map(|stack| &stack[stack.find(";py::").unwrap()..])
        .collect();
    assert_eq!(inner.len(), 2, "{folded}");
    for function in ["load", "scan"] {
        let whole = format!(";py::<module>;py::{function}");
        assert!(inner.contains(&whole.as_str()), "{folded}");
    }
}
