//! A cache in three parts, for sequential, looping and other blocks, whose sizes follow from the
//! value of a block in each. `pcc`, `ubm` and `dear` share it and differ only in their classifier,
//! as in the PCC paper, whose authors put PCC's classification into the unmodified cache of UBM.
//! Each departure from the papers is one parameter, and `as=paper` takes all of them back at once.
//!
//! Source: Gniady, Butt and Hu, OSDI 2004, section 5.1; Kim et al., OSDI 2000, sections 3.2 and
//! 3.3. On a miss with a full cache, the victim comes from the part that loses least, the one with
//! the smallest *marginal gain*. A sequential block is worth nothing; a looping block is worth
//! 1/period, one hit a round; for other blocks `marginal_gain` measures it. Where a looping and an
//! other block are worth the same, the other block is evicted. The access itself is classified
//! first, so a period that it changes already counts. On a hit the block is classified again and
//! moves to the part of its new class.
//!
//! Departure (`expire`): blocks of a loop that has ended (see `looping`) are evicted even before
//! sequential ones. Both are worth nothing, but what is classified as sequential may be the first
//! round of the next loop, which then finds room. Measured on 20 loops of 500 blocks, one after the
//! other, 10 rounds each, in a cache of 1000 blocks (2026-11): hit ratio 0.90, which is the
//! optimum, against 0.72 (pcc) and 0.81 (ubm) with sequential blocks first.
//!
//! Departure (`steady`): when a stream loops and is steady ([`Stream::steady_period`]), its
//! sequential blocks become looping ones, as if referenced at that moment. In the papers a block
//! changes its class at its next reference. A looping file (`ubm`) or process (`dear`) is always
//! steady: they measure no spread. So what is left of the rounds before the stream was found to
//! loop is evicted before the blocks of the current round. In a plain loop that costs little, but
//! in shuffled epochs it is just what the current epoch has not read yet. Measured on 6 epochs over
//! 32768 blocks in shuffled records of 8, with a cache of 14272 (2026-11): pcc misses 125252
//! blocks, 135889 without this rule; the optimum is 125248. Streams that are not steady are left
//! out: on one-site versions of traces without loops the rule would cost up to 7 %.
//!
//! Reading (`sequential`): sequential blocks stay while the cache has free slots, since room that
//! nobody needs costs nothing. The PCC paper says that they "can be discarded immediately" and that
//! their part has one block a thread (section 5.1). Its authors' simulator cannot have discarded
//! them while there was room: its glimpse reads each block three times (519,382 references to 669
//! MB), and a single call site makes the first round sequential, so with `sequential=discard` only
//! the third could hit. The paper finds PCC close to the optimum there, at all sizes.
//!
//! Departure (`mapped`): the PCC paper's kernel cannot tell the call site of a reference to a
//! mapped file, and takes it for *other* (section 5.4). A trace has the call site of `mmap`.
//!
//! The other departures are where they are built: `periods` and `period_of` in `looping`, `gain` in
//! `marginal_gain`.
//!
//! The parts have no sizes to maintain: a part grows with an insertion and shrinks by giving a
//! victim.

mod lifetime;
mod looping;
mod marginal_gain;
mod sequential;
mod stack;

use super::{ClassCounts, Replacement, SiteRecord};
use crate::access::{Access, Op};
use crate::cache::ReplacementPolicy;
use crate::classify::{Class, Classification, Classifier, Stream};
use crate::entry::{Param, ParamKind, Preset, ReplacementSettings, Values, inner_replacements};
use crate::ids::{Slot, Tick};
use looping::{Looping, LoopingRules};
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

/// The parameter `steady` of the partitioned policies.
pub(crate) const STEADY: Param = Param::switch(
    "steady",
    "1: as soon as a steady stream is found to loop, its sequential blocks are looping ones; 0: \
     each at its next reference (as in the papers)",
    true,
);

/// The parameter `periods` of the partitioned policies.
pub(crate) const PERIODS: Param = Param::name(
    "periods",
    "how loops are compared: by the power of two of their periods, or exactly (as in the papers)",
    "power",
    &["power", "exact"],
);

/// The parameter `period_of` of the partitioned policies.
pub(crate) const PERIOD_OF: Param = Param::name(
    "period_of",
    "the period of a looping block: its stream's present one, or the block's, which is that of \
     its last reference (as figure 4 of the PCC paper returns it)",
    "stream",
    &["stream", "block"],
);

/// The parameter `gain` of the partitioned policies.
pub(crate) const GAIN: Param = Param::name(
    "gain",
    "the value of other blocks: from hits in segments of an LRU stack, or from Belady's lifetime \
     function, fitted through such hits (as in the papers)",
    "segments",
    &["segments", "fitted"],
);

/// The parameter `sequential` of the partitioned policies.
pub(crate) const SEQUENTIAL: Param = Param::name(
    "sequential",
    "sequential blocks while the cache has free slots: keep, or discard after use (the letter of \
     the PCC paper, section 5.1)",
    "keep",
    &["keep", "discard"],
);

/// The parameter `mapped` of the partitioned policies.
pub(crate) const MAPPED: Param = Param::name(
    "mapped",
    "the mapping of a file, where it counts as a reference: classified as all are, or an other one \
     (as in the PCC paper's kernel, section 5.4, which does not see who makes them)",
    "classified",
    &["classified", "other"],
);

/// The parameter `as` of the partitioned policies: [`HITHER`], and what the paper has.
pub(super) const fn paper_mode(presets: &'static [Preset]) -> Param {
    Param {
        name: "as",
        doc: "paper: every departure from the paper that is a parameter is taken back, but for \
              parameters that are given beside it",
        kind: ParamKind::Preset {
            default: HITHER.name,
            presets,
        },
    }
}

/// Every departure is made.
pub(super) const HITHER: Preset = Preset {
    name: "hither",
    values: &[],
};

/// The rules of the partitioned cache, from its parameters.
#[derive(Clone, Copy, Debug)]
struct Rules {
    looping: LoopingRules,
    steady: bool,
    fitted: bool,
    discard: bool,
    mapped_are_other: bool,
}

impl Rules {
    /// From [`EXPIRE`], [`STEADY`], [`PERIODS`], [`PERIOD_OF`], [`GAIN`], [`SEQUENTIAL`] and
    /// [`MAPPED`], which stand in this order from index `first` of the entry.
    fn of(values: &Values, first: usize) -> Rules {
        Rules {
            looping: LoopingRules {
                expire: values.real(first),
                exact: values.name(first + 2) == "exact",
                by_block: values.name(first + 3) == "block",
            },
            steady: values.switched(first + 1),
            fitted: values.name(first + 4) == "fitted",
            discard: values.name(first + 5) == "discard",
            mapped_are_other: values.name(first + 6) == "other",
        }
    }
}

/// See the module.
pub struct Partitioned<C> {
    capacity: u32,
    classifier: C,
    steady: bool,
    discard: bool,
    mapped_are_other: bool,
    /// The classification of the missing access, from `victim` or `discarded` to `inserted`.
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
    /// A cache whose rules are in `values` from index `first`, with [`OTHER`] after them.
    pub(crate) fn new(
        settings: &ReplacementSettings<'_>,
        classifier: C,
        values: &Values,
        first: usize,
    ) -> Self {
        let capacity = settings.capacity;
        let rules = Rules::of(values, first);
        Partitioned {
            capacity,
            classifier,
            steady: rules.steady,
            discard: rules.discard,
            mapped_are_other: rules.mapped_are_other,
            verdict: None,
            part: vec![Class::Other; capacity as usize],
            sequential: Sequential::new(capacity),
            looping: Looping::new(capacity, rules.looping),
            other: values.policy(first + 7).build(settings),
            other_len: 0,
            other_told: 0,
            gain: MarginalGain::new(capacity, rules.fitted),
            counts: ClassCounts::default(),
        }
    }

    fn classify(&mut self, access: &Access) -> Classification {
        if self.mapped_are_other && access.op == Op::Map {
            return self.of_nobody(access);
        }
        let mut verdict = self.classifier.classify(access);
        if !self.steady {
            let streams = std::iter::once(&mut verdict.stream).chain(&mut verdict.revised);
            streams.for_each(|stream| stream.steady_period = 0);
        }
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

    /// An access that is other and of no stream, whoever makes it.
    fn of_nobody(&mut self, access: &Access) -> Classification {
        self.counts.other += 1;
        self.gain.access(access.block.0, true);
        Classification {
            class: Class::Other,
            stream: Stream {
                id: 0,
                period: 0,
                steady_period: 0,
            },
            revised: None,
        }
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

    fn discarded(&mut self, incoming: &Access) -> Option<Slot> {
        if !self.discard {
            return None;
        }
        self.verdict = Some(self.classify(incoming));
        let slot = self.sequential.latest_of(incoming.thread.0)?;
        self.leave(slot);
        Some(slot)
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
