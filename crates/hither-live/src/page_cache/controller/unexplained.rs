//! Which files are asked how much of them is cached, where there is a limit.
//!
//! Accesses are not all that brings pages in: the kernel reads ahead, mappings are read by page
//! faults, and of programs that are static or make their system calls without libc (as those in Go
//! do) nothing is seen. So large files are asked how much of them is cached, a few extents at a
//! time, until nothing new is found and nobody uses them any more.

use std::collections::{BTreeMap, VecDeque};

use super::extents::EXTENT_BYTES;

/// The questions each time. One is about an extent, or about several that have nothing cached.
const QUESTIONS_MAX: u32 = 256;

/// Why a file is asked about again.
#[derive(Clone, Copy, Debug, Default)]
struct Unexplained {
    /// It was accessed since it was last asked.
    used: bool,
    /// It is mapped: nobody knows when it is used.
    mapped: bool,
}

/// The files that are asked one after the other, with so many questions in all.
#[derive(Debug)]
struct Round {
    files: VecDeque<u32>,
    questions: u32,
}

/// What to ask next.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextFile {
    pub(super) file: u32,
    /// From where on.
    pub(super) offset: u64,
    /// How many questions there are.
    pub(super) questions: u32,
}

/// Files that have more than an extent, and may have pages that nothing explains.
#[derive(Debug, Default)]
pub(super) struct UnexplainedFiles {
    files: BTreeMap<u32, Unexplained>,
    /// The file that is asked next, and from where on.
    next_file: u32,
    next_offset: u64,
    round: Option<Round>,
    last_used: Option<u32>,
}

impl UnexplainedFiles {
    /// A file that reaches to `end` is used.
    pub(super) fn used(&mut self, file: u32, end: u64) {
        if end > EXTENT_BYTES && self.last_used != Some(file) {
            self.last_used = Some(file);
            self.used_unseen(file);
        }
    }

    /// A file is used by programs of which nothing is seen.
    pub(super) fn used_unseen(&mut self, file: u32) {
        self.files.entry(file).or_default().used = true;
    }

    /// A file is mapped.
    pub(super) fn mapped(&mut self, file: u32) {
        self.files.entry(file).or_default().mapped = true;
    }

    /// Begins to ask: all of it, or a few extents.
    pub(super) fn begin(&mut self, all: bool) {
        if all {
            (self.next_file, self.next_offset) = (0, 0);
        }
        let later = self.files.range(self.next_file..);
        let earlier = self.files.range(..self.next_file);
        let files = later.chain(earlier).map(|(&file, _)| file).collect();
        let questions = if all { u32::MAX } else { QUESTIONS_MAX };
        self.round = Some(Round { files, questions });
    }

    /// The file to ask now.
    pub(super) fn next(&mut self) -> Option<NextFile> {
        let round = self.round.as_mut().filter(|round| round.questions > 0)?;
        let file = round.files.pop_front()?;
        if file != self.next_file {
            (self.next_file, self.next_offset) = (file, 0);
        }
        Some(NextFile {
            file,
            offset: self.next_offset,
            questions: round.questions,
        })
    }

    /// A file was asked so many questions. It goes on from `next`, if that was not all.
    pub(super) fn asked(&mut self, file: u32, questions: u32, next: Option<u64>) {
        if let Some(round) = &mut self.round {
            round.questions = round.questions.saturating_sub(questions);
        }
        if let Some(next) = next {
            (self.next_file, self.next_offset) = (file, next);
            self.round = None;
            return;
        }
        (self.next_file, self.next_offset) = (file.saturating_add(1), 0);
        let why = self.files.entry(file).or_default();
        if !std::mem::take(&mut why.used) && !why.mapped {
            self.files.remove(&file);
        }
        if self.last_used == Some(file) {
            self.last_used = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is asked in a round of files that have so many extents.
    fn round(files: &mut UnexplainedFiles, extents: u64) -> Vec<(u32, u64)> {
        let mut asked = Vec::new();
        files.begin(false);
        while let Some(next) = files.next() {
            let NextFile {
                file,
                offset,
                questions,
            } = next;
            asked.push((file, offset / EXTENT_BYTES));
            let left = extents - offset / EXTENT_BYTES;
            let some = left.min(u64::from(questions));
            let next = (some < left).then_some(offset + some * EXTENT_BYTES);
            files.asked(file, some as u32, next);
        }
        asked
    }

    #[test]
    fn files_are_asked_in_turn_until_nobody_uses_them() {
        let mut files = UnexplainedFiles::default();
        files.used(4, EXTENT_BYTES);
        assert_eq!(round(&mut files, 10), [], "its only extent is explained");
        files.used(4, EXTENT_BYTES + 1);
        files.used_unseen(7);
        assert_eq!(round(&mut files, 200), [(4, 0), (7, 0)]);
        assert_eq!(round(&mut files, 200), [(7, 56), (4, 0)], "once more");
        assert_eq!(round(&mut files, 200), [(4, 112), (7, 0)]);
        assert_eq!(round(&mut files, 200), [(7, 168)]);
        files.mapped(9);
        for _ in 0..3 {
            assert_eq!(round(&mut files, 10), [(9, 0)]);
        }
    }
}
