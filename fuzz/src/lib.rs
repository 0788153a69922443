//! What the fuzz target does with its bytes.
//!
//! The bytes are read as a trace in one format. Whatever they are, that gives an error that names
//! the input, or a trace that holds together; nothing panics, hangs, or asks for memory that the
//! bytes do not account for. With the format `frame` they are read as the frames that nodes of a
//! cluster send each other.

/// The file itself rather than the crate, which would have all of TLS and HTTP instrumented.
#[path = "../../crates/hither-net/src/frame.rs"]
pub mod frame;
mod frames;

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use hither_trace::schema::{AccessRow, FILES, Meta, ObjectRow, ProcessRow, SiteRow, ThreadRow};
use hither_trace::{Input, LoadOptions, Trace, Writer, format};

/// Large blocks, so that a request of 2 GiB, which is allowed, is not most of the work.
const OPTIONS: LoadOptions = LoadOptions {
    block_bytes: 1 << 20,
    keep_sizes: true,
    memory_bytes: 32 << 20,
    ..LoadOptions::DEFAULT
};

/// The format to read, which the environment variable names.
static FORMAT: OnceLock<String> = OnceLock::new();

/// What is named in place of a format to read frames.
const FRAME: &str = "frame";

/// What is done once, before the first bytes.
pub fn start() {
    const VARIABLE: &str = "HITHER_FUZZ_FORMAT";
    let name = std::env::var(VARIABLE).unwrap_or_else(|_| panic!("{VARIABLE} names no format"));
    if name == FRAME {
        FORMAT.get_or_init(|| FRAME.to_owned());
        return;
    }
    let format = format::Choice::parse(&name);
    let format = format.unwrap_or_else(|error| panic!("{VARIABLE}: {error}"));
    FORMAT.get_or_init(|| format.name());
    if format.name() == "hither" {
        let_decoder_panics_pass();
    }
}

/// Reads `bytes` in the format.
pub fn read(bytes: &[u8]) {
    let format = FORMAT.get().expect("start was called").as_str();
    if format == FRAME {
        return frames::read(bytes);
    }
    if format == "hither" {
        return read_folder(bytes);
    }
    let input = || Input::new("input", bytes).map_err(|error| error.to_string());
    let named = |error: String| assert!(error.starts_with("input"), "{error}");
    for format in [Some(format), None] {
        let trace = input().and_then(|input| {
            Trace::read(input, format, &OPTIONS).map_err(|error| error.to_string())
        });
        match trace {
            Ok(trace) => check(&trace),
            Err(error) => named(error),
        }
    }
}

/// Replaces a file of a sound trace folder by `bytes`, of which the first says which.
fn read_folder(bytes: &[u8]) {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let Some((&file, bytes)) = bytes.split_first() else {
        return;
    };
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        write_folder(&folder.path().join("sound"));
        folder
    });
    let sound = folder.path().join("sound");
    let broken = sound.join(FILES[usize::from(file) % FILES.len()]);
    let before = fs::read(&broken).expect("the sound file");
    fs::write(&broken, bytes).expect("the broken file");
    let trace = Trace::load(&sound, None, &OPTIONS);
    fs::write(&broken, before).expect("the sound file again");
    match trace {
        Ok(trace) => check(&trace),
        Err(error) => assert!(error.to_string().starts_with('/'), "{error}"),
    }
}

fn check(trace: &Trace) {
    assert!(trace.blocks() <= trace.references());
    let needs = hither_core::registry::Needs::ALL;
    let mut lives = Vec::new();
    trace
        .fill_lives(0, usize::MAX, &mut lives)
        .expect("a small trace is in memory");
    let lengths = [0, trace.references()];
    assert_eq!(lives.len(), lengths[usize::from(trace.has_lives())]);
    let mut seen = 0;
    let each = |batch: &[hither_core::Access]| {
        for access in batch {
            assert!(access.block.index() < trace.blocks());
            assert!(access.site.index() < trace.sites().len());
            assert!(access.thread.index() < trace.threads());
            assert!(access.next > access.tick);
            seen += 1;
        }
    };
    trace
        .for_each_batch(8192, needs, each)
        .expect("a small trace is in memory");
    assert_eq!(seen, trace.references());
}

/// Writes a small trace folder.
fn write_folder(path: &Path) {
    let mut writer = Writer::create(path, true).expect("a writer");
    for row in 0..30 {
        let access = AccessRow {
            time_ns: row,
            offset: row * row % 7 * 4096,
            length: 5000,
            ..AccessRow::default()
        };
        writer.push(&access).expect("a row");
    }
    let meta = Meta {
        processes: vec![ProcessRow::default()],
        threads: vec![ThreadRow::default()],
        ..Meta::default()
    };
    let object = ObjectRow {
        path: b"/data".to_vec(),
        ..ObjectRow::default()
    };
    let sites = [SiteRow::unknown()];
    writer.finish(&[object], &sites, &meta).expect("a trace");
}

/// The Parquet decoder panics on some damaged files, and hither-trace makes an error of that.
/// libFuzzer's own hook would end the run before it gets that far; any other panic still does.
fn let_decoder_panics_pass() {
    let abort = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let decoder = |file: &str| file.contains("/parquet-") || file.contains("/bytes-");
        if !panic
            .location()
            .is_some_and(|location| decoder(location.file()))
        {
            abort(panic);
        }
    }));
}
