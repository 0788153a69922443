//! Classification by process: how the age of blocks relates to how soon they are used next.
//!
//! Source: Choi et al., "An implementation study of a detection-based adaptive block replacement
//! scheme", USENIX ATC 1999, section 2. After every `window` references of a process, the blocks of
//! that window are examined from its beginning. The *backward distance* of a block is the time
//! since its last reference before the window, the *forward distance* the time until its first one
//! in the window. The blocks are ordered by backward distance and divided into sublists. Then the
//! average forward distances
//!
//! - fall strictly in a loop (what was used longest ago is used next): *looping*;
//! - rise, or have no order, in the patterns that the paper calls temporally clustered and
//!   probabilistic; LRU suits the first and LFU the second. Both are *other* here: in this project
//!   the part for other references has its policy by parameter. So the paper's second ordered list,
//!   by frequency, would change nothing and is not built;
//! - are unknown where most blocks of the window are new: *sequential*.
//!
//! The period of a loop is the average of backward plus forward distance: a reading, since DEAR
//! itself has no periods.
//!
//! Departure (`new_blocks`): in the paper a window is sequential if all of its blocks are new; a
//! program that also rereads its configuration would never be sequential then.
//!
//! Departure (`ages`): a block's last reference is kept once, whichever process made it, not once a
//! process: so a file that each process of a build reads has an age.

use super::{Class, Classification, Classifier, Stream, at};
use crate::access::Access;
use crate::ids::Tick;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
struct Sample {
    backward: u64,
    forward: u64,
}

/// A process's use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    process: u32,
    block: u32,
}

#[derive(Clone, Debug, Default)]
struct ProcessState {
    /// References in the current window, which started at tick `start`.
    references: u64,
    start: Tick,
    /// Blocks of the window that had not been referenced before it.
    fresh: u64,
    /// The other blocks.
    samples: Vec<Sample>,
    class: Option<Class>,
    period: u64,
}

/// The parameters of the classification.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// A process is classified every so many of its references, at least 2.
    pub window: u64,
    /// The sublists that its blocks are divided into, at least 2.
    pub sublists: usize,
    /// A window is sequential only if all of its blocks are new, not most of them.
    pub all_new: bool,
    /// A block's age is the time since its own process referenced it, not since any did.
    pub own_ages: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Dear {
    config: Config,
    processes: Vec<ProcessState>,
    /// By block, one more than the tick of its last reference; 0 before the first.
    last: Vec<Tick>,
    /// The same by process and block, in place of `last` where ages are a process's own.
    own_last: BTreeMap<Use, Tick>,
}

impl Dear {
    /// A classifier that has seen nothing.
    pub fn new(config: Config) -> Self {
        Dear {
            config,
            processes: Vec::new(),
            last: Vec::new(),
            own_last: BTreeMap::new(),
        }
    }
}

impl ProcessState {
    /// Classifies by the window that just ended. A window in which other processes had touched
    /// every block before says nothing, and leaves the class as it is.
    fn judge(&mut self, config: Config) {
        let Config {
            sublists, all_new, ..
        } = config;
        let known = self.samples.len();
        let sequential = if all_new {
            known == 0 && self.fresh > 0
        } else {
            self.fresh > known as u64
        };
        if sequential {
            self.class = Some(Class::Sequential);
        } else if known >= sublists {
            self.samples
                .sort_by_key(|sample| (sample.backward, sample.forward));
            let falls = (1..sublists)
                .all(|at| self.mean_forward(at - 1, sublists) > self.mean_forward(at, sublists));
            let total: u64 = self
                .samples
                .iter()
                .map(|sample| sample.backward + sample.forward)
                .sum();
            self.period = total / known as u64;
            self.class = Some(if falls { Class::Looping } else { Class::Other });
        } else if known > 0 {
            self.class = Some(Class::Other);
        }
        self.fresh = 0;
        self.samples.clear();
    }

    fn mean_forward(&self, at: usize, sublists: usize) -> f64 {
        let known = self.samples.len();
        let part = &self.samples[at * known / sublists..(at + 1) * known / sublists];
        part.iter().map(|sample| sample.forward as f64).sum::<f64>() / part.len() as f64
    }
}

impl Classifier for Dear {
    fn classify(&mut self, access: &Access) -> Classification {
        let process = at(&mut self.processes, access.process.0);
        if process.references == 0 {
            process.start = access.tick;
        }
        let last = if self.config.own_ages {
            self.own_last
                .entry(Use {
                    process: access.process.0,
                    block: access.block.0,
                })
                .or_default()
        } else {
            at(&mut self.last, access.block.0)
        };
        match std::mem::replace(last, access.tick + 1) {
            0 => process.fresh += 1,
            last if last <= process.start => process.samples.push(Sample {
                backward: process.start - (last - 1),
                forward: access.tick - process.start,
            }),
            _ => {}
        }
        process.references += 1;
        if process.references == self.config.window {
            process.judge(self.config);
            process.references = 0;
        }
        Classification {
            class: process.class.unwrap_or(Class::Other),
            stream: Stream {
                id: access.process.0,
                period: process.period,
                steady_period: process.period,
            },
            revised: None,
        }
    }

    fn check(&self) {
        for process in &self.processes {
            assert!(process.references < self.config.window);
            assert!(process.fresh + process.samples.len() as u64 <= process.references);
        }
    }
}
