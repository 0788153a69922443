//! Threads that moved and stayed: they start the predictive criterion (paper, section 4).

use crate::ids::{Node, Thread};
use crate::placement::events::{EpochKind, ThreadMigration};

/// Polls on which nodes threads run, as the paper does before and after each parallel construct.
pub(super) struct Movers {
    /// Constructs that a thread must stay on its new node.
    stay: u64,
    waiting: Vec<Waiting>,
    /// Whether a thread moved to a node and stayed, since the predictive criterion was last given
    /// up.
    to: Vec<bool>,
    /// Whether that happened, or the number of threads changed, since the last invocation.
    triggered: bool,
    threads: Option<usize>,
    /// Whether the program marks constructs within iterations: then the end of an iteration is no
    /// construct.
    constructs: bool,
}

struct Waiting {
    thread: Thread,
    to: Node,
    stayed: u64,
}

impl Movers {
    pub(super) fn new(nodes: usize, stay: u64) -> Movers {
        Movers {
            stay,
            waiting: Vec::new(),
            to: vec![false; nodes],
            triggered: false,
            threads: None,
            constructs: false,
        }
    }

    /// A thread of the program moved. It has run for one construct on its new node.
    pub(super) fn moved(&mut self, moved: &ThreadMigration) {
        self.waiting
            .retain(|waiting| waiting.thread != moved.thread);
        self.waiting.push(Waiting {
            thread: moved.thread,
            to: moved.to,
            stayed: 0,
        });
    }

    /// A construct or an iteration ended; `threads` is the number since the last iteration's end.
    /// Threads that moved were reported before.
    pub(super) fn poll(&mut self, kind: EpochKind, threads: usize) {
        let iteration = kind != EpochKind::Construct;
        if !(iteration && self.constructs) {
            self.waiting
                .iter_mut()
                .for_each(|waiting| waiting.stayed += 1);
        }
        let (to, triggered) = (&mut self.to, &mut self.triggered);
        self.waiting.retain(|waiting| {
            let stays = waiting.stayed >= self.stay;
            if stays {
                to[waiting.to.index()] = true;
                *triggered = true;
            }
            !stays
        });
        self.constructs = !iteration;
        if iteration {
            let before = self.threads.replace(threads);
            if before.is_some_and(|before| before != threads) {
                // Other threads took over the work of threads that ended, or parts of the work of
                // all, without having moved themselves.
                self.to.fill(true);
                self.triggered = true;
            }
        }
    }

    /// What was seen so far is no basis for a comparison.
    pub(super) fn restart(&mut self) {
        self.threads = None;
        self.triggered = false;
        self.to.fill(false);
    }

    /// Whether threads have moved and stayed since the last call.
    pub(super) fn take_triggered(&mut self) -> bool {
        std::mem::take(&mut self.triggered)
    }

    /// Whether threads have moved that have not stayed long enough yet.
    pub(super) fn wait(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// By node, whether a thread moved there.
    pub(super) fn to(&self) -> &[bool] {
        &self.to
    }

    /// The pages have followed the threads.
    pub(super) fn followed(&mut self) {
        self.to.fill(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Process;

    fn poll(movers: &mut Movers, kind: EpochKind, moved: &[(u32, u16)], threads: usize) -> bool {
        for &(thread, to) in moved {
            movers.moved(&ThreadMigration {
                thread: Thread(thread),
                process: Process(0),
                from: Node(0),
                to: Node(to),
            });
        }
        movers.poll(kind, threads);
        movers.take_triggered()
    }

    #[test]
    fn two_constructs_on_the_new_node() {
        let mut movers = Movers::new(4, 2);
        let construct = EpochKind::Construct;
        assert!(!poll(&mut movers, construct, &[(7, 3), (8, 1)], 4));
        assert!(
            poll(&mut movers, construct, &[(8, 2)], 4),
            "thread 7 stayed"
        );
        assert_eq!(movers.to(), [false, false, false, true], "thread 8 did not");
        movers.followed();
        assert!(poll(&mut movers, construct, &[], 4));
        assert_eq!(movers.to(), [false, false, true, false]);
        assert!(!poll(&mut movers, construct, &[], 4), "once a move");
    }

    #[test]
    fn iterations_without_constructs_are_constructs() {
        let mut movers = Movers::new(2, 2);
        assert!(!poll(&mut movers, EpochKind::Iteration, &[(0, 1)], 4));
        assert!(poll(&mut movers, EpochKind::Iteration, &[], 4));
        movers.followed();
        assert!(!poll(&mut movers, EpochKind::Construct, &[(0, 1)], 4));
        assert!(
            !poll(&mut movers, EpochKind::Iteration, &[], 4),
            "ended with its last construct"
        );
        assert!(poll(&mut movers, EpochKind::Construct, &[], 4));
    }

    #[test]
    fn fewer_threads() {
        let mut movers = Movers::new(2, 2);
        assert!(!poll(&mut movers, EpochKind::Iteration, &[], 4));
        assert!(
            !poll(&mut movers, EpochKind::Construct, &[], 1),
            "a serial construct"
        );
        assert!(!poll(&mut movers, EpochKind::Iteration, &[], 4));
        assert!(poll(&mut movers, EpochKind::Iteration, &[], 3));
        assert_eq!(movers.to(), [true, true]);
    }
}
