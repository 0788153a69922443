//! What is cached of a file when the program opens it: what other programs had cached before, page
//! by page, which a limit on what this program caches does not count.
//!
//! Only the library can ask in time, before the program reads. It asks `cachestat`, which takes
//! 0.3 us, and 1.3 us more for each MiB that is cached (2026-11): of most files once, since all or
//! nothing of them is cached.

use std::ops::Range;

use hither_sys::record::Record;
use hither_sys::syscalls;

const PAGE_BYTES: u64 = 4096;

/// It is asked about so much at once, and about twice as much, up to the second, each time that
/// nothing of it is cached.
const WINDOW_BYTES: u64 = 32 << 20;
const WINDOW_BYTES_MAX: u64 = 1 << 30;

/// When so much was found it is asked no further, since each page takes its time: half a
/// millisecond in all.
const CACHED_BYTES_MAX: u64 = 256 << 20;

/// With more questions than that about parts of windows, parts that are partly cached count as
/// cached.
const QUESTIONS_MAX: u32 = 8192;

/// How often it is asked again where two answers do not fit together.
const TRIES_MAX: u32 = 4;

/// Halves of halves, down to a page, of the largest window.
const PARTS_MAX: usize = 24;

/// A part of a file, and how many pages of it are cached.
#[derive(Clone, Copy, Default)]
struct Part {
    start: u64,
    end: u64,
    cached: u64,
}

impl Part {
    fn pages(self) -> u64 {
        (self.end - self.start).div_ceil(PAGE_BYTES)
    }
}

/// Ranges that are cached, put together where they meet.
struct Found<'a> {
    object: u64,
    last: Range<u64>,
    push: &'a mut dyn FnMut(&Record<'_>) -> bool,
}

impl Found<'_> {
    fn add(&mut self, part: Part) {
        if self.last.end == part.start && !self.last.is_empty() {
            self.last.end = part.end;
        } else {
            self.push_last();
            self.last = part.start..part.end;
        }
    }

    fn push_last(&mut self) {
        if !self.last.is_empty() {
            (self.push)(&Record::Cached {
                object: self.object,
                offset: self.last.start,
                length: self.last.end - self.last.start,
            });
        }
    }
}

/// Pushes what is cached of the file behind `fd`, which has this key and so many bytes. Returns of
/// how many pages of its front that is known; `None` where the kernel does not say.
pub(crate) fn push(
    fd: i32,
    object: u64,
    bytes: u64,
    push: &mut dyn FnMut(&Record<'_>) -> bool,
) -> Option<u32> {
    let mut found = Found {
        object,
        last: 0..0,
        push,
    };
    let (mut at, mut window) = (0, WINDOW_BYTES);
    let (mut cached_bytes, mut questions) = (0, 0);
    while at < bytes && cached_bytes < CACHED_BYTES_MAX {
        let end = bytes.min(at.saturating_add(window));
        let Some(cached) = cached_pages(fd, at, end) else {
            break;
        };
        let part = Part {
            start: at,
            end,
            cached,
        };
        window = match cached {
            0 => (2 * window).min(WINDOW_BYTES_MAX),
            _ => WINDOW_BYTES,
        };
        cached_bytes += cached * PAGE_BYTES;
        find(fd, part, &mut questions, &mut found);
        at = end;
    }
    found.push_last();
    (at > 0 || bytes == 0).then(|| u32::try_from(at.div_ceil(PAGE_BYTES)).unwrap_or(u32::MAX))
}

/// Finds the cached pages of a part, halving it.
fn find(fd: i32, part: Part, questions: &mut u32, found: &mut Found<'_>) {
    let mut parts = [Part::default(); PARTS_MAX];
    let mut count = 1;
    parts[0] = part;
    while count > 0 {
        count -= 1;
        let Some(&part) = parts.get(count) else {
            return;
        };
        let middle = part.start + part.pages() / 2 * PAGE_BYTES;
        let is_whole = part.cached >= part.pages();
        if part.cached == 0 {
            continue;
        }
        let halves = match is_whole || *questions >= QUESTIONS_MAX {
            true => None,
            false => halves(fd, part, middle, questions),
        };
        let (Some((before, after)), Some([next, last])) = (halves, parts.get_mut(count..count + 2))
        else {
            found.add(part);
            continue;
        };
        *next = Part {
            start: middle,
            end: part.end,
            cached: after,
        };
        *last = Part {
            start: part.start,
            end: middle,
            cached: before,
        };
        count += 2;
    }
}

/// How many pages of the two halves of a part are cached. `None` where the answers do not add up,
/// since pages come and go meanwhile.
fn halves(fd: i32, part: Part, middle: u64, questions: &mut u32) -> Option<(u64, u64)> {
    for _ in 0..TRIES_MAX {
        *questions += 2;
        let before = cached_pages(fd, part.start, middle)?;
        let after = cached_pages(fd, middle, part.end)?;
        if before + after == part.cached {
            return Some((before, after));
        }
    }
    None
}

fn cached_pages(fd: i32, start: u64, end: u64) -> Option<u64> {
    let found = syscalls::cachestat(fd, start, end - start).ok()?;
    Some(found.cached)
}
