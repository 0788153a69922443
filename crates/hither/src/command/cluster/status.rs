//! `hither cluster status`: what the members of a cluster cache are doing.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use hither_analysis::format::{bytes, count, duration_ns, percent};
use hither_analysis::plot::Network;
use hither_analysis::table::{Align, Table};
use serde_json::json;

use super::distances;
use crate::command::options::picture::{PictureFile, picture};
use crate::output::check_folder;
use crate::ui::{self, Ui};
use hither_service::client;
use hither_service::members::MemberReport;
use hither_service::status::{NodeStatus, ServedBytes};
use hither_service::topology::TopologyStatus;

/// Show the members: memory, where reads are served from, suspicion, distances
#[derive(Args, Debug)]
#[command(after_help = "\
A node of this machine is asked, which asks the others. It shows what each has
in memory, and where the reads on it were served from: its own memory, its disk,
the memory of other members, the source. Reads that the kernel's page cache
served are not seen. A member that does not answer within a second is shown as
such. Distances are of the configuration, or measured by pings.

Examples:
  hither cluster status                  by the only node of yours that runs
  hither cluster status /mnt/data        by the node that serves this mount
  hither cluster status /run/hither/4711.sock
  hither cluster status --distances      and how far they are from each other
  hither cluster status --draw who.svg   a picture of that
  hither cluster status --json | jq '.members[].report.memory.bytes'")]
pub(super) struct Status {
    /// A mount or a file in it, or the control socket of a node [default: the only node]
    #[arg(value_name = "PLACE")]
    place: Option<PathBuf>,

    /// Show the distances between all members too
    #[arg(long)]
    distances: bool,

    /// Draw the members and their distances, as .svg or .png
    #[arg(long, value_name = "FILE", value_parser = picture)]
    draw: Option<PictureFile>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Status {
    pub(super) fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        if let Some(file) = &self.draw {
            check_folder(&file.path)?;
        }
        let socket = client::socket_at(self.place.as_deref())?;
        let node = client::status(&socket)?;
        let members = members(&socket)?;
        let topology = client::topology(&socket)?;
        if let Some(file) = &self.draw {
            let known = distances::known(topology.as_ref())?;
            let (topology, head) = (distances::topology(known)?, distances::head(known));
            file.save(&Network::new(&topology, &head)?, ui)?;
        }
        if self.json {
            let document = json!({ "asked": node, "members": members, "topology": topology });
            ui::print_json(&document)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut text = text(&node, topology.as_ref(), &members);
        if self.distances && topology.is_some() {
            let known = distances::known(topology.as_ref())?;
            text = format!("{text}{}", distances::text(known)?);
        }
        ui::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// All members, by name.
fn members(socket: &Path) -> anyhow::Result<Vec<MemberReport>> {
    let answer = client::get(socket, "/members")?;
    let lines = answer.split(|&byte| byte == b'\n');
    let members = lines.filter(|line| !line.is_empty()).map(|line| {
        serde_json::from_slice(line).with_context(|| format!("{}: a member", socket.display()))
    });
    let mut members: Vec<MemberReport> = members.collect::<anyhow::Result<_>>()?;
    members.sort_by(|one, other| one.member.name.cmp(&other.member.name));
    Ok(members)
}

fn text(node: &NodeStatus, topology: Option<&TopologyStatus>, members: &[MemberReport]) -> String {
    let head = match &node.cluster {
        None => "this node is alone".to_owned(),
        Some(cluster) => {
            let mut head = format!("cluster {}", cluster.name);
            if let Some(reason) = &cluster.reason {
                head = format!("{head}; this node has left it: {reason}");
            }
            if !cluster.membership_reachable {
                head += "; the list of members cannot be asked, and may be old";
            }
            head
        }
    };
    let whence = topology.map_or_else(String::new, |topology| {
        format!("distances: {}\n", topology.whence())
    });
    let mut table = Table::new([
        ("member", Align::Left),
        ("address", Align::Left),
        ("state", Align::Left),
        ("round trip", Align::Right),
        ("memory", Align::Right),
        ("of", Align::Right),
        ("blocks", Align::Right),
        ("hits", Align::Right),
        ("disk", Align::Right),
        ("peers", Align::Right),
        ("source", Align::Right),
    ]);
    for member in members {
        table.row(row(member));
    }
    format!(
        "{head}\n{whence}{}{}{}",
        table.render(),
        pinned(members),
        pinned_on_disk(node)
    )
}

/// A line for each member with pinned files.
fn pinned(members: &[MemberReport]) -> String {
    let lines = members.iter().filter_map(|member| {
        let memory = &member.report.as_ref()?.memory;
        let name = match &member.member.name[..] {
            "" => "this node",
            name => name,
        };
        let pinned = bytes(memory.pinned_bytes);
        (memory.pinned_bytes > 0).then(|| format!("{name}: {pinned} are pinned\n"))
    });
    lines.collect()
}

/// A line for what is pinned on this node's disk.
fn pinned_on_disk(node: &NodeStatus) -> String {
    match node.disk.as_ref().map_or(0, |disk| disk.pinned_bytes) {
        0 => String::new(),
        pinned => format!("this node's disk: {} are pinned\n", bytes(pinned)),
    }
}

fn row(member: &MemberReport) -> [String; 11] {
    let MemberReport {
        member,
        report,
        error,
    } = member;
    let state = match error {
        _ if member.this_node => "this node",
        _ if member.suspected => "suspected",
        Some(error) => error,
        None => "ok",
    };
    let round_trip = member.round_trip_ns.filter(|_| !member.suspected);
    let of_report = match report {
        Some(report) => {
            let served = report.served;
            [
                bytes(report.memory.bytes),
                bytes(report.memory.limit_bytes),
                count(report.memory.blocks),
                share(served, served.memory),
                share(served, served.disk),
                share(served, served.peer),
                share(served, served.source),
            ]
        }
        None => Default::default(),
    };
    let of_member = [
        member.name.clone(),
        member.address.clone(),
        state.to_owned(),
        round_trip.map_or_else(String::new, |ns| duration_ns(ns as f64)),
    ];
    let mut cells = of_member.into_iter().chain(of_report);
    std::array::from_fn(|_| cells.next().unwrap_or_default())
}

/// A share of all reads; nothing where there were none.
fn share(served: ServedBytes, part: u64) -> String {
    match served.total() {
        0 => String::new(),
        total => percent(part as f64 / total as f64),
    }
}
