//! Samples without arming: the kernel's hint faults, and the processor's own samples.

use super::*;

impl Rig {
    /// A pass of the kernel's scanner over all pages that exist.
    fn scan(&mut self, now: bool) {
        self.armed.extend(self.at.keys().filter(|_| now));
    }

    /// First touches: each thread touches the quarter of the thread that is `after` places behind
    /// it, and the pages are allocated on its node.
    fn touched_first(&mut self, after: usize) {
        let quarters = self.threads.clone();
        self.at.clear();
        for (number, (cpu, _)) in quarters.iter().enumerate() {
            let (_, pages) = quarters[(number + after) % quarters.len()].clone();
            for page in pages {
                self.at.insert(page, *cpu);
                self.input(Input::Fault {
                    pid: PID,
                    tid: PID + number as u32,
                    cpu: *cpu,
                    address: page * PAGE,
                });
            }
        }
        self.input(Input::Tick);
    }

    /// Whether all but the last pages are held where they are.
    fn holds_nearly_all(&self) -> bool {
        let held = self
            .hints
            .iter()
            .filter(|&(page, node)| self.at[page] == *node);
        held.count() as u64 >= PAGES - PAGES / 16
    }

    /// A phase in which `user` names the thread that uses a page, if there is one.
    fn phase(&mut self, kind: ConstructKind, ms: u64, user: impl Fn(u64) -> u64) {
        self.input(Input::Construct {
            pid: PID,
            tid: PID,
            cpu: self.threads[0].0,
            kind,
            signature: 1,
            threads: self.threads.len() as u16,
        });
        for (number, (cpu, _)) in (0..).zip(self.threads.clone()) {
            let uses = |page: &&u64| user(**page) == u64::from(number);
            let touched: Vec<u64> = self.armed.iter().filter(uses).copied().collect();
            for page in touched {
                self.armed.remove(&page);
                self.input(Input::Fault {
                    pid: PID,
                    tid: PID + number,
                    cpu,
                    address: page * PAGE,
                });
            }
        }
        self.now_ns += ms * MS;
        self.input(Input::Tick);
    }
}

fn hinted() -> Rig {
    Rig::new(&MemoryConfig {
        source: SampleSource::Hints,
        ..config("upm")
    })
}

/// One pass of the scanner in which all samples agree shows who uses the pages.
#[test]
fn hint_faults_bring_pages_home() {
    let mut rig = hinted();
    rig.iteration();
    assert_eq!(rig.moved(), 0, "no pass");
    assert_eq!(rig.arms, 0, "nothing is armed from here");
    (0..2).for_each(|_| rig.iteration());
    for number in 0..4 {
        assert_eq!(rig.on(number)[number as usize], 256, "quarter {number}");
    }
    (0..4).for_each(|_| rig.half_second());
    assert_eq!(rig.hints, rig.at, "each page has the policy of its node");
    rig.moved();
    (0..20).for_each(|_| rig.iteration());
    assert_eq!(rig.moved(), 0, "nothing to and fro");
    let summary = rig.controller.summary();
    assert_eq!((summary.migrated, summary.counted), (768, 1));
    assert_eq!(summary.ranges_bound, 0, "nothing was bound to be placed");
    assert!(rig.controller.summary().after.share() > Some(0.9));
}

/// Two phases use each window from two nodes, and the scanner runs before either as often: the
/// longer phase decides.
#[test]
fn what_is_used_for_longer_decides() {
    let by_quarter = |page: u64| (page - START) / 256;
    let by_window = |page: u64| (page - START) / 16 % 4;
    for (quarters_ms, windows_ms) in [(60, 20), (20, 60)] {
        // The first pass shows one phase alone, and a page that moved for it may have to move back.
        let mut rig = Rig::new(&MemoryConfig {
            source: SampleSource::Hints,
            ..config("upm{freeze=0}")
        });
        for (tid, (cpu, _)) in (PID..).zip(rig.threads.clone()) {
            rig.input(Input::Thread { pid: PID, tid, cpu });
        }
        for round in 0..64 {
            rig.scan(round % 8 == 0);
            rig.phase(ConstructKind::ParallelBegin, quarters_ms, by_quarter);
            rig.scan(round % 8 == 4);
            rig.phase(ConstructKind::Barrier, windows_ms, by_window);
            rig.phase(ConstructKind::ParallelEnd, 1, |_| u64::MAX);
            rig.phase(ConstructKind::Iteration, 0, |_| u64::MAX);
        }
        let longer: &dyn Fn(u64) -> u64 = match quarters_ms > windows_ms {
            true => &by_quarter,
            false => &by_window,
        };
        let wrong = |&(&page, &node): &(&u64, &u32)| u64::from(node) != longer(page);
        let wrong = rig.at.iter().filter(wrong).count();
        assert_eq!(wrong, 0, "{quarters_ms} ms and {windows_ms}");
    }
}

/// A region that lies in parts is held at once. If the parts are on the wrong nodes, the policy
/// moves them after a pass in which all samples agree.
#[test]
fn parts_on_the_wrong_nodes_are_moved() {
    let mut rig = hinted();
    rig.touched_first(1);
    assert!(rig.holds_nearly_all(), "held, to see how it lies");
    (0..4).for_each(|_| rig.half_second());
    for number in 0..4 {
        assert_eq!(rig.on(number)[number as usize], 256, "quarter {number}");
    }
    assert!(rig.hints == rig.at, "held where they are by now");
    assert_eq!(u64::from(rig.moved()), PAGES);
}

/// Pages are looked up once, as soon as all exist, and a pass which shows that they are well placed
/// is the end of it.
#[test]
fn what_lies_well_is_never_left_to_the_kernel() {
    let mut rig = hinted();
    rig.touched_first(0);
    assert_eq!(rig.asked, PAGES);
    for _ in 0..20 {
        assert!(rig.holds_nearly_all());
        rig.iteration();
    }
    assert!(rig.hints == rig.at);
    assert_eq!(rig.moved(), 0);
}

/// One thread has filled the region, as in programs that ignore nodes: later users are remote.
#[test]
fn what_one_node_has_filled_is_left_to_the_kernel() {
    let mut rig = hinted();
    let threads = std::mem::replace(&mut rig.threads, vec![(0, START..START + PAGES)]);
    rig.touched_first(0);
    assert_eq!(rig.asked, PAGES);
    rig.threads = threads;
    rig.half_second();
    assert!(rig.hints.is_empty());
}

/// Most of the time each thread uses its quarter, and for a while all threads use all of it: the
/// region stays held, since a pass that shows only that while says nothing about the rest. The
/// other way round, and where other threads have filled it, the kernel moves its pages.
#[test]
fn what_lies_well_for_most_of_the_time_stays_held() {
    let by_quarter = |page: u64| (page - START) / 256;
    let by_page = |page: u64| (page - START) % 4;
    for (quarters_ms, all_ms, filled_by, well) in [(60, 20, 0, true), (20, 60, 1, false)] {
        let mut rig = hinted();
        rig.touched_first(filled_by);
        let mut held = true;
        for round in 0..8 {
            rig.phase(ConstructKind::ParallelBegin, 0, |_| u64::MAX);
            rig.scan(round % 2 == 1);
            rig.phase(ConstructKind::ParallelBegin, quarters_ms, by_quarter);
            rig.scan(round % 2 == 0 && round > 0);
            rig.phase(ConstructKind::Barrier, all_ms, by_page);
            rig.phase(ConstructKind::ParallelEnd, 1, |_| u64::MAX);
            held &= !rig.hints.is_empty();
        }
        assert_eq!(held, well, "{quarters_ms} ms and {all_ms}");
    }
}

/// A region that one node alone uses is never held, nor inspected again. When others use it, it is
/// treated as new.
#[test]
fn a_region_that_others_come_to_is_as_new() {
    let mut rig = hinted();
    let threads = std::mem::replace(&mut rig.threads, vec![(0, START..START + PAGES)]);
    (0..4).for_each(|_| rig.half_second());
    assert!(rig.hints.is_empty());
    let asked = rig.asked;
    (0..20).for_each(|_| rig.half_second());
    assert!(rig.hints.is_empty() && rig.asked == asked);
    rig.threads = threads;
    (0..10).for_each(|_| rig.half_second());
    assert_eq!(rig.hints, rig.at);
    assert_eq!(rig.on(3)[3], 256);
    let bound = rig.controller.summary().ranges_bound;
    assert_eq!(bound, 0, "to be given back is not to be bound");
}

/// There was no room for a bind request, or for mappings.
#[test]
fn a_policy_that_was_refused_is_told_again() {
    let mut rig = hinted();
    (0..3).for_each(|_| rig.iteration());
    (0..4).for_each(|_| rig.half_second());
    assert_eq!(rig.hints, rig.at);
    for (error, again) in [
        (libc::ENOSPC, true),
        (libc::ENOMEM, true),
        (libc::EPERM, false),
    ] {
        let refused = START + 256..START + 512;
        rig.hints.retain(|page, _| !refused.contains(page));
        rig.input(Input::Bound {
            pid: PID,
            start: refused.start * PAGE,
            length: 256 * PAGE,
            nodes: 2,
            error: error as u32,
            site: false,
            hint: true,
        });
        assert_eq!(rig.hints.len(), 768, "not at once");
        (0..24).for_each(|_| rig.half_second());
        assert_eq!(rig.hints == rig.at, again, "{error}");
    }
}

/// The kernel moves pages as it does without hither, until the controller has decided.
#[test]
fn a_dry_run_follows_the_kernel() {
    let mut rig = Rig::new(&MemoryConfig {
        source: SampleSource::Hints,
        dry_run: true,
        ..config("upm")
    });
    rig.refusal = Some((RefusalReason::Untried, true));
    rig.iteration();
    assert_eq!(rig.moved(), 0, "no pass");
    for (page, node) in &mut rig.at {
        *node = ((page - START) / 256) as u32;
    }
    (0..20).for_each(|_| rig.iteration());
    assert_eq!(rig.moved(), 0, "nothing is left to be moved");
    let sampled = rig.controller.summary().sampled;
    assert!(sampled.share() > Some(0.9), "{sampled:?}");
}

#[test]
fn what_is_being_filled_is_left_to_the_kernel() {
    let mut rig = hinted();
    let all = std::mem::take(&mut rig.at);
    for quarter_touched in 0..4 {
        let pages = all.range(quarter(quarter_touched));
        rig.at.extend(pages.map(|(&page, &node)| (page, node)));
        assert!(
            rig.hints.is_empty(),
            "{quarter_touched} quarters were there"
        );
        // Inspections come at doubling intervals.
        rig.now_ns += (40 * MS) << quarter_touched;
        rig.input(Input::Tick);
        rig.now_ns += (40 * MS) << quarter_touched;
        rig.input(Input::Tick);
    }
    (0..6).for_each(|_| rig.half_second());
    assert_eq!(rig.hints, rig.at);
}

/// A reservation of which little is used, like an arena's.
#[test]
fn what_is_not_there_has_no_policy() {
    let mut rig = hinted();
    rig.at.retain(|&page, _| page < START + 100);
    let parts = (0..4).map(|of| (of as u32, START + of * 25..START + (of + 1) * 25));
    let threads = std::mem::replace(&mut rig.threads, parts.collect());
    (0..6).for_each(|_| rig.half_second());
    assert_eq!(rig.hints, rig.at);
    rig.threads = threads;
    // Many more pages are touched: an inspection finds them.
    rig.at
        .extend((START + 100..START + 300).map(|page| (page, 1)));
    for page in START + 100..START + 300 {
        rig.input(Input::Fault {
            pid: PID,
            tid: PID,
            cpu: 1,
            address: page * PAGE,
        });
    }
    (0..24).for_each(|_| rig.half_second());
    assert_eq!(rig.hints, rig.at);
}

#[test]
fn a_process_that_is_given_up_goes_back_to_the_kernel() {
    let mut rig = hinted();
    rig.refusal = Some((RefusalReason::NotPermitted, true));
    (0..8).for_each(|_| rig.iteration());
    assert_eq!(rig.controller.summary().stopped, 1);
    assert!(rig.hints.is_empty());
    let samples = rig.controller.summary().sampled.samples;
    rig.input(Input::Fault {
        pid: PID,
        tid: PID,
        cpu: 1,
        address: START * PAGE,
    });
    assert_eq!(rig.controller.summary().sampled.samples, samples);
}

/// The processor samples by itself, and pages are looked up when they have their first sample.
#[test]
fn the_processor_s_samples_bring_pages_home() {
    let mut rig = Rig::new(&MemoryConfig {
        source: SampleSource::Processor,
        ..config("upm")
    });
    // Faults are no longer recorded when its threads begin.
    (0..4).for_each(|_| rig.half_second());
    let mut random = hither_core::Random::new(1);
    for _ in 0..3 {
        for (tid, (cpu, pages)) in (PID..).zip(rig.threads.clone()) {
            for _ in 0..400 {
                let page = pages.start + random.below(pages.end - pages.start);
                let address = page * PAGE + 8;
                rig.input(Input::Load {
                    pid: PID,
                    tid,
                    cpu,
                    address,
                });
            }
        }
        rig.iteration();
    }
    for number in 0..4 {
        assert_eq!(rig.on(number)[number as usize], 256, "quarter {number}");
    }
    assert_eq!(rig.moved(), 768);
    assert_eq!((rig.arms, rig.hints.len()), (0, 0));
    let sampled = |decision: &Decision| matches!(decision, Decision::Sample { .. });
    assert!(!rig.others.iter().any(sampled), "{:?}", rig.others);
    // Accesses outside of regions, or of another program, are no samples.
    let samples = rig.controller.summary().sampled.samples;
    for (pid, page) in [(PID, START - 1), (PID + 100, START)] {
        let address = page * PAGE;
        rig.input(Input::Load {
            pid,
            tid: pid,
            cpu: 0,
            address,
        });
    }
    assert_eq!(rig.controller.summary().sampled.samples, samples);
}
