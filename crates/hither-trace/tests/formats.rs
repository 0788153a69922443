//! What each format reads: the references, their ops and their files. Recognition by content. And
//! the real traces of every format have exactly their known numbers of references and distinct
//! blocks.

mod common;

use std::path::Path;

use common::samples::{bzip2, gzipped, oracle_general, samples, vscsi_1, vscsi_2, xz, zstd};
use hither_core::registry::Needs;
use hither_core::{Access, Op};
use hither_testing::skip::skip;
use hither_trace::format::{FORMATS, find, recognise};
use hither_trace::{Input, LoadOptions, Result, Trace};

fn read(bytes: &[u8], format: Option<&str>) -> Result<Trace> {
    Trace::read(Input::new("input", bytes)?, format, &LoadOptions::default())
}

fn accesses(trace: &Trace) -> Vec<Access> {
    let needs = Needs {
        objects: true,
        ..Needs::NOTHING
    };
    let mut accesses = Vec::new();
    trace
        .fill(0, trace.references(), needs, &mut accesses)
        .unwrap();
    accesses
}

/// The blocks in order.
fn blocks(trace: &Trace) -> Vec<u32> {
    accesses(trace)
        .iter()
        .map(|access| access.block.0)
        .collect()
}

/// Where each reference points, and whether it writes.
fn places(trace: &Trace) -> Vec<(u32, u32, bool)> {
    let place = |access: &Access| (access.object.0, access.index, access.op == Op::Write);
    accesses(trace).iter().map(place).collect()
}

fn sample(name: &str) -> Trace {
    let samples = samples();
    let (_, bytes) = samples.iter().find(|(format, _)| *format == name).unwrap();
    read(bytes, Some(name)).unwrap()
}

#[test]
fn every_format_has_a_sample() {
    let mut names: Vec<&str> = samples().iter().map(|(name, _)| *name).collect();
    // The fuzzer starts from the samples, so every format is fuzzed too (examples/corpus.rs). The
    // folder is not a stream of bytes; tests/folder.rs and tests/damaged.rs test it.
    names.push("hither");
    names.sort_unstable();
    let formats: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
    assert_eq!(names, formats);
}

#[test]
fn every_format_has_its_place_in_the_documents() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = std::fs::read_to_string(root.join("docs/formats.md")).unwrap();
    for format in FORMATS {
        let name = format.name;
        assert!(
            document.contains(&format!("`{name}`")),
            "{name} in docs/formats.md"
        );
    }
    for export in hither_trace::EXPORTS {
        assert!(
            document.contains(&format!("| `{}` |", export.name)),
            "{}",
            export.name
        );
    }
}

#[test]
fn content_tells_one_format_or_none() {
    let mut samples = samples();
    samples.push(("vscsi", vscsi_2(77)));
    for (name, bytes) in samples {
        let mut input = Input::new("input", bytes.as_slice()).unwrap();
        let takers: Vec<&str> = FORMATS
            .iter()
            .filter(|format| format.recognises(&mut input).unwrap())
            .map(|format| format.name)
            .collect();
        // The content is the same. How it is read is chosen.
        let name = if name == "vscsi-requests" {
            "vscsi"
        } else {
            name
        };
        let told = find(name).unwrap().is_recognised();
        assert_eq!(takers, if told { vec![name] } else { vec![] });
        assert_eq!(recognise(&mut input).is_ok(), told, "{name}");
    }
    let error = read(&[1, 2, 3, 4], None).unwrap_err().to_string();
    assert_eq!(
        error,
        "input: not in a format that its content tells (address, alibaba, arc, blkparse, \
         darshan-dxt, fio-iolog, hither, ibm-cos, lcs, libcachesim-csv, lirs, mooncake, msr, \
         oracle-general, page-counts, perf-trace, spc, strace, systor, twitter, vscsi); --format \
         names the others"
    );
}

#[test]
fn text_is_never_taken_for_binary_nor_four_numbers_for_requests() {
    let refused = [
        // Keys of equal length: records of 24 bytes, whose next access is a large number.
        "key0001\nkey0002\nkey0001\n".to_owned(),
        "abcdefghijklmnopqrstuvw\n".repeat(500),
        "\u{e4}bcdefg\n".repeat(3),
        // What vscsi takes for its version and command, as text.
        "abcdefghijkl(\0".replace('\0', " ").repeat(16),
        // webcachesim: time, object, size, and a feature.
        "1 5 120 0\n2 6 88 0\n3 5 120 0\n".to_owned(),
        "1 5 120 0\n".to_owned(),
        "1 5 120 3\n2 6 88 1\n3 5 120 2\n".to_owned(),
        "1 5 120\n2 6 88\n".to_owned(),
    ];
    for text in refused {
        let error = read(text.as_bytes(), None).unwrap_err().to_string();
        assert!(
            error.contains("not in a format that its content tells"),
            "{error}"
        );
    }
    let keys = read(b"key0001\nkey0002\nkey0001\n", Some("libcachesim-txt")).unwrap();
    assert_eq!(blocks(&keys), [0, 1, 0]);
    // A binary trace of which a part is text by chance, and one that ends early.
    let many = oracle_general(&[0x6162_6364, 8, 0x6162_6364]);
    assert_eq!(read(&many, None).unwrap().format(), "oracle-general");
    assert!(
        read(&many[..48], None).is_err(),
        "a next access behind the end"
    );
    // Both kinds of the ARC authors' traces.
    for (text, count) in [("1 1 0 0\n2 3 0 0\n", 4), ("9 2 0 17\n5 1 3 18\n", 3)] {
        let trace = read(text.as_bytes(), None).unwrap();
        assert_eq!((trace.format(), trace.references()), ("arc", count));
    }
}

#[test]
fn columns_of_csv_mean_what_their_names_say() {
    // `id` numbers the rows where another column names the object.
    for text in [
        "id,time,key,size\n1,0,a,9\n2,1,a,9\n3,2,a,9\n",
        "time;obj_id;id;size\n0;a;1;9\n1;a;2;9\n2;a;3;9\n",
    ] {
        assert_eq!(blocks(&read(text.as_bytes(), None).unwrap()), [0, 0, 0]);
    }
    let ids = read(b"time,id,size\n0,7,1\n0,8,1\n", None).unwrap();
    assert_eq!(blocks(&ids), [0, 1]);
    let cachelib = "key,op,size,op_count,key_size\na,GET,9,100,1\nb,SET,9,1,1\n";
    let trace = read(cachelib.as_bytes(), None).unwrap();
    assert_eq!((trace.references(), trace.blocks()), (101, 2));
    for (text, problem) in [
        (
            "time,key,lbn\n0,a,1\n",
            "input:1: the first line names two columns",
        ),
        (
            "time,key,op,cmd\n0,a,r,r\n",
            "input:1: the first line names two columns",
        ),
        (
            "key,size,op_count\na,1,x\n",
            "input:2: not a decimal number",
        ),
        (
            "key,size,op_count\na,1,99999999999\n",
            "input:2: more than 16777216 references",
        ),
    ] {
        let error = read(text.as_bytes(), None).unwrap_err().to_string();
        assert!(error.starts_with(problem), "{error}");
    }
}

#[test]
fn columns_of_csv_may_be_quoted() {
    let text =
        "time,object,size\n0,\"a,b\",9\n1, \"a,b\" ,\"9\"\n2,\"a\"\"b\",9\n3,a\"b,9\n4,a,9\n";
    assert_eq!(
        blocks(&read(text.as_bytes(), None).unwrap()),
        [0, 0, 1, 1, 2]
    );
    let named = "\"time\",\"object\",\"size\"\n0,\"a\",9\n1,b,9\n2,\"a\",9\n";
    assert_eq!(blocks(&read(named.as_bytes(), None).unwrap()), [0, 1, 0]);
    for (line, problem) in [
        ("0,\"a,9", "a quotation mark without its other"),
        ("0,\"a\"b,9", "text behind a quotation mark"),
        ("0,\"\",9", "no object"),
        ("0,\"a,b,9\"", "2 fields, not 3"),
        ("0,\"a\",", "a number is missing"),
    ] {
        let text = format!("time,object,size\n{line}\n");
        let error = read(text.as_bytes(), None).unwrap_err().to_string();
        assert!(error.starts_with(&format!("input:2: {problem}")), "{error}");
    }
    let tabs = "relative_unix\thashed_path_query\timage_type\tresponse_size\ttime_firstbyte\n\
                0\t241244615\tjpeg\t4900\t1.1e-04\n0\t7\tpng\t1\t2e-05\n";
    assert_eq!(read(tabs.as_bytes(), None).unwrap().references(), 2);
    let deleted = "time,object,size,op\n0,a,1,get\n1,a,1,delete\n2,a,1,SET\n";
    let writes: Vec<bool> = places(&read(deleted.as_bytes(), None).unwrap())
        .iter()
        .map(|place| place.2)
        .collect();
    assert_eq!(writes, [false, true, true]);
}

/// A trace with a block of this size.
fn read_blocks(name: &str, block_bytes: u32) -> Trace {
    let samples = samples();
    let (_, bytes) = samples.iter().find(|(format, _)| *format == name).unwrap();
    let options = LoadOptions {
        block_bytes,
        ..LoadOptions::default()
    };
    Trace::read(
        Input::new("input", bytes.as_slice()).unwrap(),
        Some(name),
        &options,
    )
    .unwrap()
}

#[test]
fn requests_of_block_traces_are_ranges_of_their_devices() {
    /// Object, block of 4 KiB, and whether it is written.
    type Place = (u32, u32, bool);
    /// Name, references, objects, and how many records are left out.
    type Expected<'a> = (&'a str, &'a [Place], &'a [&'a str], u64);
    let expected: [Expected<'_>; 7] = [
        (
            "alibaba",
            // A read after a write is no continuation of it.
            &[
                (0, 2666, true),
                (1, 2078, false),
                (1, 2079, false),
                (0, 2666, false),
                (0, 2667, false),
                (0, 2668, false),
                (0, 2669, false),
                (0, 2670, false),
            ],
            &["disk 400", "disk 401"],
            0,
        ),
        (
            "blkparse",
            &[(0, 2666, true), (1, 2, false), (1, 3, false), (1, 4, false)],
            &["8,0", "8,1"],
            2,
        ),
        (
            "darshan-dxt",
            &[(1, 2, false), (0, 0, true)],
            &["/out/a b", "/in"],
            1,
        ),
        (
            "fio-iolog",
            &[(0, 2, true), (0, 0, false), (1, 1, false), (1, 2, false)],
            &["/dev/sda", "b"],
            4,
        ),
        (
            "ibm-cos",
            &[
                (0, 0, true),
                (0, 1, true),
                (0, 2, true),
                (0, 1, false),
                (1, 0, false),
            ],
            &["8d4fcda3d675bac9", "95d363d3fbdc0b03"],
            2,
        ),
        (
            "systor",
            &[(0, 2, true), (1, 2078, false), (1, 2079, false)],
            &["LUN 0", "LUN 1"],
            0,
        ),
        (
            "tencent",
            &[
                (0, 2666, true),
                (1, 2078, false),
                (1, 2079, false),
                (0, 2666, false),
            ],
            &["volume 1283", "volume 1284"],
            0,
        ),
    ];
    for (name, places_of, paths, left_out) in expected {
        let trace = read_blocks(name, 4096);
        let found: Vec<String> = trace
            .objects()
            .iter()
            .map(|it| it.path_lossy().into())
            .collect();
        assert_eq!(found, paths, "{name}");
        assert_eq!(places(&trace), places_of, "{name}");
        assert_eq!(trace.counts().skipped.left_out, left_out, "{name}");
    }
    let keys = |name| blocks(&sample(name));
    assert_eq!(keys("mooncake"), [0, 1, 2, 0, 1, 3]);
    assert_eq!(keys("webcachesim"), [0, 1, 0]);
    // Ranks are processes, in the order of their starts.
    let ranks: Vec<u32> = sample("darshan-dxt")
        .meta()
        .processes
        .iter()
        .map(|it| it.pid)
        .collect();
    assert_eq!(ranks, [1, 4]);
}

#[test]
fn compressed_input_is_the_same_trace() {
    for (name, bytes) in samples() {
        let plain = read(&bytes, Some(name)).unwrap();
        let half = bytes.len() / 2;
        for pack in [bzip2, gzipped, zstd, xz] {
            let whole = pack(&bytes);
            // Concatenated, as by `cat a.gz b.gz` and by parallel compressors.
            let parts = [pack(&bytes[..half]), pack(&bytes[half..])].concat();
            for packed in [whole, parts] {
                let trace = read(&packed, Some(name)).unwrap();
                assert_eq!(places(&trace), places(&plain), "{name}");
                assert_ne!(trace.sha256(), plain.sha256());
            }
        }
    }
    let skippable = [
        [0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 9, 9].as_slice(),
        &zstd(b"1\n2\n"),
    ]
    .concat();
    assert_eq!(blocks(&read(&skippable, None).unwrap()), [0, 1]);
}

#[test]
fn the_hash_is_that_of_the_file_also_where_the_format_stops_early() {
    use sha2::{Digest, Sha256};
    for pack in [<[u8]>::to_vec, bzip2, gzipped, zstd, xz] {
        let bytes = pack(b"1\n2\n1\n");
        let trace = read(&bytes, None).unwrap();
        let sum: String = Sha256::digest(&bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(trace.sha256(), sum);
        // Read through a pipe that returns one byte at a time.
        let slow = Input::new("input", OneByOne(&bytes)).unwrap();
        let trace = Trace::read(slow, None, &LoadOptions::default()).unwrap();
        assert_eq!((trace.sha256(), trace.references()), (sum.as_str(), 3));
    }
}

struct OneByOne<'b>(&'b [u8]);

impl std::io::Read for OneByOne<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = self.0.len().min(out.len()).min(1);
        std::io::Read::read(&mut self.0, &mut out[..count])
    }
}

#[test]
fn requests_of_blocks_are_expanded() {
    let trace = sample("arc");
    assert_eq!(blocks(&trace), [0, 1, 2, 3, 0, 1]);
    assert_eq!(places(&trace)[3], (0, 100, false));
}

#[test]
fn keys_keep_their_order_and_ops() {
    for name in [
        "lcs",
        "oracle-general",
        "u32be",
        "u32le",
        "u64be",
        "u64le",
        "vscsi",
    ] {
        let places: Vec<_> = places(&sample(name)).iter().map(|place| place.1).collect();
        assert_eq!(places, [7, 8, 7, 42, 8, 7, 1 << 20], "{name}");
    }
    assert_eq!(
        places(&sample("libcachesim-csv")),
        [(0, 7, false), (0, 7, true)]
    );
    assert_eq!(blocks(&sample("libcachesim-txt")), [0, 1, 2, 0, 3]);
    let twitter = sample("twitter");
    assert_eq!(
        accesses(&twitter)
            .iter()
            .map(|access| (access.block.0, access.op == Op::Write))
            .collect::<Vec<_>>(),
        [(0, false), (1, true), (0, true)]
    );
    assert!(read(&vscsi_2(5), None).unwrap().has_writes());
}

#[test]
fn addresses_become_blocks_of_the_size_asked_for() {
    let text = b"s 0x1ffff 1\nl 0x20000 1\nl 0x20fff 2\n";
    let trace = read(text, None).unwrap();
    assert_eq!(
        places(&trace),
        [(0, 31, true), (0, 32, false), (0, 32, false)]
    );
    let options = LoadOptions {
        block_bytes: 16,
        ..LoadOptions::default()
    };
    let input = Input::new("input", text.as_slice()).unwrap();
    let trace = Trace::read(input, None, &options).unwrap();
    assert_eq!(blocks(&trace), [0, 1, 2]);
}

#[test]
fn requests_are_on_their_disks() {
    let trace = sample("msr");
    let names: Vec<_> = trace
        .objects()
        .iter()
        .map(|object| object.path_lossy())
        .collect();
    assert_eq!(names, ["usr disk 0", "usr disk 1", "web disk 0"]);
    // 24 KiB from the middle of a block on: 7 blocks. 8 KiB from the start of one: 2.
    assert_eq!(trace.references(), 7 + 2 + 7);
    assert_eq!(trace.counts().total.read_bytes, 2 * 24576);
    assert_eq!(
        trace.counts().last_ns,
        (128166372026382245 - 128166372003061629) * 100
    );
    let trace = sample("spc");
    let names: Vec<_> = trace
        .objects()
        .iter()
        .map(|object| object.path_lossy())
        .collect();
    assert_eq!(names, ["ASU 0", "ASU 1"]);
    assert_eq!(places(&trace)[0], (0, 303567 * 512 / 4096, true));
    assert_eq!(trace.counts().last_ns, 500_000_000);
    // The third continues where the first ended.
    assert_eq!(trace.counts().total.sequential, 1);
}

#[test]
fn page_counts_repeat_iterations_and_move_threads() {
    let trace = sample("page-counts");
    let names: Vec<_> = trace
        .objects()
        .iter()
        .map(|object| object.path_lossy())
        .collect();
    assert_eq!(names, ["u", "rhs"]);
    let rows: Vec<_> = accesses(&trace)
        .iter()
        .map(|access| {
            (
                access.thread.0,
                access.node.0,
                access.object.0,
                access.index,
                access.count,
            )
        })
        .collect();
    let iteration = [(0, 0, 0, 0, 3), (1, 1, 0, 4, 2)];
    let expected = [&iteration[..], &iteration[..], &[(1, 0, 1, 1, 1)]].concat();
    assert_eq!(rows, expected);
    let marks: Vec<_> = trace
        .marks()
        .iter()
        .map(|mark| (mark.reference, mark.kind))
        .collect();
    use hither_core::placement::EpochKind::{Construct, Iteration};
    let expected = [2, 4, 5].map(|at| [(at, Construct), (at, Iteration)]);
    assert_eq!(marks, expected.concat());
}

/// Two files, one after the other: numbers begin anew, and belong to another process.
#[test]
fn page_counts_of_two_programs() {
    let one = "page-counts 1\nobject u 8192\nthread 0 0\nthread 1 1\n\
        loop add\nl 1 0 4096 2\nend\niteration 1\n";
    let other = "page-counts 1\nobject u 4096\nthread 0 1\nloop add\ns 0 0 0 3\nend\niteration 2\n";
    let trace = read([one, other].concat().as_bytes(), None).unwrap();
    let rows: Vec<_> = accesses(&trace)
        .iter()
        .map(|access| {
            let Access {
                process,
                thread,
                node,
                object,
                count,
                ..
            } = *access;
            (process.0, thread.0, node.0, object.0, count)
        })
        .collect();
    let again = (1, 2, 1, 1, 3);
    assert_eq!(rows, [(0, 1, 1, 0, 2), again, again]);
    let marks: Vec<_> = trace
        .marks()
        .iter()
        .map(|mark| (mark.reference, mark.process.0))
        .collect();
    assert_eq!(marks, [(1, 0), (1, 0), (2, 1), (2, 1), (3, 1), (3, 1)]);
    let wrong = [one, "page-counts 1\nobject v 9\nl 0 0 0 1\n"].concat();
    let error = read(wrong.as_bytes(), None).err().unwrap().to_string();
    assert!(
        error.contains("input:11: a thread without a line"),
        "{error}"
    );
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let record = oracle_general(&[1, 2, 3]);
    let mut bad_next = record.clone();
    bad_next[24 + 16..48].copy_from_slice(&(-2i64).to_le_bytes());
    let mut bad_command = [vscsi_1(1), vscsi_1(2)].concat();
    bad_command[32 + 12] = 0x35;
    let cases: [(&str, &[u8], &str); 21] = [
        (
            "address",
            b"l 0x1 1\n\nx 0x1 1\n",
            "input:3: neither a load (l) nor a store (s): \"x 0x1 1\"",
        ),
        (
            "arc",
            b"1 2 0 0\n1 2 0\n",
            "input:2: not four numbers: first block, blocks, one more, line: \"1 2 0\"",
        ),
        (
            "arc",
            b"1 1152921504606846976 0 0\n",
            "input:1: a request of more than 65536 blocks: \"1 1152921504606846976 0 0\"",
        ),
        (
            "arc",
            b"18446744073709551615 2 0 0\n",
            "input:1: blocks above 2^64 - 1: \"18446744073709551615 2 0 0\"",
        ),
        (
            "libcachesim-csv",
            b"1,2,3\n",
            "input:1: the first line names no column of objects (object, obj_id, obj, object_id, \
             key, lbn, id): \"1,2,3\"",
        ),
        (
            "libcachesim-csv",
            b"time,object\n1,2\n1,2,3\n",
            "input:3: 3 fields, not 2: \"1,2,3\"",
        ),
        (
            "libcachesim-csv",
            b"object,op\n1,r\n1,x\n",
            "input:3: an op that is neither a read nor a write: \"1,x\"",
        ),
        (
            "msr",
            b"1,a,0,Flush,0,1,1\n",
            "input:1: a type other than Read and Write: \"1,a,0,Flush,0,1,1\"",
        ),
        (
            "msr",
            b"1,a,0,Read,0,1,1\n1,a,0,Read,18446744073709551615,2,1\n",
            "input:2: bytes 18446744073709551615 + 2 lie beyond 2^32 - 1 blocks: \
             \"1,a,0,Read,18446744073709551615,2,1\"",
        ),
        (
            "oracle-general",
            &record[..60],
            "input: byte 48: 12 bytes of a record of 24, and then the end",
        ),
        (
            "oracle-general",
            &bad_next,
            "input: byte 24: a next access of -2",
        ),
        (
            "page-counts",
            b"page-counts 2\n",
            "input:1: not `page-counts 1`: \"page-counts 2\"",
        ),
        (
            "page-counts",
            b"page-counts 1\nobject u 9\nthread 0 0\nl 0 0 9 1\n",
            "input:4: an offset at or beyond the object's end: \"l 0 0 9 1\"",
        ),
        (
            "page-counts",
            b"page-counts 1\nobject u 9\nl 0 0 0 1\n",
            "input:3: a thread without a line `thread`: \"l 0 0 0 1\"",
        ),
        (
            "page-counts",
            b"page-counts 1\nthread 1 0\n",
            "input:2: threads are numbered from 0 without gaps: \"thread 1 0\"",
        ),
        (
            "page-counts",
            b"page-counts 1\niteration 1001\n",
            "input:2: not 1 to 1000 times: \"iteration 1001\"",
        ),
        (
            "page-counts",
            b"page-counts 1\nthread 0 0\niteration 1\n",
            "input:3: before the first line `object`: \"iteration 1\"",
        ),
        (
            "spc",
            b"0,1,512,x,0\n",
            "input:1: an opcode other than r and w: \"0,1,512,x,0\"",
        ),
        (
            "twitter",
            b"0,k,1,1,1,got,0\n",
            "input:1: an unknown op: \"0,k,1,1,1,got,0\"",
        ),
        (
            "u64le",
            b"123456789",
            "input: byte 8: 1 bytes of a record of 8, and then the end",
        ),
        (
            "vscsi",
            &bad_command,
            "input: byte 32: SCSI command 0x35 neither reads nor writes",
        ),
    ];
    for (format, bytes, problem) in cases {
        assert_eq!(read(bytes, Some(format)).unwrap_err().to_string(), problem);
    }
}

/// File, format, references, distinct blocks: as in the folder's README.
const REAL: [(&str, &str, usize, usize); 21] = [
    ("address/gcc.trace.gz", "address", 515_683, 294),
    ("address/swim.trace.gz", "address", 303_193, 135),
    ("address/twolf.trace.gz", "address", 482_824, 89),
    ("arc/OLTP.lis.zst", "arc", 914_145, 186_880),
    ("arc/P3.lis.zst", "arc", 3_912_296, 762_543),
    ("arc/P6.lis.zst", "arc", 12_672_123, 773_770),
    ("cache2k/orm-night.trace.xz", "u32be", 5_000_000, 86_466),
    ("cache2k/web07.trace.xz", "u32be", 76_118, 20_484),
    ("corda/trace_vaultservice.gz", "u64be", 135_702, 90_468),
    (
        "libcachesim/cloudPhysicsIO.csv",
        "libcachesim-csv",
        113_872,
        48_974,
    ),
    (
        "libcachesim/cloudPhysicsIO.oracleGeneral.bin",
        "oracle-general",
        113_872,
        48_974,
    ),
    (
        "libcachesim/cloudPhysicsIO.txt",
        "libcachesim-txt",
        113_872,
        48_974,
    ),
    ("libcachesim/cloudPhysicsIO.vscsi", "vscsi", 113_872, 48_974),
    (
        "libcachesim/twitter_cluster52.csv.zst",
        "libcachesim-csv",
        1_000_000,
        143_542,
    ),
    ("lirs/2_pools.trace.gz", "lirs", 100_000, 9_939),
    ("lirs/cpp.trace.gz", "lirs", 9_047, 1_223),
    ("lirs/cs.trace.gz", "lirs", 6_781, 1_409),
    ("lirs/loop.trace.gz", "lirs", 505_500, 1_011),
    ("lirs/multi1.trace.gz", "lirs", 15_858, 2_606),
    ("lirs/ps.trace.gz", "lirs", 10_448, 3_083),
    ("lirs/scan.trace.gz", "lirs", 50_025, 2_001),
];

#[test]
fn the_real_traces_have_their_known_counts() {
    let Some(folder) = std::env::var_os("HITHER_TRACES") else {
        skip("HITHER_TRACES is not set");
        return;
    };
    let mut cloud_physics = Vec::new();
    for (name, format, references, distinct) in REAL {
        let path = Path::new(&folder).join(name);
        let mut input = Input::open(&path).unwrap();
        if find(format).unwrap().is_recognised() {
            assert_eq!(recognise(&mut input).unwrap().name, format, "{name}");
        }
        let trace = Trace::read(input, Some(format), &LoadOptions::default()).unwrap();
        assert_eq!(
            (trace.references(), trace.blocks()),
            (references, distinct),
            "{name}"
        );
        if name.contains("cloudPhysics") {
            cloud_physics.push(blocks(&trace));
        }
    }
    // The same requests in four formats.
    assert_eq!(cloud_physics.len(), 4);
    assert!(
        cloud_physics
            .iter()
            .all(|stream| *stream == cloud_physics[0])
    );
}
