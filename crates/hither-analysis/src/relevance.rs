//! Whether caching a program's files better matters on the machine that recorded it: whether its
//! files fit into memory, and what was read from storage.

use hither_core::placement::Target;
use hither_trace::Trace;
use serde::Serialize;

use crate::advice::STEERABLE_MIN_BYTES;
use crate::format::bytes;
use crate::placement;

/// Blocks of more than a page take small files for large ones.
const BLOCK_BYTES_MAX: u32 = 4096;

/// What is read at the start, of programs and ahead, is less than this share of the memory: 1/16.
/// So little pushes nothing out.
const MEMORY_DIVISOR: u64 = 16;

/// The memory that a recorded program ran in, and what it read from storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Relevance {
    /// The blocks of files that it used, in bytes.
    pub files_bytes: u64,
    /// The limit of its memory cgroup, or else the machine's memory.
    pub memory_bytes: u64,
    /// Whether that is the limit of a cgroup.
    pub limited: bool,
    /// What of it was left for pages of files, as far as the trace says.
    pub left_bytes: u64,
    /// Whether the files fit into what was left.
    pub fit: bool,
    /// Bytes that the kernel fetched from storage. `None`: it did not say.
    pub storage_bytes: Option<u64>,
    /// Whether it read more than about one time what the files hold.
    #[serde(skip)]
    pub reads_again: bool,
}

impl Relevance {
    /// `None` if the trace does not say, or is not of files.
    pub fn of(trace: &Trace) -> Option<Relevance> {
        let meta = trace.meta();
        let seen = meta.seen?;
        let is_known = meta.machine.memory_bytes > 0 || seen.memory_limit_bytes.is_some();
        let are_pages = trace.options().block_bytes <= BLOCK_BYTES_MAX;
        if !is_known || !are_pages || placement::data_kind(trace) != Some(Target::Files) {
            return None;
        }
        let memory_bytes = seen.memory_limit_bytes.unwrap_or(meta.machine.memory_bytes);
        let left_bytes = seen.memory_left_bytes.unwrap_or(memory_bytes);
        let files_bytes = trace.blocks_of_all() * u64::from(trace.options().block_bytes);
        Some(Relevance {
            files_bytes,
            memory_bytes,
            limited: seen.memory_limit_bytes.is_some(),
            left_bytes,
            fit: files_bytes <= left_bytes,
            storage_bytes: seen.storage_bytes,
            reads_again: {
                let of = &trace.counts().total;
                let read = of.read_bytes.saturating_add(of.in_kernel_bytes);
                read.saturating_add(of.mapped_bytes) > files_bytes + files_bytes / MEMORY_DIVISOR
            },
        })
    }

    /// The size of a cache of all that was left, in bytes, if the files do not fit and `hither run`
    /// can steer it.
    pub fn size_bytes(&self) -> Option<u64> {
        let is_size = !self.fit && self.left_bytes >= STEERABLE_MIN_BYTES;
        is_size.then_some(self.left_bytes)
    }

    /// Whether the cgroup leaves less for files than `hither run` can steer.
    pub(crate) fn is_cramped(&self) -> bool {
        self.limited && !self.fit && self.left_bytes < STEERABLE_MIN_BYTES
    }

    /// Whether little more was read from storage than one time what the files hold, or what pushes
    /// nothing out.
    pub(crate) fn is_read_once(&self) -> bool {
        let much = (2 * self.files_bytes).max(self.left_bytes / MEMORY_DIVISOR);
        self.storage_bytes.is_none_or(|read| read <= much)
    }

    /// Why nothing is known of it.
    pub(crate) fn unknown(trace: &Trace) -> &'static str {
        if trace.references() == 0 {
            "Whether it matters is not known: nothing was seen that it reads."
        } else if trace.options().block_bytes > BLOCK_BYTES_MAX {
            "Whether it matters is not known: with such large blocks small files seem large."
        } else {
            "Whether it matters is not known: the trace does not say how much memory there was."
        }
    }

    /// Whether it matters, in a sentence.
    pub(crate) fn verdict(&self) -> String {
        let files = bytes(self.files_bytes);
        let memory = if self.limited {
            format!("the {} of its memory cgroup", bytes(self.memory_bytes))
        } else {
            format!("the machine's {} of memory", bytes(self.memory_bytes))
        };
        let left = bytes(self.left_bytes);
        let memory = if self.left_bytes < self.memory_bytes {
            format!("the {left} that programs left of {memory}")
        } else {
            memory
        };
        if !self.fit && !self.reads_again {
            return format!(
                "It hardly matters here: {files} of files do not fit into {memory}, but hardly \
                 anything is read twice."
            );
        }
        if !self.fit {
            return format!("It matters here: {files} of files do not fit into {memory}.");
        }
        match self.storage_bytes.map(bytes) {
            Some(read) if !self.is_read_once() => format!(
                "It may matter here: {files} of files would fit into {memory}, yet {read} were \
                 read from storage."
            ),
            read => {
                let read = read.map_or(String::new(), |read| {
                    format!(", and {read} were read from storage")
                });
                format!(
                    "It does not matter here as things are: {files} of files fit into \
                     {memory}{read}."
                )
            }
        }
    }

    /// The same, and of what the rest of the advice holds.
    pub fn sentence(&self) -> String {
        let verdict = self.verdict();
        if self.fit && self.is_read_once() {
            let files = bytes(self.files_bytes);
            format!("{verdict} What follows holds where files have less than {files}.")
        } else {
            verdict
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_fits_into_memory_does_not_matter_unless_it_is_read_again() {
        let mut here = Relevance {
            files_bytes: 95 * MIB,
            memory_bytes: 1024 * MIB,
            limited: false,
            left_bytes: 1024 * MIB,
            fit: true,
            storage_bytes: Some(92 * MIB),
            reads_again: true,
        };
        let said = here.sentence();
        assert!(said.starts_with("It does not matter here"), "{said}");
        assert!(said.contains("92.00 MiB were read from storage"), "{said}");
        assert_eq!(here.size_bytes(), None);
        here.storage_bytes = Some(800 * MIB);
        assert!(here.sentence().starts_with("It may matter here"));
        (here.fit, here.memory_bytes, here.limited) = (false, 64 * MIB, true);
        here.left_bytes = 64 * MIB;
        let said = here.sentence();
        assert!(
            said.ends_with("the 64.00 MiB of its memory cgroup."),
            "{said}"
        );
        assert_eq!(here.size_bytes(), Some(64 * MIB));
        assert!(!here.is_cramped());
        here.left_bytes = 2 * MIB;
        assert!(here.is_cramped());
        assert_eq!(here.size_bytes(), None);
        here.left_bytes = 40 * MIB;
        let said = here.sentence();
        let left = "the 40.00 MiB that programs left of the 64.00 MiB";
        assert!(said.contains(left), "{said}");
        assert_eq!(here.size_bytes(), Some(40 * MIB));
    }
}
