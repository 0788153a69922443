//! LIRS text traces: every line is a reference, invalid lines are errors with file and line, and no
//! bytes crash the reader.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use hither_core::registry::Needs;
use hither_trace::{LoadOptions, Result, StackDistances, Trace};

use hither_testing::skip::skip;
/// Everything that a reader may need.
use proptest::prelude::*;

fn load(path: &Path, format: Option<&str>) -> Result<Trace> {
    Trace::load(path, format, &LoadOptions::default())
}

fn load_bytes(bytes: &[u8], format: Option<&str>) -> Result<Trace> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    load(file.path(), format)
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn lines_become_references_in_order() {
    let text = b"7\r\n*\r\n\r\n8\n  7  \n7\n0\n9";
    for bytes in [text.to_vec(), gzipped(text)] {
        let trace = load_bytes(&bytes, None).unwrap();
        assert_eq!(trace.format(), "lirs");
        assert_eq!(trace.block_stream().unwrap(), [0, 1, 0, 0, 2, 3]);
        assert_eq!(trace.counts().skipped.separators, 2);
        // Of the steps 7 8 7 7 0 9, one goes to the next block.
        assert_eq!(trace.counts().total.sequential, 1);
        let mut accesses = Vec::new();
        trace.fill(0, 10, Needs::ALL, &mut accesses).unwrap();
        assert_eq!(
            accesses
                .iter()
                .map(|access| access.index)
                .collect::<Vec<_>>(),
            [7, 8, 7, 7, 0, 9]
        );
        assert_eq!(accesses[0].next, 2);
        assert!(!trace.has_objects());
        assert!(!trace.has_sites());
        assert!(!trace.has_writes());
    }
}

#[test]
fn numbers_that_are_no_positions_are_numbered_by_appearance() {
    let trace = load_bytes(b"18446744073709551615\n5\n18446744073709551615\n", None).unwrap();
    let mut accesses = Vec::new();
    trace.fill(0, 10, Needs::ALL, &mut accesses).unwrap();
    let seen: Vec<_> = accesses
        .iter()
        .map(|access| (access.block.0, access.object.0, access.index))
        .collect();
    assert_eq!(seen, [(0, 0, 0), (1, 0, 1), (0, 0, 0)]);
}

#[test]
fn the_hash_is_that_of_the_file() {
    let sha256 = "4355a46b19d348dc2f57c046f8ef63d4538ebb936000f3c9ee954a27460dd865";
    assert_eq!(load_bytes(b"1\n", Some("lirs")).unwrap().sha256(), sha256);
}

#[test]
fn junk_is_named_by_file_and_line() {
    let cases: [(&[u8], &str); 6] = [
        (b"1\n2\nabc def\n", ":3: not a decimal number: \"abc def\""),
        (b"1\n-2\n", ":2: not a decimal number: \"-2\""),
        (b"1\n*\n* 2\n", ":3: not a decimal number: \"* 2\""),
        (b"1\n2 3\n", ":2: not a decimal number: \"2 3\""),
        (
            b"1\n18446744073709551616\n",
            ":2: number above 2^64 - 1: \"18446744073709551616\"",
        ),
        (
            b"\n\xff\xfe\x1b\n",
            ":2: not a decimal number: \"\u{fffd}\u{fffd}\\u{1b}\"",
        ),
    ];
    for (bytes, problem) in cases {
        let error = load_bytes(bytes, Some("lirs")).unwrap_err().to_string();
        assert!(error.ends_with(problem), "{error}");
        assert!(error.starts_with('/'), "{error}");
    }
    let recognised = load_bytes(b"1\n*\n2\nthree\n4\n", None).unwrap_err();
    assert!(
        recognised
            .to_string()
            .ends_with(":4: not a decimal number: \"three\"")
    );
    let long = [b"1\n".as_slice(), &[b'x'; 1000]].concat();
    assert!(
        load_bytes(&long, Some("lirs"))
            .unwrap_err()
            .to_string()
            .len()
            < 200
    );
}

#[test]
fn what_is_no_trace_is_refused() {
    let error = load_bytes(b"", None).unwrap_err().to_string();
    assert!(error.contains("empty, so that nothing tells"), "{error}");
    for bytes in [
        b"*\n".as_slice(),
        b"1\n",
        b"hello\n1\n",
        b"\x7fELF\x02",
        b"{}",
    ] {
        let error = load_bytes(bytes, None).unwrap_err().to_string();
        assert!(
            error.contains("not in a format that its content tells"),
            "{error}"
        );
    }
    assert_eq!(load_bytes(b"", Some("lirs")).unwrap().references(), 0);
    let error = load(Path::new("/no/such/file"), None)
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("/no/such/file: No such file"), "{error}");
    let error = load_bytes(b"1\n", Some("hither")).unwrap_err().to_string();
    assert!(error.contains("not a trace folder"), "{error}");
}

#[test]
fn a_cut_gzip_is_an_error() {
    let text: String = (0..2000)
        .map(|id| format!("{}\n", id * 7919 % 1000))
        .collect();
    let bytes = gzipped(text.as_bytes());
    for cut in (3..bytes.len()).step_by(97) {
        assert!(load_bytes(&bytes[..cut], Some("lirs")).is_err(), "{cut}");
    }
}

/// The miss counts of libCacheSim's LRU, at every cache size of the reference table.
#[test]
fn stack_distances_give_the_reference_miss_counts_of_lru() {
    let Some(folder) = std::env::var_os("HITHER_TRACES") else {
        skip("HITHER_TRACES is not set");
        return;
    };
    let folder = Path::new(&folder);
    let table = fs::read_to_string(folder.join("ref_missratios.csv")).unwrap();
    let mut checked = 0;
    for line in table.lines().filter(|line| line.starts_with("lirs_")) {
        let fields: Vec<&str> = line.split(',').collect();
        let path = folder.join(format!("lirs/{}.trace.gz", &fields[0]["lirs_".len()..]));
        if fields[5] != "lru" {
            continue;
        }
        let (cache_blocks, misses): (u32, u64) =
            (fields[4].parse().unwrap(), fields[6].parse().unwrap());
        let trace = load(&path, None).unwrap();
        let mut distances = StackDistances::new(trace.blocks());
        let stream = trace.block_stream().unwrap();
        let missed = stream.iter().filter(|&&block| {
            let distance = distances.touch(block);
            distance.is_none_or(|distance| distance >= cache_blocks)
        });
        let found = missed.count() as u64;
        assert_eq!(found, misses, "{line}");
        checked += 1;
    }
    assert_eq!(checked, 35);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_a_trace_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = load_bytes(&bytes, None);
        let _ = load_bytes(&[&[0x1f, 0x8b, 8, 0], bytes.as_slice()].concat(), None);
        if let Ok(trace) = load_bytes(&bytes, Some("lirs")) {
            prop_assert!(bytes.iter().all(|byte| b"0123456789* \t\n\r\x0c".contains(byte)));
            prop_assert!(trace.blocks() <= trace.references());
        }
    }

    #[test]
    fn any_numbers_keep_their_order(ids in prop::collection::vec(
        prop_oneof![0u64..50, any::<u64>()], 1..200),
        stars in prop::collection::vec(any::<bool>(), 200))
    {
        let star = |star: bool| if star { "*\n" } else { "" };
        let lines = ids.iter().zip(&stars);
        let lines = lines.map(|(id, &starred)| format!("{id}\n{}", star(starred)));
        let trace = load_bytes(lines.collect::<String>().as_bytes(), Some("lirs")).unwrap();
        prop_assert_eq!(trace.references(), ids.len());
        let stream = trace.block_stream().unwrap();
        for (a, b) in (0..ids.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
            prop_assert_eq!(ids[a] == ids[b], stream[a] == stream[b]);
        }
    }
}
