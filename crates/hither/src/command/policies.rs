//! `hither policies`: lists the policies of both registries.

use std::process::ExitCode;

use clap::Args;
use hither_core::placement::{self, Target};
use hither_core::registry::{self, Param};
use hither_core::spec::SpecError;
use hither_core::{
    Spec, placement::PlacementEntry as Placement, registry::ReplacementEntry as Policy,
};
use serde_json::json;

use super::options::parameters::parameter_lines;
use super::subcommand::Subcommand;
use crate::exit::Usage;
use crate::ui::{self, Ui};

/// List the policies and placements, their parameters and sources
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  hither policies                 all replacement and placement policies
  hither policies pcc upm         these two
  hither policies --placements    only placement policies
  hither policies --json          as JSON")]
pub(super) struct Policies {
    /// List only these policies
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// List only placement policies
    #[arg(long, conflicts_with = "names")]
    placements: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// An entry of either registry.
struct Listed {
    name: &'static str,
    summary: &'static str,
    source: &'static str,
    needs: Vec<&'static str>,
    params: &'static [Param],
    /// Of a replacement policy, whether it takes sizes.
    takes_sizes: bool,
    /// What a placement places. `None`: a replacement policy.
    target: Option<Target>,
}

impl From<&Policy> for Listed {
    fn from(entry: &Policy) -> Listed {
        Listed {
            name: entry.name,
            summary: entry.summary,
            source: entry.source,
            needs: entry.needs.names().collect(),
            params: entry.params,
            takes_sizes: entry.takes_sizes,
            target: None,
        }
    }
}

impl From<&Placement> for Listed {
    fn from(entry: &Placement) -> Listed {
        Listed {
            name: entry.name,
            summary: entry.summary,
            source: entry.source,
            needs: entry.needs.names().collect(),
            params: entry.params,
            takes_sizes: false,
            target: Some(entry.target()),
        }
    }
}

impl Subcommand for Policies {
    const NAME: &'static str = "policies";

    fn run(self, _ui: &Ui) -> anyhow::Result<ExitCode> {
        let placements = || placement::placement_policies().iter().map(Listed::from);
        let policies = || registry::replacement_policies().iter().map(Listed::from);
        let listed: Vec<Listed> = match (self.names.is_empty(), self.placements) {
            (true, true) => placements().collect(),
            (true, false) => policies().chain(placements()).collect(),
            (false, _) => {
                let found = self.names.iter().map(|name| find(name));
                found
                    .collect::<Result<_, _>>()
                    .map_err(|error| Usage(error.to_string()))?
            }
        };
        if self.json {
            let of = |placement: bool| -> Vec<_> {
                let those = listed
                    .iter()
                    .filter(|entry| entry.target.is_some() == placement);
                those.map(document).collect()
            };
            ui::print_json(&json!({ "policies": of(false), "placements": of(true) }))?;
        } else {
            let texts: Vec<String> = listed.iter().map(text).collect();
            ui::print(&texts.join("\n"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The entry of that name in either registry. If there is none, the error is from the registry that
/// has a similar name.
fn find(name: &str) -> Result<Listed, SpecError> {
    let policy = match name.parse::<Spec>() {
        Ok(spec) => return Ok(spec.entry().into()),
        Err(error) => error,
    };
    match name.parse::<Spec<Placement>>() {
        Ok(spec) => Ok(spec.entry().into()),
        Err(SpecError::Unknown { hint, .. }) if hint.is_empty() => Err(policy),
        Err(placement) => match &policy {
            SpecError::Unknown { hint, .. } if hint.is_empty() => Err(placement),
            _ => Err(policy),
        },
    }
}

fn places(target: Target) -> &'static str {
    match target {
        Target::Memory => "memory",
        Target::Files => "files",
    }
}

fn text(entry: &Listed) -> String {
    let mut text = format!(
        "{}: {}\n    source: {}\n",
        entry.name, entry.summary, entry.source
    );
    match entry.target {
        Some(Target::Memory) => text += "    places: pages of memory\n",
        Some(Target::Files) => text += "    places: blocks of files\n",
        None => {}
    }
    if entry.takes_sizes {
        text += "    takes: objects of every size\n";
    }
    if !entry.needs.is_empty() {
        text += &format!("    needs: {}\n", entry.needs.join(", "));
    }
    text + &parameter_lines(entry.params)
}

fn document(entry: &Listed) -> serde_json::Value {
    let params: Vec<_> = entry
        .params
        .iter()
        .map(|param| {
            json!({
                "name": param.name,
                "doc": param.doc,
                "default": param.kind.default().to_string(),
                "allowed": param.kind.allowed(),
            })
        })
        .collect();
    let mut document = json!({
        "name": entry.name,
        "summary": entry.summary,
        "source": entry.source,
        "needs": entry.needs,
        "params": params,
    });
    match entry.target {
        Some(target) => document["places"] = places(target).into(),
        None => document["takes_sizes"] = entry.takes_sizes.into(),
    }
    document
}
