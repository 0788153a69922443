//! The limit beside a page cache that reads ahead, holds what others have cached, and does not drop
//! what is dirty.

use std::collections::BTreeSet;

use hither_ids::FileKey;
use proptest::prelude::*;

use super::super::super::event::{CachedExtent, TimedInput};
use super::super::config::LimitConfig;
use super::super::limit::{
    STEERED_EXCESS_DIVISOR, STEERED_EXCESS_MIN_BYTES, TRIES_MAX, UNREAD_MAX,
};
use super::super::tests::config;
use super::super::{BLOCK_BYTES, EXTENT_BYTES, PageCacheConfig};
use super::*;
use crate::controller::Controller;
use crate::program_files::CachedBefore;

const PAGE_BYTES: u64 = 4096;
const EXTENT_PAGES: u64 = EXTENT_BYTES / PAGE_BYTES;
const FILES: u64 = 3;
const FILE_PAGES: u64 = 6 * EXTENT_PAGES + 17;

type Page = (u64, u64);

/// A controller with a limit, and a page cache.
struct Lab {
    controller: PageCacheController,
    time_ns: u64,
    own: BTreeSet<Page>,
    foreign: BTreeSet<Page>,
    dirty: BTreeSet<Page>,
}

impl Lab {
    fn new(policy: &str, limit: LimitConfig) -> Lab {
        let config = PageCacheConfig {
            limit: Some(limit),
            ..config(policy, limit.bytes / BLOCK_BYTES)
        };
        Lab {
            controller: PageCacheController::new(&config).expect("a sound configuration"),
            time_ns: 0,
            own: BTreeSet::new(),
            foreign: BTreeSet::new(),
            dirty: BTreeSet::new(),
        }
    }

    /// Gives it an input, and carries out what it decides. The kernel says what it has left.
    fn input(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mut out = Vec::new();
            let time_ns = self.time_ns;
            self.controller
                .step(&TimedInput { time_ns, input }, &mut out);
            self.controller.check();
            for decision in out {
                let Decision::Order(Order::Drop {
                    file,
                    offset,
                    length,
                }) = decision
                else {
                    continue;
                };
                let pages = offset / PAGE_BYTES..(offset + length) / PAGE_BYTES;
                let range = (file.0, pages.start)..(file.0, pages.end);
                let lost = self.foreign.range(range.clone()).next();
                assert_eq!(lost, None, "another's page was dropped");
                let dropped: Vec<Page> = self.own.range(range).copied().collect();
                let (left, gone): (Vec<Page>, Vec<Page>) = dropped
                    .into_iter()
                    .partition(|page| self.dirty.remove(page));
                for page in &gone {
                    self.own.remove(page);
                }
                if !left.is_empty() {
                    inputs.push(Input::Undropped {
                        file,
                        offset: offset / EXTENT_BYTES * EXTENT_BYTES,
                        bytes: left.len() as u64 * PAGE_BYTES,
                    });
                }
            }
        }
    }

    /// A program uses a file of which nothing was cached.
    fn opened(&mut self, file: u64, bytes: u64) {
        self.input(Input::Opened {
            file: FileKey(file),
            bytes,
            readahead_bytes: 0,
            is_first: true,
            cached_before: Some(CachedBefore {
                known_bytes: bytes,
                ranges: Vec::new(),
            }),
        });
    }

    fn access(&mut self, file: u64, first: u64, pages: u64, write: bool) {
        // The kernel reads ahead to the end of the extent.
        let end = (first + pages).min(FILE_PAGES);
        let ahead = end.next_multiple_of(EXTENT_PAGES).min(FILE_PAGES);
        for page in first..if write { end } else { ahead } {
            if !self.foreign.contains(&(file, page)) {
                self.own.insert((file, page));
                if write {
                    self.dirty.insert((file, page));
                }
            }
        }
        self.time_ns += 1_000_000;
        self.input(Input::Access {
            file: FileKey(file),
            offset: first * PAGE_BYTES,
            length: (end - first) * PAGE_BYTES,
            signature: 1,
            process: 0,
            thread: 0,
            write,
        });
        self.input(Input::Tick);
    }

    /// These pages come in for the programs, those that are not cached.
    fn inserted(&mut self, file: u64, first: u64, end: u64) {
        for page in first..end.min(FILE_PAGES) {
            let at = (file, page);
            if !self.foreign.contains(&at) && self.own.insert(at) {
                self.input(Input::Inserted {
                    file: FileKey(file),
                    offset: page * PAGE_BYTES,
                    length: PAGE_BYTES,
                });
            }
        }
        self.input(Input::Tick);
    }

    /// Another program uses these pages, whoever has brought them in.
    fn used_by_others(&mut self, file: u64, first: u64, end: u64) {
        for page in first..end {
            self.own.remove(&(file, page));
            self.dirty.remove(&(file, page));
            self.foreign.insert((file, page));
        }
        self.input(Input::UsedByOthers {
            file: FileKey(file),
            offset: first * PAGE_BYTES,
            length: (end - first) * PAGE_BYTES,
        });
    }

    /// What the programs have cached that is not waiting for its write-back.
    fn cached_bytes(&self) -> u64 {
        self.own.len() as u64 * PAGE_BYTES - self.controller.left_bytes()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_more_is_cached_at_any_time_and_nothing_of_others_is_dropped(
        policy in prop::sample::select(&["lru", "pcc", "mru"][..]),
        extents in 4..9_u64,
        keeps in any::<bool>(),
        foreign in prop::collection::vec((1..=FILES, 0..FILE_PAGES, 1..300_u64), 0..12),
        accesses in prop::collection::vec(
            (1..=FILES, 0..FILE_PAGES, 1..700_u64, prop::bool::weighted(0.2)),
            1..200,
        ),
    ) {
        let bytes = extents * EXTENT_BYTES;
        let limit = LimitConfig { bytes, keeps, is_told: false, page_bytes: PAGE_BYTES };
        let mut lab = Lab::new(policy, limit);
        for file in 1..=FILES {
            lab.opened(file, FILE_PAGES * PAGE_BYTES);
        }
        for (file, first, pages) in foreign {
            let end = (first + pages).min(FILE_PAGES);
            lab.foreign.extend((first..end).map(|page| (file, page)));
            let length = (end - first) * PAGE_BYTES;
            lab.input(Input::Preexisting {
                file: FileKey(file),
                offset: first * PAGE_BYTES,
                length,
                cached_bytes: length,
            });
        }
        let others = lab.foreign.clone();
        for (file, first, pages, write) in accesses {
            lab.access(file, first, pages, write);
            let borne = (bytes / STEERED_EXCESS_DIVISOR).max(STEERED_EXCESS_MIN_BYTES);
            let most = bytes + if lab.controller.summary().steering { borne } else { 0 };
            prop_assert!(lab.cached_bytes() <= most, "{} of {most}", lab.cached_bytes());
        }
        // The write-back takes one try.
        for _ in 0..3 {
            lab.input(Input::Ended);
        }
        prop_assert_eq!(lab.controller.left_bytes(), 0);
        let most = if keeps { bytes } else { 0 };
        prop_assert!(lab.own.len() as u64 * PAGE_BYTES <= most);
        prop_assert_eq!(lab.foreign, others);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Where the kernel tells what comes in: all else is other programs'.
    #[test]
    fn what_came_in_for_the_programs_goes_and_what_others_use_stays(
        policy in prop::sample::select(&["lru", "pcc"][..]),
        extents in 4..9_u64,
        keeps in any::<bool>(),
        before in prop::collection::vec((1..=FILES, 0..FILE_PAGES, 1..300_u64), 0..12),
        accesses in prop::collection::vec(
            (1..=FILES, 0..FILE_PAGES, 1..700_u64, 0..5_u8),
            1..200,
        ),
    ) {
        let bytes = extents * EXTENT_BYTES;
        let limit = LimitConfig { bytes, keeps, is_told: true, page_bytes: PAGE_BYTES };
        let mut lab = Lab::new(policy, limit);
        for (file, first, pages) in before {
            let end = (first + pages).min(FILE_PAGES);
            lab.foreign.extend((first..end).map(|page| (file, page)));
        }
        let mut others = lab.foreign.clone();
        for (file, first, pages, what) in accesses {
            let end = (first + pages).min(FILE_PAGES);
            match what {
                0 => {
                    others.extend((first..end).map(|page| (file, page)));
                    lab.used_by_others(file, first, end);
                }
                // The last file's events were lost until here, the opening among them.
                1 if file < FILES => lab.opened(file, FILE_PAGES * PAGE_BYTES),
                2 => lab.inserted(file, first, end),
                _ => {
                    lab.inserted(file, first, end.next_multiple_of(EXTENT_PAGES));
                    lab.access(file, first, pages, what == 3);
                }
            }
            let borne = (bytes / STEERED_EXCESS_DIVISOR).max(STEERED_EXCESS_MIN_BYTES);
            let unread = UNREAD_MAX as u64 * EXTENT_BYTES;
            prop_assert!(lab.cached_bytes() <= bytes + borne + unread);
        }
        for _ in 0..3 {
            lab.input(Input::Ended);
        }
        prop_assert_eq!(lab.controller.left_bytes(), 0);
        let most = if keeps { bytes } else { 0 };
        prop_assert!(lab.own.len() as u64 * PAGE_BYTES <= most);
        prop_assert_eq!(lab.foreign, others);
    }
}

fn lab() -> Lab {
    let bytes = 4 * EXTENT_BYTES;
    Lab::new(
        "lru",
        LimitConfig {
            bytes,
            keeps: true,
            is_told: false,
            page_bytes: PAGE_BYTES,
        },
    )
}

#[test]
fn small_files_count_what_they_have() {
    let mut lab = lab();
    for file in 0..100 {
        lab.opened(file, 3);
        lab.input(Input::Access {
            file: FileKey(file),
            offset: 0,
            length: 3,
            signature: 1,
            process: 0,
            thread: 0,
            write: false,
        });
    }
    lab.input(Input::Tick);
    assert_eq!(lab.controller.summary().drops, 0);
    let limit = lab.controller.limit.as_ref().expect("a limit");
    assert_eq!(limit.held_bytes, 100 * PAGE_BYTES);
}

/// In parts, as policies drop it.
#[test]
fn what_is_dropped_of_an_extent_counts_no_more() {
    const KIB: u64 = 1 << 10;
    let mut limit = CacheLimit::new(&LimitConfig {
        bytes: 1 << 30,
        keeps: true,
        is_told: false,
        page_bytes: PAGE_BYTES,
    });
    // 37.5 blocks, and 2.5 extents.
    let (small, large) = (600 * KIB, 5 * EXTENT_BYTES / 2);
    for (file, bytes) in [(1, small), (2, large)] {
        limit.sized(file, bytes);
        limit.accessed(file, 0, bytes);
    }
    let mut held = small + large;
    assert_eq!(limit.held_bytes, held);
    for (file, range, less) in [
        (1, 64 * KIB..128 * KIB, 64 * KIB),
        (1, 96 * KIB..160 * KIB, 32 * KIB),
        // The end of the file is in the midst of a block.
        (1, 592 * KIB..608 * KIB, 8 * KIB),
        (2, EXTENT_BYTES / 2..2 * EXTENT_BYTES, 3 * EXTENT_BYTES / 2),
        (2, 2 * EXTENT_BYTES..3 * EXTENT_BYTES, EXTENT_BYTES / 2),
        (3, 0..EXTENT_BYTES, 0),
    ] {
        limit.dropped(file, &range);
        limit.check();
        held -= less;
        assert_eq!(limit.held_bytes, held, "{file}: {range:?}");
    }
    // Another program has a block that was not dropped, and one that was.
    limit.foreign(1, 0, 16 * KIB);
    limit.foreign(1, 64 * KIB, 16 * KIB);
    limit.check();
    assert_eq!(limit.held_bytes, held);
    limit.dropped(1, &(160 * KIB..176 * KIB));
    limit.check();
    limit.accessed(1, 0, KIB);
    limit.dropped(1, &(0..608 * KIB));
    limit.dropped(2, &(0..3 * EXTENT_BYTES));
    limit.check();
    assert_eq!(limit.held_bytes, 0);
}

#[test]
fn what_no_access_explains_is_found_and_dropped() {
    let mut lab = lab();
    for extent in 0..6 {
        lab.own
            .extend((0..EXTENT_PAGES).map(|page| (1, extent * EXTENT_PAGES + page)));
        let offset = extent * EXTENT_BYTES;
        lab.input(Input::ExtentsCounted {
            file: FileKey(1),
            offset,
            end: offset + EXTENT_BYTES,
            cached: vec![CachedExtent {
                offset,
                bytes: EXTENT_BYTES,
            }],
            questions: 1,
            goes_on: false,
        });
    }
    lab.input(Input::Tick);
    assert_eq!(lab.cached_bytes(), 4 * EXTENT_BYTES);
    assert_eq!(
        lab.own.first(),
        Some(&(1, 2 * EXTENT_PAGES)),
        "the first found"
    );
}

#[test]
fn what_stays_is_given_up_and_tried_once_more_at_the_end() {
    let mut lab = lab();
    for extent in 0..5 {
        lab.access(1, extent * EXTENT_PAGES, EXTENT_PAGES, false);
    }
    assert_eq!(lab.controller.summary().drops, 1);
    let stays = Input::Undropped {
        file: FileKey(1),
        offset: 0,
        bytes: PAGE_BYTES,
    };
    lab.input(stays.clone());
    let mut tries = 0;
    for _ in 0..600 {
        lab.time_ns += 100_000_000;
        let before = lab.controller.summary().drops;
        lab.input(Input::Tick);
        if lab.controller.summary().drops > before {
            tries += 1;
            lab.input(stays.clone());
        }
    }
    assert_eq!(tries, TRIES_MAX);
    assert_eq!(lab.controller.left_bytes(), 0);
}
