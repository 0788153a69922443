//! Two mounts of one directory, and programs at the source: what was acknowledged is not lost.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use hither_mount::Consistency;

mod support;

use support::{Bench, append};

/// Words of a file, in any order.
fn words(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Small numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695);
        (self.0 >> 33) % limit
    }
}

/// Adds a word. Whether that was acknowledged.
fn add(path: &Path, word: &str) -> bool {
    let added = || {
        let mut file = OpenOptions::new().append(true).open(path)?;
        file.write_all(format!("{word} \n").as_bytes())?;
        file.sync_all()
    };
    added().is_ok()
}

/// Writes the whole file anew, with its words the other way round, `with` one more, and `without`
/// another one. Whether that was acknowledged.
fn rewrite(path: &Path, with: &str, without: Option<&str>) -> std::io::Result<()> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let mut words: Vec<&str> = text.split_whitespace().collect();
    words.retain(|word| Some(*word) != without);
    words.push(with);
    words.reverse();
    let text = words.join("\n") + "\n";
    file.write_all_at(text.as_bytes(), 0)?;
    file.set_len(text.len() as u64)?;
    file.sync_all()
}

#[test]
fn nothing_acknowledged_is_lost() {
    let source = tempfile::tempdir().unwrap();
    let at = |name: &str| source.path().join(name);
    fs::write(at("log"), "begin\n").unwrap();
    fs::write(at("table"), "begin\n").unwrap();
    fs::write(at("linked"), "begin\n").unwrap();
    fs::hard_link(at("linked"), at("other")).unwrap();
    let bench = || Bench::over(source.path(), Consistency::Strict);
    let (Some(one), Some(other)) = (bench(), bench()) else {
        return;
    };
    let ended = AtomicBool::new(false);
    let (kept, direct) = thread::scope(|scope| {
        let mut writers = Vec::new();
        for (number, bench) in [&one, &other, &one, &other].into_iter().enumerate() {
            writers.push(scope.spawn(move || {
                let mut random = Random(number as u64 + 1);
                let mut kept: Vec<(&str, String)> = Vec::new();
                for step in 0..150 {
                    let word = format!("{number}-{step}");
                    // On one mount, writers of a file share a version, as on any file system:
                    // only one of each mount reads and writes a file as a whole.
                    let names = if number < 2 { 3 } else { 1 };
                    let name = ["log", "table", "linked"][random.below(names) as usize];
                    let path = bench.at(name);
                    if name == "log" || random.below(2) == 0 {
                        if add(&path, &word) {
                            kept.push((name, word));
                        }
                        continue;
                    }
                    let mut mine = kept.iter().filter(|(it, _)| *it == name);
                    let without = mine
                        .nth(random.below(4) as usize)
                        .map(|(_, word)| word.clone());
                    let rewritten = rewrite(&path, &word, without.as_deref());
                    // What fails may still have happened.
                    kept.retain(|(_, word)| Some(word) != without.as_ref());
                    if rewritten.is_ok() {
                        kept.push((name, word));
                    }
                }
                kept
            }));
        }
        // A program at the source appends as well.
        let direct = scope.spawn(|| {
            let mut words = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                let word = format!("direct-{}", words.len());
                append(&at("log"))
                    .write_all(format!("{word} \n").as_bytes())
                    .unwrap();
                words.push(("log", word));
                thread::sleep(std::time::Duration::from_millis(1));
            }
            words
        });
        let kept: Vec<_> = writers.into_iter().map(|it| it.join().unwrap()).collect();
        ended.store(true, Ordering::Relaxed);
        (kept, direct.join().unwrap())
    });
    let mut acknowledged = 0;
    for name in ["log", "table", "linked"] {
        let there = words(&at(name));
        let all = kept.iter().chain([&direct]).flatten();
        for (_, word) in all.filter(|(it, _)| *it == name) {
            assert!(there.contains(word), "{word} of {name} is lost");
            acknowledged += 1;
        }
    }
    assert!(acknowledged > 50, "{acknowledged}");
    assert_eq!(
        fs::read(at("linked")).unwrap(),
        fs::read(at("other")).unwrap()
    );
    assert_eq!(
        fs::read_dir(source.path()).unwrap().count(),
        4,
        "nothing is left over"
    );
}

#[test]
fn what_is_appended_stays_the_same_file_and_links_stay_linked() {
    let source = tempfile::tempdir().unwrap();
    let at = |name: &str| source.path().join(name);
    fs::write(at("log"), "one\n").unwrap();
    fs::write(at("a"), "one").unwrap();
    fs::hard_link(at("a"), at("b")).unwrap();
    let Some(bench) = Bench::over(source.path(), Consistency::Strict) else {
        return;
    };
    // A program at the source that has the log open goes on in the same file.
    let mut open = append(&at("log"));
    append(&bench.at("log")).write_all(b"two\n").unwrap();
    open.write_all(b"three\n").unwrap();
    assert_eq!(fs::read(at("log")).unwrap(), b"one\ntwo\nthree\n");
    assert_eq!(fs::read(bench.at("log")).unwrap(), b"one\ntwo\nthree\n");
    let number = fs::metadata(at("a")).unwrap().ino();
    fs::write(bench.at("a"), "another").unwrap();
    assert_eq!(fs::read(at("b")).unwrap(), b"another");
    append(&bench.at("b")).write_all(b" one").unwrap();
    OpenOptions::new()
        .write(true)
        .open(bench.at("a"))
        .unwrap()
        .set_len(9)
        .unwrap();
    let file = File::options().write(true).open(bench.at("b")).unwrap();
    file.write_all_at(b"A", 0).unwrap();
    file.sync_all().unwrap();
    for name in ["a", "b"] {
        assert_eq!(fs::read(at(name)).unwrap(), b"Another o");
        assert_eq!(fs::read(bench.at(name)).unwrap(), b"Another o");
        let after = fs::metadata(at(name)).unwrap();
        assert_eq!((after.ino(), after.nlink()), (number, 2));
    }
}
