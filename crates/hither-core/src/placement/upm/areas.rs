//! Hot areas: the state of each region of memory, on which the algorithm works separately (paper,
//! section 3.4).

use crate::ids::{Block, Node, Object, Process};

/// In place of an area, for blocks that were never placed.
const NO_AREA: u32 = u32::MAX;

/// All areas. Every object is an area: the compiler of the paper leaves out only arrays that are
/// not shared, and those have no remote accesses.
pub(super) struct Areas {
    nodes: usize,
    list: Vec<Area>,
    /// By area and node: the remote latency in the current invocation.
    remote_ns: Vec<u64>,
    /// The area of each block.
    of: Vec<u32>,
    /// Areas that the current invocation examined.
    visited: Vec<u32>,
    /// Areas whose last page the current visit of the periodic mode reached.
    passed: Vec<u32>,
    turn: usize,
}

#[derive(Clone)]
struct Area {
    /// Its process: where processes share a region, the last of them to touch a page first.
    process: Process,
    pages: Vec<Block>,
    /// The page at which the next visit of the periodic mode begins.
    cursor: usize,
    /// The factor of `r_u / l_u`.
    factor: f64,
    /// The worst remote latency of a node at the last invocation.
    worst_ns: Option<u64>,
    visited: bool,
    candidates: bool,
    /// Invocations in a row without candidates.
    quiet: u64,
    cold: bool,
}

impl Area {
    /// A new area.
    fn new(process: Process) -> Area {
        Area {
            process,
            pages: Vec::new(),
            cursor: 0,
            factor: 1.0,
            worst_ns: None,
            visited: false,
            candidates: false,
            quiet: 0,
            cold: false,
        }
    }
}

/// How many areas the end of an invocation changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Finished {
    /// Areas that became more selective.
    pub(super) tuned: u64,
    /// Areas that became cold.
    pub(super) cold: u64,
}

impl Areas {
    pub(super) fn new(nodes: usize, blocks: u32) -> Areas {
        Areas {
            nodes,
            list: Vec::new(),
            remote_ns: Vec::new(),
            of: vec![NO_AREA; blocks as usize],
            visited: Vec::new(),
            passed: Vec::new(),
            turn: 0,
        }
    }

    /// A page was placed, or placed again.
    pub(super) fn placed(&mut self, block: Block, object: Object, process: Process) {
        if self.of[block.index()] != NO_AREA {
            return;
        }
        if object.index() >= self.list.len() {
            self.list.resize(object.index() + 1, Area::new(process));
            self.remote_ns.resize(self.list.len() * self.nodes, 0);
        }
        self.of[block.index()] = object.0;
        let area = &mut self.list[object.index()];
        area.process = process;
        area.pages.push(block);
    }

    /// Makes room for blocks numbered below `blocks`.
    pub(super) fn grow(&mut self, blocks: u32) {
        self.of.resize(blocks as usize, NO_AREA);
    }

    /// A region was freed: returns its process and its pages, which belong to no area now. Its
    /// number may be used for another region.
    pub(super) fn freed(&mut self, object: Object) -> (Process, Vec<Block>) {
        let Some(area) = self.list.get_mut(object.index()) else {
            return Default::default();
        };
        let process = area.process;
        let pages = std::mem::replace(area, Area::new(process)).pages;
        for page in &pages {
            self.of[page.index()] = NO_AREA;
        }
        self.remote_ns[object.index() * self.nodes..][..self.nodes].fill(0);
        self.visited.retain(|&other| other != object.0);
        self.passed.retain(|&other| other != object.0);
        (process, pages)
    }

    /// Examines a page: returns its area, or `None` if that is cold.
    #[inline]
    pub(super) fn visit(&mut self, block: Block) -> Option<usize> {
        let number = self.of[block.index()];
        let area = self.list.get_mut(number as usize)?;
        if area.cold {
            return None;
        }
        if !area.visited {
            area.visited = true;
            self.visited.push(number);
        }
        Some(number as usize)
    }

    /// The factor of `r_u / l_u` in this area.
    #[inline]
    pub(super) fn factor(&self, area: usize) -> f64 {
        self.list[area].factor
    }

    /// The area has a page that is a candidate for migration.
    #[inline]
    pub(super) fn candidate(&mut self, area: usize) {
        self.list[area].candidates = true;
    }

    /// Adds remote latency of one node in the area.
    #[inline]
    pub(super) fn add(&mut self, area: usize, node: Node, remote_ns: u64) {
        self.remote_ns[area * self.nodes + node.index()] += remote_ns;
    }

    /// Ends the invocation for all areas that it examined. Tunes those whose worst remote latency
    /// grew, and marks as cold those without candidates for `cold` invocations in a row (0: never).
    /// Returns how many were tuned and how many became cold.
    pub(super) fn finish(&mut self, tune: f64, cold: u64) -> Finished {
        let mut visited = std::mem::take(&mut self.visited);
        let mut finished = Finished::default();
        for area in visited.drain(..) {
            self.finish_one(area as usize, tune, cold, &mut finished);
        }
        self.visited = visited;
        finished
    }

    /// The same after a visit of the periodic mode, for areas all of whose pages were visited since
    /// the last time.
    pub(super) fn finish_passed(&mut self, tune: f64, cold: u64) -> Finished {
        let mut passed = std::mem::take(&mut self.passed);
        let mut finished = Finished::default();
        for area in passed.drain(..) {
            if self.list[area as usize].visited {
                self.visited.retain(|&other| other != area);
                self.finish_one(area as usize, tune, cold, &mut finished);
            }
        }
        self.passed = passed;
        finished
    }

    fn finish_one(&mut self, number: usize, tune: f64, cold: u64, finished: &mut Finished) {
        let remote_ns = &mut self.remote_ns[number * self.nodes..][..self.nodes];
        let worst_ns = remote_ns.iter().copied().max();
        remote_ns.fill(0);
        let area = &mut self.list[number];
        if tune > 1.0 && area.worst_ns.is_some() && worst_ns > area.worst_ns {
            area.factor *= tune;
            finished.tuned += 1;
        }
        area.worst_ns = worst_ns;
        area.visited = false;
        area.quiet = if std::mem::take(&mut area.candidates) {
            0
        } else {
            area.quiet + 1
        };
        area.cold = cold > 0 && area.quiet >= cold;
        finished.cold += u64::from(area.cold);
    }

    /// Threads of a process moved: none of its areas is cold any more.
    pub(super) fn wake(&mut self, process: Process) {
        for area in self.list.iter_mut().filter(|area| area.process == process) {
            (area.cold, area.quiet) = (false, 0);
        }
    }

    /// Puts the next pages of the periodic mode into `pages`, `count` of them or each page once:
    /// areas in turn, each from where the last visit ended, without cold ones. An area is finished
    /// when its last page was visited.
    pub(super) fn next(&mut self, count: usize, pages: &mut Vec<Block>) {
        pages.clear();
        for _ in 0..self.list.len() {
            let area = &mut self.list[self.turn];
            let left = &area.pages[area.cursor..];
            let taken = if area.cold {
                0
            } else {
                left.len().min(count - pages.len())
            };
            pages.extend_from_slice(&left[..taken]);
            area.cursor += taken;
            if pages.len() == count && area.cursor < area.pages.len() {
                return;
            }
            area.cursor = 0;
            self.passed.push(self.turn as u32);
            self.turn = (self.turn + 1) % self.list.len();
            if pages.len() == count {
                return;
            }
        }
    }

    /// Walks every invariant and panics on a broken one.
    pub(super) fn check(&self) {
        for (number, area) in self.list.iter().enumerate() {
            assert!(area.factor >= 1.0, "area {number} became less selective");
            assert!(area.cursor <= area.pages.len());
            let belong = area
                .pages
                .iter()
                .all(|page| self.of[page.index()] == number as u32);
            assert!(belong, "area {number} has a page of another");
        }
        let visited = self.list.iter().filter(|area| area.visited).count();
        assert_eq!(visited, self.visited.len(), "areas visited");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Areas 0 (pages 0 to 2) and 1 (pages 3 and 4) on 2 nodes.
    fn areas() -> Areas {
        let mut areas = Areas::new(2, 6);
        for block in 0..5 {
            areas.placed(Block(block), Object(u32::from(block > 2)), Process(0));
        }
        areas
    }

    fn invoke(areas: &mut Areas, remote_ns: &[u64], tune: f64, cold: u64) -> (u64, u64) {
        let area = areas.visit(Block(0)).expect("not cold");
        for (node, &ns) in remote_ns.iter().enumerate() {
            areas.add(area, Node(node as u16), ns);
        }
        let finished = areas.finish(tune, cold);
        (finished.tuned, finished.cold)
    }

    /// The worst node counts: 900 after 500 and 800 is more, although the sum is less.
    #[test]
    fn tuned_when_the_worst_latency_grows() {
        let mut areas = areas();
        assert_eq!(
            invoke(&mut areas, &[500, 800], 1.1, 0),
            (0, 0),
            "nothing to compare with"
        );
        assert_eq!(invoke(&mut areas, &[900, 0], 1.1, 0), (1, 0));
        assert_eq!(areas.factor(0), 1.1);
        assert_eq!(invoke(&mut areas, &[900, 900], 1.1, 0), (0, 0));
        assert_eq!(invoke(&mut areas, &[10, 10], 1.1, 0), (0, 0));
        assert_eq!(invoke(&mut areas, &[11, 0], 1.1, 0), (1, 0));
        assert_eq!(areas.factor(0), 1.1 * 1.1);
        assert_eq!(areas.factor(1), 1.0, "areas are tuned apart");
        areas.check();
    }

    #[test]
    fn cold_after_quiet_invocations_until_woken() {
        let mut areas = areas();
        assert_eq!(invoke(&mut areas, &[1], 1.0, 2), (0, 0));
        areas.candidate(0);
        assert_eq!(
            invoke(&mut areas, &[1], 1.0, 2),
            (0, 0),
            "a candidate starts the count anew"
        );
        assert_eq!(invoke(&mut areas, &[1], 1.0, 2), (0, 0));
        assert_eq!(invoke(&mut areas, &[1], 1.0, 2), (0, 1));
        assert_eq!(areas.visit(Block(2)), None);
        assert_eq!(areas.visit(Block(3)), Some(1));
        assert_eq!(areas.visit(Block(5)), None, "never placed");
        areas.wake(Process(1));
        assert_eq!(areas.visit(Block(2)), None, "another process's threads");
        areas.wake(Process(0));
        assert_eq!(areas.visit(Block(2)), Some(0));
    }

    #[test]
    fn areas_take_turns() {
        let mut areas = areas();
        let mut next = |count| {
            let mut pages = Vec::new();
            areas.next(count, &mut pages);
            pages.iter().map(|page| page.0).collect::<Vec<_>>()
        };
        assert_eq!(next(2), [0, 1]);
        assert_eq!(next(2), [2, 3]);
        assert_eq!(next(1), [4]);
        assert_eq!(next(5), [0, 1, 2, 3, 4]);
        assert_eq!(next(9), [0, 1, 2, 3, 4], "each once");
    }

    /// In the periodic mode an area is judged when all of its pages were visited, however many
    /// visits that takes.
    #[test]
    fn judged_when_passed() {
        let mut areas = areas();
        let mut pages = Vec::new();
        let mut colds = Vec::new();
        for _ in 0..5 {
            areas.next(2, &mut pages);
            for &page in &pages {
                areas.visit(page);
            }
            colds.push(areas.finish_passed(1.0, 1).cold);
            areas.check();
        }
        assert_eq!(colds, [0, 1, 1, 0, 0], "0 1 | 2 3 | 4 | | ");
    }
}
