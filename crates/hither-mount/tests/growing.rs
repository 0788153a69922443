//! Files that grow, or are cut, while they are read.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hither_mount::Consistency;

mod support;

use support::{Bench, append};

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_log_is_read_while_it_grows() {
    let source = tempfile::tempdir().unwrap();
    let at = source.path().join("log");
    fs::write(&at, "line\n".repeat(400_000)).unwrap();
    for consistency in [Consistency::Strict, Consistency::default()] {
        let Some(bench) = Bench::over(source.path(), consistency) else {
            return;
        };
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut log = append(&at);
                while !ended.load(Ordering::Relaxed) {
                    log.write_all(b"line\n").unwrap();
                    thread::sleep(Duration::from_millis(1));
                }
            });
            for _ in 0..10 {
                let before = fs::metadata(&at).unwrap().len() as usize;
                // Strict: the name is not believed either.
                let text = fs::read(bench.at("log"));
                let text = text
                    .inspect_err(|_| ended.store(true, Ordering::Relaxed))
                    .unwrap();
                let least = if consistency == Consistency::Strict {
                    before
                } else {
                    2_000_000
                };
                let is_whole = text.len() >= least
                    && text.len() % 5 == 0
                    && text.chunks(5).all(|line| line == b"line\n");
                ended.store(!is_whole, Ordering::Relaxed);
                assert!(is_whole, "{} of {before}", text.len());
            }
            ended.store(true, Ordering::Relaxed);
        });
    }
}

/// Follows a file as `tail -f` does.
fn follow(bench: &Bench, at: &Path, text: &str) {
    let mut file = File::open(bench.at("log")).unwrap();
    let mut seen = String::new();
    file.read_to_string(&mut seen).unwrap();
    assert_eq!(seen, text);
    for round in 0..3 {
        let line = format!("line {round}\n");
        append(at).write_all(line.as_bytes()).unwrap();
        let bytes = (text.len() + (round + 1) * line.len()) as u64;
        eventually("it grows", || file.metadata().unwrap().len() == bytes);
        let mut more = String::new();
        file.read_to_string(&mut more).unwrap();
        assert_eq!(more, line);
    }
    // As log rotation by copytruncate does.
    File::options()
        .write(true)
        .open(at)
        .unwrap()
        .set_len(0)
        .unwrap();
    append(at).write_all(b"anew\n").unwrap();
    eventually("it is cut", || file.metadata().unwrap().len() == 5);
    std::io::Seek::rewind(&mut file).unwrap();
    let mut anew = String::new();
    file.read_to_string(&mut anew).unwrap();
    assert_eq!(anew, "anew\n");
}

#[test]
fn what_is_added_to_an_open_file_is_seen() {
    let source = tempfile::tempdir().unwrap();
    let at = source.path().join("log");
    for is_settled in [false, true] {
        let text = "before\n".repeat(1000);
        fs::write(&at, &text).unwrap();
        let Some(bench) = Bench::over(source.path(), Consistency::default()) else {
            return;
        };
        if is_settled {
            thread::sleep(Duration::from_millis(2100));
        }
        follow(&bench, &at, &text);
    }
}

#[test]
fn a_version_that_was_replaced_in_place_is_no_mixture() {
    let source = tempfile::tempdir().unwrap();
    let at = source.path().join("file");
    fs::write(&at, vec![1; 8 << 20]).unwrap();
    thread::sleep(Duration::from_millis(2100));
    let Some(bench) = Bench::over(source.path(), Consistency::default()) else {
        return;
    };
    let mut file = File::open(bench.at("file")).unwrap();
    let mut first = vec![0; 1 << 20];
    file.read_exact(&mut first).unwrap();
    // Longer than before, in the same file, and all of it different.
    fs::write(&at, vec![2; 9 << 20]).unwrap();
    let mut rest = Vec::new();
    let read = file.read_to_end(&mut rest);
    assert!(rest.iter().all(|byte| *byte == 1), "a mixture");
    match read {
        Ok(_) => assert_eq!(rest.len(), 7 << 20),
        Err(error) => {
            let code = rustix::io::Errno::from_io_error(&error);
            assert_eq!(code, Some(rustix::io::Errno::STALE));
        }
    }
}
