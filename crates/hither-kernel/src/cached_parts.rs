//! Which pages of a file are cached, found by asking how many: of a range, then of its halves.
//!
//! Of most ranges all or nothing is cached, and one question is enough. It allocates nothing and
//! takes no lock, as the library asks in the middle of the program's `open`.

use std::ops::Range;

use crate::page_bytes;

/// It is asked about so much at once, and about twice as much, up to the second, each time that
/// nothing of it is cached.
const WINDOW_BYTES: u64 = 32 << 20;
const WINDOW_BYTES_MAX: u64 = 1 << 30;

/// How often it is asked again where two answers do not fit together.
const TRIES_MAX: u32 = 4;

/// Halves of halves, down to a page, of the largest window.
const PARTS_MAX: usize = 24;

/// How much is asked at most.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// When so much was found it is asked no further: `cachestat` takes its time for each page.
    pub cached_bytes_max: u64,
    /// With more questions than that about parts of windows, parts that are partly cached count as
    /// cached.
    pub questions_max: u32,
}

/// A part of a file, and how many pages of it are cached.
#[derive(Clone, Copy, Default)]
struct Part {
    start: u64,
    end: u64,
    cached: u64,
}

impl Part {
    fn pages(self) -> u64 {
        (self.end - self.start).div_ceil(page_bytes())
    }
}

struct Search<'a> {
    ask: &'a mut dyn FnMut(Range<u64>) -> Option<u64>,
    found: &'a mut dyn FnMut(Range<u64>),
    questions_left: u32,
    /// What was found last: what follows may meet it.
    last: Range<u64>,
}

/// Finds the cached parts of a range that begins with a page: `ask` says how many pages of one are
/// cached, and `found` is given each part in order, as long as possible. Where pages come and go
/// meanwhile, what is partly cached may be given as a whole.
///
/// Returns up to where it was asked: less than the end of the range where `ask` has no answer or
/// the effort was spent.
pub fn find(
    range: Range<u64>,
    effort: Effort,
    ask: &mut dyn FnMut(Range<u64>) -> Option<u64>,
    found: &mut dyn FnMut(Range<u64>),
) -> u64 {
    let mut search = Search {
        ask,
        found,
        questions_left: effort.questions_max,
        last: 0..0,
    };
    let (mut at, mut window) = (range.start, WINDOW_BYTES);
    let mut cached_bytes = 0;
    while at < range.end && cached_bytes < effort.cached_bytes_max {
        let end = range.end.min(at.saturating_add(window));
        let Some(cached) = (search.ask)(at..end) else {
            break;
        };
        window = match cached {
            0 => (2 * window).min(WINDOW_BYTES_MAX),
            _ => WINDOW_BYTES,
        };
        cached_bytes += cached * page_bytes();
        search.halve(Part {
            start: at,
            end,
            cached,
        });
        at = end;
    }
    search.give_last();
    at
}

impl Search<'_> {
    /// Finds the cached pages of a part.
    fn halve(&mut self, part: Part) {
        let mut parts = [Part::default(); PARTS_MAX];
        let mut count = 1;
        parts[0] = part;
        while count > 0 {
            count -= 1;
            let Some(&part) = parts.get(count) else {
                return;
            };
            if part.cached == 0 {
                continue;
            }
            let is_whole = part.cached >= part.pages();
            let halves = if is_whole { None } else { self.halves(part) };
            let room = parts.get_mut(count..count + 2);
            let (Some((before, after)), Some([next, last])) = (halves, room) else {
                self.add(part);
                continue;
            };
            (*next, *last) = (after, before);
            count += 2;
        }
    }

    /// The two halves of a part. `None` where no more is to be asked, or the answers do not add up,
    /// since pages come and go meanwhile.
    fn halves(&mut self, part: Part) -> Option<(Part, Part)> {
        let middle = part.start + part.pages() / 2 * page_bytes();
        for _ in 0..TRIES_MAX {
            self.questions_left = self.questions_left.checked_sub(2)?;
            let before = (self.ask)(part.start..middle)?;
            let after = (self.ask)(middle..part.end)?;
            if before + after == part.cached {
                let of = |start, end, cached| Part { start, end, cached };
                return Some((of(part.start, middle, before), of(middle, part.end, after)));
            }
        }
        None
    }

    fn add(&mut self, part: Part) {
        if self.last.end == part.start && !self.last.is_empty() {
            self.last.end = part.end;
        } else {
            self.give_last();
            self.last = part.start..part.end;
        }
    }

    fn give_last(&mut self) {
        if !self.last.is_empty() {
            (self.found)(self.last.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EFFORT: Effort = Effort {
        cached_bytes_max: u64::MAX,
        questions_max: 1 << 20,
    };

    fn pages(parts: &[Range<u64>]) -> Vec<u64> {
        let pages = parts.iter().cloned();
        pages
            .flat_map(|part| part.start / page_bytes()..part.end.div_ceil(page_bytes()))
            .collect()
    }

    fn find_in(cached: &[bool], range: Range<u64>, effort: Effort) -> (u64, Vec<Range<u64>>, u32) {
        let mut found: Vec<Range<u64>> = Vec::new();
        let mut questions = 0;
        let mut ask = |range: Range<u64>| {
            questions += 1;
            assert!(!range.is_empty());
            let pages = range.start / page_bytes()..range.end.div_ceil(page_bytes());
            Some(pages.filter(|&page| cached[page as usize]).count() as u64)
        };
        let asked_to = find(range, effort, &mut ask, &mut |part| found.push(part));
        (asked_to, found, questions)
    }

    #[test]
    fn what_is_cached_is_found_to_the_page_whatever_it_is() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..300 {
            // Larger than a window, and with a last page that is not whole.
            let count = 1 + random(20_000);
            let run = 1 + random(64);
            let mut cached = Vec::new();
            while (cached.len() as u64) < count {
                let (length, is_cached) = (1 + random(run), random(2) == 0);
                cached.extend((0..length).map(|_| is_cached));
            }
            let first = random(count);
            let end = count * page_bytes() - random(page_bytes());
            let (asked_to, found, _) = find_in(&cached, first * page_bytes()..end, EFFORT);
            assert_eq!(asked_to, end);
            let of_them = (first..count).filter(|&page| cached[page as usize]);
            assert_eq!(pages(&found), of_them.collect::<Vec<_>>());
            assert!(found.is_sorted_by(|before, after| before.end < after.start));
        }
    }

    #[test]
    fn few_questions_where_all_or_nothing_is_cached() {
        for is_cached in [false, true] {
            let cached = vec![is_cached; 8192];
            let (_, found, questions) = find_in(&cached, 0..8192 * page_bytes(), EFFORT);
            assert_eq!((found.len(), questions), (usize::from(is_cached), 1));
        }
    }

    #[test]
    fn the_effort_is_kept_and_what_is_not_asked_counts_as_cached() {
        let cached: Vec<bool> = (0..16_384).map(|page| page % 2 == 0).collect();
        let range = 0..16_384 * page_bytes();
        let effort = Effort {
            cached_bytes_max: 1 << 20,
            questions_max: 100,
        };
        let (asked_to, found, questions) = find_in(&cached, range.clone(), effort);
        assert_eq!(asked_to, WINDOW_BYTES, "enough was found");
        assert!(questions <= 101);
        let covered = pages(&found);
        for page in (0..8192).filter(|page| page % 2 == 0) {
            assert!(covered.contains(&page));
        }
        let asked_to = find(range, EFFORT, &mut |_| None, &mut |_| panic!("found"));
        assert_eq!(asked_to, 0, "no answer");
    }

    #[test]
    fn pages_that_come_and_go_lose_nothing_that_stays() {
        let mut turn = 0_u64;
        let mut found = Vec::new();
        let mut ask = |range: Range<u64>| {
            turn += 1;
            // The first page stays, another one is there every other time.
            Some(u64::from(range.start == 0) + turn % 2)
        };
        find(0..64 * page_bytes(), EFFORT, &mut ask, &mut |part| {
            found.push(part);
        });
        assert!(pages(&found).contains(&0));
    }
}
