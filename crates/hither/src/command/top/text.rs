//! The text of `hither top`: the machine's nodes, and each run with the figures of its mechanisms.

use std::collections::HashMap;

use hither_analysis::format::{self, bytes, count, counted, percent};
use hither_analysis::table::{Align, Table};
use hither_core::signature;
use hither_kernel::machine::NodeMemory;
use hither_kernel::samplers;
use hither_live::status::{MechanismStatus, MechanismTag, Status};
use hither_trace::labels::labels;
use hither_trace::schema::SiteRow;
use serde_json::Value;

use super::nodes::Nodes;

/// What there is to show.
pub(super) struct Seen {
    /// The machine's memory nodes; none where sysfs hides them.
    pub(super) machine: Vec<NodeMemory>,
    /// The runs of `hither run`.
    pub(super) runs: Vec<Status>,
    /// The mounts and nodes of a cache.
    pub(super) nodes: Nodes,
}

impl Seen {
    /// Whether nothing runs.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.nodes.is_empty()
    }
}

/// The whole text.
pub(super) fn text(seen: &Seen) -> String {
    let runs = seen.runs.iter().map(of_run);
    let parts = runs.chain(seen.nodes.texts());
    parts.fold(of_nodes(&seen.machine), |text, part| text + "\n" + &part)
}

fn of_nodes(nodes: &[NodeMemory]) -> String {
    let mut table = Table::new([
        ("node", Align::Right),
        ("CPUs", Align::Right),
        ("memory", Align::Right),
        ("available", Align::Right),
    ]);
    for node in nodes {
        table.row([
            node.node.to_string(),
            node.cpus.len().to_string(),
            bytes(node.bytes),
            bytes(node.available_bytes()),
        ]);
    }
    table.render()
}

fn of_run(run: &Status) -> String {
    let command = format::shortened(&format::printable(&run.command.join(" ")), 60);
    let dry = if run.dry_run { ", a dry run" } else { "" };
    let agent = run.agent_ns as f64 / run.ran_ns.max(1) as f64;
    let head = format!(
        "{}: {command}\n  {} for {}{dry}; the agent takes {} of a CPU\n",
        run.agent,
        policies(run),
        format::duration_ns(run.ran_ns as f64),
        percent(agent)
    );
    let mechanisms = run.mechanisms.iter().map(|status| match status.mechanism {
        MechanismTag::PageCache => page_cache(status),
        MechanismTag::Replication => replicas(status),
        MechanismTag::FileMigration => file_migration(&status.figures),
        MechanismTag::Memory => memory(status, run.dry_run),
    });
    mechanisms.fold(head, |text, mechanism| text + &mechanism)
}

/// A count among the figures; 0 if it is missing.
fn number(figures: &Value, name: &str) -> u64 {
    figures[name].as_u64().unwrap_or(0)
}

/// The lines of the page cache.
fn page_cache(status: &MechanismStatus) -> String {
    let figures = &status.figures;
    let budget_bytes = number(figures, "budget_bytes");
    let number = |name: &str| number(figures, name);
    let stops = match (figures["steering"].as_bool(), number("dropped_bytes")) {
        (Some(true), _) => "",
        (_, 0) => " yet: nothing would be gained",
        _ => ", and no more: nothing is gained",
    };
    let readahead = match number("readahead_disabled") {
        0 => String::new(),
        times => format!("; readahead switched off {}", counted(times, "time")),
    };
    let mut text = format!(
        "  {} of cache for {}: {} missed, {} under LRU\n",
        bytes(budget_bytes),
        counted(number("files"), "file"),
        bytes(number("missed_bytes")),
        bytes(number("lru_missed_bytes")),
    );
    text += &format!(
        "  {} dropped{stops}\n  {} left to others, {} taken by the kernel{readahead}\n",
        bytes(number("dropped_bytes")),
        bytes(number("preexisting_bytes")),
        bytes(number("absent_bytes")),
    );
    let sites = site_labels(&status.sites);
    text += &busiest(&figures["busiest_files"], "file", "path", str::to_owned);
    text += &busiest(&figures["busiest_sites"], "call site", "site", |site| {
        signature::parse(site).map_or(String::new(), |site| label(&sites, site))
    });
    text
}

/// The lines of replicas.
fn replicas(status: &MechanismStatus) -> String {
    let figures = &status.figures;
    let by_node = figures["replica_bytes"].as_array().into_iter().flatten();
    let by_node = by_node.zip(&status.nodes);
    let by_node: Vec<String> = by_node
        .map(|(held, node)| format!("{} on node {node}", bytes(held.as_u64().unwrap_or(0))))
        .collect();
    let number = |name: &str| number(figures, name);
    let served = number("reads_served");
    let share = served as f64 / (served + number("reads")).max(1) as f64;
    let tight = match figures["memory_is_tight"].as_bool() {
        Some(true) => "; memory is tight",
        _ => "",
    };
    let mut text = format!(
        "  {} of reads served from replicas of {}\n  {}{tight}\n",
        percent(share),
        counted(number("files"), "file"),
        by_node.join(", "),
    );
    text += &format!(
        "  {} made, {} given up for others; {} ended by writers or changes\n",
        count(number("replicas_made")),
        count(number("replicas_reclaimed")),
        counted(number("files_ended"), "file"),
    );
    text
}

/// The lines of file placement.
fn file_migration(figures: &Value) -> String {
    let moved = number(figures, "file_pages_moved");
    let number = |name: &str| number(figures, name);
    let local = number("file_local_accesses") as f64 / number("file_accesses").max(1) as f64;
    format!(
        "  {} of what is read again of {} is local\n  \
         {} moved to where they are read, {} refused\n",
        percent(local),
        counted(number("files"), "file"),
        counted(moved, "page"),
        count(number("file_pages_refused")),
    )
}

/// The lines of memory.
fn memory(status: &MechanismStatus, dry_run: bool) -> String {
    let mut text = local_share(status, dry_run);
    let number = |name: &str| number(&status.figures, name);
    // Pages that the kernel moved before hither did are migrated, and not among those moved.
    let migrated = count(number("pages_migrated"));
    text += &if dry_run {
        format!("  pages that would have moved after iterations: {migrated}\n")
    } else {
        format!(
            "  pages moved: {}, {} refused; of those asked for after iterations \
             {migrated} are there\n",
            count(number("pages_moved")),
            count(number("pages_refused")),
        )
    };
    text += &format!(
        "  regions: {} now, {} in all: {} far, {} near\n",
        count(status.regions),
        count(number("regions")),
        count(number("far")),
        count(number("near"))
    );
    if !status.largest.is_empty() {
        text += &format!("\n{}", regions(status));
    }
    text
}

/// The local share of the sampled accesses; empty if none were counted.
fn local_share(status: &MechanismStatus, dry_run: bool) -> String {
    let Some(counters) = status.figures["counters"].as_str() else {
        return String::new();
    };
    let share = |tally: &str| status.figures[tally]["local_share"].as_f64().map(percent);
    let mut text = match share("sampled") {
        None => format!("  {counters} has sampled nothing yet\n"),
        Some(local) => {
            let samples = count(number(&status.figures["sampled"], "samples"));
            let what = if samplers::sees_writes_alone(counters) {
                "samples of writes"
            } else {
                "samples"
            };
            format!("  {local} local of {samples} {what} by {counters}\n")
        }
    };
    if !dry_run && let (Some(before), Some(after)) = (share("before"), share("after")) {
        text += &format!("  regions with moves: {before} local before the first, {after} after\n");
    }
    text
}

/// The labels of call sites, by their signatures.
fn site_labels(sites: &[SiteRow]) -> HashMap<u64, String> {
    let signatures = sites.iter().map(|site| site.signature);
    signatures.zip(labels(sites)).collect()
}

/// What a call site is called: its signature, if no more is known.
fn label(sites: &HashMap<u64, String>, signature: u64) -> String {
    let text = || match signature {
        0 => "unknown".to_owned(),
        _ => signature::text(signature),
    };
    sites.get(&signature).cloned().unwrap_or_else(text)
}

/// The table of the busiest files or call sites; empty if there are none. `label`: what a row whose
/// field `name` has this text is called.
fn busiest(rows: &Value, head: &str, name: &str, label: impl Fn(&str) -> String) -> String {
    let rows = rows.as_array().map_or(&[][..], Vec::as_slice);
    let classified = rows.iter().any(|row| row["class"].is_string());
    let mut heads = vec![
        (head, Align::Left),
        ("read", Align::Right),
        ("hits", Align::Right),
        ("missed", Align::Right),
        ("to least recently used", Align::Right),
    ];
    if classified {
        heads.push(("class", Align::Left));
    }
    let mut table = Table::new(heads);
    for row in rows {
        let number = |name: &str| row[name].as_u64().unwrap_or(0);
        let (read, missed) = (number("referenced_bytes"), number("missed_bytes"));
        let text = |name: &str| row[name].as_str().unwrap_or_default();
        let hits = read.saturating_sub(missed) as f64 / read.max(1) as f64;
        let mut cells = vec![
            format::shortened(&format::printable(&label(text(name))), 50),
            bytes(read),
            percent(hits),
            bytes(missed),
            format::less_or_more(number("lru_missed_bytes"), missed),
        ];
        if classified {
            cells.push(text("class").to_owned());
        }
        table.row(cells);
    }
    if rows.is_empty() {
        String::new()
    } else {
        format!("\n{}", table.render())
    }
}

/// The policies of a run without their parameters.
fn policies(run: &Status) -> String {
    let policies = run.mechanisms.iter().map(|status| names(&status.policy));
    policies.collect::<Vec<String>>().join(", ")
}

/// Policies without their parameters.
fn names(policies: &str) -> String {
    let names = policies.split('}').filter_map(|one| one.split('{').next());
    names.collect()
}

fn regions(status: &MechanismStatus) -> String {
    let heads = ["process", "from", "size", "call site", "state"];
    let leans = [
        Align::Right,
        Align::Right,
        Align::Right,
        Align::Left,
        Align::Left,
    ];
    let heads = heads.into_iter().map(str::to_owned).zip(leans);
    let pages = status
        .nodes
        .iter()
        .map(|node| (format!("node {node}"), Align::Right));
    let mut table = Table::new(heads.chain(pages));
    let sites = site_labels(&status.sites);
    for region in &status.largest {
        let all: u64 = region.pages.iter().sum();
        let cells = [
            region.pid.to_string(),
            format!("{:x}", region.start),
            bytes(region.bytes),
            format::shortened(&format::printable(&label(&sites, region.signature)), 50),
            region.state.clone(),
        ];
        let on = region.pages.iter().map(|&pages| match all {
            0 => String::new(),
            _ => percent(pages as f64 / all as f64),
        });
        table.row(cells.into_iter().chain(on));
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use hither_ids::KernelNode;
    use hither_ids::Pid;
    use hither_live::status::RegionStatus;
    use insta::assert_snapshot;
    use serde_json::json;

    use super::*;

    fn with(status: MechanismStatus, dry_run: bool) -> Status {
        Status {
            agent: Pid(810),
            command: vec!["./bt".to_owned(), "a\nb".to_owned()],
            dry_run,
            ran_ns: 12_300_000_000,
            agent_ns: 61_500_000,
            mechanisms: vec![status],
        }
    }

    fn of_memory() -> MechanismStatus {
        let region = |signature, state: &str, pages| RegionStatus {
            pid: Pid(812),
            start: 0x7f31_4000_0000,
            bytes: 64 << 20,
            signature,
            state: state.to_owned(),
            pages,
        };
        MechanismStatus {
            mechanism: MechanismTag::Memory,
            policy: "cache-aware{limit=0.5},upm{predictive=1}".to_owned(),
            nodes: vec![KernelNode(0), KernelNode(2)],
            regions: 41,
            largest: vec![
                region(0xabc, "sampled", vec![12288, 4096]),
                region(0xdef0_0000_0000_0001, "watched", vec![0, 0]),
            ],
            figures: json!({
                "counters": "write-protect",
                "regions": 44,
                "far": 2,
                "near": 3,
                "pages_moved": 4608,
                "pages_migrated": 4096,
                "pages_refused": 7,
                "sampled": { "samples": 9000, "local_share": 0.75 },
                "before": { "samples": 4000, "local_share": 0.5 },
                "after": { "samples": 5000, "local_share": 0.95 },
            }),
            sites: vec![SiteRow {
                signature: 0xabc,
                function: Some("load\u{1b}".to_owned()),
                ..SiteRow::unknown()
            }],
        }
    }

    #[test]
    fn a_run() {
        let node = |node, cpus| NodeMemory {
            node,
            cpus,
            bytes: 4 << 30,
            free_bytes: 1 << 30,
            ..NodeMemory::default()
        };
        let nodes = [
            node(KernelNode(0), vec![0, 1]),
            node(KernelNode(2), Vec::new()),
        ];
        let wet = with(of_memory(), false);
        let seen = Seen {
            machine: nodes.to_vec(),
            runs: vec![wet],
            nodes: Nodes::default(),
        };
        assert_snapshot!(text(&seen), @r"
          node  CPUs    memory  available
             0     2  4.00 GiB   1.00 GiB
             2     0  4.00 GiB   1.00 GiB

        810: ./bt a\nb
          cache-aware,upm for 12.3 s; the agent takes 0.5 % of a CPU
          75.0 % local of 9,000 samples of writes by write-protect
          regions with moves: 50.0 % local before the first, 95.0 % after
          pages moved: 4,608, 7 refused; of those asked for after iterations 4,096 are there
          regions: 41 now, 44 in all: 2 far, 3 near

          process          from       size  call site         state    node 0  node 2
              812  7f3140000000  64.00 MiB  load\u{1b}        sampled  75.0 %  25.0 %
              812  7f3140000000  64.00 MiB  def0000000000001  watched
        ");
    }

    #[test]
    fn a_dry_run_moves_nothing() {
        let said = of_run(&with(of_memory(), true));
        assert!(said.contains(", a dry run; "), "{said}");
        let would = "  pages that would have moved after iterations: 4,096\n";
        assert!(said.contains(would), "{said}");
        assert!(!said.contains("regions with moves"), "{said}");
    }

    #[test]
    fn a_run_with_its_files_steered() {
        let files = MechanismStatus {
            mechanism: MechanismTag::PageCache,
            policy: "pcc{threshold=100}".to_owned(),
            figures: json!({
                "budget_bytes": 1 << 30,
                "files": 1,
                "missed_bytes": 3 << 20,
                "lru_missed_bytes": 4 << 20,
                "dropped_bytes": 2 << 20,
                "preexisting_bytes": 0,
                "absent_bytes": 1 << 20,
                "steering": false,
                "readahead_disabled": 3,
                "busiest_files": [
                    {
                        "path": "/data/index\n1",
                        "referenced_bytes": 8 << 20,
                        "missed_bytes": 3 << 20,
                        "lru_missed_bytes": 4 << 20,
                    },
                ],
                "busiest_sites": [
                    {
                        "site": "0xabc",
                        "class": "looping",
                        "referenced_bytes": 6 << 20,
                        "missed_bytes": 3 << 20,
                        "lru_missed_bytes": 2 << 20,
                    },
                    {
                        "site": "0x0",
                        "class": null,
                        "referenced_bytes": 2 << 20,
                        "missed_bytes": 0,
                        "lru_missed_bytes": 0,
                    },
                ],
            }),
            ..of_memory()
        };
        let files = with(files, true);
        assert_snapshot!(of_run(&files), @r"
        810: ./bt a\nb
          pcc for 12.3 s, a dry run; the agent takes 0.5 % of a CPU
          1.00 GiB of cache for 1 file: 3.00 MiB missed, 4.00 MiB under LRU
          2.00 MiB dropped, and no more: nothing is gained
          0 B left to others, 1.00 MiB taken by the kernel; readahead switched off 3 times

          file                read    hits    missed  to least recently used
          /data/index\n1  8.00 MiB  62.5 %  3.00 MiB           1.00 MiB less

          call site       read     hits    missed  to least recently used  class
          load\u{1b}  6.00 MiB   50.0 %  3.00 MiB           1.00 MiB more  looping
          unknown     2.00 MiB  100.0 %       0 B                0 B less
        ");
    }

    #[test]
    fn a_run_with_replicas() {
        let files = MechanismStatus {
            mechanism: MechanismTag::Replication,
            policy: "dual-layer{threshold=2}".to_owned(),
            figures: json!({
                "replica_bytes": [3 << 20, 0],
                "files": 2,
                "reads_served": 750,
                "reads": 250,
                "replicas_made": 200,
                "replicas_reclaimed": 8,
                "files_ended": 1,
                "memory_is_tight": true,
            }),
            ..of_memory()
        };
        let files = with(files, true);
        assert_snapshot!(of_run(&files), @r"
        810: ./bt a\nb
          dual-layer for 12.3 s, a dry run; the agent takes 0.5 % of a CPU
          75.0 % of reads served from replicas of 2 files
          3.00 MiB on node 0, 0 B on node 2; memory is tight
          200 made, 8 given up for others; 1 file ended by writers or changes
        ");
    }

    #[test]
    fn a_run_whose_files_follow_their_readers() {
        let files = MechanismStatus {
            mechanism: MechanismTag::FileMigration,
            policy: "upm{history=1}".to_owned(),
            figures: json!({
                "files": 3,
                "file_accesses": 4000,
                "file_local_accesses": 3000,
                "file_pages_moved": 2048,
                "file_pages_refused": 12,
            }),
            ..of_memory()
        };
        let files = with(files, false);
        assert_snapshot!(of_run(&files), @r"
        810: ./bt a\nb
          upm for 12.3 s; the agent takes 0.5 % of a CPU
          75.0 % of what is read again of 3 files is local
          2,048 pages moved to where they are read, 12 refused
        ");
    }

    #[test]
    fn a_run_that_has_just_begun() {
        let bare = MechanismStatus {
            largest: Vec::new(),
            figures: json!({
                "counters": "write-protect",
                "sampled": { "samples": 0, "local_share": null },
            }),
            ..of_memory()
        };
        let bare = with(bare, false);
        let seen = Seen {
            machine: vec![],
            runs: vec![bare],
            nodes: Nodes::default(),
        };
        assert_snapshot!(text(&seen), @r"
          node  CPUs  memory  available

        810: ./bt a\nb
          cache-aware,upm for 12.3 s; the agent takes 0.5 % of a CPU
          write-protect has sampled nothing yet
          pages moved: 0, 0 refused; of those asked for after iterations 0 are there
          regions: 41 now, 0 in all: 0 far, 0 near
        ");
    }
}
