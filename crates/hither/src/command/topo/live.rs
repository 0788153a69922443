//! The output of `hither topo --live`.

use std::fmt::{Display, Write};

use hither_analysis::format;
use hither_analysis::table::{Align, Table};
use hither_live::memory::capabilities::{Capabilities, CounterProbe};
use hither_live::numa::calibration::{Costs, LatencySource};
use serde_json::json;

pub(super) fn text(survey: &Capabilities, costs: &Costs) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    writeln!(text, "Memory nodes\n{}", nodes(survey).render())?;
    latencies(&mut text, survey, costs)?;
    let huge = match survey.huge_page_bytes {
        Some(bytes) => format!("up to {} at a touch", format::bytes(bytes)),
        None => "off".to_owned(),
    };
    writeln!(text, "huge pages: {huge}")?;
    let faults = match &survey.faults {
        Ok(faults) => {
            let kernels = if faults.in_system_calls {
                ""
            } else {
                ", but none inside system calls (kernel.perf_event_paranoid is above 1)"
            };
            let switches = if faults.of_all_programs {
                ""
            } else {
                ";\neach switch of threads costs 0.3 us more, which CAP_PERFMON avoids"
            };
            format!("watched{kernels}{switches}")
        }
        Err(reason) => format!("not watched, because\n{reason}"),
    };
    writeln!(text, "page faults: {faults}")?;
    let each = costs.migration_ns.filter(|_| survey.moving.is_ok());
    let each = each.map_or(String::new(), |ns| format!(", {ns} ns each (measured)"));
    writeln!(text, "moving pages: {}{each}", yes_or_why(&survey.moving))?;
    writeln!(
        text,
        "\nCounting accesses, in at most {} of a CPU",
        format::percent(survey.budget)
    )?;
    for counter in &survey.counters {
        writeln!(
            text,
            "  {:<14} {}",
            counter.name,
            availability(survey, counter)
        )?;
    }
    let outcome = match survey.chosen() {
        Some(counter) => format!("`majority` would count by {}", counter.name),
        None if survey.faults.is_err() => "`majority` cannot count without page faults".to_owned(),
        None => "`majority` cannot count here".to_owned(),
    };
    let placing = match survey.nodes.len() {
        0 | 1 => "; with one node, there is nowhere to place pages",
        _ => "",
    };
    writeln!(text, "{outcome}{placing}")?;
    Ok(text)
}

fn yes_or_why<T>(answer: &Result<T, impl Display>) -> String {
    match answer {
        Ok(_) => "yes".to_owned(),
        Err(reason) => format!("no: {reason}"),
    }
}

/// The indentation of the reasons below a counter source.
const CAUSE_INDENT: usize = 17;

fn availability(survey: &Capabilities, counter: &CounterProbe) -> String {
    let counting = match &counter.answer {
        Ok(counting) => counting,
        Err(_) => return yes_or_why(&counter.answer),
    };
    let sees = if counting.sees_reads {
        "yes, reads and writes"
    } else {
        "yes, writes only, and not on huge pages"
    };
    match counting.cost {
        Some(cost) => format!(
            "{sees}:\n{:CAUSE_INDENT$}{} ns to arm a page, {} ns for its next touch; \
             {} samples a second",
            "",
            cost.arm_ns,
            cost.touch_ns,
            format::count(survey.rate(cost))
        ),
        None => sees.to_owned(),
    }
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
            "by the firmware's distances; `hither topo --live --calibrate` measures"
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
        CountingCapability, MoveError, SamplingCost, SamplingError, WatchError, WatchedFaults,
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
        let told = text(&survey, &costs).unwrap();
        let part = told.split("Counting").next().unwrap_or_default();
        assert_snapshot!(part, @"
        Memory nodes
          node  CPUs    memory      free  distances
             0     2  8.00 GiB  5.00 GiB  10 21
             2     0  8.00 GiB  5.00 GiB  21 10

        Latency of a load in ns, from the CPUs of the row's node:
        measured, or by the firmware's table of latencies (l) or distances (d)
                 0      2
          0     84  190 l
          2  147 d   70 d

        huge pages: up to 2.00 MiB at a touch
        page faults: watched
        moving pages: yes, 700 ns each (measured)
        ");
    }

    #[test]
    fn all_works() {
        assert_snapshot!(text(&survey(), &by_distance(&survey())).unwrap(), @"
        Memory nodes
          node  CPUs    memory      free  distances
             0     2  8.00 GiB  5.00 GiB  10 21
             2     0  8.00 GiB  5.00 GiB  21 10

        Latency of a load in ns, from the CPUs of the row's node:
        by the firmware's distances; `hither topo --live --calibrate` measures
               0    2
          0   70  147
          2  147   70

        huge pages: up to 2.00 MiB at a touch
        page faults: watched
        moving pages: yes

        Counting accesses, in at most 1.0 % of a CPU
          hardware       no: the processor does not have it, or a hypervisor hides it
          write-protect  yes, writes only, and not on huge pages:
                         1400 ns to arm a page, 700 ns for its next touch; 4,761 samples a second
        `majority` would count by write-protect
        ");
    }

    #[test]
    fn without_privileges() {
        let mut survey = survey();
        survey.faults = Ok(WatchedFaults {
            in_system_calls: false,
            of_all_programs: false,
        });
        let told = text(&survey, &by_distance(&survey)).unwrap();
        let lines = told
            .lines()
            .skip_while(|line| !line.starts_with("page faults"));
        assert_snapshot!(lines.take(2).collect::<Vec<_>>().join("\n"), @"
        page faults: watched, but none inside system calls (kernel.perf_event_paranoid is above 1);
        each switch of threads costs 0.3 us more, which CAP_PERFMON avoids
        ");
    }

    #[test]
    fn nothing_works() {
        let mut survey = survey();
        survey.nodes.truncate(1);
        survey.huge_page_bytes = None;
        survey.faults = Err(WatchError::NotPermitted { paranoid: Some(4) });
        survey.moving = Err(MoveError::NoCall);
        survey.counters[1].answer = Err(SamplingError::NoCall);
        assert_snapshot!(text(&survey, &by_distance(&survey)).unwrap(), @"
        Memory nodes
          node  CPUs    memory      free  distances
             0     2  8.00 GiB  5.00 GiB  10 21

        huge pages: off
        page faults: not watched, because
        kernel.perf_event_paranoid is 4; with 2 or less, or CAP_PERFMON, page faults can be watched
        moving pages: no: this kernel does not have it, or a container hides it

        Counting accesses, in at most 1.0 % of a CPU
          hardware       no: the processor does not have it, or a hypervisor hides it
          write-protect  no: this kernel does not have it, or hides it
        `majority` cannot count without page faults; with one node, there is nowhere to place pages
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
