//! The work for a limit: finds out what the kernel has cached that no access explains, what it has
//! not dropped, and what other programs cache meanwhile.
//!
//! Accesses are not all that brings pages in: the kernel reads ahead, mappings are read by page
//! faults, and of programs that are static or make their system calls without libc (as those in Go
//! do) nothing is seen. So large files are asked how much of them is cached, a few extents at a
//! time, until nothing new is found and nobody uses them any more. The files that processes have
//! open are looked up in /proc, for those of which nothing is seen.

use hither_ids::Pid;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use hither_kernel::file_id::Inode;
use hither_kernel::mapped_files::identify;
use hither_kernel::page_bytes;
use hither_kernel::page_cache::CachedFile;
use hither_kernel::process::{monotonic_ns, thread_cpu_ns};
use hither_kernel::process_tree::ProcessTree;

use super::super::super::controller::{EXTENT_BYTES, PageCacheController};
use super::super::super::event::Input;
use super::limiter::{AHEAD_BYTES, Answer, LookedUp, Question};
use super::preexisting::cached_parts;
use super::{COUNTING_DIVISOR, PageCacheActuator};
use crate::mechanism::Context;
use crate::program_files::OpenedFile;

/// How often files are looked up and asked, unless that takes more than 1/[`COUNTING_DIVISOR`] of a
/// CPU.
const PERIOD_NS: u64 = 50_000_000;

/// The extents that are asked each time.
const EXTENTS_MAX: usize = 256;

/// No question is about more.
const CHUNK_EXTENTS: u32 = 32;

/// The most descriptors of a process that are looked up.
const DESCRIPTORS_MAX: usize = 1024;

/// The kernel reads so many times as far ahead as is set: in two windows, which are twice as long
/// for those who say that they read in order.
const READ_AHEADS: u64 = 4;

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
        self.ask_ahead(context, now_ns);
        let Some(limiter) = &mut self.limiter else {
            return;
        };
        if !last && now_ns < limiter.due_ns {
            return;
        }
        let start_ns = thread_cpu_ns();
        self.count_storage(context, now_ns);
        self.look_up_open_files();
        if last {
            self.limiter
                .iter_mut()
                .for_each(|limiter| limiter.next = (0, 0));
            self.ask(context, now_ns, usize::MAX);
            self.end(context);
        } else {
            self.ask(context, now_ns, EXTENTS_MAX)
        }
        let took_ns = thread_cpu_ns() - start_ns;
        if let Some(limiter) = &mut self.limiter {
            limiter.due_ns = now_ns + PERIOD_NS.max(COUNTING_DIVISOR * took_ns);
        }
    }

    /// Finds the files that processes have open and of which nothing was reported.
    fn look_up_open_files(&mut self) {
        let transferred = self.transferred.read_bytes + self.transferred.written_bytes;
        let (Some(limiter), Some(processes)) = (&mut self.limiter, &self.processes) else {
            return;
        };
        let [last, before, _] = limiter.transferred_bytes;
        limiter.transferred_bytes = [transferred, last, before];
        self.attributed_bytes = 0;
        for (id, path, pid) in open_files(processes) {
            match limiter.looked_up.get(&id) {
                None => {
                    limiter.looked_up.insert(id, LookedUp::Once);
                    continue;
                }
                Some(LookedUp::Reported) => continue,
                Some(&LookedUp::Unreported(file)) => {
                    limiter.unexplained.entry(file).or_default().used = true;
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
            limiter.unexplained.entry(file).or_default().used = true;
            self.program_files.add(file, file_id, name, pid);
            self.opened.entry(file).or_insert(OpenedFile {
                bytes,
                is_first: true,
                cached_before: None,
            });
        }
    }

    /// What programs have read and written since the look before a file that the last one has found
    /// was seen first: what is cached of it can be their own only so far.
    pub(super) fn transferred_lately(&self) -> Option<u64> {
        let limiter = self.limiter.as_ref()?;
        let transferred = self.transferred.read_bytes + self.transferred.written_bytes;
        Some(transferred - limiter.transferred_bytes[2])
    }

    /// Asks how much of unexplained files is cached, of so many extents.
    fn ask(
        &mut self,
        context: &mut Context<'_, PageCacheController>,
        now_ns: u64,
        mut extents: usize,
    ) {
        let Some(limiter) = &mut self.limiter else {
            return;
        };
        let (first, mut extent) = limiter.next;
        let later = limiter.unexplained.range(first..).map(|(&file, _)| file);
        let earlier = limiter.unexplained.range(..first).map(|(&file, _)| file);
        let files: Vec<u64> = later.chain(earlier).collect();
        for file in files {
            if file != first {
                extent = 0;
            }
            let asked = self.program_files.open(file);
            let next = asked.ok().and_then(|opened| {
                ask_extents(context, now_ns, &*opened, file, extent, &mut extents)
            });
            let Some(limiter) = &mut self.limiter else {
                return;
            };
            if let Some(next) = next {
                limiter.next = (file, next);
                return;
            }
            limiter.next = (file.saturating_add(1), 0);
            let state = limiter.unexplained.entry(file).or_default();
            if !std::mem::take(&mut state.used) && !state.mapped {
                limiter.unexplained.remove(&file);
            }
            if limiter.last_file == file {
                limiter.last_file = 0;
            }
            if extents == 0 {
                return;
            }
        }
    }

    /// Asks what others have cached where programs will read next. The answers count at the next
    /// poll, if no program had come near by the time of the question.
    fn ask_ahead(&mut self, context: &mut Context<'_, PageCacheController>, now_ns: u64) {
        let Some(limiter) = &mut self.limiter else {
            return;
        };
        for Answer { file, part } in std::mem::take(&mut limiter.answers) {
            let read_to = limiter.read_to.get(&file).copied().unwrap_or(0);
            let ahead = READ_AHEADS * self.program_files.readahead_bytes(file);
            if part.start >= read_to + ahead + AHEAD_BYTES / 4 {
                context.input(
                    now_ns,
                    Input::Preexisting {
                        file,
                        offset: part.start,
                        length: part.end - part.start,
                        cached_bytes: part.end - part.start,
                    },
                );
            }
        }
        let to_ask = std::mem::take(&mut limiter.to_ask);
        if !self.spare_preexisting {
            return;
        }
        let mut answers = Vec::new();
        for Question { file, from } in to_ask {
            let Ok(opened) = self.program_files.open(file) else {
                continue;
            };
            let size = opened.size();
            let from = from + READ_AHEADS * self.program_files.readahead_bytes(file);
            let to = (from + AHEAD_BYTES).min(size);
            let mut start = from.min(to);
            while start < to {
                let end = (start / EXTENT_BYTES + 1) * EXTENT_BYTES;
                let part = start..end.min(to);
                let extent = (start / EXTENT_BYTES) as u32;
                start = end;
                if context.controller.is_counted(file, extent) {
                    continue;
                }
                let parts = cached_parts(&*opened, part).unwrap_or_default();
                answers.extend(parts.into_iter().map(|part| Answer { file, part }));
            }
        }
        if let Some(limiter) = &mut self.limiter {
            limiter.answers = answers;
        }
    }

    /// What is to be dropped of a file that cannot be opened just now.
    pub(super) fn try_again(&mut self, drops: &[(u64, u64, u64)]) {
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
        file: u64,
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
            self.carry_out(context);
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

/// Asks how much of so many extents of a file is cached, from one on. Returns the one to go on
/// with, if not all were asked.
fn ask_extents(
    context: &mut Context<'_, PageCacheController>,
    now_ns: u64,
    opened: &dyn CachedFile,
    file: u64,
    from: u32,
    extents: &mut usize,
) -> Option<u32> {
    let size = opened.size();
    let end = u32::try_from(size.div_ceil(EXTENT_BYTES)).unwrap_or(u32::MAX);
    let mut extent = from;
    while extent < end {
        if *extents == 0 {
            return Some(extent);
        }
        *extents -= 1;
        let start = u64::from(extent) * EXTENT_BYTES;
        if extent.is_multiple_of(CHUNK_EXTENTS) {
            let chunk = u64::from(CHUNK_EXTENTS) * EXTENT_BYTES;
            let none = opened
                .cached(start, chunk)
                .is_ok_and(|cached| cached.pages == 0);
            let mut counted = extent..extent.saturating_add(CHUNK_EXTENTS);
            if none && !counted.any(|extent| context.controller.is_counted(file, extent)) {
                extent = extent.saturating_add(CHUNK_EXTENTS);
                continue;
            }
        }
        let mut pages = 0;
        for part in context.controller.own_parts(file, extent) {
            // What cannot be asked stays as it is.
            pages += opened.cached(part.start, part.end - part.start).ok()?.pages;
        }
        if pages > 0 || context.controller.is_counted(file, extent) {
            let bytes = pages * page_bytes();
            context.input(
                now_ns,
                Input::Found {
                    file,
                    offset: start,
                    bytes,
                },
            );
        }
        extent += 1;
    }
    None
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
