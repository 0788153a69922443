//! `hither run`: runs a program while policies steer its page cache, the replicas and the placement
//! of its files, and the placement of its memory.

mod arguments;
mod automatic;
mod choice;
mod file_placement;
pub(super) mod machine;
mod memory;
mod notes;
mod page_cache;
mod replicas;
mod switch;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use hither_analysis::format::printable_json;
use hither_analysis::run_plan::RunPlan;
use hither_kernel_events::{Obstacle, Scope};
use hither_live::observe::{TraceOptions, unseen};
use hither_live::{
    AttachOptions, Beside, Conflict, Error, Mechanisms, RunOptions, RunReport, SessionOptions,
    has_one_node, memory_group,
};
use hither_service::metrics;
use serde_json::Value;

use self::arguments::{KnowledgeArgs, OutputArgs};
use self::file_placement::FilePlacementArgs;
use self::memory::MemoryArgs;
use self::notes::Notes;
use self::page_cache::PageCacheArgs;
use self::replicas::ReplicaArgs;
use self::switch::Switch;
use super::options::recording;
use super::options::running::RunningArgs;
use super::subcommand::Subcommand;
use crate::exit::{self, Usage};
use crate::preload;
use crate::ui::{Ui, write_to_stderr};

/// Makes of the list of switches their arguments, and lists to go through.
macro_rules! switches {
    ($($heading:literal $name:ident: $args:ty;)*) => {
        /// The switches, with their options.
        #[derive(Args, Debug)]
        struct Switches {
            $(#[command(flatten, next_help_heading = $heading)]
            $name: $args,)*
        }

        impl Switches {
            /// All of them.
            fn all(&self) -> Vec<&dyn Switch> {
                vec![$(&self.$name),*]
            }

            /// All of them, to switch them on.
            fn all_mut(&mut self) -> Vec<&mut dyn Switch> {
                vec![$(&mut self.$name),*]
            }
        }
    };
}

// The list: one switch for each mechanism. Help, summaries and documents have them in this order.
switches! {
    "Page cache" page_cache: PageCacheArgs;
    "Replicas" replicas: ReplicaArgs;
    "File placement" file_placement: FilePlacementArgs;
    "Memory" memory: MemoryArgs;
}

/// Run a program and steer its page cache, files or memory
///
/// The program is unmodified. Each switch governs one thing, by its default policy or by the one
/// that it names, as in --page-cache=ubm.
///
/// Without a switch the run is automatic: it switches on what can help on this machine, and says
/// what and why. It switches on the page cache if a memory cgroup has a limit, or if the files that
/// the command line names are larger than the available memory. (The files that a program opens
/// later are not known before it starts.) It switches on memory if the machine has several memory
/// nodes and the kernel does not balance them (kernel.numa_balancing=0). Replicas and file
/// placement are switched on only by name.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, after_long_help = LONG_HELP)]
pub(super) struct Run {
    /// The program to run, with its arguments
    #[arg(last = true, value_name = "CMD", required_unless_present = "running")]
    command: Vec<OsString>,

    #[command(flatten)]
    running: RunningArgs,

    #[command(flatten)]
    switches: Switches,

    /// Have the library in the program say what it does, or the kernel
    ///
    /// The kernel sees all programs, static and setuid ones too, and knows whose pages are whose,
    /// but steers only the page cache, and needs root, or CAP_BPF and CAP_PERFMON. By default it is
    /// asked for --no-cache, and for programs that cannot load the library.
    #[arg(
        long,
        value_enum,
        value_name = "SOURCE",
        conflicts_with_all = ["running", "record"],
        hide_short_help = true
    )]
    seen_by: Option<SeenBy>,

    #[command(flatten, next_help_heading = "Plan and profile")]
    knowledge: KnowledgeArgs,

    #[command(flatten, next_help_heading = "Output")]
    output: OutputArgs,
}

/// Who says what a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SeenBy {
    Library,
    Kernel,
}

const EXAMPLES: &str = "Examples:
  hither run -- ./scan data                            what can help here
  hither run --page-cache --cache 2GiB -- ./scan data  pcc, in 2 GiB
  hither run --no-cache -- tar cf /backup/db.tar /db   evict no other files
  hither run --unit postgresql                         a running service";

const LONG_HELP: &str = "\
The program's output and exit code pass through unchanged. hither's own exit codes are 1 (it
failed), 2 (bad usage), 126 (the program cannot be executed) and 127 (there is no such program).
Signals of the terminal reach the program directly. Of the signals that are sent to hither alone, it
passes on TERM, HUP, USR1 and USR2, and ignores INT and QUIT.

On a machine with one memory node no page is placed. --memory and --file-placement then run the
program unchanged, and write nothing to --log, --profile and --metrics. With --dry-run, --memory and
--file-placement=upm observe the program on such a machine too.

Examples:
  hither run -- ./scan data
      switch on what can help on this machine
  hither run --page-cache --cache 2GiB -- ./scan data
      pcc decides what the page cache keeps of the program's files, in 2 GiB
  hither run --no-cache -- tar cf /backup/db.tar /db
      leave in the page cache what was there before, and nothing else
  hither run --no-cache -p 4711
      the same of a process that runs already, until it ends, or Ctrl-C
  hither run --unit postgresql
      pcc decides what stays cached of a service that runs already
  hither run --page-cache=ubm -- make
      ubm decides, in what the memory cgroup's limit leaves for files
  systemd-run --user --scope -p MemoryMax=1G hither run -- ./scan data
      run under a memory limit, where the page cache is steered automatically
  hither run --page-cache --cache 2GiB --profile scan.profile -- ./scan data
      start from what the last run learnt about its call sites
  hither run --page-cache --metrics 9464 -- ./scan data
      serve the figures of the run to Prometheus at localhost:9464/metrics
  hither run --plan plan.toml -- ./scan data
      apply what `hither advise --save plan.toml` found to help
  hither run --replicas -- ./server
      copy what is read from another node's memory to the reader's node
  hither run --replicas --replicate all -- ./server
      copy all that is read again, also on one node, where it gains nothing
  hither run --file-placement -- ./server
      spread pages of its files over all nodes
  hither run --file-placement=upm -- ./server
      move pages of its files to the node that reads them
  hither run --memory -- ./solver input
      move pages to the nodes that use them, between iterations
  hither run --memory=cache-aware -- ./solver input
      put streamed memory on far nodes and other memory on near ones
  hither run --memory=cache-aware,majority -- ./solver input
      both: move near memory to the nodes that use it
  hither run --memory --dry-run --log pages.jsonl -- ./solver input
      decide and log, but move nothing
  hither run --page-cache --cache 2GiB --record scan.hither -- ./scan data
      record what it steers
  hither run --memory='cache-aware{limit=0.3}' --region-min 4MiB -- ./solver
      set a parameter of the policy, and place only large regions";

impl Subcommand for Run {
    const NAME: &'static str = "run";

    fn run(mut self, ui: &Ui) -> anyhow::Result<ExitCode> {
        if let Some(scope) = self.running.scope()? {
            return self.steer_running(scope, ui);
        }
        self.check_plan()?;
        if let Some(path) = self.knowledge.plan.take() {
            self.apply_plan(&path, ui)?;
        } else if self.on().is_empty() {
            self.switch_on_automatically(ui)?;
        }
        self.check_pairs()?;
        self.check_options()?;
        for switch in self.on() {
            switch.check(&self.output, self.is_combined())?;
        }
        self.serve_metrics(ui)?;
        if let Some(output) = &self.output.record {
            recording::note_recoverable(output, ui);
        }
        let mechanisms = self.mechanisms()?;
        if let Some(memory) = &mechanisms.memory {
            memory::note_small_regions(memory, ui);
        }
        let files = mechanisms.file_placement.as_ref();
        if mechanisms.memory.is_some() || files.is_some_and(|of| !of.is_at_read()) {
            self.note_one_node(ui);
        }
        let by_kernel = self.by_kernel(&mechanisms)?;
        let options = self.options(&mechanisms, by_kernel)?;
        if !by_kernel && !self.output.json {
            self.note_unseen(ui);
        }
        let ran = match hither_live::run(&options, &mechanisms) {
            Err(why @ (Error::Observer(_) | Error::KernelSaysTooLittle))
                if by_kernel && self.seen_by.is_none() && preload::IS_THERE =>
            {
                ui.note(format_args!("not seen by the kernel: {why}"));
                self.note_unseen(ui);
                hither_live::run(&self.options(&mechanisms, false)?, &mechanisms)
            }
            ran => ran,
        };
        let ran = match ran {
            Err(error @ Error::NoNode { .. }) => {
                return Err(Usage(format!("{}: {error}", file_placement::SWITCH)).into());
            }
            ran => ran.map_err(exit::not_started)?,
        };
        let exit = exit::code_of(ran.exit);
        self.ended(ran, ui)?;
        Ok(exit)
    }
}

impl Run {
    /// Refuses a switch beside a plan.
    fn check_plan(&self) -> Result<(), Usage> {
        let given = self.on().first().map(|switch| switch.given_switch());
        match given.filter(|_| self.knowledge.plan.is_some()) {
            Some(given) => {
                let message = format!("{given} with --plan: the plan says what to do");
                Err(Usage(message))
            }
            None => Ok(()),
        }
    }

    /// Steers the page cache of programs that run already.
    fn steer_running(mut self, scope: Scope, ui: &Ui) -> anyhow::Result<ExitCode> {
        if scope == Scope::Everything {
            let message = "--all: say whose page cache, by --pid, --cgroup, --unit or --container";
            return Err(Usage(message.to_owned()).into());
        }
        self.check_plan()?;
        if let Some(path) = self.knowledge.plan.take() {
            self.apply_plan(&path, ui)?;
        }
        self.switches.page_cache.running(memory_group(&scope))?;
        let mut others = self.on().into_iter();
        if let Some(other) = others.find(|switch| switch.switch() != page_cache::SWITCH) {
            let message = format!(
                "{} is for programs that hither starts: of those that run already, the page cache \
                 is steered",
                other.given_switch()
            );
            return Err(Usage(message).into());
        }
        self.check_options()?;
        self.serve_metrics(ui)?;
        if let Some(output) = &self.output.record {
            recording::note_recoverable(output, ui);
        }
        let options = AttachOptions {
            record: self.trace(),
            page_cache: self.mechanisms()?.page_cache,
            dry_run: self.output.dry_run,
            log: self.output.log.clone(),
            ..self.running.options(scope)?
        };
        let ran = self.running.attach(&options)?.map_err(exit::not_started)?;
        self.ended(ran, ui)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Whether the kernel says what the program does, and not the library in it.
    fn by_kernel(&self, mechanisms: &Mechanisms) -> Result<bool, Usage> {
        let mut others = self.on().into_iter();
        let other = others.find(|switch| switch.switch() != page_cache::SWITCH);
        match (self.seen_by, other) {
            (Some(SeenBy::Kernel), Some(other)) => {
                let other = other.given_switch();
                let message = format!("--seen-by=kernel: {other} needs the library in the program");
                Err(Usage(message))
            }
            (Some(SeenBy::Kernel), None) => self.switches.page_cache.check_kernel().map(|()| true),
            (Some(SeenBy::Library), _) => Ok(false),
            (None, None) if !preload::IS_THERE => {
                self.switches.page_cache.check_kernel().map(|()| true)
            }
            (None, Some(_)) => Ok(false),
            (None, None) => {
                let program = self.command.first();
                let is_wanted = self.switches.page_cache.is_no_cache()
                    || program.is_some_and(|program| unseen(program).is_some());
                let is_possible = mechanisms.page_cache.is_some()
                    && self.output.record.is_none()
                    && self.switches.page_cache.check_kernel().is_ok();
                Ok(is_possible && is_wanted && Obstacle::all().next().is_none())
            }
        }
    }

    /// Serves the figures of the run, if it is asked for.
    fn serve_metrics(&self, ui: &Ui) -> anyhow::Result<()> {
        if let Some(at) = self.output.metrics {
            let at = metrics::run::serve(at).with_context(|| format!("--metrics {at}"))?;
            ui.note(format_args!("metrics at http://{at}/metrics"));
        }
        Ok(())
    }

    /// Says what came of a run, and keeps what was learnt.
    fn ended(&self, ran: RunReport, ui: &Ui) -> anyhow::Result<()> {
        if !self.on().is_empty() || self.output.record.is_some() {
            ui.begin_line();
        }
        if self.output.json {
            let document = self.document(&ran).to_string();
            write_to_stderr(&format!("{}\n", printable_json(&document)));
        } else {
            self.report(&ran, ui)
        }
        for switch in self.on() {
            switch.learn(&ran, &self.knowledge, ui);
        }
        if let Some(recorded) = ran.recorded {
            let recorded = recorded.map_err(exit::not_started)?;
            if !self.output.json {
                recording::report(&recorded, ui);
            }
        }
        Ok(())
    }

    /// The trace to record, too.
    fn trace(&self) -> Option<TraceOptions> {
        let output = self.output.record.as_ref();
        output.map(|output| TraceOptions {
            output: output.clone(),
            force: false,
            mapped: false,
            arguments: true,
            hash_names: false,
        })
    }

    /// The switches that are on.
    fn on(&self) -> Vec<&dyn Switch> {
        let mut all = self.switches.all();
        all.retain(|switch| switch.is_on());
        all
    }

    /// Whether several mechanisms are on.
    fn is_combined(&self) -> bool {
        self.on().len() > 1
    }

    /// Refuses two switches that exclude each other.
    fn check_pairs(&self) -> Result<(), Usage> {
        let on = self.on();
        let names: Vec<&str> = on.iter().map(|switch| switch.mechanism()).collect();
        let Some(conflict) = Conflict::among(&names) else {
            return Ok(());
        };
        let of = |name| on.iter().find(|switch| switch.mechanism() == name);
        let switches = conflict.between().into_iter().filter_map(of);
        let switches: Vec<&str> = switches.map(|switch| switch.given_switch()).collect();
        Err(Usage(format!("{}: {conflict}", switches.join(" with "))))
    }

    /// The options of each mechanism that is on.
    fn mechanisms(&self) -> anyhow::Result<Mechanisms> {
        let mut mechanisms = Mechanisms::default();
        for switch in self.on() {
            switch.add_to(&mut mechanisms, &self.knowledge)?;
        }
        Ok(mechanisms)
    }

    /// Prints the summary of each mechanism.
    fn report(&self, ran: &RunReport, ui: &Ui) {
        let notes = Notes {
            ui,
            dry_run: self.output.dry_run,
            is_combined: self.is_combined(),
        };
        for switch in self.on() {
            switch.report(ran, &notes);
        }
        if notes.is_combined {
            notes.agent(ran.agent, ran.ran);
        }
    }

    /// The summary as JSON: the figures of the only mechanism, or an object with those of each.
    fn document(&self, ran: &RunReport) -> Value {
        let on = self.on().into_iter();
        let figures =
            on.filter_map(|switch| Some((switch.key().to_owned(), switch.document(ran)?)));
        let mut documents: serde_json::Map<String, Value> = figures.collect();
        match documents.len() {
            1 => documents
                .values_mut()
                .next()
                .map(Value::take)
                .unwrap_or_default(),
            _ => Value::Object(documents),
        }
    }

    /// Refuses options of switches that are off.
    fn check_options(&self) -> Result<(), Usage> {
        let all = self.switches.all();
        let off = all.iter().filter(|switch| !switch.is_on());
        let unused = off.filter_map(|switch| Some((switch.option()?, switch.switch().to_owned())));
        let learning = all.iter().filter(|switch| switch.learns());
        let learns = learning.clone().any(|switch| switch.policy().is_some());
        let learning: Vec<&str> = learning.map(|switch| switch.switch()).collect();
        let profile = self.knowledge.options().filter(|_| !learns);
        let profile = profile.map(|option| (option, learning.join(" and ")));
        match unused.chain(profile).next() {
            Some((option, switch)) => Err(Usage(format!(
                "{option} is an option of {switch}, which is off"
            ))),
            None => Ok(()),
        }
    }

    /// Applies the settings of a plan as if they were options.
    fn apply_plan(&mut self, path: &Path, ui: &Ui) -> anyhow::Result<()> {
        let plan = RunPlan::load(path)?;
        if plan.is_empty() {
            ui.note(format_args!(
                "{}: nothing to apply; the program runs unchanged",
                path.display()
            ));
        }
        let is_forced = self.knowledge.force || self.output.dry_run;
        let mut switches = self.switches.all_mut().into_iter();
        switches
            .try_for_each(|switch| switch.apply_plan(&plan, is_forced))
            .and_then(|()| self.check_pairs())
            .and_then(|()| self.check_options())
            .map_err(|Usage(why)| Usage(format!("{}: {why}", path.display())))?;
        Ok(())
    }

    /// Switches on what can help on this machine, and says what and why.
    fn switch_on_automatically(&mut self, ui: &Ui) -> anyhow::Result<()> {
        let choice = automatic::choose(&machine::MachineState::of_this_machine(&self.command));
        if !self.output.json {
            ui.note(choice);
        }
        for switch in self.switches.all_mut() {
            switch.choose(&choice);
        }
        Ok(())
    }

    /// Notes if the program cannot be observed, for example because it is static.
    fn note_unseen(&self, ui: &Ui) {
        if let Some(program) = self.command.first()
            && let Some(why) = unseen(program)
        {
            let program = program.display();
            ui.note(if self.switches.page_cache.is_limited() {
                format!("of {program} only the files are seen that it has open: {why}")
            } else {
                format!("{program} is left as it is, but for programs that it starts: {why}")
            });
        }
    }

    /// Notes before the program starts that there is only one memory node.
    fn note_one_node(&self, ui: &Ui) {
        if self.output.json || !has_one_node() {
            return;
        }
        ui.note(match (self.output.dry_run, self.is_combined()) {
            (true, _) => {
                "one memory node: pages have nowhere to go; \
                 the dry run watches the program all the same"
            }
            (false, true) => "one memory node: pages have nowhere to go, and are left alone",
            (false, false) => {
                "one memory node: pages have nowhere to go; \
                 the program runs unchanged, and nothing is logged, learnt or shown"
            }
        });
    }

    /// The options of the run. The preload library for memory also reports files.
    fn options(&self, mechanisms: &Mechanisms, by_kernel: bool) -> anyhow::Result<RunOptions> {
        let record = self.trace();
        let session = if record.is_some() {
            recording::session()
        } else {
            SessionOptions::default()
        };
        Ok(RunOptions {
            command: self.command.clone(),
            preload: match mechanisms.memory {
                _ if by_kernel => None,
                Some(_) => Some(preload::pages_library()?),
                None => Some(preload::library()?),
            },
            dry_run: self.output.dry_run,
            log: self.output.log.clone(),
            record,
            beside: Beside::No,
            session,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// Only the switches.
    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        switches: Switches,
    }

    #[test]
    fn each_mechanism_has_a_switch() {
        let switches = Arguments::parse_from(["hither"]).switches;
        let names = switches.all().into_iter().map(Switch::mechanism);
        assert_eq!(names.collect::<Vec<_>>(), Mechanisms::NAMES);
        assert!(switches.all().iter().all(|switch| !switch.is_on()));
    }
}
