//! Objects as files, from a server that fails in every way: each byte is compared.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, future};
use hither_node::source::registry::open;
use hither_node::source::settings::SourceSettings;
use hither_node::source::{Kind, ListCursor, OpenError, Source, SourceError, SourcePath};

use hither_testing::s3_emulator::{Fault, Faults, S3Emulator, Seen};
use support::{Random, contents, list_all, path, read, version};

/// Short enough for tests, long enough for a busy machine.
fn settings(server: &S3Emulator) -> SourceSettings {
    let options = [
        ("endpoint", server.endpoint()),
        ("region", "anywhere".into()),
        ("skip_signature", "true".into()),
    ];
    SourceSettings {
        attempt_timeout: Duration::from_secs(3),
        stall_timeout: Duration::from_millis(600),
        deadline: Duration::from_secs(10),
        backoff_min: Duration::from_millis(2),
        backoff_max: Duration::from_millis(50),
        options: options.map(|(key, value)| (key.into(), value)).into(),
        ..SourceSettings::default()
    }
}

async fn source(server: &S3Emulator, url: &str) -> Arc<dyn Source> {
    open(url, &settings(server)).await.unwrap()
}

/// The same objects behind `http://`.
async fn web(server: &S3Emulator) -> Arc<dyn Source> {
    let settings = SourceSettings {
        options: Default::default(),
        ..settings(server)
    };
    let url = format!("{}/bucket", server.endpoint());
    open(&url, &settings).await.unwrap()
}

fn gets(seen: &[Seen]) -> usize {
    let of_objects = |seen: &&Seen| seen.method == "GET" && !seen.key.is_empty();
    seen.iter().filter(of_objects).count()
}

#[tokio::test]
async fn ranges_of_an_object_over_several_pieces() {
    let server = S3Emulator::start();
    let bytes = contents((20 << 20) + 77, 1);
    server.put("pre fix/dir/object", bytes.clone());
    server.put("pre fix/empty", "");
    let source = source(&server, "s3://bucket/pre fix/").await;
    let (file, settled) = version(&*source, &path("dir/object")).await;
    assert!(settled);
    let end = file.bytes;
    assert_eq!(end, bytes.len() as u64);
    for range in [0..end, 0..1, end - 1..end, 8_388_607..16_777_217, 5..5] {
        server.take_seen();
        let got = read(&*source, &file, range.clone()).await.unwrap();
        let wanted = &bytes[range.start as usize..range.end as usize];
        assert!(got == wanted, "bytes {range:?} differ");
        let pieces = (range.end - range.start).div_ceil(8 << 20);
        assert_eq!(gets(&server.take_seen()) as u64, pieces, "{range:?}");
    }
    let beyond = read(&*source, &file, end - 1..end + 1).await;
    assert!(matches!(beyond, Err(SourceError::Failed { .. })));
    let (empty, _) = version(&*source, &path("empty")).await;
    assert_eq!(empty.bytes, 0);
    assert_eq!(read(&*source, &empty, 0..0).await.unwrap(), b"");
    let counters = source.counters().unwrap();
    assert_eq!(counters.bytes.get(), end + 1 + 1 + 8_388_610);
    assert_eq!(counters.retries.get(), 0);
}

#[tokio::test]
async fn each_fault_is_survived() {
    let server = S3Emulator::start();
    let bytes = contents(3_000_000, 2);
    server.put("object", bytes.clone());
    let source = source(&server, "s3://bucket").await;
    let (file, _) = version(&*source, &path("object")).await;
    let counters = source.counters().unwrap();
    let faults = [
        vec![Fault::Status(500, None)],
        vec![Fault::Status(503, None), Fault::Status(429, None)],
        vec![Fault::Reset, Fault::Reset],
        vec![Fault::Truncate(0), Fault::Truncate(1_000_000)],
        vec![Fault::Stall(0), Fault::Stall(2_000_000)],
        vec![Fault::Truncate(500_000), Fault::Reset, Fault::Stall(9)],
    ];
    for faults in faults {
        let before = counters.retries.get();
        server.take_seen();
        server.fail_next(faults.clone());
        let got = read(&*source, &file, 100..2_900_000).await.unwrap();
        assert!(got == bytes[100..2_900_000], "{faults:?}: bytes differ");
        assert_eq!(counters.retries.get() - before, faults.len() as u64);
        let seen = server.take_seen();
        assert_eq!(gets(&seen), faults.len() + 1, "{faults:?}");
        if let [Fault::Truncate(0), Fault::Truncate(_)] = faults[..] {
            // It goes on where it stopped, as far as the bytes before the end arrived.
            let from = |seen: &Seen| -> u64 {
                let range = seen.range.as_deref().unwrap();
                let (first, last) = range["bytes=".len()..].split_once('-').unwrap();
                assert_eq!(last, "2899999");
                first.parse().unwrap()
            };
            assert_eq!(from(&seen[1]), 100);
            assert!((101..=1_000_100).contains(&from(&seen[2])));
        }
        server.fail_next(faults.iter().map(|fault| match fault {
            // A HEAD has no body to cut.
            Fault::Truncate(_) | Fault::Stall(_) => Fault::Reset,
            fault => fault.clone(),
        }));
        assert_eq!(version(&*source, &path("object")).await.0, file);
        server.fail_next(faults.clone());
        let listed = list_all(&*source, &SourcePath::default()).await;
        assert_eq!(listed.len(), 1);
    }
    assert_eq!(counters.throttled.get(), 6);
    assert_eq!(counters.errors.get(), 0);
}

#[tokio::test]
async fn a_throttled_source_is_left_alone_as_long_as_it_asks() {
    let server = S3Emulator::start();
    server.put("object", "bytes");
    let source = source(&server, "s3://bucket").await;
    let (file, _) = version(&*source, &path("object")).await;
    let start = Instant::now();
    server.fail_next([Fault::Status(503, Some(1))]);
    assert_eq!(read(&*source, &file, 0..5).await.unwrap(), b"bytes");
    assert!(start.elapsed() >= Duration::from_secs(1));
    // Longer than there is time for: an error now rather than later.
    server.fail_next([Fault::Status(503, Some(3600))]);
    let start = Instant::now();
    let failed = read(&*source, &file, 0..5).await;
    assert!(matches!(failed, Err(SourceError::Failed { .. })));
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_source_that_stays_away_is_an_error_after_the_deadline() {
    let server = S3Emulator::start();
    server.put("object", "bytes");
    let settings = SourceSettings {
        deadline: Duration::from_millis(500),
        ..settings(&server)
    };
    let source = open("s3://bucket", &settings).await.unwrap();
    let (file, _) = version(&*source, &path("object")).await;
    for faults in [
        Faults {
            error_share: 1.0,
            error_status: 500,
            ..Faults::default()
        },
        Faults {
            reset_share: 1.0,
            ..Faults::default()
        },
        Faults {
            latency: Duration::from_secs(60),
            ..Faults::default()
        },
    ] {
        server.set_faults(faults.clone());
        let start = Instant::now();
        let failed = read(&*source, &file, 0..5).await.unwrap_err();
        assert!(matches!(failed, SourceError::Failed { .. }), "{failed}");
        assert!(!failed.to_string().contains("127.0.0.1"), "{failed}");
        let stat = source.stat(&path("object")).await;
        assert!(matches!(stat, Err(SourceError::Failed { .. })));
        let list = source.list(&SourcePath::default(), None).await;
        assert!(matches!(list, Err(SourceError::Failed { .. })));
        let elapsed = start.elapsed();
        assert!(elapsed > Duration::from_millis(750), "{faults:?}");
        assert!(elapsed < Duration::from_secs(6), "{faults:?}: {elapsed:?}");
    }
    assert_eq!(source.counters().unwrap().errors.get(), 9);
    drop(server);
    let gone = read(&*source, &file, 0..5).await;
    assert!(matches!(gone, Err(SourceError::Failed { .. })));
}

#[tokio::test]
async fn another_version_is_never_mixed_in() {
    let server = S3Emulator::start();
    let bytes = contents(1_000_000, 3);
    server.put("object", bytes.clone());
    let source = source(&server, "s3://bucket").await;
    let (file, _) = version(&*source, &path("object")).await;
    // Broken off, and rewritten before it goes on.
    server.fail_next([Fault::Truncate(400_000), Fault::Change]);
    let mut stream = source.read(&file, 0..1_000_000).await.unwrap();
    let mut got = Vec::new();
    let error = loop {
        match stream.next().await.expect("an error comes first") {
            Ok(chunk) => got.extend(chunk),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, SourceError::Changed(_)), "{error}");
    assert!((1..=400_000).contains(&got.len()));
    assert!(got == bytes[..got.len()]);
    assert!(stream.next().await.is_none(), "an error is the end");
    // Rewritten between stat and read, with as many bytes.
    let changed = read(&*source, &file, 0..1).await;
    assert!(matches!(changed, Err(SourceError::Changed(_))));
    let (now, _) = version(&*source, &path("object")).await;
    assert_ne!(now.version, file.version);
    assert_eq!(now.bytes, file.bytes);
    server.remove("object");
    let gone = read(&*source, &now, 0..1).await;
    assert!(matches!(gone, Err(SourceError::NotFound(_))));
    server.put("object", "short");
    let shorter = read(&*source, &now, 900_000..900_001).await;
    assert!(matches!(shorter, Err(SourceError::Changed(_))));
}

#[tokio::test]
async fn names_that_are_no_paths_are_left_out_and_counted() {
    let server = S3Emulator::start();
    let odd = [
        "a b",
        "%2F",
        "~[]{}^`\\|\"<>#?*&=+",
        "é漢",
        "...",
        "..a",
        " ",
    ];
    for key in odd {
        server.put(&format!("dir/{key}"), key);
        server.put(&format!("dir/{key}/below"), "x");
    }
    let no_paths = [
        "dir//x",
        "dir/./x",
        "dir/../x",
        "dir/..",
        "dir/\u{1}",
        "/x",
        "//",
    ];
    for key in no_paths {
        server.put(key, "x");
    }
    server.put("dir/", "");
    server.put("marked/", "");
    let source = source(&server, "s3://bucket").await;
    let root = list_all(&*source, &SourcePath::default()).await;
    let names: Vec<&[u8]> = root.keys().map(|name| &name[..]).collect();
    assert_eq!(names, [&b"dir"[..], b"marked"]);
    let listed = list_all(&*source, &path("dir")).await;
    assert_eq!(listed.len(), odd.len());
    for key in odd {
        let at = path("dir").join(key.as_bytes()).unwrap();
        let (file, _) = version(&*source, &at).await;
        assert_eq!(listed[key.as_bytes()], source.stat(&at).await.unwrap());
        let got = read(&*source, &file, 0..file.bytes).await.unwrap();
        assert_eq!(got, key.as_bytes());
    }
    // `/` when the source was opened and in the root, five in the directory, and what files hide.
    let left_out = source.counters().unwrap().left_out.get();
    assert_eq!(left_out, 2 + 5 + odd.len() as u64);
    let marked = source.stat(&path("marked")).await.unwrap();
    assert_eq!(marked.kind, Kind::Directory);
    assert!(list_all(&*source, &path("marked")).await.is_empty());
    for missing in [&b"dir/\xff"[..], b"dir/\x01", b"none", b"di", b"dir/a"] {
        let missing = SourcePath::new(missing).unwrap();
        let found = source.stat(&missing).await;
        assert!(matches!(found, Err(SourceError::NotFound(_))), "{missing}");
        let listed = source.list(&missing, None).await;
        assert!(matches!(listed, Err(SourceError::NotFound(_))), "{missing}");
    }
}

#[tokio::test]
async fn each_name_is_listed_once_whatever_page_it_is_on() {
    let server = S3Emulator::start();
    let mut wanted = Vec::new();
    // A file and a prefix of one name, with pages of keys between them.
    for (name, bytes, kind) in [("full", "x", "file"), ("mark", "", "directory")] {
        server.put(name, bytes);
        for number in 0..1700 {
            server.put(&format!("{name}-{number:04}"), "x");
            wanted.push((format!("{name}-{number:04}"), "file"));
        }
        server.put(&format!("{name}/below"), "x");
        wanted.push((name.to_owned(), kind));
    }
    for number in 0..1300 {
        server.put(&format!("z/{number:04}/x/y"), "x");
    }
    wanted.push(("z".into(), "directory"));
    wanted.sort();
    let source = source(&server, "s3://bucket").await;
    let listed = list_all(&*source, &SourcePath::default()).await;
    let mut got = Vec::new();
    for (name, entry) in &listed {
        let kind = match entry.kind {
            Kind::File { .. } => "file",
            _ => "directory",
        };
        got.push((String::from_utf8(name.clone()).unwrap(), kind));
    }
    assert_eq!(got, wanted);
    for name in ["full", "mark", "z"] {
        let stat = source.stat(&path(name)).await.unwrap();
        assert_eq!(stat, listed[name.as_bytes()], "{name}");
    }
    assert_eq!(list_all(&*source, &path("z")).await.len(), 1300);
    let nonsense = source.list(&path("z"), Some(ListCursor(vec![1]))).await;
    assert!(matches!(nonsense, Err(SourceError::Failed { .. })));
}

#[tokio::test]
async fn requests_in_flight_are_bounded_and_a_slow_reader_holds_none() {
    let server = S3Emulator::start();
    server.put("object", contents(4 << 20, 4));
    let settings = SourceSettings {
        requests_max: 2,
        ..settings(&server)
    };
    let source = open("s3://bucket", &settings).await.unwrap();
    let (file, _) = version(&*source, &path("object")).await;
    server.set_faults(Faults {
        latency: Duration::from_millis(100),
        ..Faults::default()
    });
    let start = Instant::now();
    let reads = (0..8u64).map(|at| read(&*source, &file, at..at + 1));
    future::try_join_all(reads).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(400));
    // More unread streams than there may be requests.
    let mut unread = Vec::new();
    for _ in 0..5 {
        unread.push(source.read(&file, 0..4 << 20).await.unwrap());
    }
    assert_eq!(read(&*source, &file, 0..1).await.unwrap().len(), 1);
    for stream in unread {
        let chunks: Vec<Bytes> = stream.try_collect().await.unwrap();
        assert!(chunks.concat() == contents(4 << 20, 4));
    }
}

#[tokio::test]
async fn web_servers_of_all_manners() {
    let server = S3Emulator::start();
    let bytes = contents(300_000, 5);
    server.put("dir/a b#?%", bytes.clone());
    let source = web(&server).await;
    let name = path("dir/a b#?%");
    let manners = [
        Faults::default(),
        Faults {
            ignore_range: true,
            ..Faults::default()
        },
        Faults {
            ignore_conditions: true,
            ..Faults::default()
        },
        Faults {
            no_etag: true,
            ..Faults::default()
        },
        Faults {
            no_last_modified: true,
            ..Faults::default()
        },
    ];
    for manner in manners {
        server.put("dir/a b#?%", bytes.clone());
        server.set_faults(manner.clone());
        let (file, settled) = version(&*source, &name).await;
        assert_eq!(settled, !manner.no_last_modified, "{manner:?}");
        for range in [0..300_000, 70_000..70_001, 299_000..300_000] {
            let got = read(&*source, &file, range.clone()).await.unwrap();
            let wanted = &bytes[range.start as usize..range.end as usize];
            assert!(got == wanted, "{manner:?}: bytes {range:?} differ");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        server.put("dir/a b#?%", longer);
        let changed = read(&*source, &file, 5..6).await;
        assert!(
            matches!(changed, Err(SourceError::Changed(_))),
            "{manner:?}"
        );
    }
    server.set_faults(Faults {
        no_etag: true,
        no_last_modified: true,
        ..Faults::default()
    });
    let unversioned = source.stat(&name).await.unwrap_err().to_string();
    assert!(unversioned.contains("neither ETag nor"), "{unversioned}");
    let listed = source.list(&path("dir"), None).await;
    assert!(matches!(listed, Err(SourceError::Unsupported(_))));
    let missing = source.stat(&path("none")).await;
    assert!(matches!(missing, Err(SourceError::NotFound(_))));
}

#[tokio::test]
async fn buckets_that_cannot_be_opened_say_why() {
    let server = S3Emulator::start();
    server.put("file", "x");
    server.put("dir/file", "x");
    let settings = SourceSettings {
        deadline: Duration::from_secs(1),
        ..settings(&server)
    };
    let error = |url: &'static str| {
        let settings = &settings;
        async move { open(url, settings).await.err().expect("an error") }
    };
    let missing = error("s3://none").await.to_string();
    assert_eq!(missing, "s3://none: there is no bucket `none`");
    let missing = error("s3://bucket/nowhere").await.to_string();
    assert_eq!(missing, "s3://bucket/nowhere: does not exist");
    let file = error("s3://bucket/file").await.to_string();
    assert_eq!(file, "s3://bucket/file: not a directory");
    assert!(open("s3://bucket/dir", &settings).await.is_ok());
    for wrong in ["s3://", "s3:///x", "s3://bucket/a//b", "s3://bucket/.."] {
        let found = error(wrong).await;
        assert!(
            matches!(found, OpenError::NotAUrl { .. }),
            "{wrong}: {found}"
        );
    }
    server.fail_next([Fault::Status(403, None)]);
    let denied = error("s3://bucket").await;
    assert!(matches!(denied, OpenError::Denied { .. }), "{denied}");
    let with = |key: &str, value: &str| {
        let mut changed = settings.clone();
        changed.options.insert(key.into(), value.into());
        changed
    };
    let odd = open("s3://bucket", &with("regoin", "x"))
        .await
        .err()
        .unwrap();
    let odd = odd.to_string();
    assert!(
        odd.starts_with("unknown option `regoin`: known are endpoint, region"),
        "{odd}"
    );
    let closed = with("endpoint", "http://127.0.0.1:9");
    let closed = open("s3://bucket", &closed).await.err().unwrap();
    let closed = closed.to_string();
    assert!(
        closed.starts_with("s3://bucket: Connection refused"),
        "{closed}"
    );
    let plain = with("endpoint", "http://192.0.2.1:9");
    let plain = open("s3://bucket", &plain).await.err().unwrap();
    assert!(plain.to_string().contains("allow_http=true"), "{plain}");
    let web = SourceSettings {
        options: Default::default(),
        ..settings.clone()
    };
    let closed = open("http://127.0.0.1:9/x", &web).await.err().unwrap();
    assert!(matches!(closed, OpenError::Unreachable { .. }), "{closed}");
    let home = std::env::home_dir().unwrap_or_default();
    if std::env::var_os("AWS_ACCESS_KEY_ID").is_none() && !home.join(".aws").exists() {
        let mut bare = with("metadata_endpoint", "http://127.0.0.1:9");
        bare.options.remove("skip_signature");
        let bare = open("s3://bucket", &bare).await.err().unwrap().to_string();
        assert!(
            bare.starts_with("s3://bucket: no credentials: set AWS_ACCESS_KEY_ID"),
            "{bare}"
        );
    }
}

/// Random ranges under random faults: the stream is the slice.
#[tokio::test]
async fn random_ranges_under_random_faults() {
    let seed = std::env::var("HITHER_SEED").ok();
    let seed = seed.map_or_else(
        || {
            let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
            now.as_nanos() as u64
        },
        |seed| seed.parse().unwrap(),
    );
    println!("HITHER_SEED={seed}");
    let server = S3Emulator::start();
    let bytes = contents(500_000, seed);
    server.put("object", bytes.clone());
    let settings = SourceSettings {
        stall_timeout: Duration::from_millis(50),
        ..settings(&server)
    };
    let source = open("s3://bucket", &settings).await.unwrap();
    let (file, _) = version(&*source, &path("object")).await;
    let mut random = Random(seed);
    server.set_faults(Faults {
        error_share: 0.1,
        error_status: 503,
        reset_share: 0.1,
        truncate_share: 0.2,
        stall_share: 0.05,
        seed,
        ..Faults::default()
    });
    for _ in 0..30 {
        let ranges: Vec<_> = (0..8)
            .map(|_| {
                let (a, b) = (random.below(500_001), random.below(500_001));
                a.min(b)..a.max(b)
            })
            .collect();
        let reads = ranges
            .iter()
            .map(|range| read(&*source, &file, range.clone()));
        for (got, range) in future::try_join_all(reads)
            .await
            .unwrap()
            .iter()
            .zip(&ranges)
        {
            let wanted = &bytes[range.start as usize..range.end as usize];
            assert!(got == wanted, "bytes {range:?} differ");
        }
    }
    let counters = source.counters().unwrap();
    assert!(counters.retries.get() > 50);
    assert_eq!(counters.errors.get(), 0);
}
