//! The work for a limit: has what is cached counted when it is time, and finds out what the kernel
//! has not dropped. The files that processes have open are looked up in /proc, for those of which
//! nothing is seen.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use hither_ids::{FileKey, Pid};
use hither_kernel::file_id::Inode;
use hither_kernel::mapped_files::identify;
use hither_kernel::page_bytes;
use hither_kernel::page_cache::CachedFile;
use hither_kernel::process::{monotonic_ns, thread_cpu_ns};
use hither_kernel::process_tree::ProcessTree;

use super::super::super::controller::{EXTENT_BYTES, PageCacheController};
use super::super::super::event::Input;
use super::limiter::LookedUp;
use super::{COUNTING_DIVISOR, PageCacheActuator};
use crate::mechanism::Context;
use crate::program_files::OpenedFile;

/// How often files are looked up and asked, unless that takes more than 1/[`COUNTING_DIVISOR`] of a
/// CPU.
const PERIOD_NS: u64 = 50_000_000;

/// The most descriptors of a process that are looked up.
const DESCRIPTORS_MAX: usize = 1024;

/// How long the end of a run waits for the write-back of what was written.
const WRITE_BACK_MAX_NS: u64 = 5_000_000_000;
const WRITE_BACK_PAUSE: Duration = Duration::from_millis(20);

/// What is not being written back at the end is tried so often: it is being read in.
const LAST_TRIES: u32 = 8;

/// The files that processes have open, with the path of one of their descriptors.
fn open_files(processes: &ProcessTree) -> Vec<(Inode, PathBuf, Pid)> {
    let mut files = Vec::new();
    for &pid in processes.processes() {
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        for descriptor in descriptors.flatten().take(DESCRIPTORS_MAX) {
            let path = descriptor.path();
            let Ok(about) = fs::metadata(&path) else {
                continue;
            };
            if about.is_file() && about.len() > 0 {
                files.push((Inode::of(&about), path, pid));
            }
        }
    }
    files
}

impl PageCacheActuator {
    /// Does what is due for the limit; with `last` all of it.
    pub(super) fn apply_limit(
        &mut self,
        context: &mut Context<'_, PageCacheController>,
        now_ns: u64,
        last: bool,
    ) {
        let Some(limiter) = &mut self.limiter else {
            return;
        };
        if !last && now_ns < limiter.due_ns {
            return;
        }
        let start_ns = thread_cpu_ns();
        if !self.by_kernel {
            self.count_storage(context, now_ns);
            self.look_up_open_files(context, now_ns);
            context.input(now_ns, Input::CheckLimit { all: last });
            self.carry_out(context, now_ns, &[]);
        }
        if last {
            self.end(context);
        }
        let took_ns = thread_cpu_ns() - start_ns;
        if let Some(limiter) = &mut self.limiter {
            limiter.due_ns = now_ns + PERIOD_NS.max(COUNTING_DIVISOR * took_ns);
        }
    }

    /// Finds the files that processes have open and of which nothing was reported.
    fn look_up_open_files(&mut self, context: &mut Context<'_, PageCacheController>, now_ns: u64) {
        let (Some(limiter), Some(processes)) = (&mut self.limiter, &self.processes) else {
            return;
        };
        for (id, path, pid) in open_files(processes) {
            match limiter.looked_up.get(&id) {
                None => {
                    limiter.looked_up.insert(id, LookedUp::Once);
                    continue;
                }
                Some(LookedUp::Reported) => continue,
                Some(&LookedUp::Unreported(file)) => {
                    context.input(now_ns, Input::Unreported { file });
                    continue;
                }
                Some(LookedUp::Once) => {}
            }
            limiter.looked_up.insert(id, LookedUp::Reported);
            let name = fs::read_link(&path).unwrap_or_default();
            let Some((file_id, bytes)) = identify(&path, id).filter(|_| !is_made_up(&name)) else {
                continue;
            };
            let file = file_id.key();
            if self.program_files.id(file).is_some() {
                continue;
            }
            limiter.looked_up.insert(id, LookedUp::Unreported(file));
            context.input(now_ns, Input::Unreported { file });
            self.program_files.add(file, file_id, name, pid);
            self.opened.entry(file).or_insert(OpenedFile {
                bytes,
                is_first: true,
                cached_before: None,
            });
        }
    }

    /// What is to be dropped of a file that cannot be opened just now.
    pub(super) fn try_again(&mut self, drops: &[(FileKey, u64, u64)]) {
        for &(file, offset, length) in drops {
            for offset in (offset..offset + length).step_by(EXTENT_BYTES as usize) {
                self.later.push(Input::Undropped {
                    file,
                    offset,
                    bytes: page_bytes(),
                });
            }
        }
    }

    /// Finds out what the kernel has left of a range that it was to drop.
    pub(super) fn find_undropped(
        &mut self,
        opened: &dyn CachedFile,
        file: FileKey,
        offset: u64,
        length: u64,
    ) {
        let Some(limiter) = &mut self.limiter else {
            return;
        };
        if opened
            .cached(offset, length)
            .is_ok_and(|left| left.pages == 0)
        {
            return;
        }
        let mut start = offset;
        while start < offset + length {
            let end = (start / EXTENT_BYTES + 1) * EXTENT_BYTES;
            let end = end.min(offset + length);
            if let Ok(left) = opened.cached(start, end - start)
                && left.pages > 0
            {
                limiter.writing_bytes += (left.dirty + left.writeback) * page_bytes();
                self.later.push(Input::Undropped {
                    file,
                    offset: start,
                    bytes: left.pages * page_bytes(),
                });
            }
            start = end;
        }
    }

    /// The programs have ended: what is to go goes, as soon as it is written back.
    fn end(&mut self, context: &mut Context<'_, PageCacheController>) {
        let start_ns = monotonic_ns();
        for tries in 1.. {
            let now_ns = context.run.now_ns();
            for input in std::mem::take(&mut self.later) {
                context.input(now_ns, input);
            }
            context.input(now_ns, Input::Ended);
            if let Some(limiter) = &mut self.limiter {
                limiter.writing_bytes = 0;
            }
            self.carry_out(context, now_ns, &[]);
            let writing = self
                .limiter
                .as_ref()
                .map_or(0, |limiter| limiter.writing_bytes);
            let is_late = monotonic_ns() - start_ns >= WRITE_BACK_MAX_NS;
            let is_over = self.later.is_empty() || is_late || writing == 0 && tries >= LAST_TRIES;
            if is_over {
                break;
            }
            thread::sleep(WRITE_BACK_PAUSE);
        }
        let now_ns = context.run.now_ns();
        for input in std::mem::take(&mut self.later) {
            context.input(now_ns, input);
        }
        self.report.left_bytes = context.controller.left_bytes();
    }
}

/// Whether a file has no page cache to steer: the kernel makes it up, or it is memory.
fn is_made_up(path: &Path) -> bool {
    ["/proc/", "/sys/", "/memfd:", "/dev/shm/"]
        .iter()
        .any(|prefix| {
            path.as_os_str()
                .as_encoded_bytes()
                .starts_with(prefix.as_bytes())
        })
}
