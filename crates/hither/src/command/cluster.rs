//! `hither cluster`: what the members of a cluster cache are doing.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use hither_analysis::format::{bytes, count, duration_ns, percent};
use hither_analysis::table::{Align, Table};
use hither_core::placement::Replayed;
use serde_json::json;

use super::subcommand::Subcommand;
use crate::ui::{self, Ui};
use hither_service::client;
use hither_service::members::MemberReport;
use hither_service::status::{NodeStatus, ServedBytes};
use hither_service::topology::TopologyStatus;

/// Show the members of a cluster cache, or replay the decisions of one
#[derive(Args, Debug)]
#[command(after_help = "\
`hither cluster status` asks a node of this machine, which asks the others. It
shows what each has in memory, and where the reads on it were served from: its
own memory, the memory of other members, the source. Reads that the kernel's
page cache served are not seen. A member that does not answer within a second
is shown as such. Distances between members are of the configuration, or
measured by pings.

Examples:
  hither cluster status                  by the only node of yours that runs
  hither cluster status /mnt/data        by the node that serves this mount
  hither cluster status --socket /run/hither/4711.sock
  hither cluster status --distances      and how far they are from each other
  hither cluster status --json | jq '.members[].report.memory.bytes'
  hither cluster replay placement.log    does the same code decide the same?")]
pub(super) struct Cluster {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// Show the members: memory, where reads are served from, suspicion
    Status(StatusArgs),
    /// Make the calls of a log of --placement-log again, and compare the decisions
    Replay(ReplayArgs),
}

#[derive(Args, Debug)]
struct ReplayArgs {
    /// What `hither node --placement-log` or `hither mount --placement-log` has written
    #[arg(value_name = "LOG")]
    log: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct StatusArgs {
    /// Ask the node that serves this mount, or a file in it
    #[arg(value_name = "DIRECTORY", conflicts_with = "socket")]
    directory: Option<PathBuf>,

    /// Ask the node that has this control socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Show the distances between all members too
    #[arg(long)]
    distances: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Subcommand for Cluster {
    const NAME: &'static str = "cluster";

    fn run(self, _: &Ui) -> anyhow::Result<ExitCode> {
        match self.action {
            Action::Status(args) => status(args),
            Action::Replay(args) => replay(&args),
        }
    }
}

fn replay(args: &ReplayArgs) -> anyhow::Result<ExitCode> {
    let place = || args.log.display().to_string();
    let log = BufReader::new(File::open(&args.log).with_context(place)?);
    let replayed = hither_core::placement::replay(log).with_context(place)?;
    if args.json {
        let Replayed {
            hosts,
            calls,
            decisions,
        } = replayed;
        let document = json!({ "hosts": hosts, "calls": calls, "decisions": decisions });
        ui::print_json(&document)?;
    } else {
        ui::print(&format!("{replayed}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn status(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let socket = match (args.socket, args.directory) {
        (Some(socket), _) => socket,
        (None, Some(directory)) => client::socket_of(&directory)?,
        (None, None) => client::only_socket()?,
    };
    let node: NodeStatus = serde_json::from_slice(&client::get(&socket, "/status")?)
        .with_context(|| format!("{}: its status", socket.display()))?;
    let members = members(&socket)?;
    let topology = client::topology(&socket)?;
    if args.json {
        let document = json!({ "asked": node, "members": members, "topology": topology });
        ui::print_json(&document)?;
    } else {
        let mut text = text(&node, topology.as_ref(), &members);
        if let Some(topology) = topology.filter(|_| args.distances) {
            text = format!("{text}\n{}", topology.table());
        }
        ui::print(&text)?;
    }
    Ok(ExitCode::SUCCESS)
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
