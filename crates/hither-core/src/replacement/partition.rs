//! A cache in three parts, for sequential, looping and other blocks, whose sizes follow from the
//! value of a block in each. `pcc`, `ubm` and `dear` share it and differ only in their classifier,
//! as in the PCC paper, whose authors put PCC's classification into the unmodified cache of UBM.
//!
//! Source: Gniady, Butt and Hu, OSDI 2004, section 5.1; Kim et al., OSDI 2000, sections 3.2 and
//! 3.3. On a miss with a full cache, the victim comes from the part that loses least, the one with
//! the smallest *marginal gain*. A sequential block is worth nothing; a looping block is worth
//! 1/period, one hit a round; for other blocks `marginal_gain` measures it. Where a looping and an
//! other block are worth the same, the other block is evicted. The access itself is classified
//! first, so a period that it changes already counts. On a hit the block is classified again and
//! moves to the part of its new class.
//!
//! Departure: blocks of a loop that has ended (see `looping`) are evicted even before sequential
//! ones. Both are worth nothing, but what is classified as sequential may be the first round of the
//! next loop, which then finds room. Measured on 20 loops of 500 blocks, one after the other, 10
//! rounds each, in a cache of 1000 blocks (2026-11): hit ratio 0.90, which is the optimum, against
//! 0.72 (pcc) and 0.81 (ubm) with sequential blocks first.
//!
//! Departure: when a stream loops and is steady ([`Stream::steady_period`]), its sequential blocks
//! become looping ones, as if referenced at that moment. In the papers a block changes its class at
//! its next reference. So what is left of the rounds before the stream was found to loop is evicted
//! before the blocks of the current round. In a plain loop that costs little, but in shuffled
//! epochs it is just what the current epoch has not read yet. Measured on 6 epochs over 32768
//! blocks in shuffled records of 8, with a cache of 14272 (2026-11): pcc misses 125252 blocks,
//! 135889 without this rule; the optimum is 125248. Streams that are not steady are left out: on
//! one-site versions of traces without loops the rule would cost up to 7 %.
//!
//! The parts have no sizes to maintain: a part grows with an insertion and shrinks by giving a
//! victim.

mod looping;
mod marginal_gain;
mod sequential;

use super::{ClassCounts, Replacement, SiteRecord};
use crate::access::Access;
use crate::cache::ReplacementPolicy;
use crate::classify::{Class, Classification, Classifier, Stream};
use crate::entry::{Param, ParamKind, inner_replacements};
use crate::ids::{Slot, Tick};
use looping::Looping;
use marginal_gain::MarginalGain;
use sequential::Sequential;

/// The parameter `expire` of the partitioned policies.
pub(crate) const EXPIRE: Param = Param::real(
    "expire",
    "a loop that has not returned for so many of its periods has ended; \
          0: never (as in the papers)",
    2.0,
    0.0..=1e6,
);

/// The parameter `other` of the partitioned policies.
pub(crate) const OTHER: Param = Param {
    name: "other",
    doc: "the policy for blocks that are neither sequential nor looping",
    kind: ParamKind::Replacement {
        default: "lru",
        names: inner_replacements,
    },
};

/// See the module.
pub struct Partitioned<C> {
    capacity: u32,
    classifier: C,
    /// The classification of the missing access, from `victim` to `inserted`.
    verdict: Option<Classification>,
    /// By slot, the part that it belongs to.
    part: Vec<Class>,
    sequential: Sequential,
    looping: Looping,
    other: Box<dyn ReplacementPolicy>,
    other_len: usize,
    /// The size that `other` and `gain` were last given.
    other_told: usize,
    gain: MarginalGain,
    counts: ClassCounts,
}

impl<C: Classifier> Partitioned<C> {
    /// A cache of `capacity` blocks. `other` keeps the blocks that are neither sequential nor
    /// looping, and was built for the same capacity. A loop that has not returned for `expire`
    /// periods has ended; 0: never.
    pub fn new(
        capacity: u32,
        classifier: C,
        expire: f64,
        other: Box<dyn ReplacementPolicy>,
    ) -> Self {
        Partitioned {
            capacity,
            classifier,
            verdict: None,
            part: vec![Class::Other; capacity as usize],
            sequential: Sequential::new(capacity),
            looping: Looping::new(capacity, expire),
            other,
            other_len: 0,
            other_told: 0,
            gain: MarginalGain::new(capacity),
            counts: ClassCounts::default(),
        }
    }

    fn classify(&mut self, access: &Access) -> Classification {
        let verdict = self.classifier.classify(access);
        match verdict.class {
            Class::Sequential => self.counts.sequential += 1,
            Class::Looping => self.counts.looping += 1,
            Class::Other => self.counts.other += 1,
        }
        self.looping.revise(verdict.stream);
        if let Some(stream) = verdict.revised {
            self.looping.revise(stream);
        }
        if verdict.class == Class::Looping && verdict.stream.steady_period > 0 {
            self.reclassify_as_looping(verdict.stream, access.tick);
        }
        self.gain
            .access(access.block.0, verdict.class == Class::Other);
        verdict
    }

    /// Makes the sequential blocks of a stream looping ones.
    fn reclassify_as_looping(&mut self, stream: Stream, now: Tick) {
        while let Some(slot) = self.sequential.oldest_of(stream.id) {
            self.sequential.remove(slot);
            self.part[slot.index()] = Class::Looping;
            self.looping.insert(slot, stream, now);
        }
    }

    fn enter(&mut self, slot: Slot, access: &Access, verdict: Classification) {
        self.part[slot.index()] = verdict.class;
        match verdict.class {
            Class::Sequential => {
                let (thread, stream) = (access.thread.0, verdict.stream.id);
                self.sequential.insert(slot, thread, stream, access.tick);
            }
            Class::Looping => self.looping.insert(slot, verdict.stream, access.tick),
            Class::Other => {
                self.other.inserted(slot, access);
                self.other_len += 1;
            }
        }
        self.tell_size();
    }

    fn leave(&mut self, slot: Slot) {
        match self.part[slot.index()] {
            Class::Sequential => self.sequential.remove(slot),
            Class::Looping => self.looping.remove(slot),
            Class::Other => {
                self.other.removed(slot);
                self.other_len -= 1;
            }
        }
    }

    /// Gives the size of the part for other blocks to `other` and `gain`, which size ghosts by it,
    /// if it changed. Once an access, so that a victim and an insertion that cancel out cost no
    /// ghost.
    fn tell_size(&mut self) {
        if self.other_len != self.other_told {
            self.other_told = self.other_len;
            self.gain.resize(self.other_len);
            self.other.resized(self.other_len.max(1) as u32);
        }
    }
}

impl<C: Classifier> Replacement for Partitioned<C> {
    fn hit(&mut self, slot: Slot, access: &Access) {
        let verdict = self.classify(access);
        if (self.part[slot.index()], verdict.class) == (Class::Other, Class::Other) {
            self.other.hit(slot, access);
        } else {
            self.leave(slot);
            self.enter(slot, access, verdict);
        }
    }

    fn victim(&mut self, incoming: &Access) -> Slot {
        self.verdict = Some(self.classify(incoming));
        let now = incoming.tick;
        let worthless = self.looping.overdue(now).or_else(|| {
            self.sequential
                .victim(incoming.thread.0, now, self.capacity)
        });
        let slot = match (worthless, self.looping.offer()) {
            (Some(slot), _) => slot,
            (None, Some(offer))
                if self.other_len == 0 || offer.gain < self.gain.hits_per_reference() =>
            {
                offer.slot
            }
            (None, None) if self.other_len == 0 => self
                .sequential
                .oldest()
                .expect("a full cache has a block in one of its parts"),
            _ => {
                self.other_len -= 1;
                return self.other.victim(incoming);
            }
        };
        self.leave(slot);
        slot
    }

    fn inserted(&mut self, slot: Slot, access: &Access) {
        let verdict = match self.verdict.take() {
            Some(verdict) => verdict,
            None => self.classify(access),
        };
        self.enter(slot, access, verdict);
    }

    fn removed(&mut self, slot: Slot) {
        self.leave(slot);
        self.tell_size();
    }

    fn class_counts(&self) -> Option<ClassCounts> {
        Some(self.counts)
    }

    fn class(&self, slot: Slot) -> Option<Class> {
        Some(self.part[slot.index()])
    }

    fn sites(&self) -> Option<Vec<SiteRecord>> {
        self.classifier.sites()
    }

    fn check(&self, resident: usize) {
        self.classifier.check();
        self.sequential.check();
        self.looping.check();
        self.gain.check();
        self.other.check(self.other_len);
        assert_eq!(self.other_told, self.other_len);
        assert_eq!(
            self.sequential.len() + self.looping.len() + self.other_len,
            resident
        );
        assert!(
            self.verdict.is_none(),
            "a verdict is left over from an access that was not inserted"
        );
    }
}
