//! Compressed files and archives: what one of them contains, and what is refused.

mod common;

use std::fs;
use std::path::Path;

use common::samples::{bzip2, gzipped, xz, zstd};
use hither_trace::{Input, LoadOptions, Location, Result, Trace};

fn read(bytes: &[u8]) -> Result<Trace> {
    Trace::read(Input::new("input", bytes)?, None, &LoadOptions::default())
}

fn references(bytes: &[u8]) -> usize {
    read(bytes).unwrap().references()
}

fn error(bytes: &[u8]) -> String {
    read(bytes).unwrap_err().to_string()
}

#[test]
fn zeros_may_follow_gzip_and_nothing_else() {
    let members = [gzipped(b"1\n2\n"), gzipped(b""), gzipped(b"3\n")].concat();
    for zeros in [0, 1, 511, 200_000] {
        let mut packed = members.clone();
        packed.resize(packed.len() + zeros, 0);
        assert_eq!(references(&packed), 3);
        packed.push(b'x');
        let problem = if zeros == 0 {
            "input: "
        } else {
            "input: bytes behind the zeros after the last gzip member"
        };
        assert!(error(&packed).starts_with(problem), "{}", error(&packed));
    }
    assert!(error(&members[..members.len() - 1]).starts_with("input: "));
    // A member behind zeros is none.
    let behind = [gzipped(b"1\n2\n"), vec![0; 9], gzipped(b"2\n3\n")].concat();
    assert!(error(&behind).contains("bytes behind the zeros"));
}

/// A frame of zstd with a window of 2 to the power of `window_log`, and one block that is not
/// compressed.
fn zstd_of_window(window_log: u8, content: &[u8]) -> Vec<u8> {
    let last_raw_block = (content.len() as u32) << 3 | 1;
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, (window_log - 10) << 3];
    frame.extend(&last_raw_block.to_le_bytes()[..3]);
    frame.extend(content);
    frame
}

#[test]
fn windows_of_zstd_are_up_to_2_gib() {
    for window_log in [20, 27, 28, 31] {
        assert_eq!(references(&zstd_of_window(window_log, b"1\n2\n")), 2);
    }
    assert!(error(&zstd_of_window(32, b"1\n2\n")).starts_with("input: "));
}

/// A header of an archive, of the kind of POSIX.
fn header(name: &str, kind: u8, bytes: usize) -> [u8; 512] {
    let mut header = [0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[124..135].copy_from_slice(format!("{bytes:011o}").as_bytes());
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    with_sum(header)
}

fn with_sum(mut header: [u8; 512]) -> [u8; 512] {
    header[148..156].fill(b' ');
    let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// A file of an archive.
fn file(name: &str, kind: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = header(name, kind, content.len()).to_vec();
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn archive(files: &[Vec<u8>]) -> Vec<u8> {
    [files.concat(), vec![0; 1024]].concat()
}

#[test]
fn an_archive_of_one_file_is_that_file() {
    let one = archive(&[file("d/", b'5', b""), file("d/a", b'0', b"1\n2\n")]);
    assert_eq!(references(&one), 2);
    let trace = read(&one).unwrap();
    assert_eq!(trace.path(), Path::new("input:d/a"));
    for pack in [bzip2, gzipped, xz, zstd] {
        assert_eq!(references(&pack(&one)), 2);
        let inside = archive(&[file("a", b'0', &pack(b"1\n2\n3\n"))]);
        assert_eq!(references(&pack(&inside)), 3);
    }
    // Names that are longer than a header has room for.
    let long = "x".repeat(300);
    let record = format!("310 path={long}\n");
    assert_eq!(record.len(), 310);
    let of_pax = archive(&[
        file("p", b'x', record.as_bytes()),
        file("a", b'0', b"1\n2\n"),
    ]);
    assert_eq!(
        read(&of_pax).unwrap().path(),
        Path::new(&format!("input:{long}"))
    );
    let of_gnu = archive(&[file("@", b'L', long.as_bytes()), file("a", b'0', b"1\n2\n")]);
    assert_eq!(
        read(&of_gnu).unwrap().path(),
        Path::new(&format!("input:{long}"))
    );
    let mut prefixed = header("name", b'0', 4);
    prefixed[345..348].copy_from_slice(b"a/b");
    let prefixed = [
        with_sum(prefixed).to_vec(),
        b"1\n2\n".to_vec(),
        vec![0; 508],
    ]
    .concat();
    let trace = read(&archive(&[prefixed])).unwrap();
    assert_eq!(trace.path(), Path::new("input:a/b/name"));
}

#[test]
fn an_archive_of_several_files_needs_a_name() {
    let two = archive(&[
        file("./a", b'0', b"1\n2\n3\n"),
        file("b:c", b'0', b"1\n2\n"),
    ]);
    let problem = "a tar archive of several files: ARCHIVE:FILE names one of ./a, b:c";
    for packed in [two.clone(), gzipped(&two)] {
        assert!(error(&packed).ends_with(problem), "{}", error(&packed));
    }
    // Also where the first is no trace.
    let papers = archive(&[
        file("README", b'0', b"Read me.\n"),
        file("b", b'0', b"1\n2\n"),
    ]);
    assert!(
        error(&papers).ends_with("names one of README, b"),
        "{}",
        error(&papers)
    );
    let many: Vec<Vec<u8>> = (0..30)
        .map(|n| file(&format!("f{n}"), b'0', b"1\n2\n"))
        .collect();
    assert!(error(&archive(&many)).ends_with(", f19 and 10 more"));

    let folder = tempfile::tempdir().unwrap();
    let tar = folder.path().join("t.tar");
    fs::write(&tar, gzipped(&two)).unwrap();
    let load = |member: &str| {
        let path = format!("{}:{member}", tar.display());
        Trace::load(path, None, &LoadOptions::default())
    };
    for (member, count) in [("a", 3), ("./a", 3), ("b:c", 2)] {
        let trace = load(member).unwrap();
        assert_eq!(trace.references(), count);
        assert_eq!(
            trace.path(),
            Path::new(&format!("{}:{member}", tar.display()))
        );
        // The hash is that of the whole file.
        let whole = Trace::load(&tar, Some("lirs"), &LoadOptions::default());
        assert!(whole.is_err());
        let sum = load("a").unwrap().sha256().to_owned();
        assert_eq!(trace.sha256(), sum);
    }
    let missing = load("z").unwrap_err().to_string();
    assert!(
        missing.ends_with("t.tar:z: a tar archive without that file; it has ./a, b:c"),
        "{missing}"
    );
    // A file with a colon in its name is that file.
    let named = folder.path().join("t.tar:a");
    fs::write(&named, "1\n2\n3\n4\n").unwrap();
    assert_eq!(load("a").unwrap().references(), 4);
    assert_eq!(Location::of(&named).member, None);
    fs::write(folder.path().join("plain"), "1\n").unwrap();
    let plain = folder.path().join("plain:a");
    let error = Trace::load(&plain, None, &LoadOptions::default()).unwrap_err();
    assert!(
        error.to_string().contains("plain:a: not a tar archive"),
        "{error}"
    );
    let error = Trace::load(folder.path().join("none:a"), None, &LoadOptions::default());
    assert!(error.unwrap_err().to_string().contains("No such file"));
}

#[test]
fn a_damaged_archive_is_an_error() {
    let one = archive(&[file("a", b'0', &b"1\n".repeat(400))]);
    assert_eq!(references(&one), 400);
    for cut in 512..one.len() - 512 {
        assert!(read(&one[..cut]).is_err(), "{cut}");
    }
    let twice = archive(&[file("a", b'0', b"1\n2\n"), file("a", b'0', b"2\n3\n")]);
    let folder = tempfile::tempdir().unwrap();
    let tar = folder.path().join("t.tar");
    fs::write(&tar, twice).unwrap();
    let path = format!("{}:a", tar.display());
    let found = Trace::load(path, None, &LoadOptions::default());
    assert!(
        found
            .unwrap_err()
            .to_string()
            .ends_with("two files of that name")
    );

    let mut wrong = archive(&[file("a", b'0', b"1\n2\n"), file("b", b'0', b"1\n2\n")]);
    wrong[1024] ^= 1;
    assert!(error(&wrong).ends_with("a damaged header in a tar archive"));
    for (files, problem) in [
        (
            vec![file("a", b'S', b"1\n2\n")],
            "a is a sparse file, which is not supported",
        ),
        (
            vec![
                file("x", b'x', b"99 GNU.sparse.major=1\n"),
                file("a", b'0', b"1\n2\n"),
            ],
            "damaged records in a tar archive",
        ),
        (
            vec![
                file("x", b'x', b"22 GNU.sparse.major=1\n"),
                file("a", b'0', b"1\n2\n"),
            ],
            "a is a sparse file, which is not supported",
        ),
        (vec![file("d", b'5', b"")], "a tar archive without a file"),
        (
            vec![file("@", b'L', &[b'x'; 1 << 17])],
            "a tar header of more than 64 KiB",
        ),
    ] {
        let error = error(&archive(&files));
        assert!(error.ends_with(problem), "{error}");
    }
    // A size that no archive has.
    let mut huge = header("a", b'0', 0);
    huge[124..136].copy_from_slice(&[
        0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    ]);
    let huge = archive(&[[with_sum(huge).to_vec(), b"1\n".repeat(256)].concat()]);
    assert!(error(&huge).ends_with("ends early"), "{}", error(&huge));
}
