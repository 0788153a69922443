//! What a killed writer leaves: it is recovered up to its last checkpoint, and it is removed by the
//! next writer if nothing can be recovered. A copy of the hidden folder stands for what is left by
//! a kill: nobody holds its lock.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Sample, names_in};
use hither_trace::schema::Meta;
use hither_trace::{
    LoadOptions, PartialTrace, TableRows, Trace, Writer, publish_complete, recoverable,
};

/// The rows between two checkpoints.
const ROWS: usize = 1000;

/// A folder in which a writer of `t` was killed as process 0, which is nobody's, after two
/// checkpoints and some more rows.
struct Killed {
    folder: tempfile::TempDir,
    sample: Sample,
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for name in names_in(from) {
        fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

impl Killed {
    fn new() -> Killed {
        let folder = tempfile::tempdir().unwrap();
        let sample = Sample::new(3 * ROWS);
        let killed = Killed { folder, sample };
        let Sample {
            accesses,
            objects,
            sites,
            meta,
        } = &killed.sample;
        let mut writer = Writer::create(killed.path("t"), false).unwrap();
        let start = Meta {
            processes: Vec::new(),
            threads: Vec::new(),
            ..meta.clone()
        };
        writer.keep_journal(&start).unwrap();
        // The second object is not defined until the second checkpoint.
        let undefined = Default::default();
        let first = TableRows {
            objects: vec![(0, objects[0].clone()), (1, undefined)],
            sites: (0..).zip(sites.iter().cloned()).collect(),
            processes: meta.processes.clone(),
            threads: meta.threads[..2].to_vec(),
            ..TableRows::default()
        };
        let second = TableRows {
            objects: vec![(1, objects[1].clone())],
            threads: meta.threads[2..].to_vec(),
            losses: meta.losses.clone(),
            other_bytes: 77,
            ..TableRows::default()
        };
        let checkpoints = [Some(first), Some(second), None];
        for (rows, checkpoint) in accesses.chunks(ROWS).zip(checkpoints) {
            rows.iter().for_each(|row| writer.push(row).unwrap());
            writer.end_row_group().unwrap();
            if let Some(rows) = checkpoint {
                writer.checkpoint(&rows).unwrap();
            }
        }
        let partial = hither_trace::partial_path(&killed.path("t")).unwrap();
        copy(&partial, &killed.left());
        fs::remove_dir_all(&partial).unwrap();
        killed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn left(&self) -> PathBuf {
        self.path(".t.partial-0")
    }

    /// Recovers the trace, and checks that it has the first `rows` rows.
    fn recovers(&self, rows: usize) -> Trace {
        assert_eq!(recoverable(&self.path("t")), [self.left()]);
        let (mut trace, mut objects, mut sites, mut meta) =
            PartialTrace::open(&self.left(), false).unwrap();
        let kept = trace.count().unwrap();
        assert_eq!(kept.accesses, rows as u64);
        assert_eq!(kept.last_ns, self.sample.accesses[rows - 1].time_ns);
        kept.trim(&mut objects, &mut sites, &mut meta);
        trace.complete(&objects, &sites, &meta).unwrap();
        assert_eq!(names_in(self.folder.path()), ["t"]);
        let load = |path: &Path| Trace::load(path, None, &LoadOptions::default()).unwrap();
        let found = load(&self.path("t"));
        let expected = Sample::new(rows);
        expected.write(&self.path("expected"), false).unwrap();
        let expected = load(&self.path("expected"));
        assert_eq!(
            found.block_stream().unwrap(),
            expected.block_stream().unwrap()
        );
        assert_eq!(found.counts(), expected.counts());
        assert_eq!(found.sites(), expected.sites());
        assert_eq!(names_in(&self.path("t")), names_in(&self.path("expected")));
        found
    }
}

#[test]
fn all_up_to_the_last_checkpoint_is_recovered() {
    let killed = Killed::new();
    let trace = killed.recovers(2 * ROWS);
    let sample = &killed.sample;
    assert_eq!(trace.meta().losses, sample.meta.losses);
    assert_eq!(trace.meta().processes, sample.meta.processes);
    assert_eq!(trace.meta().threads, sample.meta.threads);
    assert_eq!(trace.meta().seen.unwrap().other_bytes, 77);
    let paths = trace.objects().iter().map(|object| &object.path);
    assert!(paths.eq(sample.objects.iter().map(|object| &object.path)));
    let last_ns = trace.objects()[1].last_seen_ns;
    assert_eq!(last_ns, sample.accesses[2 * ROWS - 1].time_ns);
}

#[test]
fn a_checkpoint_that_was_cut_counts_for_nothing() {
    let killed = Killed::new();
    let path = killed.left().join("journal.jsonl");
    let journal = fs::read(&path).unwrap();
    fs::write(&path, &journal[..journal.len() - 1]).unwrap();
    let error =
        PartialTrace::open(&killed.left(), false).and_then(|(mut trace, objects, sites, meta)| {
            trace.count()?;
            trace.complete(&objects, &sites, &meta)
        });
    // Rows of the third thread are in the first row group, and its definition was in the second
    // line: that is not so in a journal of ours, and is refused.
    let error = error.unwrap_err().to_string();
    assert!(error.ends_with("thread 2 of 2"), "{error}");
    assert!(killed.left().is_dir(), "it stays");
}

#[test]
fn rows_that_the_disk_lost_are_left_out() {
    let killed = Killed::new();
    let path = killed.left().join("accesses.parquet");
    let accesses = fs::read(&path).unwrap();
    // The third row group was written, and no checkpoint names it.
    let third = accesses.len() / 3;
    fs::write(&path, &accesses[..accesses.len() - third - 100]).unwrap();
    let (mut trace, ..) = PartialTrace::open(&killed.left(), false).unwrap();
    assert_eq!(trace.count().unwrap().accesses, ROWS as u64);
    drop(trace);

    fs::write(&path, &accesses).unwrap();
    let mut damaged = accesses.clone();
    damaged[third + 200..third + 1200].fill(0x55);
    fs::write(&path, &damaged).unwrap();
    let (mut trace, ..) = PartialTrace::open(&killed.left(), false).unwrap();
    assert_eq!(trace.count().unwrap().accesses, ROWS as u64);
}

#[test]
fn a_recording_that_goes_on_cannot_be_recovered_and_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let mut writer = Writer::create(&path, false).unwrap();
    writer.keep_journal(&Meta::default()).unwrap();
    writer.push(&Default::default()).unwrap();
    writer.end_row_group().unwrap();
    writer.checkpoint(&TableRows::default()).unwrap();
    let partial = hither_trace::partial_path(&path).unwrap();
    assert!(recoverable(&path).is_empty());
    hither_trace::clear_leftovers(&path);
    assert!(partial.is_dir());
    let error = PartialTrace::open(&partial, false).unwrap_err();
    assert!(
        error.to_string().ends_with("still being written"),
        "{error}"
    );
    // A writer that is dropped is one that failed: what it has noted stays.
    drop(writer);
    assert_eq!(recoverable(&path), [partial]);
}

#[test]
fn what_holds_nothing_is_removed_by_the_next_writer() {
    let killed = Killed::new();
    let sample = Sample::new(10);
    let useless = [".t.partial-1", ".t.partial-2", ".t.partial-3"].map(|name| killed.path(name));
    useless
        .iter()
        .for_each(|path| fs::create_dir(path).unwrap());
    fs::write(useless[1].join("accesses.parquet"), "PAR1").unwrap();
    fs::write(useless[2].join("accesses.parquet"), "PAR1").unwrap();
    fs::write(useless[2].join("journal.jsonl"), "{\"format\": 1}\n{\"row").unwrap();
    // Another trace's, whose name begins alike.
    fs::create_dir(killed.path(".t.b.partial-1")).unwrap();
    sample.write(&killed.path("t"), false).unwrap();
    assert_eq!(
        names_in(killed.folder.path()),
        [".t.b.partial-1", ".t.partial-0", "t"]
    );
    // And a file, of an export.
    fs::write(killed.path(".e.csv.partial-1"), "half").unwrap();
    let trace = Trace::load(killed.path("t"), None, &LoadOptions::default()).unwrap();
    let csv = hither_trace::Export::find("csv").unwrap();
    csv.write(&trace, &killed.path("e.csv"), false, |_| ())
        .unwrap();
    assert!(!killed.path(".e.csv.partial-1").exists());
}

#[test]
fn in_a_container_the_next_writer_may_have_the_same_process_id() {
    let killed = Killed::new();
    let own = hither_trace::partial_path(&killed.path("t")).unwrap();
    fs::rename(killed.left(), &own).unwrap();
    Sample::new(10).write(&killed.path("t"), false).unwrap();
    let [left] = &recoverable(&killed.path("t"))[..] else {
        panic!("{:?}", names_in(killed.folder.path()));
    };
    assert_ne!(*left, own);
    let (mut trace, ..) = PartialTrace::open(left, true).unwrap();
    assert_eq!(trace.count().unwrap().accesses, 2 * ROWS as u64);
}

#[test]
fn what_only_has_such_a_name_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let others = [".t.old-2025", ".t.partial-backup", ".t.partial-1.2.3"];
    for name in others {
        std::fs::write(path(name), "somebody's").unwrap();
    }
    std::fs::create_dir(path(".t.partial-7")).unwrap();
    std::fs::write(path(".t.partial-7/notes"), "somebody's").unwrap();
    std::fs::create_dir(path(".t.partial-8")).unwrap();
    let before = names_in(folder.path());
    Sample::new(10).write(&path("t"), false).unwrap();
    hither_trace::clear_leftovers(&path("t"));
    let mut expected: Vec<String> = before.into_iter().chain(["t".to_owned()]).collect();
    expected.retain(|name| name != ".t.partial-8");
    assert_eq!(names_in(folder.path()), expected);
}

#[test]
fn a_writer_that_was_killed_between_two_renames_loses_neither_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    Sample::new(10).write(&path(".t.old-0"), false).unwrap();
    Sample::new(20).write(&path(".t.partial-0"), false).unwrap();
    assert_eq!(recoverable(&path("t")), [path(".t.partial-0")]);
    // The next writer finds the old trace where it was.
    let error = Writer::create(path("t"), false).unwrap_err();
    assert!(
        matches!(error, hither_trace::Error::Exists { .. }),
        "{error}"
    );
    assert_eq!(names_in(folder.path()), [".t.partial-0", "t"]);
    let requests = || {
        let trace = Trace::load(path("t"), None, &LoadOptions::default()).unwrap();
        trace.counts().total.requests
    };
    assert_eq!(requests(), 10);
    assert!(publish_complete(&path(".t.partial-0"), false).is_err());
    let published = publish_complete(&path(".t.partial-0"), true).unwrap();
    assert_eq!((published, requests()), (Some(path("t")), 20));
    assert_eq!(names_in(folder.path()), ["t"]);

    // Killed after the second rename: only the old trace is left to remove.
    Sample::new(10).write(&path(".t.old-0"), false).unwrap();
    hither_trace::clear_leftovers(&path("t"));
    assert_eq!(
        (names_in(folder.path()), requests()),
        (vec!["t".to_owned()], 20)
    );
}

/// An error of the system says nothing of what a leftover is worth.
#[test]
fn a_leftover_that_cannot_be_read_now_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let left = folder.path().join(".t.partial-1234567890");
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join("accesses.parquet"), "").unwrap();
    // Reading it fails, whoever the user is.
    std::fs::create_dir(left.join("journal.jsonl")).unwrap();
    hither_trace::clear_leftovers(&folder.path().join("t"));
    assert!(left.exists());
    // Without a journal there is nothing to recover.
    std::fs::remove_dir(left.join("journal.jsonl")).unwrap();
    hither_trace::clear_leftovers(&folder.path().join("t"));
    assert!(!left.exists());
}
