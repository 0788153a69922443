//! Writes to a directory: whole versions, and nothing outside its root.

mod support;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use hither_node::source::registry::open_writable;
use hither_node::source::settings::SourceSettings;
use hither_node::source::write::{Acting, Changes, Replace, User, WritableSource, may_act};
use hither_node::source::{Access, Kind, SourceError, SourcePath};

use support::{contents, list_all, path, read, version};

async fn writable(folder: &Path) -> Arc<dyn WritableSource> {
    let url = format!("file://{}", folder.display());
    let settings = SourceSettings::default();
    open_writable(&url, &settings).await.unwrap()
}

fn is_in_the_way<T>(result: Result<T, SourceError>) -> bool {
    matches!(result, Err(SourceError::InTheWay { .. }))
}

#[tokio::test]
async fn a_version_takes_its_place_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("file");
    fs::write(&at, "before").unwrap();
    fs::set_permissions(&at, fs::Permissions::from_mode(0o640)).unwrap();
    let source = writable(folder.path()).await;
    let name = path("file");
    let bytes = contents(3_000_000, 1);
    let mut upload = source.create(&name, Replace::Any, 0o600).await.unwrap();
    for chunk in bytes.chunks(1_000_001) {
        upload.write(chunk.to_vec().into()).await.unwrap();
        assert_eq!(fs::read(&at).unwrap(), b"before");
        // The unfinished file is not shown.
        let root = list_all(&*source, &SourcePath::default()).await;
        assert_eq!(root.len(), 1);
    }
    let entry = upload.finish().await.unwrap();
    assert_eq!(entry.bytes, 3_000_000);
    assert_eq!(entry.unix.unwrap().mode & 0o777, 0o640, "it is kept");
    let (file, _) = version(&*source, &name).await;
    assert!(read(&*source, &file, 0..3_000_000).await.unwrap() == bytes);
    // Given up, by word or by dropping it.
    let mut upload = source.create(&name, Replace::Any, 0o600).await.unwrap();
    upload.write("after"[..].into()).await.unwrap();
    upload.abort().await.unwrap();
    let mut upload = source.create(&name, Replace::Any, 0o600).await.unwrap();
    upload.write("after"[..].into()).await.unwrap();
    drop(upload);
    assert!(fs::read(&at).unwrap() == bytes);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    // An empty file, which is new.
    let name = path("empty");
    let upload = source.create(&name, Replace::Nothing, 0o600).await.unwrap();
    let entry = upload.finish().await.unwrap();
    assert_eq!((entry.bytes, entry.unix.unwrap().mode & 0o777), (0, 0o600));
}

#[tokio::test]
async fn nothing_is_replaced_that_was_not_meant() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("file");
    let source = writable(folder.path()).await;
    let name = path("file");
    // Another writer was first.
    let upload = source.create(&name, Replace::Nothing, 0o600).await.unwrap();
    fs::write(&at, "theirs").unwrap();
    assert!(is_in_the_way(upload.finish().await));
    assert!(is_in_the_way(
        source.create(&name, Replace::Nothing, 0o600).await
    ));
    let (file, _) = version(&*source, &name).await;
    let replace = Replace::Version(file.version);
    let upload = source.create(&name, replace.clone(), 0o600).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    fs::write(&at, "THEIRS").unwrap();
    let changed = upload.finish().await;
    assert!(matches!(changed, Err(SourceError::Changed(_))));
    let changed = source.create(&name, replace, 0o600).await.err();
    assert!(matches!(changed, Some(SourceError::Changed(_))));
    assert_eq!(fs::read(&at).unwrap(), b"THEIRS");
    fs::create_dir(folder.path().join("dir")).unwrap();
    symlink("file", folder.path().join("link")).unwrap();
    for no_file in ["dir", "link"] {
        assert!(is_in_the_way(
            source.create(&path(no_file), Replace::Any, 0o600).await
        ));
    }
    let missing = source.create(&path("none/file"), Replace::Any, 0o600).await;
    assert!(matches!(missing, Err(SourceError::NotFound(_))));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[tokio::test]
async fn names_are_removed_moved_and_made() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("a"), "a").unwrap();
    fs::write(at("b"), "b").unwrap();
    let source = writable(folder.path()).await;
    source.make_dir(&path("dir"), 0o750).await.unwrap();
    assert_eq!(fs::metadata(at("dir")).unwrap().mode() & 0o7027, 0);
    assert!(is_in_the_way(source.make_dir(&path("dir"), 0o700).await));
    assert!(is_in_the_way(
        source.rename(&path("a"), &path("b"), false).await
    ));
    source.rename(&path("a"), &path("b"), true).await.unwrap();
    assert_eq!(fs::read(at("b")).unwrap(), b"a");
    source
        .rename(&path("b"), &path("dir/b"), false)
        .await
        .unwrap();
    assert!(is_in_the_way(
        source.rename(&path("dir"), &path("dir/x"), true).await
    ));
    assert!(is_in_the_way(
        source.rename(&path("dir"), &path("dir/x"), false).await
    ));
    assert!(is_in_the_way(source.remove_dir(&path("dir")).await));
    assert!(is_in_the_way(source.remove_dir(&path("dir/b")).await));
    assert!(is_in_the_way(source.remove(&path("dir")).await));
    source.remove(&path("dir/b")).await.unwrap();
    let gone = source.remove(&path("dir/b")).await;
    assert!(matches!(gone, Err(SourceError::NotFound(_))));
    source.remove_dir(&path("dir")).await.unwrap();
    source.make_link(&path("link"), b"x/../\xff").await.unwrap();
    let link = source.stat(&path("link")).await.unwrap();
    assert_eq!(link.kind, Kind::Link(b"x/../\xff".to_vec()));
    source.remove(&path("link")).await.unwrap();
    assert!(is_in_the_way(
        source.remove_dir(&SourcePath::default()).await
    ));
}

#[tokio::test]
async fn attributes_are_set() {
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    fs::write(&secret, "").unwrap();
    let before = fs::metadata(&secret).unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    symlink(&secret, folder.path().join("link")).unwrap();
    let source = writable(folder.path()).await;
    for modified in [
        UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789),
        UNIX_EPOCH - Duration::new(1_000_000, 250_000_000),
        UNIX_EPOCH,
    ] {
        let changes = Changes {
            mode: Some(0o4751),
            modified: Some(modified),
            ..Changes::default()
        };
        let (file, _) = version(&*source, &path("file")).await;
        let set = source.set_attributes(&file.path, Some(&file.version), changes);
        let entry = set.await.unwrap();
        assert_eq!(entry.modified, modified);
        assert_eq!(entry.unix.unwrap().mode & 0o7777, 0o4751);
        let through = source.set_attributes(&path("link"), None, changes).await;
        assert!(through.is_err(), "links have no permission bits");
        let times = Changes {
            mode: None,
            ..changes
        };
        let link = source.set_attributes(&path("link"), None, times).await;
        let link = link.unwrap();
        assert_eq!(link.modified, modified);
    }
    let after = fs::metadata(&secret).unwrap();
    assert_eq!(after.mode(), before.mode());
    assert_eq!(after.modified().unwrap(), before.modified().unwrap());
}

#[tokio::test]
async fn a_new_version_keeps_holes_attributes_and_access_lists() {
    const HOLE: u64 = 64 << 20;
    // To read and write, but for one user, who may read.
    let list: Vec<u8> = [(1_u16, 6_u16, u32::MAX), (2, 4, 1234), (4, 0, u32::MAX)]
        .into_iter()
        .chain([(16, 4, u32::MAX), (32, 0, u32::MAX)])
        .flat_map(|(tag, permissions, id)| {
            let (tag, permissions) = (tag.to_le_bytes(), permissions.to_le_bytes());
            [&tag[..], &permissions, &id.to_le_bytes()].concat()
        })
        .collect();
    let list = [&2_u32.to_le_bytes()[..], &list].concat();
    let attributes = [
        ("user.colour", &b"blue"[..]),
        ("user.empty", b""),
        ("system.posix_acl_access", &list),
    ];
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("file");
    fs::write(&at, "start").unwrap();
    let file = fs::OpenOptions::new().write(true).open(&at).unwrap();
    file.write_all_at(b"end", HOLE).unwrap();
    file.set_len(2 * HOLE).unwrap();
    for (name, value) in attributes {
        let set = rustix::fs::setxattr(&at, name, value, rustix::fs::XattrFlags::empty());
        if let Err(error) = set {
            return hither_testing::skip::skip_on_this_machine(format!("{name}: {error}"));
        }
    }
    let source = writable(folder.path()).await;
    let mode = fs::metadata(&at).unwrap().mode();
    let name = path("file");
    let (file, _) = version(&*source, &name).await;
    let mut upload = source.rewrite(&file).await.unwrap();
    upload.write_at(1, "T"[..].into()).await.unwrap();
    upload.finish().await.unwrap();
    let after = fs::metadata(&at).unwrap();
    assert_eq!((after.len(), after.mode()), (2 * HOLE, mode));
    assert!(after.blocks() * 512 < HOLE, "{} blocks", after.blocks());
    let bytes = fs::read(&at).unwrap();
    assert_eq!(&bytes[..5], b"sTart");
    assert_eq!(&bytes[HOLE as usize..][..4], b"end\0");
    assert!(bytes[5..HOLE as usize].iter().all(|byte| *byte == 0));
    let upload = source.create(&name, Replace::Any, 0o600).await;
    upload.unwrap().finish().await.unwrap();
    for (name, value) in attributes {
        let mut there = vec![0; 1000];
        let length = rustix::fs::getxattr(&at, name, &mut there[..]).unwrap();
        assert_eq!(&there[..length], value, "{name}");
    }
    assert_eq!(fs::metadata(&at).unwrap().mode(), mode);
}

#[tokio::test]
async fn what_the_file_system_says_is_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let source = writable(folder.path()).await;
    let long = path(&"x".repeat(256));
    let refused = [
        source.stat(&long).await.err(),
        source.make_dir(&long, 0o700).await.err(),
        source.make_file(&long, 0o600).await.err(),
    ];
    for refused in refused {
        let Some(SourceError::Refused { code, .. }) = &refused else {
            panic!("{refused:?}");
        };
        assert_eq!(*code, rustix::io::Errno::NAMETOOLONG.raw_os_error());
        let said = refused.unwrap().to_string();
        assert!(said.contains("File name too long"), "{said}");
    }
}

#[tokio::test]
async fn writes_through_links_stay_inside() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::create_dir(outer.path().join("outside")).unwrap();
    fs::write(outer.path().join("outside/file"), "theirs").unwrap();
    symlink("../outside", root.join("out")).unwrap();
    fs::write(root.join("mine"), "mine").unwrap();
    let source = writable(&root).await;
    let file = path("out/file");
    assert!(source.create(&file, Replace::Any, 0o600).await.is_err());
    assert!(source.remove(&file).await.is_err());
    assert!(source.rename(&path("mine"), &file, true).await.is_err());
    assert!(source.rename(&file, &path("x"), true).await.is_err());
    assert!(source.make_dir(&path("out/dir"), 0o700).await.is_err());
    let mode = Changes {
        mode: Some(0o777),
        ..Changes::default()
    };
    assert!(source.set_attributes(&file, None, mode).await.is_err());
    let outside = fs::read_dir(outer.path().join("outside")).unwrap();
    assert_eq!(outside.count(), 1);
    let theirs = fs::read(outer.path().join("outside/file")).unwrap();
    assert_eq!(theirs, b"theirs");
}

#[tokio::test]
async fn attributes_are_set_of_the_file_that_was_meant() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let source = writable(folder.path()).await;
    fs::write(at("mine"), "mine").unwrap();
    fs::write(at("theirs"), "theirs").unwrap();
    fs::create_dir(at("folder")).unwrap();
    let (mine, _) = version(&*source, &path("mine")).await;
    fs::rename(at("theirs"), at("mine")).unwrap();
    let changes = Changes {
        mode: Some(0o666),
        ..Changes::default()
    };
    let before = fs::metadata(at("mine")).unwrap().mode();
    let set = |name: &'static str, version| {
        let source = Arc::clone(&source);
        async move { source.set_attributes(&path(name), version, changes).await }
    };
    let is_changed = |result| matches!(result, Err(SourceError::Changed(_)));
    assert!(is_changed(set("mine", Some(&mine.version)).await));
    assert!(is_changed(set("mine", None).await), "it is a file");
    assert!(is_changed(set("folder", Some(&mine.version)).await));
    assert_eq!(fs::metadata(at("mine")).unwrap().mode(), before);
    assert!(set("folder", None).await.is_ok());
}

#[tokio::test]
async fn what_changes_in_the_last_moment_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("file");
    let source = writable(folder.path()).await;
    let name = path("file");
    let begin = async || {
        fs::write(&at, "before").unwrap();
        let (file, _) = version(&*source, &name).await;
        let mut upload = source.rewrite(&file).await.unwrap();
        upload.write_at(0, "BEFORE"[..].into()).await.unwrap();
        upload
    };
    // It is held while the version waits for its turn, and is another one after that.
    type Change = fn(&Path);
    let appended: Change = |at| {
        use std::io::Write;
        let file = fs::OpenOptions::new().append(true).open(at);
        file.unwrap().write_all(b" more").unwrap();
    };
    let replaced: Change = |at| {
        fs::write(at.with_extension("new"), "before").unwrap();
        fs::rename(at.with_extension("new"), at).unwrap();
    };
    for (change, after) in [(appended, &b"before more"[..]), (replaced, b"before")] {
        let upload = begin().await;
        let lock = fs::File::open(&at).unwrap();
        lock.lock().unwrap();
        let finish = tokio::spawn(upload.finish());
        tokio::time::sleep(Duration::from_millis(100)).await;
        change(&at);
        drop(lock);
        assert!(matches!(
            finish.await.unwrap(),
            Err(SourceError::Changed(_))
        ));
        assert_eq!(fs::read(&at).unwrap(), after);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
    // Who begins with nothing takes the place of all.
    let (file, _) = version(&*source, &name).await;
    let mut upload = source.empty(&file).await.unwrap();
    upload.write("empty"[..].into()).await.unwrap();
    replaced(&at);
    upload.finish().await.unwrap();
    assert_eq!(fs::read(&at).unwrap(), b"empty");
}

#[tokio::test]
async fn as_another_user_the_source_does_what_that_user_may() {
    if !may_act() {
        return hither_testing::skip::skip_on_this_machine("only root may act as another user");
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let source = writable(folder.path()).await;
    let user = User {
        uid: 2001,
        gid: 3001,
        groups: vec![],
    };
    let acting = Acting {
        user: Some(user),
        umask: 0o022,
    };
    let users = source.acting(acting.clone()).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::create_dir(at("ours")).unwrap();
    fs::write(at("ours/file"), "ours").unwrap();
    let file = path("ours/file");
    let (ours, _) = version(&*source, &file).await;
    let entry = users.make_file(&path("made"), 0o666).await.unwrap();
    let unix = entry.unix.unwrap();
    assert_eq!((unix.uid, unix.gid, unix.mode & 0o777), (2001, 3001, 0o644));
    let mode = Changes {
        mode: Some(0o666),
        ..Changes::default()
    };
    let refused = [
        users.remove(&file).await,
        users.rename(&file, &path("stolen"), true).await,
        users.rename(&path("made"), &file, true).await,
        users.make_dir(&path("ours/dir"), 0o777).await,
        users.make_link(&path("ours/link"), b"x").await,
        users.make_file(&path("ours/new"), 0o666).await.map(drop),
        users.remove_dir(&path("ours")).await,
        users
            .set_attributes(&file, Some(&ours.version), mode)
            .await
            .map(drop),
        users.create(&file, Replace::Any, 0).await.map(drop),
    ];
    for (number, refused) in refused.into_iter().enumerate() {
        assert!(refused.is_err(), "{number}");
    }
    let write = Access {
        write: true,
        ..Access::default()
    };
    let version = Some(&ours.version);
    assert!(
        source
            .check_access(&file, version, write, &acting)
            .await
            .is_err()
    );
    let read = Access {
        read: true,
        ..Access::default()
    };
    source
        .check_access(&file, version, read, &acting)
        .await
        .unwrap();
    assert_eq!(fs::read(at("ours/file")).unwrap(), b"ours");
    assert_eq!(fs::metadata(at("ours/file")).unwrap().mode() & 0o777, 0o644);
}
