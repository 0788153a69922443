//! `hither run --replicas`: copies blocks of files to the nodes that read them.

use clap::Args;
use hither_analysis::format::{bytes, count, counted, percent};
use hither_analysis::run_plan::RunPlan;
use hither_core::Spec;
use hither_core::placement::{PlacementEntry, placement_policies};
use hither_core::registry::Mechanism;
use hither_live::replication::{ReplicationOptions, ReplicationReport, Scope};
use hither_live::{Mechanisms, RunReport};
use hither_sim::Size;
use serde_json::Value;

use super::arguments::KnowledgeArgs;
use super::notes::Notes;
use super::page_cache::bytes_are_needed;
use super::switch::Switch;
use crate::exit::Usage;

/// The switch.
const SWITCH: &str = "--replicas";

/// The policy if none is named.
const DEFAULT_POLICY: &str = "dual-layer";

/// The switch and its options.
#[derive(Args, Debug)]
pub(super) struct ReplicaArgs {
    /// Copy blocks to their readers [default: dual-layer]
    ///
    /// POLICY decides which blocks are copied to the nodes that read them. Any writer of a file
    /// waits until its copies are out of use.
    #[arg(
        id = "replicas",
        long,
        value_name = "POLICY",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = DEFAULT_POLICY
    )]
    policy: Option<String>,

    /// Blocks that may have replicas: those on other nodes, or all [default: far]
    ///
    /// `all` is for tests and trials: memory that is equally near gains nothing.
    #[arg(long, value_name = "WHICH", value_parser = ["far", "all"], hide_short_help = true)]
    replicate: Option<String>,

    /// The most memory of each node for replicas [default: an eighth of the node]
    #[arg(long, value_name = "SIZE", value_parser = replica_bytes, hide_short_help = true)]
    replica_memory: Option<u64>,
}

impl Switch for ReplicaArgs {
    fn mechanism(&self) -> &'static str {
        "replication"
    }

    fn key(&self) -> &'static str {
        "replicas"
    }

    fn switch(&self) -> &'static str {
        SWITCH
    }

    fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    fn option(&self) -> Option<&'static str> {
        match &self.replicate {
            Some(_) => Some("--replicate"),
            None => self.replica_memory.map(|_| "--replica-memory"),
        }
    }

    fn apply_plan(&mut self, plan: &RunPlan, _is_forced: bool) -> Result<(), Usage> {
        self.policy = plan.replicas.clone();
        Ok(())
    }

    fn add_to(&self, mechanisms: &mut Mechanisms, _: &KnowledgeArgs) -> anyhow::Result<()> {
        if let Some(policy) = &self.policy {
            mechanisms.replication = Some(options(self, policy)?);
        }
        Ok(())
    }

    fn report(&self, ran: &RunReport, notes: &Notes<'_>) {
        if let Some(ran) = &ran.replication {
            report(ran, notes);
        }
    }

    fn document(&self, ran: &RunReport) -> Option<Value> {
        ran.replication.as_ref().map(ReplicationReport::to_json)
    }
}

fn replica_bytes(text: &str) -> Result<u64, String> {
    match text.parse::<Size>().map_err(|error| error.to_string())? {
        Size::Bytes(bytes) if bytes >= 1 << 20 => Ok(bytes),
        Size::Bytes(_) => Err("give at least 1MiB".to_owned()),
        size => Err(bytes_are_needed(size)),
    }
}

/// Parses a policy that can run live.
fn policy(text: &str) -> Result<Spec<PlacementEntry>, Usage> {
    let spec: Spec<PlacementEntry> = text
        .parse()
        .map_err(|error| Usage(format!("{SWITCH}={text}: {error}")))?;
    if spec.runs(Mechanism::Replicas) {
        return Ok(spec);
    }
    let live = placement_policies()
        .iter()
        .filter(|entry| entry.runs(Mechanism::Replicas));
    let names: Vec<&str> = live.map(|entry| entry.name).collect();
    Err(Usage(format!(
        "{SWITCH}={}: it does not replicate files of a running program; {} does",
        spec.entry().name,
        names.join(", ")
    )))
}

/// The options of the mechanism.
fn options(args: &ReplicaArgs, text: &str) -> Result<ReplicationOptions, Usage> {
    Ok(ReplicationOptions {
        policy: policy(text)?,
        scope: match args.replicate.as_deref() {
            Some("all") => Scope::All,
            _ => Scope::Far,
        },
        node_bytes: args.replica_memory,
    })
}

/// Prints the summary.
fn report(replicas: &ReplicationReport, notes: &Notes<'_>) {
    let ui = notes.ui;
    let (summary, dry_run) = (&replicas.summary, notes.dry_run);
    if replicas.nothing_is_far {
        ui.note("one memory node: nothing is far; --replicate all copies whatever is read again");
        if !dry_run {
            return;
        }
    }
    let share = replicas.served as f64 / (replicas.served + replicas.read).max(1) as f64;
    ui.note(format_args!(
        "{}: about {} of {} served from replicas, {}",
        counted(summary.files, "file"),
        percent(share),
        counted(replicas.served + replicas.read, "read"),
        bytes(replicas.served_bytes),
    ));
    let made = if dry_run {
        "would have been made"
    } else {
        "made"
    };
    ui.note(format_args!(
        "{} {made}, {} at most; {} given up for others; \
         replicas of {} ended by writers or changes",
        counted(summary.made, "replica"),
        bytes(replicas.bytes_max),
        count(summary.reclaimed),
        counted(summary.ended, "file"),
    ));
    if replicas.no_memory > 0 {
        ui.note(format_args!(
            "no memory for {}",
            counted(replicas.no_memory, "replica")
        ));
    }
    for (why, times) in &replicas.refused {
        ui.note(format_args!(
            "left alone {}: {why}",
            counted(*times, "time")
        ));
    }
    notes.agent_of_one(replicas.agent, replicas.ran);
    notes.losses(&replicas.lost, replicas.log.as_ref());
}
