//! A producer in this process writes what a recorded program would, and the trace is read back.

use hither_core::registry::Needs;
use hither_ids::{FileKey, Pid, Tid};
use hither_kernel::file_id::FileId;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use hither_kernel::pid_namespace::PidNamespace;
use hither_session::program_session::{Producer, ProgramSession, Pushed};
use hither_session::session::{RingInfo, Session, SessionOptions};
use hither_trace::{LoadOptions, Trace};

use hither_trace::schema::MemoryNode;

use super::*;
use crate::event_loop::EventLoop;
use crate::event_source::{EventSource, TakeRecord};
use crate::observe::memory_left::MemorySampler;

struct Fixture {
    folder: tempfile::TempDir,
    state: RunState,
    attached: ProgramSession,
    collector: Collector,
    /// Of processes that announce themselves.
    parent: Pid,
}

fn fixture() -> Fixture {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let session = Session::create(SessionOptions {
        rings: 8,
        ..SessionOptions::default()
    })
    .expect("a session");
    let attached = ProgramSession::open(session.name().as_bytes()).expect("attached");
    let writer = Writer::create(folder.path().join("t.hither"), false).expect("a writer");
    let mut start = Start::now(
        vec!["tool".to_owned()],
        true,
        SeenBy::Library,
        MemorySampler::of(None, true),
    );
    start.time_ns = 1000;
    start.nodes = vec![
        MemoryNode {
            node: 0,
            cpus: vec![0],
            ..MemoryNode::default()
        },
        MemoryNode {
            node: 1,
            cpus: vec![1],
            ..MemoryNode::default()
        },
    ];
    Fixture {
        collector: Collector::new(writer, start, false),
        folder,
        state: RunState::new(session, 1),
        attached,
        parent: Pid(u32::MAX >> 12),
    }
}

impl Fixture {
    /// The ring of a thread that has announced its process.
    fn thread(&self, pid: u32, tid: u32, time_ns: u64, exe: &str) -> Producer {
        let namespace = PidNamespace::OWN;
        let claimed = self.attached.claim(Pid(pid), Tid(tid), namespace);
        let mut producer = claimed.expect("a ring");
        let args = format!("{exe}\0-x\0");
        let announcement = Record::Process {
            pid: Pid(pid),
            parent: self.parent,
            // No test has two images of one process.
            image: pid,
            forked: false,
            time_ns,
            exe: exe.as_bytes(),
            args: args.as_bytes(),
        };
        self.push(&mut producer, &announcement);
        producer
    }

    fn push(&self, producer: &mut Producer, record: &Record<'_>) {
        assert_eq!(self.attached.push_record(producer, record), Pushed::Taken);
    }

    fn read(&self, producer: &mut Producer, time_ns: u64, signature: u64, object: u64) {
        let access = Record::Access {
            op: Op::Read,
            flags: 0,
            cpu: 1,
            time_ns,
            signature,
            object: FileKey(object),
            offset: time_ns << 12,
            length: 10,
        };
        self.push(producer, &access);
    }

    fn finish(self) -> (Trace, Finished, tempfile::TempDir) {
        self.finish_with(1 << 10)
    }

    /// The library has counted so many bytes of pipes.
    fn finish_with(mut self, other_read_bytes: u64) -> (Trace, Finished, tempfile::TempDir) {
        let event_loop = EventLoop {
            state: &mut self.state,
            mechanisms: Vec::new(),
            sinks: vec![&mut self.collector],
            status: None,
        };
        event_loop.run(&AtomicBool::new(true)).expect("it ran");
        let ended = Ended {
            lost: self.state.lost(),
            ran: Duration::ZERO,
            transferred: Some(Transferred {
                called_bytes: 1 << 20,
                ..Transferred::default()
            }),
            other_read_bytes,
            attached: Vec::new(),
        };
        let finished = self
            .collector
            .finish(&self.state, &ended)
            .expect("finished");
        let path = self.folder.path().join("t.hither");
        let trace = Trace::load(&path, None, &LoadOptions::default()).expect("a trace");
        (trace, finished, self.folder)
    }
}

#[test]
fn events_of_threads_are_written_in_order_of_time() {
    let fixture = fixture();
    let mut one = fixture.thread(10, 10, 1000, "/bin/tool");
    let mut two = fixture.thread(10, 11, 1001, "/bin/tool");
    for time in [1010, 1030, 1050] {
        fixture.read(&mut one, time, 7, 1);
    }
    for time in [1005, 1020, 1040, 1060] {
        fixture.read(&mut two, time, 8, 2);
    }
    let (trace, finished, _folder) = fixture.finish();
    let mut accesses = Vec::new();
    trace
        .fill(0, trace.references(), Needs::NOTHING, &mut accesses)
        .unwrap();
    let tids: Vec<u32> = accesses
        .iter()
        .map(|access| trace.meta().threads[access.thread.index()].tid)
        .collect();
    assert_eq!(tids, [11, 10, 11, 10, 11, 10, 11]);
    // Numbers follow the order of the rows.
    assert_eq!(
        trace
            .sites()
            .iter()
            .map(|site| site.signature)
            .collect::<Vec<_>>(),
        [0, 8, 7]
    );
    assert_eq!(trace.objects()[0].first_seen_ns, 5);
    assert_eq!(trace.objects()[0].last_seen_ns, 60);
    assert_eq!(finished.summary.accesses, 7);
    assert_eq!(finished.summary.bytes_read, 70);
    assert_eq!(
        (finished.summary.processes, finished.summary.threads),
        (1, 2)
    );
    assert!(finished.losses.is_empty(), "{:?}", finished.losses);
    let process = &trace.meta().processes[0];
    assert_eq!(
        (
            process.pid,
            process.exe.as_str(),
            process.command.as_slice()
        ),
        (
            10,
            "/bin/tool",
            &["/bin/tool".to_owned(), "-x".to_owned()][..]
        )
    );
}

/// A source that reports reads of one thread, without rings.
struct OtherReads(Vec<u64>);

impl EventSource for OtherReads {
    fn drain(&mut self, _until_ns: u64, take: &mut TakeRecord<'_>) -> usize {
        let thread = RingInfo {
            index: 1 << 16,
            pid: Pid(20),
            tid: Tid(20),
            namespace: PidNamespace::OWN,
            generation: 1,
        };
        let times = std::mem::take(&mut self.0);
        for &time_ns in &times {
            let access = Record::Access {
                op: Op::Read,
                flags: 0,
                cpu: 0,
                time_ns,
                signature: 0,
                object: FileKey(1),
                offset: 0,
                length: 10,
            };
            take(&thread, access);
        }
        times.len()
    }

    fn lost(&self) -> Lost {
        Lost {
            events: 3,
            ..Lost::default()
        }
    }

    fn close(&mut self) {}
}

#[test]
fn sources_are_merged_by_time_and_their_losses_added() {
    let mut fixture = fixture();
    let mut one = fixture.thread(10, 10, 1000, "/bin/tool");
    for time in [1010, 1030] {
        fixture.read(&mut one, time, 7, 1);
    }
    fixture
        .state
        .add_source(Box::new(OtherReads(vec![1020, 1040])));
    let (trace, finished, _folder) = fixture.finish();
    let mut accesses = Vec::new();
    trace
        .fill(0, trace.references(), Needs::NOTHING, &mut accesses)
        .unwrap();
    let tids = accesses
        .iter()
        .map(|access| trace.meta().threads[access.thread.index()].tid);
    assert_eq!(tids.collect::<Vec<u32>>(), [10, 20, 10, 20]);
    assert_eq!(finished.losses.dropped_ring_full, 3);
}

#[test]
fn definitions_may_come_late_or_never() {
    let fixture = fixture();
    let mut one = fixture.thread(10, 10, 1000, "/bin/tool");
    fixture.read(&mut one, 1001, 7, 1);
    fixture.read(&mut one, 1002, 0, 2);
    let path = b"/data/\xff";
    fixture.push(
        &mut one,
        &Record::Object {
            object: FileKey(1),
            id: FileId {
                device: 3,
                inode: 4,
                birth_ns: 0,
            },
            size: 5,
            asked_pages: None,
            path,
        },
    );
    fixture.push(
        &mut one,
        &Record::Object {
            object: FileKey(9),
            id: FileId {
                device: 3,
                inode: 9,
                birth_ns: 0,
            },
            size: 5,
            asked_pages: None,
            path: b"/unread",
        },
    );
    fixture.push(
        &mut one,
        &Record::Site {
            signature: 7,
            truncated: true,
            frames: &[5, 100, 6, 200],
        },
    );
    fixture.push(
        &mut one,
        &Record::Module {
            module: 6,
            build_id: &[1, 2],
            path: b"/opt/none",
        },
    );
    let (trace, finished, _folder) = fixture.finish();
    assert_eq!(trace.objects().len(), 2);
    assert_eq!(
        (trace.objects()[0].path.as_slice(), trace.objects()[0].inode),
        (&path[..], 4)
    );
    assert!(trace.objects()[1].path.is_empty());
    let site = &trace.sites()[1];
    assert!(site.truncated);
    assert_eq!(site.module.as_deref(), Some("/opt/none"));
    assert_eq!(
        site.frames
            .iter()
            .map(|frame| (frame.module.as_str(), frame.offset))
            .collect::<Vec<_>>(),
        [("", 100), ("/opt/none", 200)]
    );
    assert_eq!(finished.summary.sites, 1);
}

#[test]
fn a_program_that_never_attached_is_reported() {
    let mut fixture = fixture();
    let source = fixture.folder.path().join("a.c");
    let program = fixture.folder.path().join("static");
    std::fs::write(&source, "int main(void) { return 0; }\n").expect("written");
    let gcc = Command::new("gcc")
        .arg("-static")
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .status();
    assert!(gcc.expect("gcc starts").success());
    fixture
        .collector
        .command_started(Pid(20), program.as_os_str().as_bytes());
    let mut shell = fixture.thread(10, 10, 1000, "/bin/sh");
    fixture.push(
        &mut shell,
        &Record::Exec {
            pid: Pid(11),
            time_ns: 1001,
            path: program.as_os_str().as_bytes(),
            hidden: false,
        },
    );
    fixture.push(
        &mut shell,
        &Record::Exec {
            pid: Pid(12),
            time_ns: 1002,
            path: b"/bin/ls",
            hidden: false,
        },
    );
    fixture.thread(12, 12, 1003, "/bin/ls");
    fixture.push(
        &mut shell,
        &Record::Exec {
            pid: Pid(10),
            time_ns: 1004,
            path: b"/bin/missing",
            hidden: false,
        },
    );
    fixture.push(&mut shell, &Record::ExecFailed { pid: Pid(10) });
    let (trace, finished, _folder) = fixture.finish();
    let [row] = finished.losses.not_recorded.as_slice() else {
        panic!("{:?}", finished.losses)
    };
    assert_eq!(
        (Path::new(&row.path), row.reason.as_str(), row.count),
        (program.as_path(), "statically linked", 2)
    );
    assert_eq!(trace.meta().losses, finished.losses);
    assert_eq!(trace.meta().processes.len(), 2);
}

#[test]
fn marks_and_nodes_are_kept() {
    let fixture = fixture();
    let mut one = fixture.thread(10, 10, 1000, "/bin/tool");
    let access = |op, flags, cpu| Record::Access {
        op,
        flags,
        cpu,
        time_ns: 1001,
        signature: 1,
        object: FileKey(1),
        offset: 0,
        length: 8,
    };
    fixture.push(&mut one, &access(Op::Write, IN_KERNEL, 0));
    fixture.push(&mut one, &access(Op::Map, 0, 1));
    fixture.push(&mut one, &access(Op::Truncate, 0, 900));
    let (trace, finished, _folder) = fixture.finish();
    assert_eq!(finished.summary.bytes_written, 8);
    assert_eq!(finished.summary.accesses, 3);
    assert_eq!(trace.references(), 1);
    assert_eq!(trace.meta().nodes.len(), 2);
}

#[test]
fn what_the_kernel_counted_beyond_records_was_not_seen() {
    let fixture = fixture();
    let mut one = fixture.thread(10, 10, 1000, "/bin/tool");
    let file = Record::Object {
        object: FileKey(1),
        id: FileId {
            device: 1,
            inode: 1,
            birth_ns: 0,
        },
        size: 100_000,
        asked_pages: None,
        path: b"/data",
    };
    fixture.push(&mut one, &file);
    fixture.read(&mut one, 1010, 7, 1);
    for (offset, length) in [(4096, 8192), (0, 4096), (90_000, 1 << 20)] {
        let map = Record::Access {
            op: Op::Map,
            flags: 0,
            cpu: 1,
            time_ns: 1020,
            signature: 7,
            object: FileKey(1),
            offset,
            length,
        };
        fixture.push(&mut one, &map);
    }
    let (trace, finished, _folder) = fixture.finish();
    let seen = finished.seen;
    assert_eq!(trace.meta().seen, Some(seen));
    assert_eq!((seen.recorded_bytes, seen.other_bytes), (10, 1 << 10));
    assert_eq!(seen.unseen_bytes, Some((1 << 20) - (1 << 10) - 10));
    assert_eq!(
        (seen.mapped_files, seen.mapped_bytes),
        (1, 100_000),
        "as far as the file goes"
    );
}

#[test]
fn a_count_that_cannot_be_true_leaves_it_open_what_was_not_seen() {
    let fixture = fixture();
    let mut one = fixture.thread(10, 10, 1000, "/bin/tool");
    fixture.read(&mut one, 1010, 7, 1);
    let (_, finished, _folder) = fixture.finish_with(u64::MAX);
    assert_eq!(finished.seen.unseen_bytes, None);
}

#[test]
fn an_orphan_that_has_ended_hides_nothing_of_what_others_read() {
    let mut fixture = fixture();
    let gone = 0x3f_ffff;
    fixture.parent = Pid(1);
    let mut orphan = fixture.thread(gone, gone, 1000, "/bin/daemon");
    fixture.read(&mut orphan, 1010, 7, 1);
    fixture.parent = Pid(gone);
    let mut child = fixture.thread(gone - 1, gone - 1, 1000, "/bin/tool");
    fixture.read(&mut child, 1011, 7, 1);
    fixture.push(&mut child, &Record::IoUring);
    fixture.push(&mut child, &Record::IoUring);
    fixture.push(&mut child, &Record::Direct { object: FileKey(1) });
    let (_, finished, _folder) = fixture.finish();
    let seen = finished.seen;
    assert_eq!(seen.recorded_bytes, 20);
    assert_eq!(seen.unseen_bytes, Some((1 << 20) - (1 << 10) - 10));
    assert_eq!((seen.io_uring_processes, seen.direct_bytes), (1, 10));
}
