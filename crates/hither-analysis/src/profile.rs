//! The profile of a program: a file of what was learnt about its call sites, kept from run to run.
//!
//! Call sites are identified by their signatures, which are the same in every run of the same
//! binaries. Call sites that a run does not have stay unchanged in the file.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use hither_core::classify::SiteCounters;
use hither_core::placement::{RegionTier, SavedPlacement, SiteTier};
use hither_core::replacement::SiteRecord;
use hither_core::site_profile::{self, SiteProfile};
use hither_core::{Site, signature};
use hither_trace::Trace;
use serde::{Deserialize, Serialize};

use crate::file::{folder_of, write_whole};
use crate::{Error, Result};

/// The content of the file. It is JSON, so that people can read, compare and edit it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    format: u32,
    /// Call sites that read files, by signature in hexadecimal: JSON numbers have less than 64
    /// bits.
    sites: BTreeMap<String, SiteCounters>,
    /// The tier of the memory regions that a call site allocates, by its signature.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    regions: BTreeMap<String, TierEntry>,
    /// The nodes of each region's pages at the end of the last run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    placed: Vec<SavedPlacement>,
}

/// The memory tier of the regions of a call site.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TierEntry {
    Local,
    Remote,
    /// All pages of its regions were remote in the end.
    RemoteWhole,
}

/// The version of the format.
const FORMAT_VERSION: u32 = 1;

fn read(path: &Path) -> Result<ProfileFile> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        // A missing folder is an error now, before a long simulation.
        Err(error) if error.kind() == io::ErrorKind::NotFound && folder_of(path).is_dir() => {
            return Ok(ProfileFile {
                format: FORMAT_VERSION,
                sites: BTreeMap::new(),
                regions: BTreeMap::new(),
                placed: Vec::new(),
            });
        }
        Err(error) => return Err(Error::of_file(path)(error)),
    };
    let knowledge: ProfileFile = serde_json::from_str(&text).map_err(|error| {
        unusable(
            path,
            format!("not a file of call sites that hither wrote: {error}"),
        )
    })?;
    match knowledge.format {
        FORMAT_VERSION => Ok(knowledge),
        other => Err(unusable(
            path,
            format!("format {other}; this version of hither reads format {FORMAT_VERSION}"),
        )),
    }
}

fn unusable(path: &Path, problem: String) -> Error {
    Error::Unusable {
        path: path.to_owned(),
        problem,
    }
}

fn parsed(text: &str, path: &Path) -> Result<u64> {
    signature::parse(text).ok_or_else(|| unusable(path, format!("{text:?} is no signature")))
}

fn write(path: &Path, file: &ProfileFile) -> Result<()> {
    let mut text = serde_json::to_string_pretty(file)?;
    text.push('\n');
    write_whole(path, text.as_bytes())
}

/// The part of a profile about call sites that allocate memory.
#[derive(Default)]
pub struct RegionProfile {
    /// The memory tier of the regions of each call site.
    pub call_sites: Vec<SiteTier>,
    /// The pages' nodes of each region.
    pub placements: Vec<SavedPlacement>,
}

/// Reads what the file at `path` has about call sites that allocate memory. A missing file is
/// empty.
pub fn load_regions(path: &Path) -> Result<RegionProfile> {
    let file = read(path)?;
    let sites = file.regions.into_iter().map(|(signature, known)| {
        let (tier, whole) = match known {
            TierEntry::Local => (RegionTier::Local, false),
            TierEntry::Remote => (RegionTier::Remote, false),
            TierEntry::RemoteWhole => (RegionTier::Remote, true),
        };
        Ok(SiteTier {
            signature: parsed(&signature, path)?,
            tier,
            whole,
        })
    });
    Ok(RegionProfile {
        call_sites: sites.collect::<Result<_>>()?,
        placements: file.placed,
    })
}

/// Replaces what the file at `path` has about call sites that allocate memory. `learnt` contains
/// what the run started from.
pub fn save_regions(path: &Path, learnt: &RegionProfile) -> Result<()> {
    let mut file = read(path)?;
    let known = learnt.call_sites.iter().map(|site| {
        let known = match (site.tier, site.whole) {
            (RegionTier::Local, _) => TierEntry::Local,
            (RegionTier::Remote, false) => TierEntry::Remote,
            (RegionTier::Remote, true) => TierEntry::RemoteWhole,
        };
        (signature::text(site.signature), known)
    });
    file.regions = known.collect();
    file.placed.clone_from(&learnt.placements);
    write(path, &file)
}

/// Reads what the file at `path` has about call sites that read files. A missing file is empty.
pub fn load_sites(path: &Path) -> Result<Vec<SiteProfile>> {
    let known = |(signature, counters): (String, SiteCounters)| {
        Ok(SiteProfile {
            signature: parsed(&signature, path)?,
            counters,
        })
    };
    read(path)?.sites.into_iter().map(known).collect()
}

/// Adds what was learnt to the file at `path` and replaces the entries of the same call sites.
pub fn save_sites(path: &Path, learnt: &[SiteProfile]) -> Result<()> {
    let mut file = read(path)?;
    let learnt = learnt
        .iter()
        .map(|site| (signature::text(site.signature), site.counters));
    file.sites.extend(learnt);
    write(path, &file)
}

/// Reads what the file at `path` has about the trace's call sites. A missing file is empty.
pub fn load_for_trace(path: &Path, trace: &Trace) -> Result<Vec<SiteRecord>> {
    let sites = (0..)
        .map(Site)
        .zip(trace.sites().iter().map(|row| row.signature));
    Ok(site_profile::import(&load_sites(path)?, sites))
}

/// As [`save_sites`], for the call sites of a trace.
pub fn save_for_trace(path: &Path, trace: &Trace, learnt: &[SiteRecord]) -> Result<()> {
    let signature = |site: Site| trace.sites()[site.index()].signature;
    save_sites(path, &site_profile::export(learnt, signature))
}
