//! Writing through a mount: what programs write is at the source when they have closed it.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use hither_mount::Consistency;
use rustix::io::Errno;

mod support;

use hither_testing::s3_emulator::S3Emulator;
use support::{Bench, TTL, append, code, names, noise, replace};

#[test]
fn what_is_closed_is_at_the_source_and_what_is_open_is_not() {
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("old"), "before").unwrap();
    for consistency in [Consistency::Strict, TTL, Consistency::Immutable] {
        fs::write(source.path().join("old"), "before").unwrap();
        let Some(bench) = Bench::over(source.path(), consistency) else {
            return;
        };
        let at = |name: &str| source.path().join(name);
        let bytes = noise(1, 3_000_001);
        fs::write(bench.at("new"), &bytes).unwrap();
        assert!(fs::read(at("new")).unwrap() == bytes);
        assert!(fs::read(bench.at("new")).unwrap() == bytes);
        // A file that is there: its readers see the version before, until it is closed.
        assert_eq!(fs::read(bench.at("old")).unwrap(), b"before");
        let reader = File::open(bench.at("old")).unwrap();
        let mut file = File::create(bench.at("old")).unwrap();
        file.write_all(b"and after").unwrap();
        assert_eq!(file.metadata().unwrap().len(), 9);
        assert_eq!(fs::read(at("old")).unwrap(), b"before");
        assert_eq!(fs::read(bench.at("old")).unwrap(), b"before");
        let (by_name, by_file) = (fs::metadata(bench.at("old")), file.metadata());
        let (by_name, by_file) = (by_name.unwrap(), by_file.unwrap());
        assert_eq!((by_name.len(), by_name.ino()), (9, by_file.ino()));
        let again = File::open(bench.at("old")).unwrap();
        assert_eq!(again.metadata().unwrap().len(), 6);
        drop(file);
        assert_eq!(fs::read(at("old")).unwrap(), b"and after");
        assert_eq!(fs::read(bench.at("old")).unwrap(), b"and after");
        assert_eq!(fs::metadata(bench.at("old")).unwrap().len(), 9);
        let mut kept = [0; 16];
        match reader.read_at(&mut kept, 0) {
            Ok(count) => assert_eq!(&kept[..count], b"before"),
            Err(error) => assert_eq!(Errno::from_io_error(&error), Some(Errno::STALE)),
        }
        // In its middle, at its end, and what the writer reads itself.
        let options = OpenOptions::new().read(true).write(true).clone();
        let mut file = options.open(bench.at("old")).unwrap();
        file.write_at(b"AND", 0).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(b"!").unwrap();
        let mut text = String::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "AND after!");
        assert_eq!(fs::read(at("old")).unwrap(), b"and after");
        // What is synced is there under its name, and what follows is another version.
        file.sync_all().unwrap();
        assert_eq!(fs::read(at("old")).unwrap(), b"AND after!");
        file.set_len(3).unwrap();
        drop(file);
        assert_eq!(fs::read(at("old")).unwrap(), b"AND");
        append(&bench.at("old")).write_all(b"+").unwrap();
        assert_eq!(fs::read(bench.at("old")).unwrap(), b"AND+");
        // Of a path, without opening it.
        let truncate = Command::new("truncate")
            .args(["-s", "6"])
            .arg(bench.at("old"))
            .status();
        assert!(truncate.unwrap().success());
        assert_eq!(fs::read(at("old")).unwrap(), b"AND+\0\0");
        assert_eq!(fs::read(bench.at("old")).unwrap(), b"AND+\0\0");
        assert_eq!(names(source.path()), ["new", "old"], "nothing is left over");
        drop(bench);
        fs::remove_file(at("new")).unwrap();
    }
}

#[test]
fn a_directory_that_is_made_again_is_another_one() {
    let source = tempfile::tempdir().unwrap();
    let Some(bench) = Bench::over(source.path(), TTL) else {
        return;
    };
    fs::create_dir(bench.at("d")).unwrap();
    // As a shell holds the directory that it works in.
    let held = fs::File::open(bench.at("d")).unwrap();
    fs::remove_dir(bench.at("d")).unwrap();
    fs::create_dir(bench.at("d")).unwrap();
    fs::write(bench.at("d/file"), "contents").unwrap();
    assert_eq!(fs::read(source.path().join("d/file")).unwrap(), b"contents");
    drop(held);
    assert_eq!(fs::read(bench.at("d/file")).unwrap(), b"contents");
}

#[test]
fn names_and_attributes_change_at_the_source() {
    let source = tempfile::tempdir().unwrap();
    let Some(bench) = Bench::over(source.path(), TTL) else {
        return;
    };
    let at = |name: &str| source.path().join(name);
    fs::create_dir(bench.at("a")).unwrap();
    assert_eq!(code(fs::create_dir(bench.at("a"))), Some(Errno::EXIST));
    fs::write(bench.at("a/file"), "contents").unwrap();
    assert_eq!(code(fs::remove_dir(bench.at("a"))), Some(Errno::NOTEMPTY));
    symlink("a/file", bench.at("link")).unwrap();
    assert_eq!(fs::read_link(at("link")).unwrap(), Path::new("a/file"));
    assert_eq!(fs::read(bench.at("link")).unwrap(), b"contents");
    assert_eq!(
        code(fs::hard_link(bench.at("a/file"), bench.at("b"))),
        Some(Errno::PERM)
    );
    // A directory that is moved takes along what the kernel knows below it.
    fs::rename(bench.at("a"), bench.at("moved")).unwrap();
    assert_eq!(fs::read(bench.at("moved/file")).unwrap(), b"contents");
    assert_eq!(code(fs::metadata(bench.at("a/file"))), Some(Errno::NOENT));
    fs::rename(bench.at("moved/file"), bench.at("moved/other")).unwrap();
    assert_eq!(fs::read(bench.at("moved/other")).unwrap(), b"contents");
    let new_only = |from: &str, to: &str| {
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        let (from, to) = (bench.at(from), bench.at(to));
        rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, flags)
    };
    assert_eq!(new_only("moved/other", "link"), Err(Errno::EXIST));
    assert_eq!(new_only("moved/other", "moved/again"), Ok(()));
    // Attributes, of a file that is closed and of one that is open.
    let path = bench.at("moved/again");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o604);
    assert_eq!(
        fs::metadata(at("moved/again")).unwrap().mode() & 0o7777,
        0o604
    );
    assert_eq!(fs::read(&path).unwrap(), b"contents");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let options = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o640)
        .clone();
    let mut file = options.open(bench.at("timed")).unwrap();
    file.write_all(b"x").unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o600))
        .unwrap();
    file.set_modified(time).unwrap();
    drop(file);
    let there = fs::metadata(at("timed")).unwrap();
    assert_eq!(there.mode() & 0o7777, 0o600);
    assert_eq!(there.modified().unwrap(), time);
    assert_eq!(
        fs::metadata(bench.at("timed")).unwrap().modified().unwrap(),
        time
    );
    // A file that is made is there at once: only one can make it.
    let made = options.open(bench.at("lock")).unwrap();
    assert!(at("lock").exists());
    assert_eq!(code(options.open(bench.at("lock"))), Some(Errno::EXIST));
    drop(made);
    fs::remove_file(bench.at("lock")).unwrap();
    assert!(!at("lock").exists());
    assert_eq!(code(fs::metadata(bench.at("lock"))), Some(Errno::NOENT));
    fs::remove_file(bench.at("moved/again")).unwrap();
    fs::remove_dir(bench.at("moved")).unwrap();
    assert_eq!(names(bench.target.path()), ["link", "timed"]);
    assert_eq!(names(source.path()), ["link", "timed"]);
    assert!(rustix::fs::statvfs(bench.at("")).unwrap().f_blocks > 0);
}

#[test]
fn files_are_moved_and_removed_while_they_are_written() {
    let source = tempfile::tempdir().unwrap();
    let Some(bench) = Bench::over(source.path(), TTL) else {
        return;
    };
    let at = |name: &str| source.path().join(name);
    let mut file = File::create(bench.at("draft")).unwrap();
    file.write_all(b"first").unwrap();
    assert_eq!(fs::metadata(bench.at("draft")).unwrap().len(), 5);
    fs::rename(bench.at("draft"), bench.at("final")).unwrap();
    file.write_all(b" second").unwrap();
    drop(file);
    assert_eq!(fs::read(at("final")).unwrap(), b"first second");
    assert!(!at("draft").exists());
    // A file without a name is its writer's alone.
    let options = OpenOptions::new().read(true).write(true).clone();
    let file = options.open(bench.at("final")).unwrap();
    fs::remove_file(bench.at("final")).unwrap();
    file.write_at(b"FIRST", 0).unwrap();
    file.sync_all().unwrap();
    let mut bytes = [0; 12];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"FIRST second");
    fs::write(bench.at("final"), "another").unwrap();
    drop(file);
    assert_eq!(fs::read(at("final")).unwrap(), b"another");
    // Two who write one file write one version.
    let (one, two) = (append(&bench.at("final")), append(&bench.at("final")));
    (&one).write_all(b" one").unwrap();
    (&two).write_all(b" two").unwrap();
    drop(one);
    assert_eq!(fs::read(at("final")).unwrap(), b"another one two");
    (&two).write_all(b" three").unwrap();
    drop(two);
    assert_eq!(fs::read(at("final")).unwrap(), b"another one two three");
    assert_eq!(names(source.path()), ["final"]);
}

#[test]
fn close_says_what_went_wrong() {
    let source = tempfile::tempdir().unwrap();
    let Some(bench) = Bench::over(source.path(), TTL) else {
        return;
    };
    let at = source.path().join("file");
    fs::write(&at, "before").unwrap();
    let close = |file: File| Errno::from_io_error(&file.sync_all().unwrap_err());
    // Somebody else was faster.
    let mut file = append(&bench.at("file"));
    file.write_all(b" mine").unwrap();
    fs::write(&at, "theirs").unwrap();
    assert_eq!(close(file), Some(Errno::STALE));
    assert_eq!(fs::read(&at).unwrap(), b"theirs");
    assert_eq!(fs::read(bench.at("file")).unwrap(), b"theirs");
    // The folder is gone.
    fs::create_dir(bench.at("folder")).unwrap();
    let mut file = File::create(bench.at("folder/file")).unwrap();
    file.write_all(b"lost").unwrap();
    fs::remove_dir_all(source.path().join("folder")).unwrap();
    assert_eq!(close(file), Some(Errno::STALE));
    let made = File::create(bench.at("nowhere/file"));
    assert_eq!(made.unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn programs_work_on_a_directory() {
    let source = tempfile::tempdir().unwrap();
    let Some(bench) = Bench::over(source.path(), TTL) else {
        return;
    };
    let script = r#"
        set -e
        mkdir tree; for i in 1 2 3; do seq $i 9999 > tree/$i; done; ln -s 1 tree/link
        chmod 750 tree/2; touch -d '2001-02-03' tree/3
        ln -s /nowhere tree/absolute; ln -s ../1 tree/up
        tar cf tree.tar tree
        mkdir "$1/tar" && tar xf tree.tar -C "$1/tar" && diff -r --no-dereference tree "$1/tar/tree"
        cp -a tree "$1/copy" && diff -r --no-dereference tree "$1/copy"
        cp tree/1 "$1/copy/2" && cmp tree/1 "$1/copy/2"
        cp -r "$1/copy" "$1/again" && diff -r --no-dereference "$1/copy" "$1/again"
        for i in a b c; do echo $i; done > "$1/lines" && [ "$(cat "$1/lines")" = "a
b
c" ]
        echo d >> "$1/lines" && sed -i s/a/A/ "$1/lines" && [ "$(head -c1 "$1/lines")" = A ]
        dd if=tree/1 of="$1/dd" bs=1000 seek=3 2>/dev/null && [ $(stat -c %s "$1/dd") -gt 3000 ]
        mv "$1/copy" "$1/renamed" && rm -r "$1/tar" && [ ! -e "$1/copy/1" ]
        if command -v vim >/dev/null; then
            for i in 1 2; do vim -u NONE -es -c "s/\$/$i/" -c wq "$1/lines"; done
            [ "$(tail -n1 "$1/lines")" = d12 ]
        fi
        if command -v rsync >/dev/null; then
            rsync -a tree/ "$1/rsync" && diff -r --no-dereference tree "$1/rsync"
            [ -z "$(rsync -ani tree/ "$1/rsync")" ]
        fi
        if command -v git >/dev/null; then
            git init -q "$1/git" && cp tree/1 "$1/git" && cd "$1/git"
            git add . && git -c user.name=n -c user.email=e commit -qm one && echo x >> 1
            git -c user.name=n -c user.email=e commit -qam two
            git gc -q && git fsck --strict && [ -z "$(git status --short)" ]
        fi
        if command -v sqlite3 >/dev/null; then
            for i in 1 2 3; do echo "create table t$i(a); insert into t$i values(5);"; done |
                sqlite3 "$1/database"
            sqlite3 "$1/database" 'pragma journal_mode = persist' 'insert into t1 values(6)'
            insert() { sqlite3 -cmd '.timeout 60000' "$1/database" 'insert into t1 values(7)'; }
            for writer in 1 2; do (for i in 1 2 3 4 5; do insert "$1"; done) & done
            wait
            [ "$(sqlite3 "$1/database" 'select count(*) from t1')" = 12 ]
            [ "$(echo 'pragma integrity_check' | sqlite3 "$1/database")" = ok ]
        fi
        if command -v gcc >/dev/null; then
            echo 'int main(){return 7;}' > "$1/main.c" && cd "$1" && gcc main.c -o main
        fi
    "#;
    let folder = tempfile::tempdir().unwrap();
    let script = Command::new("bash")
        .args(["-c", script, "-"])
        .arg(bench.target.path())
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&script.stderr);
    assert!(script.status.success(), "{said}");
    let same = Command::new("diff")
        .args(["-r", "--no-dereference"])
        .args([source.path(), bench.target.path()])
        .output()
        .unwrap();
    assert!(
        same.status.success(),
        "{}",
        String::from_utf8_lossy(&same.stdout)
    );
    if source.path().join("main").exists() {
        let ran = Command::new(source.path().join("main")).status().unwrap();
        assert_eq!(ran.code(), Some(7));
    }
}

#[test]
fn a_bucket_takes_files_from_start_to_end() {
    let server = S3Emulator::start();
    server.put("data/old", noise(1, 100));
    let options = [
        ("endpoint", server.endpoint()),
        ("region", "anywhere".to_owned()),
        ("skip_signature", "true".to_owned()),
    ];
    let Some(bench) = Bench::new("s3://bucket/data", &options, TTL) else {
        return;
    };
    let bytes = noise(2, 20_000_003);
    fs::write(bench.at("new"), &bytes).unwrap();
    assert!(server.get("data/new").unwrap() == bytes);
    assert!(fs::read(bench.at("new")).unwrap() == bytes);
    File::create(bench.at("empty")).unwrap();
    assert!(server.get("data/empty").unwrap().is_empty());
    // It appears when it is closed.
    let mut file = File::create(bench.at("later")).unwrap();
    file.write_all(b"la").unwrap();
    // Another process that has it and ends is not the end of it.
    let mut other = Command::new("true");
    other.stdin(file.try_clone().unwrap());
    assert!(other.status().unwrap().success());
    file.write_all(b"ter").unwrap();
    assert_eq!(fs::metadata(bench.at("later")).unwrap().len(), 5);
    assert!(server.get("data/later").is_none());
    file.sync_all().unwrap();
    assert_eq!(server.get("data/later").unwrap(), b"later");
    // What a bucket cannot do.
    let unsupported = Some(Errno::OPNOTSUPP);
    assert_eq!(code(file.write_all(b"more")), unsupported);
    drop(file);
    let open = |options: &mut OpenOptions| code(options.open(bench.at("old")));
    assert_eq!(open(OpenOptions::new().append(true)), unsupported);
    assert_eq!(open(OpenOptions::new().read(true).write(true)), unsupported);
    let file = File::create(bench.at("old")).unwrap();
    file.write_at(b"x", 0).unwrap();
    assert_eq!(code(file.write_at(b"y", 7)), unsupported);
    assert_eq!(code(file.sync_all()), unsupported, "no part is stored");
    drop(file);
    assert!(server.get("data/old").unwrap() == noise(1, 100));
    assert_eq!(code(fs::create_dir(bench.at("folder"))), unsupported);
    assert_eq!(code(symlink("new", bench.at("link"))), unsupported);
    let mode = fs::Permissions::from_mode(0o600);
    assert_eq!(
        code(fs::set_permissions(bench.at("new"), mode)),
        unsupported
    );
    // What it can.
    fs::write(bench.at("old"), "after").unwrap();
    assert_eq!(server.get("data/old").unwrap(), b"after");
    assert_eq!(fs::read(bench.at("old")).unwrap(), b"after");
    fs::rename(bench.at("old"), bench.at("moved")).unwrap();
    assert!(server.get("data/old").is_none());
    assert_eq!(fs::read(bench.at("moved")).unwrap(), b"after");
    fs::remove_file(bench.at("moved")).unwrap();
    assert!(server.get("data/moved").is_none());
    assert_eq!(names(bench.target.path()), ["empty", "later", "new"]);
}

/// What others do at the source: a new file takes the place of the old one.
#[test]
fn an_open_that_races_a_rename_does_not_bring_the_old_name_back() {
    let source = tempfile::tempdir().unwrap();
    let Some(bench) = Bench::over(source.path(), TTL) else {
        return;
    };
    fs::write(bench.at("ra"), "contents").unwrap();
    let (one, other) = (bench.at("ra"), bench.at("rb"));
    let finished = || {
        let mut names = names(source.path());
        names.retain(|name| !name.ends_with(".partial"));
        names
    };
    std::thread::scope(|scope| {
        for empties in [true, true, false] {
            let one = &one;
            scope.spawn(move || {
                for _ in 0..150 {
                    if !empties {
                        let _ = rustix::fs::open(
                            one,
                            rustix::fs::OFlags::WRONLY,
                            rustix::fs::Mode::empty(),
                        )
                        .map(|file| rustix::fs::ftruncate(file, 3));
                        continue;
                    }
                    let opened = OpenOptions::new().write(true).truncate(true).open(one);
                    if let Ok(mut file) = opened {
                        let _ = file.write_all(b"written");
                        let _ = file.sync_all();
                    }
                }
            });
        }
        for _ in 0..150 {
            fs::rename(&one, &other).unwrap();
            assert_eq!(finished(), ["rb"]);
            fs::rename(&other, &one).unwrap();
            assert_eq!(finished(), ["ra"]);
        }
    });
    drop(bench);
    assert_eq!(names(source.path()), ["ra"]);
}

#[test]
fn a_rename_keeps_what_another_machine_has_written() {
    let source = tempfile::tempdir().unwrap();
    let Some(bench) = Bench::over(source.path(), TTL) else {
        return;
    };
    let at = |name: &str| source.path().join(name);
    fs::write(at("lr"), "before").unwrap();
    let options = OpenOptions::new().read(true).write(true).clone();
    let file = options.open(bench.at("lr")).unwrap();
    file.write_at(b"mine", 0).unwrap();
    replace(&at("lr"), "theirs");
    fs::rename(bench.at("lr"), bench.at("lr2")).unwrap();
    assert_eq!(code(file.sync_all()), Some(Errno::STALE));
    drop(file);
    assert_eq!(fs::read(at("lr2")).unwrap(), b"theirs");
    // A name that is emptied and is gone by then does not come back.
    let mut file = File::create(bench.at("lr2")).unwrap();
    file.write_all(b"mine").unwrap();
    fs::remove_file(at("lr2")).unwrap();
    assert_eq!(code(file.sync_all()), Some(Errno::STALE));
    drop(file);
    assert!(names(source.path()).is_empty());
}

#[test]
fn an_open_file_never_mixes_two_versions() {
    let source = tempfile::tempdir().unwrap();
    let Some(bench) = Bench::over(source.path(), TTL) else {
        return;
    };
    let at = source.path().join("mx");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for sets_time in [false, true] {
        fs::write(&at, vec![b'a'; 8192]).unwrap();
        let options = OpenOptions::new().read(true).write(true).clone();
        let file = options.open(bench.at("mx")).unwrap();
        let mut page = [0; 4096];
        file.read_exact_at(&mut page, 0).unwrap();
        // What nobody has replaced stays as it is.
        file.set_permissions(fs::Permissions::from_mode(0o640))
            .unwrap();
        file.set_modified(time).unwrap();
        file.write_at(b"a", 1).unwrap();
        file.sync_all().unwrap();
        replace(&at, vec![b'b'; 8192]);
        let set = if sets_time {
            file.set_modified(time)
        } else {
            file.set_permissions(fs::Permissions::from_mode(0o600))
        };
        assert_eq!(code(set), Some(Errno::STALE));
        assert_eq!(code(file.write_at(b"X", 4096)), Some(Errno::STALE));
        assert_eq!(code(file.sync_all()), Some(Errno::STALE));
        drop(file);
        assert!(fs::read(&at).unwrap() == vec![b'b'; 8192]);
    }
}

#[test]
fn many_on_one_mount_write_one_file() {
    let source = tempfile::tempdir().unwrap();
    let Some(bench) = Bench::over(source.path(), TTL) else {
        return;
    };
    for name in ["log", "emptied"] {
        fs::write(bench.at(name), "").unwrap();
    }
    let (log, emptied) = (bench.at("log"), bench.at("emptied"));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..40 {
                    append(&log).write_all(b"line\n").unwrap();
                }
            });
            scope.spawn(|| {
                for _ in 0..40 {
                    let options = OpenOptions::new().write(true).truncate(true).clone();
                    let mut file = options.open(&emptied).unwrap();
                    file.write_all(b"whole").unwrap();
                    file.sync_all().unwrap();
                }
            });
        }
    });
    let lines = fs::read(source.path().join("log")).unwrap();
    assert!(!lines.is_empty() && lines.len().is_multiple_of(5));
    assert_eq!(names(source.path()), ["emptied", "log"]);
}

#[test]
fn many_make_and_remove_one_file() {
    let source = tempfile::tempdir().unwrap();
    let Some(bench) = Bench::over(source.path(), TTL) else {
        return;
    };
    let path = bench.at("lock");
    // An open that comes between a removal and a creation may be ESTALE; what is open, is.
    let may_be = |result: std::io::Result<()>, expected: &[Errno]| match code(result) {
        None => {}
        Some(error) => assert!(expected.contains(&error), "{error}"),
    };
    std::thread::scope(|scope| {
        for truncates in [false, true, false, true] {
            scope.spawn({
                let path = &path;
                move || {
                    let mut options = OpenOptions::new();
                    options.read(true).write(true).create(true);
                    options.truncate(truncates);
                    for _ in 0..200 {
                        match options.open(path) {
                            Ok(mut file) => {
                                file.write_all(b"contents").unwrap();
                                file.sync_all().unwrap();
                                // Another one may have cut it meanwhile.
                                assert!([0, 8].contains(&file.metadata().unwrap().len()));
                            }
                            Err(error) => may_be(Err(error), &[Errno::STALE]),
                        }
                        may_be(fs::remove_file(path), &[Errno::NOENT]);
                        may_be(File::open(path).map(drop), &[Errno::NOENT, Errno::STALE]);
                    }
                }
            });
        }
    });
    assert!(names(source.path()).is_empty());
}

#[test]
fn what_is_unfinished_keeps_no_directory() {
    let source = tempfile::tempdir().unwrap();
    let Some(bench) = Bench::over(source.path(), TTL) else {
        return;
    };
    for name in ["left", "da", "db"] {
        fs::create_dir(bench.at(name)).unwrap();
    }
    // What a mount has left that was killed.
    fs::write(source.path().join("left/.hither-0123.partial"), "x").unwrap();
    assert!(names(&bench.at("left")).is_empty());
    fs::remove_dir(bench.at("left")).unwrap();
    // What is written moves with its name.
    let mut file = File::create(bench.at("da/x")).unwrap();
    file.write_all(b"moved").unwrap();
    fs::rename(bench.at("da/x"), bench.at("db/x")).unwrap();
    fs::remove_dir(bench.at("da")).unwrap();
    assert_eq!(code(fs::remove_dir(bench.at("db"))), Some(Errno::NOTEMPTY));
    drop(file);
    assert_eq!(fs::read(source.path().join("db/x")).unwrap(), b"moved");
    assert_eq!(names(source.path()), ["db"]);
    assert_eq!(names(&source.path().join("db")), ["x"]);
}
