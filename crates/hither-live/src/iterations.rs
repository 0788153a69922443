//! Finds the iterations of a program in the sequence of its parallel constructs.
//!
//! UPM moves pages between the iterations of a program (section 3); its authors marked these by
//! hand. Here they are found. The master thread of an iterative program passes the same call sites
//! again and again, and the shortest sequence that repeats is the iteration. Looking for a fixed
//! period is not enough: a solver inside the iteration runs until it has converged, so no two
//! iterations are equally long; every tenth iteration prints a norm; helpers are called from
//! several places. So the sequence is read as a walk through nested loops.
//!
//! # The path
//! A call site that occurs for the first time is appended to a path. A site that is on the path
//! already is the *header* of a loop, and its return ends a *pass*: the sites after it on the path
//! are the pass's *body*, and are removed. Each construct is appended and removed once, so its cost
//! is constant on average, plus one look-up in a hash table. An inner loop leaves its sites on the
//! path once, however often it ran: iterations with 5 and with 500 inner passes have the same body.
//! This is the loop stack of Tubella and González (HPCA 1998), with call sites in place of
//! branches. The header is the site by which a loop is entered, so a loop that skips a construct
//! now and then is still the same loop.
//!
//! Bodies are compared by a hash of their sites. A loop *repeats* once passes with equal bodies
//! have matched at least 8 sites in all: two passes of a long body, eight of a single site. Bodies
//! may also alternate with a period of up to 16 passes (sweeps in both directions; a helper that
//! runs between the others, and first). Such a *round* must have occurred three times in a row, and
//! then the whole round is the iteration.
//!
//! # Which loop is the iteration
//! The first loop that repeats, until:
//! - **A loop around it returns.** Then that one is the iteration as soon as it repeats itself;
//!   until then there is none. (CG: 25 passes of 4 constructs within an iteration of 112. The
//!   iterations that were found in the first 112 constructs are wrong.) There are two exceptions.
//!   An outer loop that has not repeated after 8 passes is not taken. And an outer loop that holds
//!   at least four passes of the inner loop and adds no more constructs than one of them is the
//!   inner loop with a *rare extra*, such as a norm that is printed every tenth iteration. The
//!   sequence alone does not distinguish that from a loop with little around its inner loop; for
//!   the placement of pages it makes no difference.
//! - **It does not occur for long**, eight times the constructs of its longest pass, while another
//!   loop repeats: the program is in another phase. If the old loop comes back, around the new one,
//!   then the new one was a long inner loop, and the time after which the old one is given up
//!   doubles.
//! - **Its bodies are new most of the time**: the loop is an accident of the path.
//!
//! The *confidence* is the share of the loop's last 32 passes whose body had occurred among the 32
//! before, by the rule of succession: (known + 1) / (passes + 2). After 4096 constructs without an
//! iteration the caller should not wait for one: [`State::Unknown`] asks for periods of time
//! instead, and ends by itself when a loop repeats.
//!
//! At most 8192 sites are remembered; a program with more starts anew.
//!
//! Where a program marks its iterations itself (`hither_iteration`), these count and nothing is
//! searched.

mod passes;
#[cfg(test)]
mod tests;

use hither_core::placement::EpochKind;
use hither_session::record::ConstructKind;
use passes::Passes;
use rustc_hash::FxHashMap;
use serde::Serialize;

/// The most sites that are remembered: a few megabytes.
const SITES_MAX: usize = 8192;

/// After this many constructs without an iteration, none is expected.
const CONSTRUCTS_WITHOUT_ITERATION_MAX: u64 = 4096;

/// An outer loop that has not repeated after this many passes is not the iteration.
const PASSES_TO_REPEAT: u64 = 8;

/// The least passes of the inner loop within one of the outer, not counting the last, for which an
/// extra construct counts as rare.
const RARE_EXTRA_PASSES_MIN: u64 = 3;

/// How long a loop may not occur before it is given up, in its longest passes.
const ABSENCE_PASSES_MAX: u64 = 8;

/// That absence is at least this many constructs.
const ABSENCE_CONSTRUCTS_MIN: u64 = 64;

/// Below this confidence, after [`passes::WINDOW`] / 2 passes, a loop is not the iteration.
const CONFIDENCE_MIN: f64 = 0.5;

/// What the constructs of one thread have shown so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    /// No iteration found yet.
    Learning,
    /// Iterations are found.
    Iterating {
        /// The construct that begins an iteration.
        header: u64,
        /// Constructs of the last iteration; `None` before a whole one was seen.
        constructs: Option<u64>,
        /// The share of iterations that were like others, between 0 and 1.
        confidence: f64,
    },
    /// The program marks its iterations.
    Told,
    /// No iteration for so long that periods of time serve better.
    Unknown,
}

/// Iterations of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FoundIterations {
    /// How many there were.
    pub count: u64,
    /// The mean time between their ends.
    pub mean_ns: u64,
    /// Parallel constructs of the program, by which iterations are found.
    pub constructs: u64,
    /// The program marks its iterations itself.
    pub told: bool,
}

/// Finds the iterations of one thread, the master of its teams.
#[derive(Debug, Default)]
pub struct Iterations {
    sites: Vec<Site>,
    by_signature: FxHashMap<u64, u32>,
    path: Vec<Step>,
    /// Constructs so far.
    now: u64,
    chosen: Option<Chosen>,
    /// A loop around the one that was the iteration; it has not repeated yet.
    pending: Option<u32>,
    /// The construct at which the last iteration ended.
    boundary: u64,
    told: bool,
}

/// A call site.
#[derive(Debug)]
struct Site {
    signature: u64,
    /// Its position on the path.
    place: Option<u32>,
    /// The construct at which it last occurred.
    last_seen: u64,
    /// The passes of its loop since it was appended to the path.
    inside: LoopTotals,
    /// Constructs of its longest pass.
    longest: u64,
    /// How often it came back around a loop that had replaced it.
    returns: u32,
    /// Its passes, once it has been the header of a loop.
    passes: Option<Box<Passes>>,
}

/// A site on the path.
#[derive(Debug)]
struct Step {
    site: u32,
    /// The hash of all sites up to this one.
    hash: u64,
}

/// The loop that is the iteration.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    site: u32,
    /// Passes that make up an iteration, and those of the current iteration so far.
    round: u32,
    done: u32,
    constructs: Option<u64>,
}

/// Whole passes of a loop, and the constructs in them.
#[derive(Clone, Copy, Debug, Default)]
struct LoopTotals {
    passes: u64,
    constructs: u64,
}

/// One pass of a loop.
#[derive(Clone, Copy)]
struct Pass {
    /// Its constructs; those of inner loops count each time.
    constructs: u64,
    /// Whether it removed the chosen loop from the path.
    around: bool,
}

const HASH_BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash of a path with one more site: a polynomial, so the hash of a part follows from the
/// hashes of the whole and of what comes before. Signatures are hashes themselves.
fn extended_hash(hash: u64, signature: u64) -> u64 {
    hash.wrapping_mul(HASH_BASE)
        .wrapping_add(signature.wrapping_add(HASH_BASE))
}

impl Iterations {
    /// A search that has seen no construct yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the thread's next construct, and says what ends with it. An iteration ends where the
    /// region or barrier that begins the next one occurs.
    pub fn construct(&mut self, kind: ConstructKind, signature: u64) -> Option<EpochKind> {
        match kind {
            ConstructKind::Iteration => {
                self.told = true;
                Some(EpochKind::Iteration)
            }
            ConstructKind::ParallelBegin => {
                self.take_site(signature).then_some(EpochKind::Iteration)
            }
            ConstructKind::Barrier if self.take_site(signature) => Some(EpochKind::Iteration),
            ConstructKind::Barrier | ConstructKind::ParallelEnd => Some(EpochKind::Construct),
            ConstructKind::Hidden => None,
        }
    }

    /// What has been found so far.
    pub fn state(&self) -> State {
        if self.told {
            return State::Told;
        }
        let absence_max = self
            .chosen
            .map_or(0, |chosen| self.site(chosen.site).absence_max());
        if self.now - self.boundary > absence_max.max(CONSTRUCTS_WITHOUT_ITERATION_MAX) {
            return State::Unknown;
        }
        self.chosen.map_or(State::Learning, |chosen| {
            let header = self.site(chosen.site);
            State::Iterating {
                header: header.signature,
                constructs: chosen.constructs,
                confidence: header.confidence(),
            }
        })
    }

    /// Takes the next call site. True if an iteration ends before it.
    fn take_site(&mut self, signature: u64) -> bool {
        if self.told {
            return false;
        }
        self.now += 1;
        let id = self.intern(signature);
        let ended = match self.site(id).place {
            Some(place) => {
                let pass = self.cut(id, place);
                self.looped(id, pass)
            }
            None => {
                self.append(id, signature);
                // After a rare extra the chosen loop is entered anew.
                self.is_chosen(id) && self.count()
            }
        };
        self.site_mut(id).last_seen = self.now;
        if ended {
            self.boundary = self.now;
        }
        ended
    }

    fn site(&self, id: u32) -> &Site {
        &self.sites[id as usize]
    }

    fn site_mut(&mut self, id: u32) -> &mut Site {
        &mut self.sites[id as usize]
    }

    fn is_chosen(&self, id: u32) -> bool {
        self.chosen.is_some_and(|chosen| chosen.site == id)
    }

    fn intern(&mut self, signature: u64) -> u32 {
        if let Some(&known) = self.by_signature.get(&signature) {
            return known;
        }
        if self.sites.len() == SITES_MAX {
            let (now, boundary) = (self.now, self.boundary);
            *self = Iterations {
                now,
                boundary,
                ..Self::default()
            };
        }
        let id = self.sites.len() as u32;
        self.by_signature.insert(signature, id);
        self.sites.push(Site {
            signature,
            place: None,
            last_seen: 0,
            inside: LoopTotals::default(),
            longest: 0,
            returns: 0,
            passes: None,
        });
        id
    }

    fn append(&mut self, id: u32, signature: u64) {
        let before = self.path.last().map_or(0, |step| step.hash);
        let hash = extended_hash(before, signature);
        let place = Some(self.path.len() as u32);
        let site = self.site_mut(id);
        (site.place, site.inside) = (place, LoopTotals::default());
        self.path.push(Step { site: id, hash });
    }

    /// Ends the pass of the loop whose header is at `place`.
    fn cut(&mut self, id: u32, place: u32) -> Pass {
        let place = place as usize;
        let sites = self.path.len() - place;
        let before = place.checked_sub(1).map_or(0, |at| self.path[at].hash);
        let to_here = self.path.last().map_or(0, |step| step.hash);
        // Horner's scheme: the hash before the header has been multiplied once for each site of the
        // body.
        let body = to_here.wrapping_sub(before.wrapping_mul(HASH_BASE.wrapping_pow(sites as u32)));
        let chosen = self.chosen.map(|chosen| chosen.site);
        let mut around = false;
        for step in self.path.drain(place + 1..) {
            self.sites[step.site as usize].place = None;
            around |= Some(step.site) == chosen;
        }
        let constructs = self.now - self.site(id).last_seen;
        let site = self.site_mut(id);
        site.longest = site.longest.max(constructs);
        site.inside.passes += 1;
        site.inside.constructs += constructs;
        site.passes.get_or_insert_default().push(body, sites as u32);
        Pass { constructs, around }
    }

    /// A pass of loop `id` has ended. True if an iteration has.
    fn looped(&mut self, id: u32, pass: Pass) -> bool {
        match self.chosen {
            Some(chosen) if chosen.site == id => self.passed(chosen),
            Some(chosen) if pass.around => {
                if self.is_rare_extra(chosen, pass) || self.is_hopeless(id) {
                    return false;
                }
                self.site_mut(id).returns += 1;
                self.chosen = None;
                self.pending = Some(id);
                self.choose_if_it_repeats(id, pass)
            }
            Some(chosen) => {
                let taken_over =
                    self.is_overdue(chosen.site) && self.choose_if_it_repeats(id, pass);
                if taken_over {
                    self.pending = None;
                }
                taken_over
            }
            None => {
                if self.is_within_pending(id) {
                    return false;
                }
                self.pending = Some(id);
                self.choose_if_it_repeats(id, pass)
            }
        }
    }

    /// The chosen loop has ended a pass.
    fn passed(&mut self, chosen: Chosen) -> bool {
        let header = self.site(chosen.site);
        let passes = header.passes.as_deref();
        if passes.is_some_and(Passes::is_long) && header.confidence() < CONFIDENCE_MIN {
            (self.chosen, self.pending) = (None, None);
            return false;
        }
        let round = passes.map_or(chosen.round, |passes| passes.round_after(chosen.round));
        if round != chosen.round {
            self.chosen = Some(Chosen {
                round,
                done: 0,
                constructs: None,
                ..chosen
            });
            return true;
        }
        self.count()
    }

    /// Counts a pass of the chosen loop towards its round.
    fn count(&mut self) -> bool {
        let (now, boundary) = (self.now, self.boundary);
        self.chosen.as_mut().is_some_and(|chosen| {
            chosen.done += 1;
            let ended = chosen.done >= chosen.round;
            if ended {
                chosen.done = 0;
                chosen.constructs = Some(now - boundary);
            }
            ended
        })
    }

    fn choose_if_it_repeats(&mut self, id: u32, pass: Pass) -> bool {
        let Some(round) = self.site(id).repeats() else {
            return false;
        };
        self.pending = None;
        self.chosen = Some(Chosen {
            site: id,
            round,
            done: 0,
            constructs: (round == 1).then_some(pass.constructs),
        });
        true
    }

    /// Whether the pass of an outer loop was the chosen loop with a rare extra.
    fn is_rare_extra(&self, chosen: Chosen, pass: Pass) -> bool {
        let inner = self.site(chosen.site);
        let inside = inner.inside;
        let passes = inner.passes.as_deref();
        let uniform = passes.is_some_and(|passes| passes.usual().is_some());
        // The header does not end the last pass of the inner loop, so two passes are missing from
        // the count, one of which is the extra.
        let beside = pass.constructs.saturating_sub(inside.constructs);
        uniform
            && inside.passes >= RARE_EXTRA_PASSES_MIN
            && beside * inside.passes <= 2 * inside.constructs
    }

    /// Whether loop `id` has had enough passes and does not repeat.
    fn is_hopeless(&self, id: u32) -> bool {
        let site = self.site(id);
        let passes = site.passes.as_deref().map_or(0, Passes::count);
        passes >= PASSES_TO_REPEAT && site.repeats().is_none()
    }

    fn is_overdue(&self, id: u32) -> bool {
        let site = self.site(id);
        self.now - site.last_seen > site.absence_max()
    }

    /// Whether loop `id` runs inside the loop that is still to repeat.
    fn is_within_pending(&self, id: u32) -> bool {
        let Some(pending) = self.pending.filter(|&pending| pending != id) else {
            return false;
        };
        let place = |id: u32| self.site(id).place;
        let inside = place(pending).is_some() && place(pending) < place(id);
        inside && !self.is_hopeless(pending) && !self.is_overdue(pending)
    }

    /// Walks the invariants.
    pub fn check(&self) {
        assert!(self.sites.len() <= SITES_MAX);
        assert_eq!(self.sites.len(), self.by_signature.len());
        let mut hash = 0_u64;
        for (place, step) in self.path.iter().enumerate() {
            let site = self.site(step.site);
            assert_eq!(site.place, Some(place as u32), "a site is on the path once");
            hash = extended_hash(hash, site.signature);
            assert_eq!(step.hash, hash);
        }
        let placed = self.sites.iter().filter(|site| site.place.is_some());
        assert_eq!(placed.count(), self.path.len());
        for (id, site) in self.sites.iter().enumerate() {
            assert_eq!(self.by_signature.get(&site.signature), Some(&(id as u32)));
            assert!(site.last_seen <= self.now);
        }
        if let Some(chosen) = self.chosen {
            assert!(chosen.done < chosen.round);
            assert!(
                self.pending.is_none(),
                "one is waited for only while none is chosen"
            );
        }
    }
}

impl Site {
    /// How many passes make up an iteration, if the loop repeats.
    fn repeats(&self) -> Option<u32> {
        self.passes.as_deref().and_then(Passes::round)
    }

    fn confidence(&self) -> f64 {
        self.passes.as_deref().map_or(0.5, Passes::confidence)
    }

    /// How many constructs may pass without the loop.
    fn absence_max(&self) -> u64 {
        let once = ABSENCE_PASSES_MAX
            .saturating_mul(self.longest)
            .max(ABSENCE_CONSTRUCTS_MIN);
        once.saturating_mul(1 << self.returns.min(32))
    }
}
