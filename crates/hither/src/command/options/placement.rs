//! The arguments of commands that place blocks.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use hither_core::Topology;
use hither_core::spec::SpecError;
use hither_sim::placement::{Binding, PlacementSpec};

use hither_analysis::placement::{self, CostOverrides, Pictures, RunSettings, WarmUpSpec};
use hither_analysis::plot::Plot;

use crate::exit::Usage;
use crate::output;
use crate::this_machine;
use crate::ui::Ui;

/// What is placed, and where.
#[derive(Args, Debug)]
pub(crate) struct PlacementArgs {
    /// Place blocks or pages on these nodes: 2, mesh:5x5, this, a preset, a TOML file
    ///
    /// Also torus:4x4, hypercube:4, ring:4x4 and tree:2x8; `this` is this machine, a TOML file has
    /// a matrix, and `hither topo` shows them all. --size is then that of each node.
    #[arg(long, value_name = "T[,T]", value_delimiter = ',')]
    nodes: Vec<String>,

    /// Placements, such as upm or 'post-office{trigger=20}'
    ///
    /// `hither policies --placements` lists them.
    #[arg(long = "placement", value_name = "P[,P]")]
    placements: Vec<Placements>,

    /// Which node an access is made from
    #[arg(long, value_name = "HOW", value_enum, hide_short_help = true)]
    bind: Option<Bind>,

    /// Count nothing for the first references (100k), a part of them (10%) or 2iterations
    #[arg(long, value_name = "N", hide_short_help = true)]
    warm_up: Option<WarmUpSpec>,

    /// Model other costs than those of the papers, such as fault_ns=2000
    #[arg(long, value_name = "NAME=VALUE[,..]", hide_short_help = true)]
    costs: Option<CostOverrides>,
}

/// A list of placements, separated by commas outside of braces.
#[derive(Clone, Debug)]
struct Placements(Vec<PlacementSpec>);

impl FromStr for Placements {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        PlacementSpec::parse_list(text).map(Placements)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Bind {
    /// The trace's nodes where it has several, or else threads in turn
    Auto,
    /// The trace's nodes
    Trace,
    /// Threads in turn
    Threads,
    /// Processes in turn
    Processes,
}

impl PlacementArgs {
    /// Whether nodes are named.
    pub(crate) fn wanted(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// The topologies that are named.
    pub(crate) fn topologies(&self) -> anyhow::Result<Vec<Arc<Topology>>> {
        let load = |name: &String| Ok(Arc::new(this_machine::load(name)?));
        self.nodes.iter().map(load).collect()
    }

    /// The placements that are named.
    pub(crate) fn placements(&self) -> Vec<PlacementSpec> {
        self.placements
            .iter()
            .flat_map(|list| list.0.iter().copied())
            .collect()
    }

    /// How runs go.
    pub(crate) fn running(&self) -> RunSettings {
        self.running_or(&RunSettings::default())
    }

    /// How runs go, by what is named here, or else as said elsewhere.
    fn running_or(&self, otherwise: &RunSettings) -> RunSettings {
        RunSettings {
            binding: self.bind.map_or(otherwise.binding, binding),
            warm_up: self.warm_up.unwrap_or(otherwise.warm_up),
            costs: self.costs.as_ref().unwrap_or(&otherwise.costs).clone(),
        }
    }

    /// Refuses what is for nodes where there are none.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let running = self.bind.is_some() || self.warm_up.is_some() || self.costs.is_some();
        if !self.wanted() && (running || !self.placements.is_empty()) {
            let problem =
                "--placement, --bind, --warm-up and --costs are for nodes, which --nodes names";
            return Err(Usage(problem.to_owned()).into());
        }
        Ok(())
    }

    /// What is placed where.
    pub(crate) fn chosen(&self) -> anyhow::Result<placement::PlacementSetup> {
        let mut placing = placement::PlacementSetup::default();
        self.apply(&mut placing)?;
        Ok(placing)
    }

    /// Replaces what a file says by what is named here.
    pub(crate) fn apply(&self, placing: &mut placement::PlacementSetup) -> anyhow::Result<()> {
        if self.wanted() {
            placing.nodes = self.topologies()?;
        }
        if !self.placements.is_empty() {
            placing.placements = self.placements();
        }
        placing.running = self.running_or(&placing.running);
        Ok(())
    }
}

fn binding(bind: Bind) -> Binding {
    match bind {
        Bind::Auto => Binding::Auto,
        Bind::Trace => Binding::Trace,
        Bind::Threads => Binding::Threads,
        Bind::Processes => Binding::Processes,
    }
}

/// What is drawn of placements.
#[derive(Args, Debug)]
pub(crate) struct DrawingArgs {
    /// Draw who served whom, node by node, as .svg or .png
    #[arg(long, value_name = "FILE", requires = "nodes", value_parser = picture)]
    pub(crate) heatmap: Option<Drawn>,

    /// Draw the nodes with the blocks that moved between them, as .svg or .png
    #[arg(long, value_name = "FILE", requires = "nodes", value_parser = picture)]
    pub(crate) mesh: Option<Drawn>,

    /// Write what each node holds and how much is served locally over time, as .svg, .png or .csv
    #[arg(long, value_name = "FILE", requires = "nodes", value_parser = picture_or_table)]
    pub(crate) timeline: Option<Drawn>,

    /// Also print the accesses from each node to each, for 16 nodes or fewer
    #[arg(
        long,
        requires = "nodes",
        conflicts_with = "json",
        hide_short_help = true
    )]
    pub(crate) traffic: bool,
}

/// A file to write, and as what.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Svg,
    Png,
    Csv,
}

fn drawn(text: &str, allowed: &[(&str, Kind)]) -> Result<Drawn, String> {
    let path = PathBuf::from(text);
    let ending = path.extension().and_then(|ending| ending.to_str());
    let found = allowed.iter().find(|(name, _)| Some(*name) == ending);
    let kind = found.map(|&(_, kind)| kind).ok_or_else(|| {
        let names: Vec<String> = allowed.iter().map(|(name, _)| format!(".{name}")).collect();
        format!("the name ends in none of {}", names.join(", "))
    })?;
    Ok(Drawn { path, kind })
}

fn picture(text: &str) -> Result<Drawn, String> {
    drawn(text, &[("svg", Kind::Svg), ("png", Kind::Png)])
}

fn picture_or_table(text: &str) -> Result<Drawn, String> {
    drawn(
        text,
        &[("svg", Kind::Svg), ("png", Kind::Png), ("csv", Kind::Csv)],
    )
}

impl DrawingArgs {
    fn files(&self) -> impl Iterator<Item = &Path> {
        let files = [&self.heatmap, &self.mesh, &self.timeline];
        files.into_iter().flatten().map(|file| file.path.as_path())
    }

    /// Whether anything is.
    pub(crate) fn wanted(&self) -> bool {
        self.files().next().is_some()
    }

    /// Fails where a file could not be written, or would be written over by the next one: better
    /// said before a long simulation than after.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let mut names = Vec::new();
        for path in self.files() {
            output::check_folder(path)?;
            let name = (fs::canonicalize(output::folder_of(path))?, path.file_name());
            if names.contains(&name) {
                let problem = format!("{}: named for two pictures", path.display());
                return Err(Usage(problem).into());
            }
            names.push(name);
        }
        Ok(())
    }

    /// How many moves a run has to keep for what is drawn. A million of them take 24 MB, and show
    /// the same picture as all.
    pub(crate) fn moves(&self) -> usize {
        if self.mesh.is_some() { 1_000_000 } else { 0 }
    }

    /// Writes all files that are wanted.
    pub(crate) fn write(&self, pictures: &Pictures<'_>, ui: &Ui) -> anyhow::Result<()> {
        if let Some(file) = &self.heatmap {
            save(file, &pictures.heatmap(), ui)?;
        }
        if let Some(file) = &self.mesh {
            save(file, &pictures.moves(), ui)?;
        }
        match &self.timeline {
            Some(file) if file.kind == Kind::Csv => {
                output::write_whole(&file.path, pictures.timeline_csv().as_bytes())?;
                ui.note(format_args!("wrote {}", file.path.display()));
            }
            Some(file) => save(file, &pictures.timeline(), ui)?,
            None => {}
        }
        Ok(())
    }
}

fn save(file: &Drawn, picture: &impl Plot, ui: &Ui) -> anyhow::Result<()> {
    let content = match file.kind {
        Kind::Png => picture.png()?,
        Kind::Svg | Kind::Csv => picture.svg().into_bytes(),
    };
    output::write_whole(&file.path, &content)?;
    ui.note(format_args!("wrote {}", file.path.display()));
    Ok(())
}
