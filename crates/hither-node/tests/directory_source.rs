//! A directory as a source: every byte, every version, and nothing outside its root.

mod support;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hither_node::source::registry::open;
use hither_node::source::settings::SourceSettings;
use hither_node::source::{Entry, Kind, ListCursor, OpenError, Source, SourceError, SourcePath};

use support::{contents, list_all, path, read, version};

async fn source(folder: &Path) -> Arc<dyn Source> {
    let url = format!("file://{}", folder.display());
    open(&url, &SourceSettings::default()).await.unwrap()
}

fn make_pipe(at: &Path) {
    rustix::fs::mkfifoat(rustix::fs::CWD, at, rustix::fs::Mode::RWXU).unwrap();
}

#[tokio::test]
async fn ranges_of_a_file_over_several_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = contents((20 << 20) + 77, 1);
    fs::write(folder.path().join("file"), &bytes).unwrap();
    fs::write(folder.path().join("empty"), "").unwrap();
    let source = source(folder.path()).await;
    let (file, _) = version(&*source, &path("file")).await;
    let end = file.bytes;
    assert_eq!(end, bytes.len() as u64);
    for range in [0..end, 0..1, end - 1..end, 8_388_607..16_777_217, 5..5] {
        let got = read(&*source, &file, range.clone()).await.unwrap();
        let wanted = &bytes[range.start as usize..range.end as usize];
        assert!(got == wanted, "bytes {range:?} differ");
    }
    let beyond = read(&*source, &file, end - 1..end + 1).await;
    assert!(matches!(beyond, Err(SourceError::Failed { .. })));
    let (empty, _) = version(&*source, &path("empty")).await;
    assert_eq!(empty.bytes, 0);
    assert_eq!(read(&*source, &empty, 0..0).await.unwrap(), b"");
    let counted = source.counters().unwrap().bytes.get();
    assert_eq!(counted, end + 1 + 1 + 8_388_610);
}

#[tokio::test]
async fn any_change_is_another_version() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("file");
    let source = source(folder.path()).await;
    let name = path("file");
    let same_size_and_time = || {
        let before = fs::metadata(&at).unwrap().modified().unwrap();
        fs::write(&at, "BBBB").unwrap();
        let file = File::options().write(true).open(&at).unwrap();
        file.set_modified(before).unwrap();
    };
    let replaced = || {
        fs::write(folder.path().join("other"), "BBBB").unwrap();
        fs::rename(folder.path().join("other"), &at).unwrap();
    };
    let changes: [(&str, &dyn Fn()); 5] = [
        ("same size", &|| fs::write(&at, "BBBB").unwrap()),
        ("longer", &|| fs::write(&at, "BBBBB").unwrap()),
        ("shorter", &|| fs::write(&at, "BBB").unwrap()),
        ("replaced", &replaced),
        ("same size and time", &same_size_and_time),
    ];
    for (change, apply) in changes {
        for opened_before in [false, true] {
            fs::write(&at, "AAAA").unwrap();
            let (file, settled) = version(&*source, &name).await;
            assert!(!settled, "it was written just now");
            if opened_before {
                assert_eq!(read(&*source, &file, 0..4).await.unwrap(), b"AAAA");
            }
            // Beyond the clock's grain, as a settled file would be.
            tokio::time::sleep(Duration::from_millis(30)).await;
            apply();
            let read = read(&*source, &file, 0..4).await;
            assert!(
                matches!(read, Err(SourceError::Changed(_))),
                "{change}, opened before: {opened_before}: {read:?}"
            );
            let (now, _) = version(&*source, &name).await;
            assert_ne!(now.version, file.version, "{change}");
        }
    }
}

#[tokio::test]
async fn what_is_gone_is_not_found_or_changed() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("file");
    fs::write(&at, "AAAA").unwrap();
    let source = source(folder.path()).await;
    let (file, _) = version(&*source, &path("file")).await;
    fs::remove_file(&at).unwrap();
    let gone = read(&*source, &file, 0..4).await;
    assert!(matches!(gone, Err(SourceError::NotFound(_))), "{gone:?}");
    make_pipe(&at);
    let pipe = read(&*source, &file, 0..4).await;
    assert!(matches!(pipe, Err(SourceError::Changed(_))), "{pipe:?}");
    for missing in ["file/below", "none", "none/below"] {
        let missing = source.stat(&path(missing)).await;
        assert!(matches!(missing, Err(SourceError::NotFound(_))));
    }
    let no_directory = source.list(&path("file"), None).await;
    assert!(matches!(no_directory, Err(SourceError::NotFound(_))));
}

#[tokio::test]
async fn a_file_settles() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "AAAA").unwrap();
    let settings = SourceSettings {
        settling: Duration::from_millis(200),
        ..SourceSettings::default()
    };
    let folder = folder.path().to_str().unwrap();
    let source = open(folder, &settings).await.unwrap();
    let start = Instant::now();
    while !version(&*source, &path("file")).await.1 {
        assert!(start.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(start.elapsed() >= Duration::from_millis(100), "too early");
}

#[tokio::test]
async fn links_and_dots_stay_inside() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("root");
    fs::create_dir_all(root.join("inner")).unwrap();
    fs::write(outer.path().join("secret"), "secret").unwrap();
    fs::write(root.join("inner/file"), "file").unwrap();
    symlink("../secret", root.join("out")).unwrap();
    symlink(outer.path(), root.join("up")).unwrap();
    symlink("inner", root.join("within")).unwrap();
    let source = source(&root).await;
    let link = source.stat(&path("out")).await.unwrap();
    assert_eq!(link.kind, Kind::Link(b"../secret".to_vec()));
    assert_eq!(link.bytes, 0);
    for through in ["up/secret", "up/root/inner/file", "within/file"] {
        let found = source.stat(&path(through)).await;
        let refused = matches!(found, Err(SourceError::NotFound(_)));
        assert!(refused, "{through}: {found:?}");
    }
    let listed = source.list(&path("up"), None).await;
    assert!(matches!(listed, Err(SourceError::NotFound(_))));
    // A file that is replaced by a link.
    let (file, _) = version(&*source, &path("inner/file")).await;
    fs::remove_file(root.join("inner/file")).unwrap();
    symlink("../../secret", root.join("inner/file")).unwrap();
    let replaced = read(&*source, &file, 0..4).await;
    assert!(
        matches!(replaced, Err(SourceError::NotFound(_))),
        "{replaced:?}"
    );
    for wrong in ["..", "inner/..", "a/../b", ".", "a//b", "/a", "a/", "a\0"] {
        assert!(SourcePath::new(wrong.as_bytes()).is_none(), "{wrong}");
    }
}

#[tokio::test]
async fn names_of_any_bytes_and_all_kinds_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let mut names: Vec<Vec<u8>> = (1..=255u8)
        .filter(|&byte| byte != b'/')
        .map(|byte| vec![b'x', byte])
        .collect();
    names.extend([b"...".to_vec(), vec![0xff; 255], b" %2F ".to_vec()]);
    for (number, name) in names.iter().enumerate() {
        let at = folder.path().join(OsStr::from_bytes(name));
        fs::write(at, contents(number, number as u64)).unwrap();
    }
    let kinds = tempfile::tempdir_in(folder.path()).unwrap();
    let target = OsStr::from_bytes(b"\xfe/");
    symlink(target, kinds.path().join("link")).unwrap();
    make_pipe(&kinds.path().join("pipe"));
    let _socket = std::os::unix::net::UnixListener::bind(kinds.path().join("socket")).unwrap();
    let source = source(folder.path()).await;
    let listed = list_all(&*source, &SourcePath::default()).await;
    assert_eq!(listed.len(), names.len() + 1);
    for (number, name) in names.iter().enumerate() {
        let at = SourcePath::default().join(name).unwrap();
        let (file, _) = version(&*source, &at).await;
        assert_eq!(file.bytes, number as u64);
        let same = Entry {
            kind: listed[name].kind.clone(),
            ..source.stat(&at).await.unwrap()
        };
        assert_eq!(listed[name], same);
        let got = read(&*source, &file, 0..file.bytes).await.unwrap();
        assert!(got == contents(number, number as u64), "{at}");
    }
    let inner = kinds.path().file_name().unwrap().as_bytes();
    assert_eq!(listed[inner].kind, Kind::Directory);
    let mode = fs::metadata(kinds.path()).unwrap().mode();
    assert_eq!(listed[inner].unix.unwrap().mode, mode);
    let kinds = list_all(&*source, &SourcePath::new(inner).unwrap()).await;
    assert_eq!(kinds[&b"link"[..]].kind, Kind::Link(b"\xfe/".to_vec()));
    assert_eq!(kinds[&b"pipe"[..]].kind, Kind::Special);
    assert_eq!(kinds[&b"socket"[..]].kind, Kind::Special);
}

#[tokio::test]
async fn the_end_of_a_sparse_file_of_a_tebibyte() {
    let folder = tempfile::tempdir().unwrap();
    let sparse = File::create(folder.path().join("sparse")).unwrap();
    let length = 1u64 << 40;
    sparse.set_len(length).unwrap();
    sparse.write_all_at(b"tail", length - 4).unwrap();
    let source = source(folder.path()).await;
    let (file, _) = version(&*source, &path("sparse")).await;
    assert_eq!(file.bytes, length);
    let mut wanted = vec![0; 4096];
    wanted[4092..].copy_from_slice(b"tail");
    let tail = read(&*source, &file, length - 4096..length).await.unwrap();
    assert!(tail == wanted);
    let hole = read(&*source, &file, 1 << 39..(1 << 39) + 3).await.unwrap();
    assert_eq!(hole, [0; 3]);
}

#[tokio::test]
async fn a_hundred_thousand_entries_in_pages() {
    let folder = tempfile::tempdir().unwrap();
    let count = 100_000;
    // Links to one file are quicker to make than files. Some file systems limit them (ext4:
    // 65,000).
    let mut origin = folder.path().join("origin");
    fs::write(&origin, "bytes").unwrap();
    for number in 1..count {
        let at = folder.path().join(format!("{number:06}"));
        if fs::hard_link(&origin, &at).is_err() {
            fs::write(&at, "bytes").unwrap();
            origin = at;
        }
    }
    let source = source(folder.path()).await;
    let start = Instant::now();
    let listed = list_all(&*source, &SourcePath::default()).await;
    let elapsed = start.elapsed();
    assert_eq!(listed.len(), count);
    assert!(listed.values().all(|entry| entry.bytes == 5));
    assert!(elapsed < Duration::from_secs(30), "quadratic? {elapsed:?}");
    // A page can be asked for again.
    let root = SourcePath::default();
    let first = source.list(&root, None).await.unwrap();
    assert_eq!(first.entries.len(), 1000);
    let once = source.list(&root, first.next.clone()).await.unwrap();
    let again = source.list(&root, first.next).await.unwrap();
    let names = |page: &[(Vec<u8>, Entry)]| -> Vec<Vec<u8>> {
        page.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&once.entries), names(&again.entries));
    let nonsense = source.list(&root, Some(ListCursor(vec![1, 2, 3]))).await;
    assert!(matches!(nonsense, Err(SourceError::Failed { .. })));
}

#[tokio::test]
async fn entries_that_vanish_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let names = || (0..3000).map(|number| folder.path().join(format!("{number}")));
    names().for_each(|name| fs::write(name, "").unwrap());
    let source = source(folder.path()).await;
    let root = SourcePath::default();
    let mut page = source.list(&root, None).await.unwrap();
    assert_eq!(page.entries.len(), 1000);
    names().for_each(|name| fs::remove_file(name).unwrap());
    while let Some(from) = page.next {
        page = source.list(&root, Some(from)).await.unwrap();
        assert!(page.entries.is_empty(), "{page:?}");
    }
}

/// A reader beside a writer that rewrites the file in place: no read of a settled version is a
/// mixture of two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_reader_sees_a_mixture() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("file");
    let length = 64 << 10;
    fs::write(&at, vec![0; length]).unwrap();
    // Longer than the clock's grain (4 ms at 250 Hz), shorter than the writer's pauses.
    let settings = SourceSettings {
        settling: Duration::from_millis(15),
        ..SourceSettings::default()
    };
    let source = open(folder.path().to_str().unwrap(), &settings);
    let source = source.await.unwrap();
    let stop = Instant::now() + Duration::from_secs(2);
    let writer = tokio::task::spawn_blocking(move || {
        let file = File::options().write(true).open(&at).unwrap();
        let mut fill = 0u8;
        while Instant::now() < stop {
            fill = fill.wrapping_add(1);
            file.write_all_at(&vec![fill; length], 0).unwrap();
            std::thread::sleep(Duration::from_millis(40));
        }
    });
    let (mut whole, mut changed) = (0, 0);
    while Instant::now() < stop {
        let (file, settled) = version(&*source, &path("file")).await;
        while Instant::now() < stop {
            match read(&*source, &file, 0..length as u64).await {
                Ok(bytes) if settled => {
                    whole += 1;
                    assert!(bytes.iter().all(|&byte| byte == bytes[0]));
                }
                Ok(_) => break,
                Err(SourceError::Changed(_)) => {
                    changed += 1;
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    writer.await.unwrap();
    assert!(whole > 0);
    assert!(changed > 0);
}

#[tokio::test]
async fn roots_that_cannot_be_opened_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let settings = &SourceSettings::default();
    let url = |path: &Path| format!("file://{}", path.display());
    let error = |url: String| async move { open(&url, settings).await.err().expect("an error") };
    let missing = url(&folder.path().join("none"));
    let found = error(missing.clone()).await;
    assert_eq!(found, OpenError::NotFound { url: missing });
    let found = error(url(&file)).await;
    assert_eq!(found, OpenError::NotADirectory { url: url(&file) });
    let found = error("nfs4://server/path".into()).await.to_string();
    assert!(
        found.starts_with("unknown scheme `nfs4`: known are "),
        "{found}"
    );
    for wrong in ["data", "", "file://host/path", "file:///a?b", "file:///a#b"] {
        let found = error(wrong.into()).await;
        assert!(
            matches!(found, OpenError::NotAUrl { .. }),
            "{wrong}: {found}"
        );
    }
    let mut with_option = settings.clone();
    with_option.options.insert("region".into(), "x".into());
    let found = open(&url(folder.path()), &with_option).await.err();
    assert!(matches!(found, Some(OpenError::UnknownOption { .. })));
    // `%XX` stands for a byte, and the root itself may be reached through a link.
    let odd = folder.path().join(OsStr::from_bytes(b"odd \xff#"));
    fs::create_dir(&odd).unwrap();
    symlink(&odd, folder.path().join("link")).unwrap();
    for name in ["odd%20%FF%23", "link"] {
        let url = url(&folder.path().join(name));
        assert!(open(&url, settings).await.is_ok(), "{url}");
    }
}
