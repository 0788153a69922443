//! What an observer reports of a program, and the sources that it may come from.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hither_ids::Pid;
use hither_kernel_events::event::{File, What};
use hither_kernel_events::{Kind, Observer, Options, Probe, Scope, Source, UserStack};

use crate::program::{Program, TestFile};

/// The sources of a kind that work here, the best first.
pub(crate) fn sources(kind: Kind) -> Vec<Source> {
    static PROBE: OnceLock<Probe> = OnceLock::new();
    let sources: Vec<Source> = PROBE.get_or_init(Probe::run).sources(kind).collect();
    eprintln!("{kind:?}: {sources:?}");
    // Calls can be seen wherever this runs at all.
    assert!(kind != Kind::Read || sources.ends_with(&[Source::SystemCalls]));
    sources
}

/// Only by this source.
pub(crate) fn by(source: Source) -> Options {
    Options {
        source: Some(source),
        ..Options::default()
    }
}

/// An event about pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) process: u32,
    pub(crate) kind: Kind,
    pub(crate) file: File,
    pub(crate) first_page: u64,
    pub(crate) last_page: u64,
    pub(crate) same_fault: bool,
    pub(crate) is_outside: bool,
    /// Whether it is in a call, and how many bytes were copied.
    pub(crate) stack: Option<(bool, u64)>,
}

/// What an observer has reported.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) pages: Vec<Pages>,
    pub(crate) files: Vec<(File, u64, Option<PathBuf>)>,
    pub(crate) forks: Vec<(u32, u32)>,
    pub(crate) exits: Vec<u32>,
}

impl Report {
    /// All that there is by now.
    pub(crate) fn of(observer: &mut Observer) -> Report {
        let mut report = Report::default();
        observer.drain(u64::MAX, &mut |event| match event.what {
            What::Pages {
                kind,
                file,
                first_page,
                last_page,
                same_fault,
                is_outside,
                stack,
                ..
            } => report.pages.push(Pages {
                process: event.process.0,
                kind,
                file,
                first_page,
                last_page,
                same_fault,
                is_outside,
                stack: match stack {
                    UserStack::Copied(stack) => Some((stack.in_call, stack.bytes())),
                    UserStack::Unknown | UserStack::Known(_) => None,
                },
            }),
            What::File {
                file, size, names, ..
            } => report.files.push((file, size, names.path())),
            What::Fork { parent } => report.forks.push((parent.0, event.process.0)),
            What::Exit => report.exits.push(event.process.0),
            What::Exec { name } => assert!(!name.is_empty()),
        });
        report
    }

    /// The events of a kind about a file.
    pub(crate) fn of_file(&self, kind: Kind, file: &TestFile) -> Vec<&Pages> {
        let inode = inode(&file.path);
        let is_of = |event: &&Pages| event.kind == kind && event.file.inode == inode;
        self.pages.iter().filter(is_of).collect()
    }

    /// The ranges of a kind of event about a file.
    pub(crate) fn ranges(&self, kind: Kind, file: &TestFile) -> Vec<(u64, u64)> {
        let events = self.of_file(kind, file);
        events
            .iter()
            .map(|event| (event.first_page, event.last_page))
            .collect()
    }

    /// How often each page of a file is in an event of a kind.
    pub(crate) fn counts(&self, kind: Kind, file: &TestFile) -> BTreeMap<u64, u32> {
        let mut counts = BTreeMap::new();
        for (first, last) in self.ranges(kind, file) {
            (first..=last).for_each(|page| *counts.entry(page).or_default() += 1);
        }
        counts
    }
}

pub(crate) fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

/// Runs a program that waits, and returns what is reported of it. Nothing may be lost.
pub(crate) fn observe(program: Program, options: Options) -> Report {
    let options = Options {
        scope: Scope::Processes(vec![Pid(program.id())]),
        ..options
    };
    let mut observer = Observer::new(&options).unwrap();
    program.run();
    let report = Report::of(&mut observer);
    assert_eq!(observer.lost().events(), 0);
    report
}
