//! A sweep as a TOML file.
//!
//! ```toml
//! policies = ["lru", "arc", "pcc{sample=5}"]
//! sizes = ["1%", "64MiB", 512]
//!
//! [[traces]]
//! path = "cs.trace.gz"        # from the folder of this file
//! format = "lirs"
//!
//! [[traces]]
//! path = "build.hither"
//! block = "64KiB"
//! sizes = ["5%"]              # in place of those above
//!
//! [[traces]]
//! path = "cdn.oracleGeneral.zst"
//! objects = true              # caches of bytes; percentages are of all bytes
//!
//! [[traces]]
//! path = "shared.hither"
//! nodes = [4, "mesh:5x5", "cluster.toml"]
//! placements = ["first-and-forever", "post-office{trigger=20}"]
//! warm-up = "10%"
//! ```
//!
//! Each error names its line, also that of an unknown key.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hither_core::Spec;
use hither_core::spec::RegistryEntry;
use hither_sim::Size;
use hither_trace::Sample;
use serde::Deserialize;
use toml::{Spanned, Value};

use super::plan::{JobDefaults, SweepPlan, TraceJob};
use crate::Result;
use crate::file::folder_of;
use crate::load_options::{block_bytes, format_name, normalized};
use crate::placement::{self, CostOverrides, PlacementSetup, WarmUpSpec};
use crate::toml_file::{self, Problem, read_as};
use crate::topology::{self, ThisMachine};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SweepDocument {
    #[serde(default)]
    policies: Vec<Spanned<String>>,
    #[serde(default)]
    sizes: Vec<Spanned<Value>>,
    #[serde(default)]
    traces: Vec<TraceTable>,
    nodes: Option<Vec<Spanned<Value>>>,
    placements: Option<Vec<Spanned<String>>>,
    bind: Option<Spanned<String>>,
    #[serde(rename = "warm-up")]
    warm_up: Option<Spanned<Value>>,
    costs: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TraceTable {
    path: PathBuf,
    format: Option<Spanned<String>>,
    block: Option<Spanned<Value>>,
    keep_repeats: Option<bool>,
    no_in_kernel: Option<bool>,
    maps: Option<bool>,
    objects: Option<bool>,
    sample: Option<Spanned<String>>,
    policies: Option<Vec<Spanned<String>>>,
    sizes: Option<Vec<Spanned<Value>>>,
    nodes: Option<Vec<Spanned<Value>>>,
    placements: Option<Vec<Spanned<String>>>,
    bind: Option<Spanned<String>>,
    warm_up: Option<Spanned<Value>>,
    costs: Option<Spanned<String>>,
}

/// Reads the plan in the file at `path`.
pub fn read_plan(
    path: &Path,
    defaults: &JobDefaults,
    this_machine: ThisMachine<'_>,
) -> Result<SweepPlan> {
    toml_file::read(path, |document| {
        plan(document, path, defaults, this_machine)
    })
}

fn plan(
    document: SweepDocument,
    path: &Path,
    defaults: &JobDefaults,
    this_machine: ThisMachine<'_>,
) -> Result<SweepPlan, Problem> {
    let policies = specs(&document.policies)?;
    let sizes_of_all = sizes(&document.sizes)?;
    let said = PlacementFields {
        nodes: &document.nodes,
        placements: &document.placements,
        bind: &document.bind,
        warm_up: &document.warm_up,
        costs: &document.costs,
    };
    let placing_of_all = said.placing(&PlacementSetup::default(), folder_of(path), this_machine)?;
    let mut jobs = Vec::new();
    for trace in document.traces {
        let mut options = defaults.options;
        if let Some(block) = &trace.block {
            options.block_bytes = read_as(block, block_bytes)?;
        }
        if let Some(sample) = &trace.sample {
            let parsed = sample.as_ref().parse::<Sample>();
            options.sample = normalized(parsed.map_err(Problem::at(sample.span()))?);
        }
        options.keep_repeats = trace.keep_repeats.unwrap_or(options.keep_repeats);
        options.include_in_kernel =
            (trace.no_in_kernel).map_or(options.include_in_kernel, |without| !without);
        options.include_maps = trace.maps.unwrap_or(options.include_maps);
        options.keep_sizes = trace.objects.unwrap_or(options.keep_sizes);
        let format = match trace.format {
            Some(name) => Some(format_name(name.as_ref()).map_err(Problem::at(name.span()))?),
            None => defaults.format.clone(),
        };
        let said = PlacementFields {
            nodes: &trace.nodes,
            placements: &trace.placements,
            bind: &trace.bind,
            warm_up: &trace.warm_up,
            costs: &trace.costs,
        };
        let placing = said.placing(&placing_of_all, folder_of(path), this_machine)?;
        jobs.push(TraceJob {
            placing,
            path: folder_of(path).join(&trace.path),
            name: trace.path,
            bytes: None,
            format,
            options,
            policies: match trace.policies {
                Some(list) => specs(&list)?,
                None => policies.clone(),
            },
            sizes: match trace.sizes {
                Some(list) => sizes(&list)?,
                None => sizes_of_all.clone(),
            },
        });
    }
    Ok(SweepPlan { jobs })
}

/// The keys about placements, of one trace or of the head of the file.
struct PlacementFields<'a> {
    nodes: &'a Option<Vec<Spanned<Value>>>,
    placements: &'a Option<Vec<Spanned<String>>>,
    bind: &'a Option<Spanned<String>>,
    warm_up: &'a Option<Spanned<Value>>,
    costs: &'a Option<Spanned<String>>,
}

impl PlacementFields<'_> {
    /// The placements of these keys, with those of `otherwise` for missing keys. Paths are relative
    /// to `folder`.
    fn placing(
        &self,
        otherwise: &PlacementSetup,
        folder: &Path,
        this_machine: ThisMachine<'_>,
    ) -> Result<PlacementSetup, Problem> {
        let mut placing = otherwise.clone();
        if let Some(list) = self.nodes {
            let topology = |name: &Spanned<Value>| {
                let load = |text: &str| {
                    let file = text.ends_with(".toml").then(|| folder.join(text));
                    let text = file.map_or(text.to_owned(), |file| file.to_string_lossy().into());
                    let found = topology::load(&text, this_machine);
                    found.map(Arc::new).map_err(|error| error.to_string())
                };
                read_as(name, load)
            };
            placing.nodes = list.iter().map(topology).collect::<Result<_, _>>()?;
        }
        if let Some(list) = self.placements {
            placing.placements = specs(list)?;
        }
        let running = &mut placing.running;
        if let Some(text) = self.bind {
            let binding = placement::parse_binding(text.as_ref());
            running.binding = binding.map_err(Problem::at(text.span()))?;
        }
        if let Some(value) = self.warm_up {
            running.warm_up = read_as(value, |text| text.parse::<WarmUpSpec>())?;
        }
        if let Some(text) = self.costs {
            let parsed = text.as_ref().parse::<CostOverrides>();
            running.costs = parsed.map_err(Problem::at(text.span()))?;
        }
        Ok(placing)
    }
}

fn specs<E: RegistryEntry>(list: &[Spanned<String>]) -> Result<Vec<Spec<E>>, Problem> {
    let spec = |text: &Spanned<String>| {
        let spec: Result<Spec<E>, _> = text.as_ref().parse();
        spec.map_err(Problem::at(text.span()))
    };
    list.iter().map(spec).collect()
}

fn sizes(list: &[Spanned<Value>]) -> Result<Vec<Size>, Problem> {
    let size = |value: &Spanned<Value>| {
        read_as(value, |text| {
            text.parse::<Size>().map_err(|error| error.to_string())
        })
    };
    list.iter().map(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hither_trace::LoadOptions;

    fn parsed(text: &str) -> Result<SweepPlan> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sweep.toml");
        std::fs::write(&path, text).unwrap();
        let defaults = JobDefaults {
            format: None,
            options: LoadOptions::default(),
        };
        read_plan(&path, &defaults, &|| Err("no machine".to_owned()))
    }

    #[test]
    fn a_plan_with_defaults_and_exceptions() {
        let plan = parsed(
            "policies = [\"lru\", \"ubm{threshold=4}\"]\nsizes = [\"1%\", 512]\n\
             [[traces]]\npath = \"a.gz\"\nformat = \"lirs\"\n\
             [[traces]]\npath = \"/b\"\nblock = 512\nsample = \"5%\"\n\
             keep-repeats = true\nsizes = [\"5%\"]\npolicies = [\"arc\"]\n",
        )
        .unwrap();
        let [a, b] = &plan.jobs[..] else {
            panic!("{plan:?}")
        };
        assert_eq!(a.name, Path::new("a.gz"));
        assert!(a.path.ends_with("a.gz") && a.path.is_absolute());
        assert_eq!(a.format.as_deref(), Some("lirs"));
        assert_eq!(
            (a.policies.len(), &a.sizes[..]),
            (2, &[Size::Percent(1.0), Size::Blocks(512)][..])
        );
        assert_eq!(
            (b.path.as_path(), b.options.block_bytes),
            (Path::new("/b"), 512)
        );
        assert_eq!(b.options.sample, Sample::Rate(0.05));
        assert!(b.options.keep_repeats && b.options.include_in_kernel);
        assert_eq!((b.policies[0].entry().name, b.sizes.len()), ("arc", 1));
        assert_eq!(plan.digest(), plan.clone().digest());
        let mut other = plan.clone();
        other.jobs[1].options.include_maps = true;
        assert_ne!(plan.digest(), other.digest());
    }

    #[test]
    fn nodes_and_placements_for_all_and_for_one() {
        let plan = parsed(
            "nodes = [4, \"mesh:2x2\"]\nplacements = [\"first-touch\"]\nwarm-up = 100\n\
             [[traces]]\npath = \"a\"\n\
             [[traces]]\npath = \"b\"\nnodes = []\n\
             [[traces]]\npath = \"c\"\nnodes = [2]\nbind = \"threads\"\nwarm-up = \"10%\"\n",
        )
        .unwrap();
        let names = |job: usize| -> Vec<&str> {
            let nodes = plan.jobs[job].placing.nodes.iter();
            nodes.map(|topology| topology.name()).collect()
        };
        assert_eq!(
            (names(0), names(1), names(2)),
            (vec!["4", "mesh:2x2"], vec![], vec!["2"])
        );
        let running = |job: usize| plan.jobs[job].placing.running.clone();
        assert_eq!(running(0).warm_up, WarmUpSpec::References(100));
        assert_eq!(running(2).warm_up, WarmUpSpec::Percent(10.0));
        assert_eq!(running(2).binding, hither_sim::placement::Binding::Threads);
        let mut other = plan.clone();
        other.jobs[0].placing.nodes.pop();
        assert_ne!(plan.digest(), other.digest());
    }

    #[test]
    fn what_is_wrong_is_named_by_file_and_line() {
        for (text, expected) in [
            (
                "policies = [\"lru\"]\npolices = []\n",
                "sweep.toml:2: unknown field `polices`",
            ),
            (
                "policies = [\n  \"lru\",\n  \"acr\",\n]\n",
                "sweep.toml:3: unknown policy `acr` (did you mean `arc`?)",
            ),
            ("sizes = [\"ten\"]\n", "sweep.toml:1: `ten` is not a size"),
            (
                "\nsizes = [1.5]\n",
                "sweep.toml:2: expected a text or a whole number, found float",
            ),
            ("nodes = [2, 0]\n", "sweep.toml:1: "),
            (
                "placements = [\n\"first-tuch\"]\n",
                "sweep.toml:2: unknown placement `first-tuch` (did you mean `first-touch`?)",
            ),
            (
                "[[traces]]\npath = \"a\"\nwarm-up = \"half\"\n",
                "sweep.toml:3: `half` is no warm-up",
            ),
            (
                "bind = \"cpus\"\n",
                "sweep.toml:1: `cpus` is none of auto, trace, threads, processes",
            ),
            (
                "[[traces]]\npath = \"a\"\nformat = \"lisr\"\n",
                "sweep.toml:3: unknown trace format \"lisr\"",
            ),
            (
                "[[traces]]\npath = \"a\"\nblock = \"5%\"\n",
                "sweep.toml:3: a block has a size in bytes",
            ),
            (
                "[[traces]]\nblock = 1\n",
                "sweep.toml:1: missing field `path`",
            ),
            ("[[traces]\n", "sweep.toml:1: "),
        ] {
            let error = parsed(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
