//! The memory of this machine: nodes, latencies, ways to count accesses.

use std::fmt::Write;

use hither_analysis::format;
use hither_analysis::table::{Align, Table};
use hither_live::memory::capabilities::Capabilities;
use hither_live::numa::calibration::{Costs, LatencySource};
use serde_json::json;

/// The nodes, and what their memory costs.
pub(super) fn text(survey: &Capabilities, costs: &Costs) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    writeln!(text, "Memory\n{}", nodes(survey).render())?;
    latencies(&mut text, survey, costs)?;
    let huge = match survey.huge_page_bytes {
        Some(bytes) => format!("up to {} at a touch", format::bytes(bytes)),
        None => "off".to_owned(),
    };
    writeln!(text, "huge pages: {huge}")?;
    if let Some(ns) = costs.migration_ns.filter(|_| survey.moving.is_ok()) {
        writeln!(text, "moving a page: {ns} ns (measured)")?;
    }
    if let Some(counter) = survey.chosen() {
        let budget = format::percent(survey.budget);
        let name = counter.name;
        writeln!(
            text,
            "`majority` counts by {name}, in at most {budget} of a CPU"
        )?;
    }
    Ok(text)
}

fn nodes(survey: &Capabilities) -> Table {
    let columns = [
        ("node", Align::Right),
        ("CPUs", Align::Right),
        ("memory", Align::Right),
        ("free", Align::Right),
        ("distances", Align::Left),
    ];
    let mut table = Table::new(columns);
    for node in &survey.nodes {
        let distances: Vec<String> = node.distances.iter().map(u32::to_string).collect();
        table.row([
            node.node.to_string(),
            node.cpus.len().to_string(),
            format::bytes(node.bytes),
            format::bytes(node.available_bytes()),
            distances.join(" "),
        ]);
    }
    table
}

/// The latencies of loads, if there are several nodes or they were measured.
fn latencies(text: &mut String, survey: &Capabilities, costs: &Costs) -> std::fmt::Result {
    let measured = |&(_, source): &(u32, LatencySource)| source == LatencySource::Measured;
    let first = costs.latencies.first().map(|&(_, source)| source);
    let alike = first.filter(|&first| costs.latencies.iter().all(|&(_, other)| other == first));
    if survey.nodes.len() < 2 && !costs.latencies.iter().any(measured) {
        return Ok(());
    }
    let whence = match alike {
        Some(LatencySource::Measured) => "measured",
        Some(LatencySource::Latencies) => "by the firmware's table of latencies",
        Some(LatencySource::Distances) => {
            "by the firmware's distances; `hither doctor --calibrate` measures"
        }
        None => "measured, or by the firmware's table of latencies (l) or distances (d)",
    };
    writeln!(
        text,
        "Latency of a load in ns, from the CPUs of the row's node:\n{whence}"
    )?;
    let heads = survey.nodes.iter().map(|node| node.node.to_string());
    let heads = [String::new()].into_iter().chain(heads);
    let mut table = Table::new(heads.map(|head| (head, Align::Right)));
    let rows = costs.latencies.chunks(survey.nodes.len().max(1));
    for (node, row) in survey.nodes.iter().zip(rows) {
        let cell = |&(ns, source): &(u32, LatencySource)| match source {
            LatencySource::Latencies if alike.is_none() => format!("{ns} l"),
            LatencySource::Distances if alike.is_none() => format!("{ns} d"),
            _ => ns.to_string(),
        };
        let cells = row.iter().map(cell);
        table.row([node.node.to_string()].into_iter().chain(cells));
    }
    writeln!(text, "{}", table.render())
}

pub(super) fn document(survey: &Capabilities, costs: &Costs) -> serde_json::Value {
    let rows = || costs.latencies.chunks(survey.nodes.len().max(1));
    let whence = |source: LatencySource| match source {
        LatencySource::Measured => "measured",
        LatencySource::Latencies => "latencies",
        LatencySource::Distances => "distances",
    };
    let latency_ns = rows().map(|row| row.iter().map(|&(ns, _)| ns).collect::<Vec<_>>());
    let latency_from = rows().map(|row| row.iter().map(|&(_, of)| whence(of)).collect::<Vec<_>>());
    let nodes = survey.nodes.iter().map(|node| {
        json!({
            "node": node.node,
            "cpus": node.cpus,
            "bytes": node.bytes,
            "available_bytes": node.available_bytes(),
            "distances": node.distances,
        })
    });
    let counters = survey.counters.iter().map(|counter| {
        let counting = counter.answer.as_ref().ok();
        let cost = counting.and_then(|counting| counting.cost);
        json!({
            "name": counter.name,
            "available": counting.is_some(),
            "reason": counter.answer.as_ref().err().map(ToString::to_string),
            "sees_reads": counting.map(|counting| counting.sees_reads),
            "arm_ns": cost.map(|cost| cost.arm_ns),
            "touch_ns": cost.map(|cost| cost.touch_ns),
            "samples_per_second": cost.map(|cost| survey.rate(cost)),
        })
    });
    let faults = survey.faults.as_ref().ok();
    json!({
        "nodes": nodes.collect::<Vec<_>>(),
        "latency_ns": latency_ns.collect::<Vec<_>>(),
        "latency_from": latency_from.collect::<Vec<_>>(),
        "migration_ns": costs.migration_ns,
        "huge_page_bytes": survey.huge_page_bytes,
        "faults": {
            "watched": survey.faults.is_ok(),
            "in_system_calls": faults.map(|of| of.in_system_calls),
            "of_all_programs": faults.map(|of| of.of_all_programs),
            "reason": survey.faults.as_ref().err().map(ToString::to_string),
        },
        "moving": {
            "available": survey.moving.is_ok(),
            "reason": survey.moving.as_ref().err().map(ToString::to_string),
        },
        "counters": counters.collect::<Vec<_>>(),
        "counter": survey.chosen().map(|counter| counter.name),
        "budget": survey.budget,
    })
}

#[cfg(test)]
mod tests {
    use hither_ids::KernelNode;
    use hither_live::memory::capabilities::{
        CounterProbe, CountingCapability, SamplingCost, SamplingError, WatchError, WatchedFaults,
    };
    use hither_live::numa::topology::NodeMemory;
    use insta::assert_snapshot;

    use super::*;

    fn node(node: u32, cpus: &[u32], distances: &[u32]) -> NodeMemory {
        NodeMemory {
            node: KernelNode(node),
            cpus: cpus.to_vec(),
            bytes: 8 << 30,
            free_bytes: 5 << 30,
            distances: distances.to_vec(),
            ..NodeMemory::default()
        }
    }

    fn survey() -> Capabilities {
        let cost = SamplingCost {
            arm_ns: 1400,
            touch_ns: 700,
        };
        let counting = CountingCapability {
            sees_reads: false,
            cost: Some(cost),
        };
        let counter = |name, answer| CounterProbe { name, answer };
        Capabilities {
            nodes: vec![node(0, &[0, 1], &[10, 21]), node(2, &[], &[21, 10])],
            huge_page_bytes: Some(2 << 20),
            faults: Ok(WatchedFaults {
                in_system_calls: true,
                of_all_programs: true,
            }),
            moving: Ok(()),
            counters: vec![
                counter("hardware", Err(SamplingError::NoHardware)),
                counter("write-protect", Ok(counting)),
            ],
            budget: 0.01,
        }
    }

    fn by_distance(survey: &Capabilities) -> Costs {
        Costs::of(&survey.nodes, None)
    }

    #[test]
    fn what_was_measured_is_told_apart() {
        let survey = survey();
        let mut costs = by_distance(&survey);
        costs.latencies[0] = (84, LatencySource::Measured);
        costs.latencies[1] = (190, LatencySource::Latencies);
        costs.migration_ns = Some(700);
        assert_snapshot!(text(&survey, &costs).unwrap(), @"
        Memory
          node  CPUs    memory      free  distances
             0     2  8.00 GiB  5.00 GiB  10 21
             2     0  8.00 GiB  5.00 GiB  21 10

        Latency of a load in ns, from the CPUs of the row's node:
        measured, or by the firmware's table of latencies (l) or distances (d)
                 0      2
          0     84  190 l
          2  147 d   70 d

        huge pages: up to 2.00 MiB at a touch
        moving a page: 700 ns (measured)
        `majority` counts by write-protect, in at most 1.0 % of a CPU
        ");
    }

    #[test]
    fn one_node_has_no_distances() {
        let mut survey = survey();
        survey.nodes.truncate(1);
        survey.huge_page_bytes = None;
        survey.faults = Err(WatchError::NoPerf);
        assert_snapshot!(text(&survey, &by_distance(&survey)).unwrap(), @"
        Memory
          node  CPUs    memory      free  distances
             0     2  8.00 GiB  5.00 GiB  10 21

        huge pages: off
        ");
    }

    #[test]
    fn for_programs() {
        let document =
            serde_json::to_string_pretty(&document(&survey(), &by_distance(&survey()))).unwrap();
        assert_snapshot!(document, @r#"
        {
          "budget": 0.01,
          "counter": "write-protect",
          "counters": [
            {
              "arm_ns": null,
              "available": false,
              "name": "hardware",
              "reason": "the processor does not have it, or a hypervisor hides it",
              "samples_per_second": null,
              "sees_reads": null,
              "touch_ns": null
            },
            {
              "arm_ns": 1400,
              "available": true,
              "name": "write-protect",
              "reason": null,
              "samples_per_second": 4761,
              "sees_reads": false,
              "touch_ns": 700
            }
          ],
          "faults": {
            "in_system_calls": true,
            "of_all_programs": true,
            "reason": null,
            "watched": true
          },
          "huge_page_bytes": 2097152,
          "latency_from": [
            [
              "distances",
              "distances"
            ],
            [
              "distances",
              "distances"
            ]
          ],
          "latency_ns": [
            [
              70,
              147
            ],
            [
              147,
              70
            ]
          ],
          "migration_ns": null,
          "moving": {
            "available": true,
            "reason": null
          },
          "nodes": [
            {
              "available_bytes": 5368709120,
              "bytes": 8589934592,
              "cpus": [
                0,
                1
              ],
              "distances": [
                10,
                21
              ],
              "node": 0
            },
            {
              "available_bytes": 5368709120,
              "bytes": 8589934592,
              "cpus": [],
              "distances": [
                21,
                10
              ],
              "node": 2
            }
          ]
        }
        "#);
    }
}
