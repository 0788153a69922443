//! The arguments of commands that place blocks.

use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use hither_core::Topology;
use hither_core::spec::SpecError;
use hither_sim::placement::{Binding, PlacementSpec};

use hither_analysis::placement::{self, CostOverrides, Pictures, RunSettings, WarmUpSpec};

use super::picture::{PictureFile, PictureFormat, picture, picture_or_csv};
use crate::exit::Usage;
use crate::output;
use crate::this_machine;
use crate::ui::Ui;

/// The options about nodes and placements.
#[derive(Args, Debug)]
pub(crate) struct PlacementArgs {
    /// Nodes: 2, mesh:5x5, `this`, a preset or a TOML file
    ///
    /// Other shapes are torus:4x4, hypercube:4, ring:4x4 and tree:2x8. `this` is this machine.
    /// `hither topo` shows a topology. --size is then the size of each node.
    #[arg(long, value_name = "T[,T]", value_delimiter = ',')]
    nodes: Vec<String>,

    /// Placements, such as upm or 'post-office{trigger=20}'
    ///
    /// `hither policies --placements` lists them.
    #[arg(long = "placement", value_name = "P[,P]")]
    placements: Vec<Placements>,

    /// Which node each thread runs on
    #[arg(long, value_name = "HOW", value_enum, hide_short_help = true)]
    bind: Option<Bind>,

    /// Do not count the first references (100k), a share of them (10%) or iterations (2iterations)
    #[arg(long, value_name = "N", hide_short_help = true)]
    warm_up: Option<WarmUpSpec>,

    /// Replace modelled costs, such as fault_ns=2000
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
    /// As in the trace if it has several nodes, otherwise threads in turn
    Auto,
    /// As in the trace
    Trace,
    /// Threads on the nodes in turn
    Threads,
    /// Processes on the nodes in turn
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

    /// The settings of the runs.
    pub(crate) fn running(&self) -> RunSettings {
        self.running_or(&RunSettings::default())
    }

    /// The settings of the runs: those that are given, otherwise those of `otherwise`.
    fn running_or(&self, otherwise: &RunSettings) -> RunSettings {
        RunSettings {
            binding: self.bind.map_or(otherwise.binding, binding),
            warm_up: self.warm_up.unwrap_or(otherwise.warm_up),
            costs: self.costs.as_ref().unwrap_or(&otherwise.costs).clone(),
        }
    }

    /// Refuses options of placements where no nodes are named.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let running = self.bind.is_some() || self.warm_up.is_some() || self.costs.is_some();
        if !self.wanted() && (running || !self.placements.is_empty()) {
            let problem =
                "--placement, --bind, --warm-up and --costs are for nodes, which --nodes names";
            return Err(Usage(problem.to_owned()).into());
        }
        Ok(())
    }

    /// The nodes and placements that are named, with the settings of the runs.
    pub(crate) fn chosen(&self) -> anyhow::Result<placement::PlacementSetup> {
        let mut placing = placement::PlacementSetup::default();
        self.apply(&mut placing)?;
        Ok(placing)
    }

    /// Replaces the settings of a file by those that are given as options.
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

/// The pictures of placements to draw.
#[derive(Args, Debug)]
pub(crate) struct DrawingArgs {
    /// Draw which node served which, as .svg or .png
    #[arg(long, value_name = "FILE", value_parser = picture)]
    pub(crate) heatmap: Option<PictureFile>,

    /// Draw what moved between nodes, as .svg or .png
    #[arg(long, value_name = "FILE", value_parser = picture)]
    pub(crate) mesh: Option<PictureFile>,

    /// Draw the nodes' contents over time, also as .csv
    ///
    /// It also has the local hit ratio.
    #[arg(long, value_name = "FILE", value_parser = picture_or_csv)]
    pub(crate) timeline: Option<PictureFile>,

    /// Also print the accesses from each node to each, for up to 16 nodes; JSON always has them
    #[arg(long, hide_short_help = true)]
    pub(crate) traffic: bool,
}

impl DrawingArgs {
    fn files(&self) -> impl Iterator<Item = &Path> {
        let files = [&self.heatmap, &self.mesh, &self.timeline];
        files.into_iter().flatten().map(|file| file.path.as_path())
    }

    /// Whether there is a picture to draw.
    pub(crate) fn wanted(&self) -> bool {
        self.files().next().is_some()
    }

    /// Fails if a file cannot be written or is named twice, so that the error comes before a long
    /// simulation.
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

    /// The number of moves that a run has to keep for the pictures. A million of them take 24 MB
    /// and give the same picture as all.
    pub(crate) fn moves(&self) -> usize {
        if self.mesh.is_some() { 1_000_000 } else { 0 }
    }

    /// Draws the pictures.
    pub(crate) fn write(&self, pictures: &Pictures<'_>, ui: &Ui) -> anyhow::Result<()> {
        if let Some(file) = &self.heatmap {
            file.save(&pictures.heatmap(), ui)?;
        }
        if let Some(file) = &self.mesh {
            file.save(&pictures.moves(), ui)?;
        }
        match &self.timeline {
            Some(file) if matches!(file.format, PictureFormat::Rows(_)) => {
                file.write(pictures.timeline_csv().as_bytes(), ui)?;
            }
            Some(file) => file.save(&pictures.timeline(), ui)?,
            None => {}
        }
        Ok(())
    }
}
