//! What is cached of a file when the program opens it: what other programs had cached before, page
//! by page, which a limit on what this program caches does not count.
//!
//! Only the library can ask in time, before the program reads. It asks `cachestat`, which takes
//! 0.3 us, and 1.3 us more for each MiB that is cached (2026-11): of most files once, since all or
//! nothing of them is cached.

use hither_ids::FileKey;
use hither_kernel::cached_parts::{self, Effort};
use hither_kernel::page_bytes;
use hither_kernel::syscalls;
use hither_session::record::Record;

/// Half a millisecond, and for what is cached in pieces a few more.
const EFFORT: Effort = Effort {
    cached_bytes_max: 256 << 20,
    questions_max: 8192,
};

/// What was said of a file.
#[derive(Clone, Copy, Default)]
pub(crate) struct Said {
    /// Of how many pages of its front it is known what is cached; `None` where the kernel does not
    /// say.
    pub(crate) asked_pages: Option<u32>,
    /// All of it is cached.
    pub(crate) is_whole: bool,
}

/// Pushes what is cached of the file behind `fd`, which has this key and so many bytes.
pub(crate) fn push(
    fd: i32,
    object: u64,
    bytes: u64,
    push: &mut dyn FnMut(&Record<'_>) -> bool,
) -> Said {
    let mut is_whole = false;
    let asked_to = cached_parts::find(
        0..bytes,
        EFFORT,
        &mut |range| {
            let found = syscalls::cachestat(fd, range.start, range.end - range.start).ok()?;
            Some(found.cached)
        },
        &mut |part| {
            let is_said = push(&Record::Cached {
                object: FileKey(object),
                offset: part.start,
                length: part.end - part.start,
            });
            is_whole = is_said && part == (0..bytes);
        },
    );
    let pages = u32::try_from(asked_to.div_ceil(page_bytes())).unwrap_or(u32::MAX);
    Said {
        asked_pages: (asked_to > 0 || bytes == 0).then_some(pages),
        is_whole,
    }
}
