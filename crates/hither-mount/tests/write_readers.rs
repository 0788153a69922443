//! What those see who have a file open, or compare its number, while programs here change it.
//! No test here runs a program: that would close what it inherits, and so store it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::io::Errno;

mod support;

use support::{Bench, TTL, append, code, names, noise, replace};

#[test]
fn a_file_keeps_its_number_while_programs_here_change_it() {
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("old"), "before").unwrap();
    let Some(bench) = Bench::over(source.path(), TTL) else {
        return;
    };
    let ino = |name: &str| fs::metadata(bench.at(name)).unwrap().ino();
    let listed = |name: &str| {
        let mut entries = fs::read_dir(bench.at("")).unwrap();
        let entry = entries.find(|entry| entry.as_ref().unwrap().file_name() == name);
        entry.unwrap().unwrap().metadata().unwrap().ino()
    };
    let mut file = File::create(bench.at("new")).unwrap();
    let number = file.metadata().unwrap().ino();
    file.write_all(b"contents").unwrap();
    assert_eq!(file.metadata().unwrap().ino(), number);
    assert_eq!((ino("new"), listed("new")), (number, number));
    drop(file);
    assert_eq!((ino("new"), listed("new")), (number, number));
    // Closed a moment ago, its version is not settled; it is soon, and is another inode inside.
    let early = File::open(bench.at("new")).unwrap();
    assert_eq!(early.metadata().unwrap().ino(), number);
    std::thread::sleep(Duration::from_millis(2_100));
    let late = File::open(bench.at("new")).unwrap();
    assert_eq!(late.metadata().unwrap().ino(), number);
    for mut file in [early, late] {
        let mut bytes = String::new();
        file.read_to_string(&mut bytes).unwrap();
        assert_eq!(bytes, "contents");
    }
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for name in ["new", "old"] {
        let number = ino(name);
        let path = bench.at(name);
        for mode in [0o600, 0o640] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!((ino(name), listed(name)), (number, number), "{name}");
        }
        File::open(&path).unwrap().set_modified(time).unwrap();
        assert_eq!((ino(name), listed(name)), (number, number), "{name}");
        append(&path).write_all(b" more").unwrap();
        assert_eq!((ino(name), listed(name)), (number, number), "{name}");
        let mut file = File::create(&path).unwrap();
        assert_eq!(file.metadata().unwrap().ino(), number);
        file.write_all(b"all new").unwrap();
        drop(file);
        let moved = format!("moved {name}");
        fs::rename(&path, bench.at(&moved)).unwrap();
        assert_eq!((ino(&moved), listed(&moved)), (number, number), "{name}");
        assert_eq!(fs::read(bench.at(&moved)).unwrap(), b"all new");
        // Another file of the same name is another one.
        fs::write(bench.at(&moved), "this").unwrap();
        fs::write(bench.at(name), "that").unwrap();
        assert_ne!(ino(name), ino(&moved));
    }
}

#[test]
fn who_reads_a_file_goes_on_when_its_name_or_attributes_change() {
    let source = tempfile::tempdir().unwrap();
    let bytes = noise(3, 40_000_000);
    fs::create_dir(source.path().join("d")).unwrap();
    fs::write(source.path().join("d/file"), &bytes).unwrap();
    let Some(bench) = Bench::over(source.path(), TTL) else {
        return;
    };
    let reader = File::open(bench.at("d/file")).unwrap();
    // More than what is read ahead.
    let mut at = 0;
    let mut goes_on = |case: &str| {
        let mut piece = [0; 1000];
        reader.read_exact_at(&mut piece, at as u64).unwrap();
        assert!(piece[..] == bytes[at..at + 1000], "{case}");
        at += 5_000_000;
    };
    goes_on("as it was");
    let mode = |mode| fs::Permissions::from_mode(mode);
    reader.set_permissions(mode(0o640)).unwrap();
    goes_on("fchmod");
    fs::set_permissions(bench.at("d/file"), mode(0o600)).unwrap();
    goes_on("chmod");
    reader.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    goes_on("futimens");
    let writer = append(&bench.at("d/file"));
    writer.set_permissions(mode(0o604)).unwrap();
    goes_on("fchmod by a writer");
    drop(writer);
    fs::rename(bench.at("d/file"), bench.at("d/moved")).unwrap();
    goes_on("rename");
    fs::rename(bench.at("d"), bench.at("e")).unwrap();
    goes_on("rename of its directory");
    let there = source.path().join("e/moved");
    assert_eq!(fs::metadata(&there).unwrap().mode() & 0o777, 0o604);
}

#[test]
fn who_reads_a_file_goes_on_when_its_name_is_gone() {
    let source = tempfile::tempdir().unwrap();
    let Some(bench) = Bench::over(source.path(), TTL) else {
        return;
    };
    let bytes = noise(3, 10_000_000);
    type Change<'a> = &'a dyn Fn(&Path);
    let changes: [(&str, Change<'_>); 4] = [
        ("unlink", &|path| fs::remove_file(path).unwrap()),
        ("rename", &|path| {
            fs::write(bench.at("new"), "new").unwrap();
            fs::rename(bench.at("new"), path).unwrap();
        }),
        ("write", &|path| fs::write(path, "written").unwrap()),
        ("all", &|path| {
            append(path).write_all(b"more").unwrap();
            fs::rename(path, bench.at("moved")).unwrap();
            fs::remove_file(bench.at("moved")).unwrap();
            fs::write(path, "another").unwrap();
        }),
    ];
    for (case, change) in changes {
        let path = bench.at(case);
        fs::write(source.path().join(case), &bytes).unwrap();
        // Before and after it is settled.
        let mut readers = vec![File::open(&path).unwrap()];
        std::thread::sleep(Duration::from_millis(2_100));
        readers.push(File::open(&path).unwrap());
        let goes_on = |reader: &File, at: usize| {
            let mut piece = [0; 1000];
            reader.read_exact_at(&mut piece, at as u64).unwrap();
            assert!(piece[..] == bytes[at..at + 1000], "{case} at {at}");
        };
        readers.iter().for_each(|reader| goes_on(reader, 0));
        change(&path);
        readers.iter().for_each(|reader| goes_on(reader, 5_000_000));
        for mut reader in readers {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            // What is appended to a file that is open may be seen, as on any file system.
            let more = if case == "all" { &b"more"[..] } else { b"" };
            let rest = all.strip_prefix(&bytes[..]);
            let is_right = rest.is_some_and(|rest| rest.is_empty() || rest == more);
            assert!(is_right, "{case}: {} bytes", all.len());
        }
    }
    // Attributes of what was replaced are not set on what took its place.
    let (there, path) = (source.path().join("file"), bench.at("file"));
    fs::write(&there, &bytes).unwrap();
    let reader = File::open(&path).unwrap();
    replace(&there, "another");
    let mode = |mode| fs::Permissions::from_mode(mode);
    let before = fs::metadata(&there).unwrap().mode();
    let refused = reader.set_permissions(mode(0o777));
    assert_eq!(code(refused), Some(Errno::STALE));
    assert_eq!(fs::metadata(&there).unwrap().mode(), before);
    fs::set_permissions(&path, mode(0o600)).unwrap();
    assert_eq!(fs::metadata(&there).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::read(&path).unwrap(), b"another");
}

#[test]
fn what_is_not_closed_when_the_mount_ends_is_given_up() {
    let source = tempfile::tempdir().unwrap();
    let Some(mut bench) = Bench::over(source.path(), TTL) else {
        return;
    };
    fs::write(bench.at("file"), "before").unwrap();
    let mut file = append(&bench.at("file"));
    file.write_all(b" and after").unwrap();
    assert_eq!(names(source.path()).len(), 2);
    let mounted = bench.mounted.take().unwrap();
    mounted.unmount(Duration::from_secs(10)).unwrap();
    assert_eq!(names(source.path()), ["file"]);
    assert_eq!(fs::read(source.path().join("file")).unwrap(), b"before");
    assert!(file.sync_all().is_err());
}
