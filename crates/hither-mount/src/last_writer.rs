//! Which process has written a file last.
//!
//! A program that writes a file may start others, which get its descriptors and close them: by an
//! exec, or when they end. The kernel tells of each of these closes (`FUSE_FLUSH`), and they are
//! not the end of the file. That of the process that has written last is, or may be.

use std::fs;

use parking_lot::Mutex;

#[derive(Clone, Copy, Default)]
struct Writer {
    thread: u32,
    /// 0: not known.
    process: u32,
}

/// See the module.
#[derive(Default)]
pub(crate) struct LastWriter(Mutex<Writer>);

impl LastWriter {
    /// This thread has written. It is 0 where the kernel has no number for it.
    pub(crate) fn wrote(&self, thread: u32) {
        let mut writer = self.0.lock();
        if writer.thread != thread {
            let process = process_of(thread).unwrap_or(0);
            *writer = Writer { thread, process };
        }
    }

    /// Whether this thread is of another process than the one that wrote last, as far as both are
    /// known.
    pub(crate) fn is_another(&self, thread: u32) -> bool {
        let writer = *self.0.lock();
        writer.process != 0
            && writer.thread != thread
            && process_of(thread).is_some_and(|process| process != writer.process)
    }
}

/// The process of a thread.
fn process_of(thread: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let mut lines = status.lines();
    let process = lines.find_map(|line| line.strip_prefix("Tgid:"))?;
    process.trim().parse().ok()
}
