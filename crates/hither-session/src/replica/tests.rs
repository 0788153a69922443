//! Agent and program in one process.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use hither_ids::{KernelNode, Pid};

use super::agent::{FillError, ReplicaOptions, Replicas};
use super::view::{MAPPED_BYTES_MIN, Match, View};
use super::*;

struct Both {
    agent: Replicas,
    view: View,
    file: File,
    id: FileId,
    _folder: tempfile::TempDir,
}

fn both(content: &[u8], nodes: usize, blocks: u64) -> Both {
    let agent = Replicas::create(&ReplicaOptions {
        nodes: vec![KernelNode(0); nodes],
        node_of_cpu: vec![0; 8],
        node_bytes: blocks * BLOCK_BYTES,
    })
    .expect("memory");
    let (control, nonce) = agent.shared().control();
    assert!(View::open(Pid::own(), control, nonce + 1).is_none());
    let view = View::open(Pid::own(), control, nonce).expect("a view");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    fs::write(&path, content).expect("written");
    let file = File::open(path).expect("opened");
    let status = syscalls::status(file.as_raw_fd()).expect("a status");
    Both {
        agent,
        view,
        id: status.id,
        file,
        _folder: folder,
    }
}

impl Both {
    /// Has the file have a place, and a lease that never breaks, and no replica yet.
    fn published(&mut self, bytes: usize) -> (u32, Match) {
        let entered = self.agent.enter(self.id, bytes as u64).expect("room");
        self.agent.shared().publish(entered);
        hold(&self.agent);
        (entered, self.view.find(self.id).expect("found"))
    }
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 / 8) as u8).collect()
}

fn read(view: &View, of: Match, offset: u64, count: usize) -> Option<Vec<u8>> {
    let mut buffer = vec![0; count];
    // SAFETY: the buffer has so many bytes.
    let read = unsafe { view.read(of, offset, buffer.as_mut_ptr(), count) }?;
    buffer.truncate(read);
    Some(buffer)
}

/// The calling thread holds leases that never break.
fn hold(agent: &Replicas) {
    let shared = agent.shared();
    shared.hold().expect("held");
    shared.keep_until(u64::MAX);
}

#[test]
fn a_block_is_served_while_all_holds_and_not_after() {
    let content = content(3 * BLOCK_BYTES as usize + 100);
    let Both {
        mut agent,
        view,
        file,
        id,
        ..
    } = both(&content, 1, 8);
    let shared = agent.shared();
    assert_eq!(view.find(id), None);
    let entered = agent.enter(id, content.len() as u64).expect("room");
    agent.fill(&file, entered, 0, 0).expect("filled");
    assert_eq!(view.find(id), None, "not yet");
    let before = view.generation();
    shared.publish(entered);
    assert_ne!(view.generation(), before);
    let of = view.find(id).expect("found");
    assert_eq!(read(&view, of, 0, 10), None, "nobody holds the leases");
    hold(&agent);
    assert_eq!(read(&view, of, 3, 10).as_deref(), Some(&content[3..13]));
    assert_eq!(read(&view, of, BLOCK_BYTES - 1, 2), None, "one block alone");
    agent.fill(&file, entered, 1, 0).expect("filled");
    agent
        .fill(&file, entered, 3, 0)
        .expect("the last, short one");
    let over = BLOCK_BYTES as usize - 50;
    assert_eq!(
        read(&view, of, over as u64, 100).as_deref(),
        Some(&content[over..over + 100])
    );
    let last = 3 * BLOCK_BYTES;
    assert_eq!(
        read(&view, of, last + 90, 1000).as_deref(),
        Some(&content[last as usize + 90..])
    );
    assert_eq!(read(&view, of, last + 100, 10), Some(Vec::new()), "the end");
    assert_eq!(read(&view, of, u64::MAX / 2, 10), Some(Vec::new()));
    shared.keep_until(shared.now_ns());
    assert_eq!(read(&view, of, 0, 1), None, "too late");
    shared.keep_until(u64::MAX);
    agent.drop_block(entered, 1, 0);
    assert_eq!(read(&view, of, over as u64, 100), None);
    assert!(read(&view, of, 0, 1).is_some());
    shared.end(entered);
    assert_eq!((read(&view, of, 0, 1), view.find(id)), (None, None));
    agent.leave(entered);
    let again = agent.enter(id, content.len() as u64).expect("room");
    shared.publish(again);
    let anew = view.find(id).expect("found");
    assert_ne!(anew, of);
    assert_eq!(read(&view, anew, 0, 1), None, "nothing was kept");
    assert!(!view.is_ended());
    shared.close();
    assert!(view.is_ended());
    agent.fill(&file, again, 0, 0).expect("filled");
    assert_eq!(read(&view, anew, 0, 1), None, "closed");
}

#[test]
fn the_end_of_the_thread_that_holds_the_leases_is_the_end_of_the_replicas() {
    let content = content(100);
    let Both {
        mut agent,
        view,
        file,
        id,
        ..
    } = both(&content, 1, 2);
    let entered = agent.enter(id, 100).expect("room");
    agent.fill(&file, entered, 0, 0).expect("filled");
    let shared = agent.shared();
    shared.publish(entered);
    let of = view.find(id).expect("found");
    thread::spawn(move || {
        shared.hold().expect("held");
        shared.keep_until(u64::MAX);
        assert_eq!(read(&view, of, 0, 100), Some(content));
        view
    })
    .join()
    .map(|view| {
        assert_eq!(read(&view, of, 0, 100), None, "without a word from us");
        assert!(!view.is_ended(), "another may follow");
        // Another holder's word does not bring back what is older.
        agent.shared().end_all();
        hold(&agent);
        assert_eq!((read(&view, of, 0, 100), view.find(id)), (None, None));
    })
    .expect("no panic");
}

/// The keeper ends a file while the agent is about to fill a block, which goes on: nobody sees it,
/// and its slot comes back.
#[test]
fn what_is_filled_after_the_lease_was_broken_is_never_served() {
    let content = content(4 * BLOCK_BYTES as usize);
    let Both {
        mut agent,
        view,
        file,
        id,
        _folder,
    } = both(&content, 1, 2);
    let shared = agent.shared();
    hold(&agent);
    let entered = agent.enter(id, content.len() as u64).expect("room");
    agent.fill(&file, entered, 0, 0).expect("filled");
    shared.publish(entered);
    let of = view.find(id).expect("found");
    assert!(read(&view, of, 0, 1).is_some());
    shared.end(entered);
    // A writer is let in, and the block that comes is of before, after, or both.
    fs::write(_folder.path().join("file"), vec![0xff; content.len()]).expect("written");
    agent.fill(&file, entered, 1, 0).expect("filled");
    for at in [0, BLOCK_BYTES] {
        assert_eq!(read(&view, of, at, 1), None);
    }
    assert_eq!(view.find(id), None);
    agent.leave(entered);
    // Both slots can be had again, and hold what the file does now.
    let again = agent.enter(id, content.len() as u64).expect("room");
    for block in 0..2 {
        agent.fill(&file, again, block, 0).expect("filled");
    }
    shared.publish(again);
    let anew = view.find(id).expect("found");
    assert_eq!(read(&view, of, 0, 1), None, "an epoch that is over");
    assert_eq!(read(&view, anew, BLOCK_BYTES, 3), Some(vec![0xff; 3]));
}

#[test]
fn room_runs_out_and_comes_back() {
    let content = content(4 * BLOCK_BYTES as usize);
    let Both {
        mut agent,
        file,
        id,
        view,
        ..
    } = both(&content, 2, 2);
    let entered = agent.enter(id, content.len() as u64).expect("room");
    for block in 0..2 {
        agent.fill(&file, entered, block, 1).expect("filled");
    }
    assert_eq!(agent.fill(&file, entered, 2, 1), Err(FillError::NoMemory));
    agent.fill(&file, entered, 2, 0).expect("on the other node");
    assert_eq!(agent.fill(&file, entered, 4, 0), Err(FillError::Unread));
    agent.drop_block(entered, 0, 1);
    agent.trim(true);
    agent.fill(&file, entered, 2, 1).expect("filled");
    agent.shared().publish(entered);
    hold(&agent);
    let of = view.find(id).expect("found");
    assert_eq!(read(&view, of, 0, 1), None, "on no node, or on the other");
}

/// Slots are reused for other blocks under a reader that may be stopped anywhere: what it gets is
/// the block that it asked for, or nothing.
#[test]
fn a_slot_that_is_reused_under_a_reader_is_noticed() {
    let mut content = vec![0; 8 * BLOCK_BYTES as usize];
    for (block, bytes) in content.chunks_mut(BLOCK_BYTES as usize).enumerate() {
        bytes.fill(block as u8 + 1);
    }
    let mut both = both(&content, 1, 3);
    let (entered, of) = both.published(content.len());
    let Both {
        mut agent,
        view,
        file,
        ..
    } = both;
    let ended = AtomicBool::new(false);
    let (mut served, mut refused) = (0, 0);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut served, mut refused, mut round) = (0_u64, 0_u64, 0_u64);
            while !ended.load(Ordering::Relaxed) {
                round += 1;
                let block = round % 8;
                match read(&view, of, block * BLOCK_BYTES, BLOCK_BYTES as usize) {
                    Some(bytes) => {
                        assert!(bytes.iter().all(|&byte| byte == block as u8 + 1));
                        served += 1;
                    }
                    None => refused += 1,
                }
            }
            (served, refused)
        });
        for round in 0..30_000_u32 {
            let block = round * 5 % 8;
            agent.drop_block(entered, (block + 1) % 8, 0);
            // Where there is no room, another block's turn comes.
            let _ = agent.fill(&file, entered, block, 0);
        }
        ended.store(true, Ordering::Relaxed);
        (served, refused) = reader.join().expect("what was read was right");
    });
    assert!(
        served > 0 && refused > 0,
        "{served} served, {refused} refused"
    );
}

/// There is one slot, and what was sent of it stays as it was when it goes to another block; what
/// goes to another block meanwhile is not sent.
#[test]
fn what_is_lent_stays_as_it_was() {
    let bytes = BLOCK_BYTES as usize;
    let content: Vec<u8> = (0..2 * bytes).map(|at| (at / bytes) as u8 + 1).collect();
    let mut both = both(&content, 1, 1);
    let (entered, of) = both.published(content.len());
    let Both {
        mut agent,
        view,
        file,
        ..
    } = both;
    agent.fill(&file, entered, 0, 0).expect("filled");
    let (mut from, to) = std::io::pipe().expect("a pipe");
    let refer = |pieces: &[libc::iovec]| {
        // SAFETY: the pieces are mapped for as long as the view lives.
        let taken = unsafe { libc::vmsplice(to.as_raw_fd(), pieces.as_ptr(), pieces.len(), 0) };
        usize::try_from(taken).expect("the pipe takes them")
    };
    assert_eq!(view.lend(of, 7, 100, refer), None, "slots are used again");
    agent.lend();
    assert_eq!(view.lend(of, 7, 100, refer), Some(100));
    assert_eq!(view.lend(of, 7, bytes, refer), None, "one block alone");

    agent.drop_block(entered, 0, 0);
    assert_eq!(view.lend(of, 7, 100, refer), None, "it is gone");
    agent.fill(&file, entered, 1, 0).expect("filled");
    let mut sent = [0; 100];
    from.read_exact(&mut sent).expect("it is there");
    assert_eq!(sent, [1; 100]);

    let second = BLOCK_BYTES;
    assert_eq!(read(&view, of, second, 9).as_deref(), Some(&[2; 9][..]));
    let taken = view.lend(of, second, 100, |pieces| {
        agent.drop_block(entered, 1, 0);
        agent.fill(&file, entered, 0, 0).expect("filled");
        refer(pieces)
    });
    assert_eq!(taken, None, "another block's by the time they were taken");
}

#[test]
fn programs_cannot_write_what_they_see() {
    let Both { agent, view, .. } = both(b"x", 1, 1);
    let (control, _) = agent.shared().control();
    let base = view.control.area.base as usize;
    let arguments = [
        base,
        page_bytes() as usize,
        (libc::PROT_READ | libc::PROT_WRITE) as usize,
        0,
        0,
        0,
    ];
    // SAFETY: the call is refused, which is what is tested; nobody else relies on the pages being
    // read-only.
    let result = unsafe { syscalls::syscall(libc::SYS_mprotect, arguments) };
    assert_eq!(result, -(libc::EACCES as isize));
    let path = format!("/proc/self/fd/{control}");
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(path).expect("there"));
    assert_eq!(mode & 0o777, 0o400);
}

#[test]
fn an_arena_is_mapped_as_far_as_its_slots_are_in_use() {
    let blocks = 3 * MAPPED_BYTES_MIN as u64 / BLOCK_BYTES;
    let bytes = 3 * MAPPED_BYTES_MIN;
    let content = content(bytes);
    let mut both = both(&content, 1, 2 * blocks);
    let (entered, of) = both.published(bytes);
    for block in 0..blocks as u32 {
        both.agent
            .fill(&both.file, entered, block, 0)
            .expect("filled");
    }
    let mapped = |view: &View| view.arenas[0].bytes.load(Ordering::Relaxed);
    assert_eq!(mapped(&both.view), MAPPED_BYTES_MIN);
    let first = read(&both.view, of, 0, 100).expect("served");
    assert_eq!(first, content[..100]);
    assert_eq!(mapped(&both.view), MAPPED_BYTES_MIN);
    let last = bytes - 100;
    assert_eq!(read(&both.view, of, last as u64, 100), None, "not mapped");
    let served = read(&both.view, of, last as u64, 100).expect("served");
    assert_eq!(served, content[last..]);
    assert_eq!(mapped(&both.view), 4 * MAPPED_BYTES_MIN);
    both.view.close();
    assert_eq!(read(&both.view, of, 0, 100), None, "unmapped");
}
