//! What a mechanism is in the command: its switch, the options that need it, and what is said of it
//! after the run.

use hither_analysis::run_plan::RunPlan;
use hither_live::{Mechanisms, RunReport};
use serde_json::{Value, json};

use super::arguments::{KnowledgeArgs, OutputArgs};
use super::choice::Choice;
use super::notes::Notes;
use crate::exit::Usage;
use crate::ui::Ui;

/// The arguments of a mechanism.
pub(super) trait Switch {
    /// Its name in [`Mechanisms`].
    fn mechanism(&self) -> &'static str;

    /// The key of its figures in a document.
    fn key(&self) -> &'static str {
        self.mechanism()
    }

    /// Its switch.
    fn switch(&self) -> &'static str;

    /// The switch that is given, or else its usual one.
    fn given_switch(&self) -> &'static str {
        self.switch()
    }

    /// The policy that is given.
    fn policy(&self) -> Option<&str>;

    /// Whether it is on.
    fn is_on(&self) -> bool {
        self.policy().is_some()
    }

    /// The first given option that needs the switch.
    fn option(&self) -> Option<&'static str> {
        None
    }

    /// Whether it starts from a profile and adds to it, if it has a policy.
    fn learns(&self) -> bool {
        false
    }

    /// Takes the settings of a plan as if they were options; also a cache that is small for this
    /// machine, if that `is_forced`.
    fn apply_plan(&mut self, plan: &RunPlan, is_forced: bool) -> Result<(), Usage>;

    /// Switches it on if that can help on this machine.
    fn choose(&mut self, _choice: &Choice) {}

    /// Refuses what cannot be done in such a run.
    fn check(&self, _output: &OutputArgs, _is_combined: bool) -> Result<(), Usage> {
        Ok(())
    }

    /// Adds its options to those of the run, if it is on.
    fn add_to(&self, mechanisms: &mut Mechanisms, knowledge: &KnowledgeArgs) -> anyhow::Result<()>;

    /// Prints its summary, if it ran.
    fn report(&self, ran: &RunReport, notes: &Notes<'_>);

    /// Its figures, if it was on.
    fn document(&self, ran: &RunReport) -> Option<Value>;

    /// Adds what was learnt to the profile.
    fn learn(&self, _ran: &RunReport, _knowledge: &KnowledgeArgs, _ui: &Ui) {}
}

/// The figures of a mechanism that steps aside on a machine with one node.
pub(super) fn stepped_aside() -> Value {
    json!({ "nodes": 1 })
}
