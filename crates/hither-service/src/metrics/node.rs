//! The metrics of a node: what is in its status, in Prometheus' text format.

use crate::metrics::MetricKind::{self, Counter, Gauge};
use crate::metrics::{Metric, encode, metric};
use crate::status::{DiskStatus, MemberStatus, NodeStatus, SourceStatus, VolumeStatus};

/// A value and its labels.
type Sample = (Vec<(&'static str, String)>, f64);

/// A metric and where its samples are in a status.
struct NodeMetric {
    metric: Metric,
    samples: fn(&NodeStatus) -> Vec<Sample>,
}

const fn entry(
    name: &'static str,
    kind: MetricKind,
    help: &'static str,
    samples: fn(&NodeStatus) -> Vec<Sample>,
) -> NodeMetric {
    NodeMetric {
        metric: metric(name, kind, help),
        samples,
    }
}

/// Sorted by name.
#[rustfmt::skip]
const METRICS: &[NodeMetric] = &[
    entry("cache_blocks", Gauge,
        "Blocks in memory.",
        |node| one(node.memory.blocks)),
    entry("cache_blocks_in_flight", Gauge,
        "Blocks on their way to this node.",
        |node| one(node.memory.blocks_in_flight)),
    entry("cache_bytes", Gauge,
        "Bytes of the blocks in memory.",
        |node| one(node.memory.bytes)),
    entry("cache_frames_free", Gauge,
        "Frames of the memory that nobody has; each holds a block.",
        |node| one(node.memory.frames_free)),
    entry("cache_limit_bytes", Gauge,
        "The limit of the memory for file contents.",
        |node| one(node.memory.limit_bytes)),
    entry("cache_pinned_bytes", Gauge,
        "What is pinned of the memory.",
        |node| one(node.memory.pinned_bytes)),
    entry("cluster_events_total", Counter,
        "What the node's part of the protocol has counted, by event.",
        events),
    entry("cluster_joined", Gauge,
        "1 while the node takes part in its cluster, 0 while it is isolated.",
        |node| node.cluster.iter().map(|it| (vec![], flag(it.joined))).collect()),
    entry("cluster_member_connected", Gauge,
        "1 while both connections with the member are up.",
        |node| members(node, |member| Some(flag(member.connected)))),
    entry("cluster_member_received_bytes_total", Counter,
        "Bytes that came from the member.",
        |node| members(node, |member| Some(member.received_bytes as f64))),
    entry("cluster_member_round_trip_seconds", Gauge,
        "From the latest ping that the member answered to the answer.",
        |node| members(node, |member| member.round_trip_ns.map(|ns| ns as f64 / 1e9))),
    entry("cluster_member_sent_bytes_total", Counter,
        "Bytes that were sent to the member.",
        |node| members(node, |member| Some(member.sent_bytes as f64))),
    entry("cluster_member_suspected", Gauge,
        "1 while the member is suspected and nothing is asked of it.",
        |node| members(node, |member| Some(flag(member.suspected)))),
    entry("cluster_members", Gauge,
        "Members of the cluster, this node too.",
        |node| node.cluster.iter().map(|it| (vec![], it.members.len() as f64)).collect()),
    entry("cluster_membership_reachable", Gauge,
        "1 while the list of members can be asked.",
        |node| node.cluster.iter().map(|it| (vec![], flag(it.membership_reachable))).collect()),
    entry("disk_blocks_total", Counter,
        "Blocks of the disk, by what has become of them.",
        disk_blocks),
    entry("disk_bytes", Gauge,
        "What the blocks on the disk take there.",
        |node| disk(node, |disk| disk.usage.bytes)),
    entry("disk_limit_bytes", Gauge,
        "What they may take: less than was asked for where the disk is full.",
        |node| disk(node, |disk| disk.usage.limit_bytes)),
    entry("disk_pinned_bytes", Gauge,
        "What is pinned of the disk.",
        |node| disk(node, |disk| disk.pinned_bytes)),
    entry("node_info", Gauge,
        "The node: always 1.",
        info),
    entry("node_uptime_seconds", Gauge,
        "Since the node started.",
        |node| vec![(vec![], node.uptime_s)]),
    entry("overflow_blocks_total", Counter,
        "Blocks that were read past the memory since no frame was free.",
        |node| volumes(node, |volume| Some(volume.counts.overflow_blocks))),
    entry("prefetched_blocks_total", Counter,
        "Blocks that were asked for before they were read.",
        |node| volumes(node, |volume| Some(volume.counts.prefetched_blocks))),
    entry("prefetches_dropped_total", Counter,
        "Prefetches that were dropped: the reader turned elsewhere, or memory was short.",
        |node| volumes(node, |volume| Some(volume.counts.dropped_prefetches))),
    entry("read_bytes_total", Counter,
        "Bytes that programs read, by where they came from. \
         Reads that the kernel's page cache served are not seen.",
        read_bytes),
    entry("read_peer_bytes_total", Counter,
        "Of hither_read_bytes_total from peers, the bytes by member.",
        peer_bytes),
    entry("reads_total", Counter,
        "Read requests. Reads that the kernel's page cache served are not seen.",
        |node| volumes(node, |volume| Some(volume.counts.reads))),
    entry("source_errors_total", Counter,
        "Requests to the source that failed in the end.",
        |node| requests(node, |source| source.errors)),
    entry("source_fetched_bytes_total", Counter,
        "Bytes of blocks that came from the source, also those that nobody waited for.",
        |node| volumes(node, |volume| Some(volume.counts.fetched_bytes))),
    entry("source_received_bytes_total", Counter,
        "Bytes of files that came from the source, those of failed attempts included.",
        |node| requests(node, |source| source.bytes)),
    entry("source_requests_total", Counter,
        "Requests to the source, each attempt counted.",
        |node| requests(node, |source| source.requests)),
    entry("source_retries_total", Counter,
        "Requests to the source that were repeated after a failure.",
        |node| requests(node, |source| source.retries)),
    entry("source_throttled_total", Counter,
        "Requests that the source turned away for its load.",
        |node| requests(node, |source| source.throttled)),
    entry("source_up", Gauge,
        "1 if the source answered the last request.",
        |node| volumes(node, |volume| Some(u64::from(volume.source_answers)))),
    entry("stale_reads_total", Counter,
        "Reads that found another version at the source than the one that is open.",
        |node| volumes(node, |volume| Some(volume.counts.stale_reads))),
];

fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

fn one(value: u64) -> Vec<Sample> {
    vec![(vec![], value as f64)]
}

fn volumes(node: &NodeStatus, figure: fn(&VolumeStatus) -> Option<u64>) -> Vec<Sample> {
    let sample = |volume: &VolumeStatus| {
        let labels = vec![("volume", volume.name.clone())];
        Some((labels, figure(volume)? as f64))
    };
    node.volumes.iter().filter_map(sample).collect()
}

fn members(node: &NodeStatus, figure: fn(&MemberStatus) -> Option<f64>) -> Vec<Sample> {
    let members = node.cluster.iter().flat_map(|cluster| &cluster.members);
    let others = members.filter(|member| !member.this_node);
    let sample =
        |member: &MemberStatus| Some((vec![("member", member.name.clone())], figure(member)?));
    others.filter_map(sample).collect()
}

fn disk(node: &NodeStatus, figure: fn(&DiskStatus) -> u64) -> Vec<Sample> {
    let disk = node.disk.iter();
    disk.map(|disk| (vec![], figure(disk) as f64)).collect()
}

fn disk_blocks(node: &NodeStatus) -> Vec<Sample> {
    let Some(DiskStatus { counts, .. }) = &node.disk else {
        return Vec::new();
    };
    let events = [
        ("written", counts.written_blocks),
        ("skipped", counts.skipped_blocks),
        ("read", counts.read_blocks),
        ("bad", counts.bad_blocks),
        ("evicted", counts.evicted_blocks),
        ("full", counts.full_blocks),
        ("failed", counts.failed_blocks),
    ];
    let sample = |(event, blocks): (&str, u64)| (vec![("event", event.to_owned())], blocks as f64);
    events.into_iter().map(sample).collect()
}

fn events(node: &NodeStatus) -> Vec<Sample> {
    let events = node.machine.iter();
    events
        .map(|(event, &count)| (vec![("event", event.clone())], count as f64))
        .collect()
}

fn info(node: &NodeStatus) -> Vec<Sample> {
    let cluster = node.cluster.as_ref().map(|cluster| cluster.name.clone());
    let labels = vec![
        ("node", node.node.clone().unwrap_or_default()),
        ("cluster", cluster.unwrap_or_default()),
        ("version", node.version.clone()),
    ];
    vec![(labels, 1.0)]
}

fn read_bytes(node: &NodeStatus) -> Vec<Sample> {
    let parts = |volume: &VolumeStatus| {
        let name = volume.name.clone();
        volume.served.parts().map(|(from, bytes)| {
            let labels = vec![("volume", name.clone()), ("from", from.to_owned())];
            (labels, bytes as f64)
        })
    };
    node.volumes.iter().flat_map(parts).collect()
}

fn peer_bytes(node: &NodeStatus) -> Vec<Sample> {
    let peers = |volume: &VolumeStatus| -> Vec<Sample> {
        let sample = |(member, &bytes): (&String, &u64)| {
            let labels = vec![("volume", volume.name.clone()), ("member", member.clone())];
            (labels, bytes as f64)
        };
        volume.peers.iter().map(sample).collect()
    };
    node.volumes.iter().flat_map(peers).collect()
}

fn requests(node: &NodeStatus, figure: fn(&SourceStatus) -> u64) -> Vec<Sample> {
    let sample = |volume: &VolumeStatus| {
        let value = figure(volume.requests.as_ref()?);
        Some((vec![("volume", volume.name.clone())], value as f64))
    };
    node.volumes.iter().filter_map(sample).collect()
}

/// The metrics of a node, in the text format.
pub(crate) fn exposition(node: &NodeStatus) -> String {
    let mut families = Vec::new();
    for NodeMetric { metric, samples } in METRICS {
        let samples: Vec<_> = samples(node)
            .iter()
            .map(|(labels, value)| {
                let labels: Vec<(&str, &str)> = labels
                    .iter()
                    .map(|(name, value)| (*name, &value[..]))
                    .collect();
                metric.sample(&labels, *value)
            })
            .collect();
        if !samples.is_empty() {
            families.push(metric.family(samples));
        }
    }
    encode(&families)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{ClusterStatus, ServedBytes};

    #[test]
    fn the_list_is_in_order_and_named_as_prometheus_wants_it() {
        assert!(METRICS.is_sorted_by(|a, b| a.metric.name < b.metric.name));
        for NodeMetric { metric, .. } in METRICS {
            let is_counter = metric.kind == Counter;
            assert_eq!(
                is_counter,
                metric.name.ends_with("_total"),
                "{}",
                metric.name
            );
            assert!(metric.help.ends_with('.'), "{}", metric.name);
        }
    }

    #[test]
    fn every_metric_has_a_figure_and_its_labels() {
        let member = |name: &str, this_node| MemberStatus {
            name: name.to_owned(),
            this_node,
            round_trip_ns: Some(2_000_000),
            ..MemberStatus::default()
        };
        let node = NodeStatus {
            node: Some("a".to_owned()),
            cluster: Some(ClusterStatus {
                name: "lab".to_owned(),
                members: vec![member("a", true), member("b", false)],
                ..ClusterStatus::default()
            }),
            volumes: vec![VolumeStatus {
                name: "v".to_owned(),
                served: ServedBytes {
                    memory: 3,
                    disk: 5,
                    peer: 2,
                    source: 1,
                },
                peers: [("b".to_owned(), 2)].into(),
                requests: Some(SourceStatus::default()),
                ..VolumeStatus::default()
            }],
            disk: Some(DiskStatus::default()),
            machine: [("suspicions".to_owned(), 4)].into(),
            ..NodeStatus::default()
        };
        let text = exposition(&node);
        for NodeMetric { metric, .. } in METRICS {
            let line = format!("# TYPE hither_{} ", metric.name);
            assert!(text.contains(&line), "no {}: {text}", metric.name);
        }
        for line in [
            "hither_read_bytes_total{volume=\"v\",from=\"memory\"} 3",
            "hither_read_bytes_total{volume=\"v\",from=\"disk\"} 5",
            "hither_read_bytes_total{volume=\"v\",from=\"peer\"} 2",
            "hither_read_bytes_total{volume=\"v\",from=\"source\"} 1",
            "hither_read_peer_bytes_total{volume=\"v\",member=\"b\"} 2",
            "hither_cluster_member_round_trip_seconds{member=\"b\"} 0.002",
            "hither_cluster_events_total{event=\"suspicions\"} 4",
            "hither_cluster_members 2",
        ] {
            assert!(text.lines().any(|other| other == line), "no {line}: {text}");
        }
    }
}
