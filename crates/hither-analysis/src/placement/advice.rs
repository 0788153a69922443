//! From simulated placements to advice: whether another placement would help, and how much.
//!
//! A change is advised from a gain of 5 % of the modelled time on. The model's latencies are no
//! more exact than that.

use hither_core::placement::{Target, placement_policies};
use hither_core::registry::Mechanism;
use serde::Serialize;

use super::case::{CaseSummary, PlacementCase};
use super::table::group_key;
use crate::format::{bytes, counted, duration_ns, percent, policy};
use crate::run_plan::RunPlan;

/// The smallest gain that is advised, as a share of the modelled time.
const GAIN_MIN_TIME_SHARE: f64 = 0.05;

/// The settings with which `hither run` applies the placement of this name. `None`: no mechanism
/// applies it, or it is the baseline, which the kernel does without help.
fn run_plan_of(name: &str) -> Option<RunPlan> {
    let mut entries = placement_policies().iter();
    let entry = entries.find(|entry| entry.name == name)?;
    let name = || Some(entry.name.to_owned());
    if entry.compared.position() == Some(1) {
        None
    } else if entry.runs(Mechanism::Memory) {
        Some(RunPlan {
            memory: name(),
            ..RunPlan::default()
        })
    } else if entry.runs(Mechanism::Replicas) {
        Some(RunPlan {
            replicas: name(),
            ..RunPlan::default()
        })
    } else {
        None
    }
}

/// The advice for one topology and size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacementAdvice {
    /// The topology, as a user writes it.
    pub nodes: String,
    /// The placement that the others are compared with.
    pub baseline: String,
    /// The placement to use, where another one helps.
    pub placement: Option<String>,
    /// The share of the baseline's modelled time that it saves.
    pub gain: f64,
    /// The advice in words.
    pub sentences: Vec<String>,
}

impl PlacementAdvice {
    /// The settings for `hither run`, if a mechanism can apply the placement.
    pub fn plan(&self) -> Option<RunPlan> {
        run_plan_of(self.placement.as_deref()?)
    }
}

/// The advice for each topology and size. The first placement of each is the baseline.
pub fn advise<'a>(
    results: impl IntoIterator<Item = CaseSummary<'a>>,
    block_bytes: u64,
) -> Vec<PlacementAdvice> {
    let results: Vec<CaseSummary<'_>> = results.into_iter().collect();
    let groups = results.chunk_by(|a, b| group_key(a.case) == group_key(b.case));
    groups
        .map(|group| advise_on_group(group, block_bytes))
        .collect()
}

/// Names the option of `hither run` that does what was simulated.
fn on_real_nodes(option: &str) -> String {
    format!(
        "This is simulated; `hither run {option} -- CMD` does it on a machine with several nodes."
    )
}

fn name(case: &PlacementCase) -> String {
    policy(&case.configuration.spec)
}

fn advise_on_group(results: &[CaseSummary<'_>], block_bytes: u64) -> PlacementAdvice {
    let baseline = &results[0];
    let saves = |result: &CaseSummary<'_>| {
        1.0 - result.modelled_time_ns as f64 / baseline.modelled_time_ns.max(1) as f64
    };
    let knows_future = |result: &&CaseSummary<'_>| result.case.configuration.spec.needs().totals;
    let candidates = results.iter().filter(|result| !knows_future(result));
    let best = candidates.min_by_key(|result| result.modelled_time_ns);
    let bound = results
        .iter()
        .filter(knows_future)
        .min_by_key(|result| result.modelled_time_ns);
    let topology = &baseline.case.configuration.topology;
    let on = if topology.name().parse() == Ok(topology.nodes()) {
        counted(topology.nodes() as u64, "node")
    } else {
        topology.name().to_owned()
    };
    let local = |result: &CaseSummary<'_>| percent(result.totals.local_hit_ratio());
    let mut sentences = Vec::new();
    let helps = best.filter(|best| saves(best) >= GAIN_MIN_TIME_SHARE);
    match helps {
        Some(best) => {
            sentences.push(format!(
                "Another placement would help: on {on}, {} takes {} less modelled time than {} \
                 ({} against {}), with {} of the accesses local instead of {}.",
                name(best.case),
                percent(saves(best)),
                name(baseline.case),
                duration_ns(best.modelled_time_ns as f64),
                duration_ns(baseline.modelled_time_ns as f64),
                local(best),
                local(baseline)
            ));
            let moved = best.totals.migrations + best.totals.replications;
            let what = match best.case.target() {
                Target::Memory => "page",
                Target::Files => "block",
            };
            if moved > 0 {
                sentences.push(format!(
                    "For that it moves or copies {} ({}).",
                    counted(moved, what),
                    bytes(moved * block_bytes)
                ));
            }
            sentences.push(match run_plan_of(&name(best.case)) {
                Some(RunPlan {
                    memory: Some(memory),
                    ..
                }) => on_real_nodes(&format!("--memory={memory}")),
                Some(_) => on_real_nodes("--replicas"),
                None => "This is simulated: nothing places a running program's data this way yet."
                    .to_owned(),
            });
        }
        None if results.len() == 1 => sentences.push(format!(
            "On {on}, {} takes {} of modelled time and serves {} of the accesses locally; \
             no other placement was simulated.",
            name(baseline.case),
            duration_ns(baseline.modelled_time_ns as f64),
            local(baseline)
        )),
        None => sentences.push(format!(
            "No placement that was simulated on {on} takes {} less modelled time than {}, \
             which serves {} of the accesses locally.",
            percent(GAIN_MIN_TIME_SHARE),
            name(baseline.case),
            local(baseline)
        )),
    }
    if let Some(bound) = bound {
        // The bound minimises latencies. Contention can still make it slower than another
        // placement.
        let saved = saves(bound);
        sentences.push(if saved >= 0.0005 {
            format!(
                "The best place for each block, known beforehand ({}), would take {} less.",
                name(bound.case),
                percent(saved)
            )
        } else {
            format!(
                "Nor would the best place for each block, known beforehand ({}), take less.",
                name(bound.case)
            )
        });
    }
    PlacementAdvice {
        nodes: topology.name().to_owned(),
        baseline: name(baseline.case),
        placement: helps.map(|best| name(best.case)),
        gain: helps.map_or(0.0, saves),
        sentences,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hither_core::Topology;
    use hither_sim::placement::{PlacementConfiguration, Totals};

    use super::*;

    fn advised(times_ns: &[(&str, u64)]) -> PlacementAdvice {
        let topology = Arc::new(Topology::uniform(4));
        let cases = times_ns.iter().map(|(spec, _)| PlacementCase {
            configuration: PlacementConfiguration::even(
                spec.parse().unwrap(),
                topology.clone(),
                10,
            ),
            size: "10".to_owned(),
        });
        let cases: Vec<PlacementCase> = cases.collect();
        let totals = Totals {
            accesses: 10,
            local: 4,
            remote: 6,
            migrations: 3,
            ..Totals::default()
        };
        let results = cases
            .iter()
            .zip(times_ns)
            .map(|(case, &(_, modelled_time_ns))| CaseSummary {
                case,
                totals: &totals,
                modelled_time_ns,
            });
        let mut all = advise(results, 4096);
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    #[test]
    fn the_fastest_that_knows_no_future_is_advised() {
        let found = advised(&[
            ("first-touch", 1000),
            ("round-robin", 1200),
            ("upm", 700),
            ("a-priori", 600),
        ]);
        assert_eq!(found.placement.as_deref(), Some("upm"));
        assert!((found.gain - 0.3).abs() < 1e-9);
        assert!(
            found.sentences[0]
                .contains("on 4 nodes, upm takes 30.0 % less modelled time than first-touch")
        );
        assert!(
            found.sentences[1].contains("3 pages (12.00 KiB)"),
            "{found:?}"
        );
        assert!(
            found.sentences[3].contains("(a-priori), would take 40.0 % less"),
            "{found:?}"
        );
    }

    #[test]
    fn little_is_not_worth_a_change() {
        let found = advised(&[("first-touch", 1000), ("upm", 960)]);
        assert_eq!((found.placement, found.gain), (None, 0.0));
        assert!(found.sentences[0].starts_with("No placement that was simulated on 4 nodes"));

        let alone = advised(&[("upm", 960)]).sentences;
        assert_eq!(
            alone,
            [
                "On 4 nodes, upm takes 960 ns of modelled time and serves 40.0 % of the accesses \
                 locally; no other placement was simulated."
            ]
        );
    }
}
