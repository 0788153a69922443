//! The sequences of real programs, by hand; made-up ones against a twin that keeps all of its past
//! and compares whole bodies.

use std::collections::BTreeMap;

use hither_core::placement::EpochKind;
use hither_session::record::ConstructKind;
use proptest::collection::vec;
use proptest::prelude::*;

use super::{Iterations, State};

/// Feeds barriers of these sites, and returns at which of them iterations ended.
fn ends(sites: impl IntoIterator<Item = u64>) -> (Vec<usize>, Iterations) {
    let mut iterations = Iterations::new();
    let ends = sites
        .into_iter()
        .enumerate()
        .filter_map(|(at, site)| {
            let mark = iterations.construct(ConstructKind::Barrier, site);
            (mark == Some(EpochKind::Iteration)).then_some(at)
        })
        .collect();
    iterations.check();
    (ends, iterations)
}

/// `count` sites from `first` on.
fn sites(first: u64, count: u64) -> Vec<u64> {
    (first..first + count).collect()
}

/// A prologue, then an iteration again and again.
fn program(prologue: &[u64], iteration: &[u64], times: usize) -> Vec<u64> {
    let mut all = prologue.to_vec();
    all.extend(iteration.repeat(times));
    all
}

/// NAS CG: 12 constructs around 25 inner iterations of 4.
fn cg() -> Vec<u64> {
    let mut iteration = sites(100, 7);
    iteration.extend(sites(200, 4).repeat(25));
    iteration.extend(sites(300, 5));
    assert_eq!(iteration.len(), 112);
    iteration
}

#[track_caller]
fn found(iterations: &Iterations, header: u64, constructs: u64) {
    let State::Iterating {
        header: begins,
        constructs: last,
        confidence,
    } = iterations.state()
    else {
        panic!("{:?}", iterations.state())
    };
    assert_eq!((begins, last), (header, Some(constructs)));
    assert!(confidence > 0.7, "{confidence}");
}

#[test]
fn bt_and_sp_end_every_15th_and_19th_construct() {
    for length in [15, 19] {
        let prologue = sites(1, 9);
        let all = program(&prologue, &sites(100, length), 60);
        let (ends, iterations) = ends(all);
        // Known at the beginning of the third: two were needed to compare.
        let expected: Vec<usize> = (2..60).map(|n| 9 + n * length as usize).collect();
        assert_eq!(ends, expected);
        found(&iterations, 100, length);
    }
}

#[test]
fn a_loop_within_the_iteration_is_none() {
    let (ends, iterations) = ends(program(&sites(1, 5), &cg(), 15));
    let (wrong, right): (Vec<usize>, Vec<usize>) = ends.iter().partition(|&&at| at < 5 + 2 * 112);
    let expected: Vec<usize> = (2..15).map(|n| 5 + n * 112).collect();
    assert_eq!(right, expected);
    // The inner loop repeats first, and is given up when the outer one returns.
    assert!(wrong.iter().all(|&at| at < 5 + 112), "{wrong:?}");
    found(&iterations, 100, 112);
}

#[test]
fn inner_loops_may_run_for_any_time() {
    let mut all = sites(1, 3);
    let mut starts = Vec::new();
    for n in 0..60_usize {
        starts.push(all.len());
        all.extend(sites(100, 6));
        all.extend(sites(200, 3).repeat(2 + n * 7919 % 23));
        all.extend(sites(300, 6));
    }
    let (ends, iterations) = ends(all);
    let late: Vec<usize> = ends.into_iter().filter(|&at| at > starts[2]).collect();
    assert_eq!(late, starts[3..]);
    assert!(matches!(
        iterations.state(),
        State::Iterating { header: 100, .. }
    ));
}

#[test]
fn a_norm_at_every_tenth_iteration_is_an_extra() {
    // Whether the norm comes before the first iteration or not: it is on the path then, and looks
    // like an outer loop.
    for prologue in [vec![1, 2], vec![1, 2, 50]] {
        let mut all = prologue;
        let mut starts = Vec::new();
        for n in 1..=200 {
            starts.push(all.len());
            all.extend([10, 11]);
            if n % 10 == 0 {
                all.push(50);
            }
        }
        let (ends, iterations) = ends(all);
        let first = starts.iter().position(|&at| at == ends[0]).unwrap();
        assert!(first <= 5, "known after {first}");
        assert_eq!(ends, starts[first..]);
        assert!(matches!(
            iterations.state(),
            State::Iterating { header: 10, .. }
        ));
    }
}

#[test]
fn sweeps_that_take_turns_are_one_iteration() {
    let round = [1, 2, 3, 4, 1, 4, 3, 2];
    let (ends, iterations) = ends(program(&[9], &round, 40));
    assert!(ends[0] <= 1 + 4 * 8, "{ends:?}");
    assert!(ends.windows(2).all(|pair| pair[1] - pair[0] == 8));
    found(&iterations, 1, 8);
}

#[test]
fn a_helper_that_is_met_everywhere_does_not_hide_the_iteration() {
    for round in [&[7, 1, 7, 2, 7, 3][..], &[1, 7, 2, 7, 3, 7]] {
        let (ends, iterations) = ends(program(&[], round, 40));
        let late: Vec<usize> = ends.into_iter().filter(|&at| at > 60).collect();
        assert!(late.len() >= 28, "{round:?}: {late:?}");
        assert!(late.windows(2).all(|pair| pair[1] - pair[0] == 6));
        found(&iterations, round[0], 6);
    }
}

#[test]
fn another_phase_takes_over() {
    let mut all = program(&sites(1, 4), &sites(100, 15), 30);
    let second = all.len();
    all.extend(program(&sites(20, 4), &sites(200, 5), 100));
    let third = all.len();
    // Back in the first phase, by the same sites.
    all.extend(sites(100, 15).repeat(30));
    let total = all.len();
    let (ends, iterations) = ends(all);
    let between = |from, to| ends.iter().filter(|&&at| from <= at && at < to).count();
    assert_eq!(between(0, second), 28);
    assert!((70..=97).contains(&between(second, third)), "{ends:?}");
    assert!((24..=29).contains(&between(third, total)), "{ends:?}");
    found(&iterations, 100, 15);
}

#[test]
fn a_long_inner_loop_is_a_phase_but_seldom_taken_for_one() {
    let mut all = Vec::new();
    let mut outer = 0;
    for n in 0..40_usize {
        all.extend(sites(100, 8));
        all.extend(sites(200, 4).repeat(if n % 4 == 3 { 3000 } else { 10 }));
        outer += 1;
    }
    let (ends, _) = ends(all);
    assert!(ends.len() >= outer / 2);
    // Were it taken for one each time, ten times 3000 would end; the longest pass is now known.
    assert!(ends.len() < 3500, "{}", ends.len());
}

#[test]
fn there_may_be_none() {
    // Levels of a mesh that is refined adaptively: another sequence at each step.
    let mut state = 1_u64;
    let all = (0..20_000).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state >> 58
    });
    let (found, iterations) = ends(all);
    assert!(found.len() < 500, "{} of 20000", found.len());
    assert_eq!(iterations.state(), State::Unknown);
    // As soon as the program repeats itself, they are found again.
    let mut iterations = iterations;
    let ended = program(&[], &sites(1000, 20), 10)
        .into_iter()
        .filter(|&site| {
            iterations.construct(ConstructKind::Barrier, site) == Some(EpochKind::Iteration)
        })
        .count();
    assert!((6..=8).contains(&ended), "{ended}");
}

#[test]
fn what_the_program_tells_is_believed() {
    let mut iterations = Iterations::new();
    assert_eq!(
        iterations.construct(ConstructKind::Iteration, 0),
        Some(EpochKind::Iteration)
    );
    for site in program(&[], &sites(1, 10), 20) {
        assert_eq!(
            iterations.construct(ConstructKind::ParallelBegin, site),
            None
        );
        assert_eq!(
            iterations.construct(ConstructKind::ParallelEnd, site),
            Some(EpochKind::Construct)
        );
    }
    assert_eq!(iterations.state(), State::Told);
}

#[test]
fn an_iteration_ends_where_the_next_ones_first_region_begins() {
    let mut iterations = Iterations::new();
    let mut marks = Vec::new();
    for site in program(&[], &sites(1, 10), 12) {
        for kind in [
            ConstructKind::ParallelBegin,
            ConstructKind::Barrier,
            ConstructKind::ParallelEnd,
        ] {
            // A barrier is another call, so another site.
            let site = site
                + if kind == ConstructKind::Barrier {
                    1000
                } else {
                    0
                };
            if iterations.construct(kind, site) == Some(EpochKind::Iteration) {
                marks.push((kind, site));
            }
        }
    }
    assert_eq!(marks, [(ConstructKind::ParallelBegin, 1); 10]);
    found(&iterations, 1, 20);
}

#[test]
fn memory_is_bounded() {
    let (ends, iterations) = ends((0..50_000).map(|n| n % 20_000));
    assert!(ends.is_empty());
    assert!(iterations.sites.len() <= super::SITES_MAX);
    assert!(iterations.path.len() <= super::SITES_MAX);
}

/// The twin: it keeps every body whole and works everything out from the start.
#[derive(Default)]
struct Twin {
    path: Vec<u64>,
    met: BTreeMap<u64, usize>,
    /// The bodies of each loop's passes, with their constructs.
    passes: BTreeMap<u64, Vec<(Vec<u64>, usize)>>,
    /// How many passes of each site's loop ended since the site came onto the path.
    inside: BTreeMap<u64, usize>,
    returns: BTreeMap<u64, u32>,
    chosen: Option<(u64, usize, usize)>,
    pending: Option<u64>,
    now: usize,
}

impl Twin {
    fn bodies(&self, site: u64) -> Vec<&Vec<u64>> {
        let passes = self.passes.get(&site);
        passes.map_or(Vec::new(), |passes| {
            passes.iter().map(|(body, _)| body).collect()
        })
    }

    fn run(&self, site: u64, period: usize) -> usize {
        let bodies = self.bodies(site);
        (period..bodies.len())
            .rev()
            .take_while(|&at| bodies[at] == bodies[at - period])
            .count()
    }

    fn matched(&self, site: u64, run: usize) -> bool {
        run * self.bodies(site).last().map_or(0, |body| body.len()) >= 8
    }

    fn longer(&self, site: u64) -> Option<usize> {
        (2..=16).find(|&period| {
            let run = self.run(site, period);
            run >= 2 * period && self.matched(site, run)
        })
    }

    fn repeats(&self, site: u64) -> Option<usize> {
        let run = self.run(site, 1);
        if run >= 1 && self.matched(site, run) {
            return Some(1);
        }
        self.longer(site)
    }

    fn usual(&self, site: u64) -> bool {
        let bodies = self.bodies(site);
        let last = &bodies[bodies.len().saturating_sub(16)..];
        last.iter()
            .any(|body| 2 * last.iter().filter(|other| other == &body).count() > last.len())
    }

    fn unsure(&self, site: u64) -> bool {
        let bodies = self.bodies(site);
        let from = bodies.len().saturating_sub(32);
        let known = (from..bodies.len())
            .filter(|&at| bodies[at.saturating_sub(32)..at].contains(&bodies[at]))
            .count();
        bodies.len() >= 16 && ((known + 1) as f64) < 0.5 * (bodies.len() - from + 2) as f64
    }

    fn hopeless(&self, site: u64) -> bool {
        self.bodies(site).len() >= 8 && self.repeats(site).is_none()
    }

    fn overdue(&self, site: u64) -> bool {
        let longest = self.passes.get(&site).map_or(0, |passes| {
            passes.iter().map(|(_, length)| *length).max().unwrap_or(0)
        });
        let returns = self.returns.get(&site).copied().unwrap_or(0);
        self.now - self.met[&site] > (8 * longest).max(64) << returns.min(32)
    }

    fn count(&mut self) -> bool {
        let Some((_, round, done)) = &mut self.chosen else {
            return false;
        };
        *done += 1;
        let ended = *done >= *round;
        if ended {
            *done = 0;
        }
        ended
    }

    fn choose(&mut self, site: u64) -> bool {
        let Some(round) = self.repeats(site) else {
            return false;
        };
        (self.chosen, self.pending) = (Some((site, round, 0)), None);
        true
    }

    fn meet(&mut self, site: u64) -> bool {
        self.now += 1;
        let ended = self.step(site);
        self.met.insert(site, self.now);
        ended
    }

    fn step(&mut self, site: u64) -> bool {
        let Some(place) = self.path.iter().position(|&other| other == site) else {
            self.path.push(site);
            self.inside.insert(site, 0);
            return self.chosen.is_some_and(|chosen| chosen.0 == site) && self.count();
        };
        let body = self.path.split_off(place);
        self.path.push(site);
        let length = self.now - self.met[&site];
        *self.inside.entry(site).or_default() += 1;
        self.passes
            .entry(site)
            .or_default()
            .push((body.clone(), length));
        match self.chosen {
            Some((chosen, round, _)) if chosen == site => {
                if self.unsure(site) {
                    (self.chosen, self.pending) = (None, None);
                    return false;
                }
                let next = if round == 1 {
                    if self.usual(site) {
                        1
                    } else {
                        self.longer(site).unwrap_or(1)
                    }
                } else if self.run(site, round) == 0 || self.run(site, 1) >= 2 * round {
                    self.repeats(site).unwrap_or(round)
                } else {
                    round
                };
                if next != round {
                    self.chosen = Some((site, next, 0));
                    return true;
                }
                self.count()
            }
            Some((chosen, ..)) if body.contains(&chosen) => {
                let passes = self.inside[&chosen];
                let all = &self.passes.get(&chosen).map_or(&[][..], |all| all);
                let inside: usize = all[all.len() - passes..].iter().map(|pass| pass.1).sum();
                let beside = length - inside;
                let rare = passes >= 3 && self.usual(chosen) && beside * passes <= 2 * inside;
                if rare || self.hopeless(site) {
                    return false;
                }
                *self.returns.entry(site).or_default() += 1;
                (self.chosen, self.pending) = (None, Some(site));
                self.choose(site)
            }
            Some((chosen, ..)) => self.overdue(chosen) && self.choose(site),
            None => {
                if let Some(pending) = self.pending.filter(|&pending| pending != site) {
                    let outside = self.path.iter().position(|&other| other == pending);
                    let within = outside.is_some_and(|outside| outside < place);
                    if within && !self.hopeless(pending) && !self.overdue(pending) {
                        return false;
                    }
                }
                self.pending = Some(site);
                self.choose(site)
            }
        }
    }
}

/// Nested loops over a few sites, with repetitions and extras.
fn nests() -> impl Strategy<Value = Vec<u64>> {
    let block = vec(0..12_u64, 1..6).prop_flat_map(|block| {
        (Just(block), 1..12_usize).prop_map(|(block, times)| block.repeat(times))
    });
    let nest =
        (vec(block, 1..4), 1..15_usize).prop_map(|(blocks, times)| blocks.concat().repeat(times));
    vec(nest, 1..5).prop_map(|nests| nests.concat())
}

proptest! {
    #[test]
    fn the_twin_agrees(sites in prop_oneof![nests(), vec(0..6_u64, 0..400)]) {
        let mut iterations = Iterations::new();
        let mut twin = Twin::default();
        for (at, site) in sites.into_iter().enumerate() {
            let mark = iterations.construct(ConstructKind::Barrier, site);
            prop_assert_eq!(mark == Some(EpochKind::Iteration), twin.meet(site), "at {}", at);
            iterations.check();
        }
    }

    #[test]
    fn a_plain_loop_is_found_exactly(prologue in 0..20_u64, length in 1..300_u64,
        times in 12..30_usize) {
        let (ends, iterations) = ends(program(&sites(1, prologue), &sites(1000, length), times));
        let known = 1 + 8_usize.div_ceil(length as usize);
        let expected: Vec<usize> = (known..times).map(|n|
            prologue as usize + n * length as usize).collect();
        prop_assert_eq!(ends, expected);
        found(&iterations, 1000, length);
    }

    #[test]
    fn an_iteration_with_inner_loops_is_found_from_its_third_on(
        before in 6..20_u64, inner in 1..6_u64, turns in vec(1..40_usize, 12..20),
            after in 6..20_u64,
    ) {
        let mut all = Vec::new();
        let mut starts = Vec::new();
        for turns in turns {
            starts.push(all.len());
            all.extend(sites(100, before));
            all.extend(sites(200, inner).repeat(turns));
            all.extend(sites(300, after));
        }
        let (ends, _) = ends(all);
        let late: Vec<usize> = ends.into_iter().filter(|&at| at > starts[3]).collect();
        prop_assert_eq!(&late, &starts[4..]);
    }
}
