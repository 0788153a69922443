//! `hither cache status`: how full the cache of a mount is, and where its reads were served from.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use hither_analysis::format::{self, bytes, count, counted, percent};

use crate::ui;
use hither_service::client;
use hither_service::status::NodeStatus;

/// Show how full the cache of a mount is, what is pinned, and where reads were served from
#[derive(Args, Debug)]
#[command(after_help = "\
Reads that the kernel's page cache served are not seen. `hither top` shows the
same and goes on; `hither cluster status` shows the other members too.

Examples:
  hither cache status                    of the only node of yours that runs
  hither cache status /mnt/data          of the node that serves this mount
  hither cache status --json /mnt/data | jq .served")]
pub(super) struct Status {
    /// A mount or a file in it, or the control socket of a node [default: the only node]
    #[arg(value_name = "PLACE")]
    place: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let socket = client::socket_at(self.place.as_deref())?;
        let node = client::status(&socket)?;
        if self.json {
            ui::print_json(&node)?;
        } else {
            ui::print(&text(&node))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A mount, or a node of a cluster.
pub(crate) fn text(node: &NodeStatus) -> String {
    let name = match (&node.node, &node.cluster) {
        (Some(name), Some(cluster)) => {
            let others = cluster.members.len().saturating_sub(1);
            let suspected = cluster.members.iter().filter(|it| it.suspected).count();
            format!(
                "node {name} of the cluster {}, with {}, {suspected} of them suspected",
                cluster.name,
                counted(others as u64, "other member"),
            )
        }
        _ => "a node that is alone".to_owned(),
    };
    let uptime = format::duration_ns(node.uptime_s * 1e9);
    let (memory, limit) = (bytes(node.memory.bytes), bytes(node.memory.limit_bytes));
    let blocks = count(node.memory.blocks);
    let disk_pinned = node.disk.as_ref().map_or(0, |disk| disk.pinned_bytes);
    let pinned = match (node.memory.pinned_bytes, disk_pinned) {
        (0, 0) => String::new(),
        (memory, 0) => format!(", {} pinned", bytes(memory)),
        (memory, disk) => format!(", {} pinned, {} on the disk", bytes(memory), bytes(disk)),
    };
    let head = format!(
        "{}: {name}, for {uptime}\n  {memory} of {limit} in {blocks} blocks{pinned}\n",
        node.pid
    );
    let volumes = node.volumes.iter().map(|volume| {
        let place = match &volume.directory {
            Some(directory) => {
                let directory = directory.display().to_string();
                format!(" at {}", format::printable(&directory))
            }
            None => ", not mounted".to_owned(),
        };
        let total = volume.served.total();
        let parts = volume
            .served
            .parts()
            .map(|(from, part)| format!("{} {from}", percent(part as f64 / total.max(1) as f64)));
        format!(
            "  {}{place}: {} read: {}\n",
            format::printable(&volume.name),
            bytes(total),
            parts.join(", "),
        )
    });
    volumes.fold(head, |text, volume| text + &volume)
}
