//! Writes to a bucket that fails in every way: each byte is compared.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hither_node::source::registry::open_writable;
use hither_node::source::settings::{SourceSettings, WriteSettings};
use hither_node::source::write::{Changes, Replace, WritableSource};
use hither_node::source::{OpenError, SourceError, SourcePath};

use hither_testing::s3_emulator::{Fault, Faults, S3Emulator};
use support::{contents, path, version};

fn settings(server: &S3Emulator) -> SourceSettings {
    let options = [
        ("endpoint", server.endpoint()),
        ("skip_signature", "true".into()),
    ];
    SourceSettings {
        backoff_min: Duration::from_millis(2),
        backoff_max: Duration::from_millis(50),
        options: options.map(|(key, value)| (key.into(), value)).into(),
        ..SourceSettings::default()
    }
}

async fn writable(server: &S3Emulator) -> Arc<dyn WritableSource> {
    let settings = settings(server);
    open_writable("s3://bucket", &settings).await.unwrap()
}

async fn write(
    source: &dyn WritableSource,
    at: &SourcePath,
    replace: Replace,
    bytes: &[u8],
) -> Result<u64, SourceError> {
    let mut upload = source.create(at, replace, 0o600).await?;
    for chunk in bytes.chunks(1_500_001) {
        upload.write(chunk.to_vec().into()).await?;
    }
    Ok(upload.finish().await?.bytes)
}

fn is_in_the_way<T>(result: Result<T, SourceError>) -> bool {
    matches!(result, Err(SourceError::InTheWay { .. }))
}

#[tokio::test]
async fn objects_of_all_sizes_are_written_under_faults() {
    let server = S3Emulator::start();
    let source = writable(&server).await;
    let name = path("dir/object");
    for (seed, length) in [0, 1, 7 << 20, 8 << 20, (33 << 20) + 5]
        .into_iter()
        .enumerate()
    {
        let bytes = contents(length, seed as u64);
        server.set_faults(Faults {
            error_share: 0.1,
            error_status: 503,
            reset_share: 0.1,
            seed: seed as u64,
            ..Faults::default()
        });
        let written = write(&*source, &name, Replace::Any, &bytes).await.unwrap();
        assert_eq!(written, length as u64);
        assert!(server.get("dir/object").unwrap() == bytes, "{length} bytes");
        assert_eq!(server.open_uploads(), 0);
    }
}

#[tokio::test]
async fn an_upload_that_is_given_up_leaves_nothing() {
    let server = S3Emulator::start();
    let source = writable(&server).await;
    let name = path("object");
    let big = contents(20 << 20, 1);
    let mut upload = source.create(&name, Replace::Any, 0).await.unwrap();
    upload.write(big.clone().into()).await.unwrap();
    assert_eq!(server.open_uploads(), 1);
    upload.abort().await.unwrap();
    assert_eq!(server.open_uploads(), 0);
    let mut upload = source.create(&name, Replace::Any, 0).await.unwrap();
    upload.write(big.into()).await.unwrap();
    drop(upload);
    let start = Instant::now();
    while server.open_uploads() > 0 {
        assert!(start.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(server.get("object"), None);
}

#[tokio::test]
async fn nothing_is_replaced_that_was_not_meant() {
    let server = S3Emulator::start();
    let source = writable(&server).await;
    let name = path("object");
    let small = contents(1000, 1);
    let big = contents(9 << 20, 2);
    for mine in [&small, &big] {
        // Another writer comes in after the check.
        server.remove("object");
        let mut upload = source.create(&name, Replace::Nothing, 0).await.unwrap();
        upload.write(mine.clone().into()).await.unwrap();
        server.put("object", "theirs");
        assert!(is_in_the_way(upload.finish().await));
        assert!(is_in_the_way(
            source.create(&name, Replace::Nothing, 0).await
        ));
        let (file, _) = version(&*source, &name).await;
        let replace = Replace::Version(file.version);
        let upload = source.create(&name, replace.clone(), 0).await;
        let mut upload = upload.unwrap();
        upload.write(mine.clone().into()).await.unwrap();
        server.put("object", "others");
        let changed = upload.finish().await;
        assert!(
            matches!(changed, Err(SourceError::Changed(_))),
            "{changed:?}"
        );
        assert_eq!(server.get("object").unwrap(), b"others");
        server.put("object", "theirs");
        write(&*source, &name, replace, mine).await.unwrap();
        assert!(server.get("object").unwrap() == *mine);
    }
    let start = Instant::now();
    while server.open_uploads() > 0 {
        assert!(start.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn an_answer_that_is_lost_is_no_other_writer() {
    let server = S3Emulator::start();
    let source = writable(&server).await;
    let name = path("object");
    for replaced in [false, true] {
        for lost in [Fault::LostAnswer, Fault::Reset] {
            server.remove("object");
            let replace = if replaced {
                server.put("object", "before");
                Replace::Version(version(&*source, &name).await.0.version)
            } else {
                Replace::Nothing
            };
            let upload = source.create(&name, replace, 0).await;
            let mut upload = upload.unwrap();
            upload.write("mine"[..].into()).await.unwrap();
            server.fail_next([lost]);
            upload.finish().await.unwrap();
            assert_eq!(server.get("object").unwrap(), b"mine");
        }
    }
    // Another writer has come in, whatever happens to the first attempt.
    server.remove("object");
    let mut upload = source.create(&name, Replace::Nothing, 0).await.unwrap();
    upload.write("mine"[..].into()).await.unwrap();
    server.put("object", "theirs");
    server.fail_next([Fault::Reset]);
    assert!(is_in_the_way(upload.finish().await));
    assert_eq!(server.get("object").unwrap(), b"theirs");
}

#[tokio::test]
async fn names_are_removed_and_moved_and_the_rest_is_refused() {
    let server = S3Emulator::start();
    let source = writable(&server).await;
    server.put("a b+c", "bytes");
    server.put("dir/file", "x");
    server.put("b", "theirs");
    let missing = |result| matches!(result, Err(SourceError::NotFound(_)));
    let (a, b, dir) = (path("a b+c"), path("b"), path("dir"));
    assert!(is_in_the_way(source.rename(&a, &b, false).await));
    assert!(is_in_the_way(source.rename(&a, &dir, true).await));
    assert!(is_in_the_way(source.create(&dir, Replace::Any, 0).await));
    source.rename(&a, &b, true).await.unwrap();
    assert_eq!(server.get("b").unwrap(), b"bytes");
    assert_eq!(server.get("a b+c"), None);
    assert!(missing(source.rename(&a, &b, true).await));
    source.rename(&b, &a, false).await.unwrap();
    server.fail_next([Fault::None, Fault::Reset, Fault::Status(500, None)]);
    source.remove(&a).await.unwrap();
    assert_eq!(server.get("a b+c"), None);
    assert!(missing(source.remove(&a).await));
    assert!(is_in_the_way(source.remove(&dir).await));
    assert!(is_in_the_way(source.remove_dir(&dir).await));
    assert!(missing(source.remove_dir(&a).await));
    server.take_seen();
    let unsupported = [
        source.make_dir(&a, 0).await,
        source.make_link(&a, b"x").await,
        source
            .set_attributes(&dir, None, Changes::default())
            .await
            .map(drop),
        source
            .create(&SourcePath::new(b"\xff").unwrap(), Replace::Any, 0)
            .await
            .map(drop),
    ];
    for refused in unsupported {
        assert!(matches!(refused, Err(SourceError::Unsupported(_))));
    }
    assert_eq!(server.take_seen().len(), 0, "at once");
    let renamed = source.rename(&dir, &path("other"), true).await;
    assert!(matches!(renamed, Err(SourceError::Unsupported(_))));
    let url = format!("{}/bucket", server.endpoint());
    let settings = SourceSettings::default();
    let web = open_writable(&url, &settings).await.err();
    assert!(matches!(web, Some(OpenError::ReadOnly { .. })));
}

#[tokio::test]
async fn a_completion_whose_upload_is_unknown_is_no_success() {
    let server = S3Emulator::start();
    let source = writable(&server).await;
    let name = path("checkpoint");
    let (old, new) = (contents(9 << 20, 1), contents(9 << 20, 2));
    server.put("checkpoint", old.clone());
    let write_with = |faults: Vec<Fault>| {
        let (source, server, name, new) = (&source, &server, &name, &new);
        async move {
            let mut upload = source.create(name, Replace::Existing, 0).await.unwrap();
            upload.write(new.clone().into()).await.unwrap();
            server.fail_next(faults);
            upload.finish().await
        }
    };
    // A lifecycle rule has aborted it: what is there has the same length. (The last part, the look
    // at what is there, the completion.)
    let aborted = [Fault::None, Fault::None, Fault::AbortUploads];
    let failed = write_with(aborted.to_vec()).await;
    assert!(
        matches!(failed, Err(SourceError::Failed { .. })),
        "{failed:?}"
    );
    assert!(server.get("checkpoint").unwrap() == old);
    // The answer was lost: the object has the mark of this write.
    let lost = [Fault::None, Fault::None, Fault::LostAnswer];
    write_with(lost.to_vec()).await.unwrap();
    assert!(server.get("checkpoint").unwrap() == new);
}

#[tokio::test]
async fn who_creates_the_same_bytes_is_another_writer() {
    let server = S3Emulator::start();
    let source = writable(&server).await;
    let name = path("lock");
    let upload = source.create(&name, Replace::Nothing, 0).await.unwrap();
    server.put("lock", "");
    server.fail_next([Fault::Reset]);
    assert!(is_in_the_way(upload.finish().await), "both would have it");
}

#[tokio::test]
async fn a_rename_removes_only_what_it_has_copied() {
    let server = S3Emulator::start();
    let source = writable(&server).await;
    let (from, to) = (path("log"), path("log.1"));
    let busy = |result| matches!(result, Err(SourceError::Refused { code: 16, .. }));
    // Another client stores the next version: after the copy, or right before the removal. (The
    // looks at `log`, below `log.1` and at `log.1`, the copy, the look at `log`.)
    let then = || Fault::ThenPut("log", b"version 2");
    for faults in [
        vec![Fault::None, Fault::None, Fault::None, then()],
        vec![Fault::None, Fault::None, Fault::None, Fault::None, then()],
    ] {
        server.put("log", "version 1");
        server.remove("log.1");
        server.fail_next(faults);
        assert!(busy(source.rename(&from, &to, true).await));
        assert_eq!(server.get("log").unwrap(), b"version 2");
        assert_eq!(server.get("log.1").unwrap(), b"version 1");
    }
    // Before the copy: nothing is copied.
    server.put("log", "version 1");
    server.remove("log.1");
    server.fail_next([Fault::None, Fault::None, then()]);
    assert!(busy(source.rename(&from, &to, true).await));
    assert_eq!(server.get("log").unwrap(), b"version 2");
    assert_eq!(server.get("log.1"), None);
}

#[tokio::test]
async fn a_removal_whose_answer_is_lost_leaves_what_has_come_since() {
    let server = S3Emulator::start();
    let source = writable(&server).await;
    server.put("file", "one");
    // The look, then the removal, after which another client stores the next version.
    server.fail_next([Fault::None, Fault::ThenPut("file", b"two")]);
    source.remove(&path("file")).await.unwrap();
    assert_eq!(server.get("file").unwrap(), b"two");
    server.fail_next([Fault::ThenPut("file", b"three")]);
    source.remove(&path("file")).await.unwrap();
    assert_eq!(
        server.get("file").unwrap(),
        b"three",
        "it came after the look"
    );
}

#[tokio::test]
async fn a_store_that_knows_no_conditions_is_looked_at_first() {
    let server = S3Emulator::start();
    let source = writable(&server).await;
    let name = path("file");
    server.fail_next([Fault::None, Fault::None, Fault::Status(501, None)]);
    write(&*source, &name, Replace::Nothing, b"one")
        .await
        .unwrap();
    assert_eq!(server.get("file").unwrap(), b"one");
    let mut upload = source.create(&name, Replace::Existing, 0).await.unwrap();
    upload.write("two"[..].into()).await.unwrap();
    server.remove("file");
    let gone = upload.finish().await;
    assert!(matches!(gone, Err(SourceError::Changed(_))), "{gone:?}");
    write(&*source, &name, Replace::Any, b"three")
        .await
        .unwrap();
    source.rename(&name, &path("other"), false).await.unwrap();
    source.remove(&path("other")).await.unwrap();
    assert_eq!(server.get("other"), None);
}

/// Parts that wait take no more memory than there is for them, whatever number of files is open.
#[tokio::test]
async fn any_number_of_files_is_written_in_bounded_memory() {
    let server = S3Emulator::start();
    let folder = tempfile::tempdir().unwrap();
    let settings = SourceSettings {
        writes: WriteSettings {
            memory_bytes: 512 << 10,
            part_bytes: 256 << 10,
            folder: Some(folder.path().into()),
        },
        ..settings(&server)
    };
    let source = open_writable("s3://bucket", &settings).await.unwrap();
    let mut uploads = Vec::new();
    for number in 0..40u64 {
        let name = path(&format!("file-{number}"));
        let upload = source.create(&name, Replace::Nothing, 0).await.unwrap();
        uploads.push((upload, contents(600_000, number)));
    }
    for from in (0..600_000).step_by(100_000) {
        for (upload, bytes) in &mut uploads {
            let chunk = bytes[from..from + 100_000].to_vec();
            upload.write(chunk.into()).await.unwrap();
        }
    }
    for (number, (upload, bytes)) in uploads.into_iter().enumerate() {
        assert_eq!(upload.finish().await.unwrap().bytes, 600_000);
        assert!(server.get(&format!("file-{number}")).unwrap() == bytes);
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}
