//! `hither policies`: what can be simulated, from the registry.

use std::process::ExitCode;

use clap::Args;
use hither_core::Spec;
use hither_core::registry::{self, Entry, Param};
use serde_json::json;

use super::Subcommand;
use crate::exit::Usage;
use crate::ui::{self, Ui};

/// List the replacement policies, their parameters and their sources
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    hither policies            all of them\n  \
    hither policies pcc ubm    these two\n  \
    hither policies --json     for programs")]
pub(super) struct Policies {
    /// Only these
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Subcommand for Policies {
    const NAME: &'static str = "policies";

    fn run(self, _ui: &Ui) -> anyhow::Result<ExitCode> {
        let entries: Vec<&Entry> = if self.names.is_empty() {
            registry::policies().iter().collect()
        } else {
            let parsed = self.names.iter().map(|name| name.parse::<Spec>());
            parsed
                .map(|spec| spec.map(|spec| spec.entry()))
                .collect::<Result<_, _>>()
                .map_err(|e| Usage(e.to_string()))?
        };
        if self.json {
            ui::print_json(
                &json!({ "policies": entries.iter().map(|entry| document(entry)).collect::<Vec<_>>() }),
            )?;
        } else {
            let texts: Vec<String> = entries.iter().map(|entry| text(entry)).collect();
            ui::print(&texts.join("\n"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn text(entry: &Entry) -> String {
    let mut text = format!(
        "{}: {}\n    source: {}\n",
        entry.name, entry.summary, entry.source
    );
    let needs: Vec<&str> = entry.needs.names().collect();
    if !needs.is_empty() {
        text += &format!("    needs: {}\n", needs.join(", "));
    }
    text + &params(entry.params)
}

/// A line a parameter: name, default, what it does, what is allowed.
pub(super) fn params(params: &[Param]) -> String {
    let line = |param: &Param| {
        format!(
            "    {}={}  {} ({})\n",
            param.name,
            param.kind.default(),
            param.doc,
            param.kind.allowed()
        )
    };
    params.iter().map(line).collect()
}

fn document(entry: &Entry) -> serde_json::Value {
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
    json!({
        "name": entry.name,
        "summary": entry.summary,
        "source": entry.source,
        "needs": entry.needs.names().collect::<Vec<_>>(),
        "params": params,
    })
}
