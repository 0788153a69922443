//! The metrics of a run, for `hither run --metrics`.
//!
//! A metric is one entry of `METRICS`: a name, and a JSON pointer to a figure of the status that
//! the agent posts (see [`hither_live::status`]). Figures that a run does not have are left out, so
//! one list serves all mechanisms. The program is not named, only its policy, since everyone who
//! can connect can read the metrics.

use std::future;
use std::io;
use std::net::SocketAddr;
use std::thread;

use hither_ids::Pid;
use hither_live::status::{self, Status};
use prometheus::proto;
use serde_json::Value;
use tokio::runtime;

use crate::metrics::MetricKind::{self, Counter, Gauge};
use crate::metrics::{self, Metric, encode, metric};

/// A metric and where its figure is.
struct RunMetric {
    metric: Metric,
    /// The JSON pointer to the figure, in a [`Status`] or in the first status of a mechanism that
    /// has it.
    at: &'static str,
    /// The label that distinguishes the values of an object (by key) or of an array (by node).
    label: Option<&'static str>,
    /// The figure is divided by this.
    divisor: f64,
}

const fn entry(
    name: &'static str,
    kind: MetricKind,
    at: &'static str,
    help: &'static str,
) -> RunMetric {
    RunMetric {
        metric: metric(name, kind, help),
        at,
        label: None,
        divisor: 1.0,
    }
}

impl RunMetric {
    const fn by(mut self, label: &'static str) -> RunMetric {
        self.label = Some(label);
        self
    }

    const fn nanoseconds(mut self) -> RunMetric {
        self.divisor = 1e9;
        self
    }
}

/// Sorted by name.
#[rustfmt::skip]
const METRICS: &[RunMetric] = &[
    entry("accesses_lost_total", Counter, "/figures/accesses_lost",
        "Accesses to files that were lost for want of room in a ring."),
    entry("agent_cpu_seconds_total", Counter, "/agent_ns",
        "Processor time of the agent.").nanoseconds(),
    entry("file_placement_accesses_total", Counter, "/figures/file_accesses",
        "Accesses of 512 bytes each to blocks of files whose node is known."),
    entry("file_placement_local_accesses_total", Counter, "/figures/file_local_accesses",
        "Of hither_file_placement_accesses_total, those from the node of the block."),
    entry("file_placement_pages_moved_total", Counter, "/figures/file_pages_moved",
        "Pages of files that were moved to the node that reads them."),
    entry("file_placement_pages_refused_total", Counter, "/figures/file_pages_refused",
        "Pages of files that the kernel did not move."),
    entry("files", Gauge, "/figures/files",
        "Files that the program has used."),
    entry("memory_local_share", Gauge, "/figures/sampled/local_share",
        "The share of sampled accesses that found their page on their own node."),
    entry("memory_pages_migrated_total", Counter, "/figures/pages_migrated",
        "Pages that the policy asked for by their use and that are where it wants them."),
    entry("memory_pages_moved_total", Counter, "/figures/pages_moved",
        "Pages that hither moved."),
    entry("memory_pages_refused_total", Counter, "/figures/pages_refused",
        "Pages that the kernel did not move."),
    entry("memory_regions", Gauge, "/regions",
        "Regions of memory that there are now."),
    entry("memory_regions_far_total", Counter, "/figures/far",
        "Regions that were placed far from their threads."),
    entry("memory_regions_near_total", Counter, "/figures/near",
        "Regions that were placed near their threads."),
    entry("memory_regions_total", Counter, "/figures/regions",
        "Regions of memory that were tracked."),
    entry("memory_samples_total", Counter, "/figures/sampled/samples",
        "Accesses to pages that were sampled."),
    entry("page_cache_absent_bytes_total", Counter, "/figures/absent_bytes",
        "Bytes that the policy would have kept and the kernel did not."),
    entry("page_cache_budget_bytes", Gauge, "/figures/budget_bytes",
        "How much of the page cache the program's files may have."),
    entry("page_cache_classified_total", Counter, "/figures/classes",
        "References by their class.").by("class"),
    entry("page_cache_dropped_bytes_total", Counter, "/figures/dropped_bytes",
        "Bytes that were dropped from the page cache."),
    entry("page_cache_drops_refused_total", Counter, "/figures/drops_refused",
        "Ranges that the kernel refused to drop."),
    entry("page_cache_drops_total", Counter, "/figures/drops",
        "Ranges that were dropped from the page cache."),
    entry("page_cache_evicted_by_class_bytes_total", Counter, "/figures/evicted_by_class_bytes",
        "Bytes that the policy evicted, by their class.").by("class"),
    entry("page_cache_evicted_bytes_total", Counter, "/figures/evicted_bytes",
        "Bytes that the policy evicted."),
    entry("page_cache_lru_missed_bytes_total", Counter, "/figures/lru_missed_bytes",
        "Bytes that LRU would have missed with the same budget."),
    entry("page_cache_missed_bytes_total", Counter, "/figures/missed_bytes",
        "Bytes that the policy's cache did not hold when they were read."),
    entry("page_cache_preexisting_bytes_total", Counter, "/figures/preexisting_bytes",
        "Bytes that were cached before the program opened them, and are left alone."),
    entry("page_cache_readahead_disabled_total", Counter, "/figures/readahead_disabled",
        "How often readahead was disabled on a descriptor."),
    entry("page_cache_references_total", Counter, "/figures/references",
        "References to blocks of files that the policy saw."),
    entry("page_cache_shared_bytes_total", Counter, "/figures/shared_bytes",
        "Bytes that came in for the program and that others have used since: they are left alone."),
    entry("page_cache_steering", Gauge, "/figures/steering",
        "1 while evictions are carried out, 0 otherwise."),
    entry("replicas_bytes", Gauge, "/figures/replica_bytes",
        "Bytes of replicas on a memory node.").by("node"),
    entry("replicas_failed_total", Counter, "/figures/replicas_failed",
        "Replicas whose copy failed."),
    entry("replicas_files_ended_total", Counter, "/figures/files_ended",
        "Files whose replicas a writer or a change has ended."),
    entry("replicas_leases_total", Counter, "/figures/leases",
        "Leases taken on files."),
    entry("replicas_made_total", Counter, "/figures/replicas_made",
        "Replicas of blocks that were made."),
    entry("replicas_memory_tight", Gauge, "/figures/memory_is_tight",
        "1 while no replicas are made because memory is short."),
    entry("replicas_read_bytes_total", Counter, "/figures/read_bytes",
        "Bytes of files that were read from the kernel."),
    entry("replicas_reads_served_total", Counter, "/figures/reads_served",
        "Reads that were served from replicas."),
    entry("replicas_reads_total", Counter, "/figures/reads",
        "Reads of files that the kernel served."),
    entry("replicas_reclaimed_total", Counter, "/figures/replicas_reclaimed",
        "Replicas that were given up for others."),
    entry("replicas_served_bytes_total", Counter, "/figures/served_bytes",
        "Bytes of files that were served from replicas."),
    entry("run_seconds_total", Counter, "/ran_ns",
        "How long the program has run.").nanoseconds(),
];

/// Serves the metrics of this process's run for as long as the process lives, by one thread of its
/// own: it reads the status that the agent posts for every observer, so the agent neither waits for
/// it nor knows of it. Returns the address.
pub fn serve(at: SocketAddr) -> io::Result<SocketAddr> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let text = || exposition(status::run_of(Pid::own()).as_ref());
    let at = runtime.block_on(metrics::serve(at, text))?;
    thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(move || runtime.block_on(future::pending::<()>()))?;
    Ok(at)
}

/// The metrics of a run, in the text format. A run that has posted nothing yet has none.
fn exposition(run: Option<&Status>) -> String {
    let Some(run) = run else {
        return String::new();
    };
    let info = metric("run_info", Gauge, "What runs: always 1.");
    let infos = run.mechanisms.iter().map(|status| {
        let labels = [
            ("policy", &status.policy[..]),
            ("version", env!("CARGO_PKG_VERSION")),
            ("dry_run", if run.dry_run { "true" } else { "false" }),
        ];
        info.sample(&labels, 1.0)
    });
    let mut families = vec![info.family(infos.collect())];
    let mechanisms = run.mechanisms.iter().map(|status| {
        let nodes = status.nodes.iter().map(ToString::to_string).collect();
        (serde_json::to_value(status).unwrap_or_default(), nodes)
    });
    let of_run = (serde_json::to_value(run).unwrap_or_default(), Vec::new());
    let documents: Vec<(Value, Vec<String>)> = std::iter::once(of_run).chain(mechanisms).collect();
    for metric in METRICS {
        let samples = documents
            .iter()
            .map(|(status, nodes)| metric.samples(status, nodes));
        let samples = samples.into_iter().find(|samples| !samples.is_empty());
        let samples = samples.unwrap_or_default();
        if !samples.is_empty() {
            families.push(metric.metric.family(samples));
        }
    }
    encode(&families)
}

impl RunMetric {
    /// The samples of a status.
    fn samples(&self, run: &Value, nodes: &[String]) -> Vec<proto::Metric> {
        let Some(found) = run.pointer(self.at) else {
            return Vec::new();
        };
        let figures: Vec<(&str, &Value)> = match found {
            Value::Object(by_key) => by_key
                .iter()
                .map(|(key, value)| (&key[..], value))
                .collect(),
            Value::Array(by_node) => nodes.iter().map(String::as_str).zip(by_node).collect(),
            one => vec![("", one)],
        };
        let samples = figures.into_iter().filter_map(|(key, value)| {
            let value = match value {
                Value::Bool(is) => f64::from(u8::from(*is)),
                value => value.as_f64()? / self.divisor,
            };
            let label = self.label.map(|label| (label, key));
            Some(self.metric.sample(label.as_slice(), value))
        });
        samples.collect()
    }
}

#[cfg(test)]
mod tests {
    use hither_ids::KernelNode;
    use insta::assert_snapshot;
    use serde_json::json;

    use hither_live::status::MechanismStatus;

    use super::*;

    #[test]
    fn the_list_is_in_order_and_named_as_prometheus_wants_it() {
        assert!(
            METRICS.is_sorted_by(|a, b| a.metric.name < b.metric.name),
            "sort it by name, once each"
        );
        for RunMetric { metric, at, .. } in METRICS {
            let Metric { name, kind, help } = metric;
            let letters = |text: &str| {
                text.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            };
            assert!(letters(name), "{name}");
            assert_eq!(*kind == Counter, name.ends_with("_total"), "{name}");
            assert!(
                help.ends_with('.') && !help.contains(['\n', '\\']),
                "{name}: {help}"
            );
            assert!(at.starts_with('/'), "{name}");
        }
    }

    /// Fails if a figure is renamed but its metric is not.
    #[test]
    fn every_metric_has_a_figure() {
        let agents = [
            hither_live::page_cache::PageCacheReport::default().to_json(),
            hither_live::file_placement::FileMigrationReport::default().to_json(),
            hither_live::replication::ReplicationReport::default().to_json(),
            hither_live::memory::MemoryReport::default().to_json(),
        ];
        let statuses = agents.map(|figures| {
            let status = MechanismStatus {
                figures,
                ..MechanismStatus::default()
            };
            serde_json::to_value(status).expect("a status is a document")
        });
        let run = serde_json::to_value(Status::default()).expect("a status is a document");
        let runs: Vec<Value> = statuses.into_iter().chain([run]).collect();
        for RunMetric { metric, at, .. } in METRICS {
            let name = metric.name;
            assert!(
                runs.iter().any(|run| run.pointer(at).is_some()),
                "{name}: no {at}"
            );
        }
    }

    #[test]
    fn a_run_of_each_kind() {
        let run = |figures| Status {
            ran_ns: 2_500_000_000,
            mechanisms: vec![MechanismStatus {
                policy: "pcc{other=\"a\\b\"}\n".to_owned(),
                nodes: vec![KernelNode(0), KernelNode(2)],
                figures,
                ..MechanismStatus::default()
            }],
            ..Status::default()
        };
        assert_eq!(exposition(None), "");
        assert_snapshot!(exposition(Some(&run(json!({
            "files": 3,
            "classes": { "looping": 7, "other": 0 },
            "replica_bytes": [4096, 0],
            "steering": true,
            "sampled": { "samples": 0, "local_share": null },
        })))).replace(env!("CARGO_PKG_VERSION"), "[VERSION]"), @r#"
        # HELP hither_run_info What runs: always 1.
        # TYPE hither_run_info gauge
        hither_run_info{policy="pcc{other=\"a\\b\"}\n",version="[VERSION]",dry_run="false"} 1
        # HELP hither_agent_cpu_seconds_total Processor time of the agent.
        # TYPE hither_agent_cpu_seconds_total counter
        hither_agent_cpu_seconds_total 0
        # HELP hither_files Files that the program has used.
        # TYPE hither_files gauge
        hither_files 3
        # HELP hither_memory_regions Regions of memory that there are now.
        # TYPE hither_memory_regions gauge
        hither_memory_regions 0
        # HELP hither_memory_samples_total Accesses to pages that were sampled.
        # TYPE hither_memory_samples_total counter
        hither_memory_samples_total 0
        # HELP hither_page_cache_classified_total References by their class.
        # TYPE hither_page_cache_classified_total counter
        hither_page_cache_classified_total{class="looping"} 7
        hither_page_cache_classified_total{class="other"} 0
        # HELP hither_page_cache_steering 1 while evictions are carried out, 0 otherwise.
        # TYPE hither_page_cache_steering gauge
        hither_page_cache_steering 1
        # HELP hither_replicas_bytes Bytes of replicas on a memory node.
        # TYPE hither_replicas_bytes gauge
        hither_replicas_bytes{node="0"} 4096
        hither_replicas_bytes{node="2"} 0
        # HELP hither_run_seconds_total How long the program has run.
        # TYPE hither_run_seconds_total counter
        hither_run_seconds_total 2.5
        "#);
    }
}
