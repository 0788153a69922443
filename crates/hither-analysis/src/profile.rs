//! What was learnt about a program's call sites, kept in a file from run to run.
//!
//! Call sites go by their signatures, which are the same in every run of the same binaries; a site
//! that this trace does not have stays in the file as it is.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use hither_core::Site;
use hither_core::placement::RegionTier;
use hither_core::replacement::SiteRecord;
use hither_core::site_profile::{self, SiteProfile};
use hither_trace::Trace;
use serde::{Deserialize, Serialize};

use crate::file::{folder_of, write_whole};
use crate::{Error, Result};

/// The file: JSON, so that it can be read, compared and thinned out by hand.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    format: u32,
    /// By signature in hexadecimal: JSON numbers do not hold 64 bits.
    sites: BTreeMap<String, CallSiteEntry>,
    /// What regions of memory turned out to be, by the signature of the call site that allocated
    /// them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    regions: BTreeMap<String, TierEntry>,
    /// Where such regions had their pages in the end, each by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    placed: Vec<SavedPlacementEntry>,
}

/// A region of memory and its pages' nodes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedPlacementEntry {
    /// The signature of the call site that allocated it.
    site: String,
    /// The thread that did, by the order in which threads first allocated a region.
    thread: u32,
    /// How many regions that thread had allocated there before.
    nth: u32,
    pages: u32,
    /// From the first page on: how many are on which node; `null` where nobody knows.
    runs: Vec<(u32, Option<u32>)>,
}

/// Where the regions of a call site belong.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TierEntry {
    Local,
    Remote,
}

const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallSiteEntry {
    sequential: u64,
    looping: u64,
    period: u64,
}

fn read(path: &Path) -> Result<ProfileFile> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        // Where its folder is missing as well, it is better said before a long simulation than
        // after.
        Err(error) if error.kind() == io::ErrorKind::NotFound && folder_of(path).is_dir() => {
            return Ok(ProfileFile {
                format: FORMAT,
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
        FORMAT => Ok(knowledge),
        other => Err(unusable(
            path,
            format!("format {other}; this version of hither reads format {FORMAT}"),
        )),
    }
}

fn unusable(path: &Path, problem: String) -> Error {
    Error::Unusable {
        path: path.to_owned(),
        problem,
    }
}

fn parsed(signature: &str, path: &Path) -> Result<u64> {
    u64::from_str_radix(signature, 16)
        .map_err(|error| unusable(path, format!("{signature:?} is no signature: {error}")))
}

fn write(path: &Path, file: &ProfileFile) -> Result<()> {
    let mut text = serde_json::to_string_pretty(file)?;
    text.push('\n');
    write_whole(path, text.as_bytes())
}

/// Where the pages of one region of memory were when a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedPlacement {
    /// The signature of the call site that allocated it.
    pub signature: u64,
    /// The thread that did, by the order in which threads first allocated a region.
    pub thread: u32,
    /// How many regions that thread had allocated there before.
    pub nth: u32,
    /// The pages of the region.
    pub pages: u32,
    /// From the first page on: how many are on which node; `None` where nobody knows.
    pub runs: Vec<(u32, Option<u32>)>,
}

/// What is known of call sites that allocate memory.
#[derive(Default)]
pub struct RegionProfile {
    /// What their regions turned out to be.
    pub call_sites: Vec<(u64, RegionTier)>,
    /// Where regions had their pages in the end.
    pub saved_placements: Vec<SavedPlacement>,
}

/// What the file at `path` knows of call sites that allocate memory; nothing, if there is no such
/// file yet.
pub fn load_regions(path: &Path) -> Result<RegionProfile> {
    let file = read(path)?;
    let sites = file.regions.into_iter().map(|(signature, known)| {
        let class = match known {
            TierEntry::Local => RegionTier::Local,
            TierEntry::Remote => RegionTier::Remote,
        };
        Ok((parsed(&signature, path)?, class))
    });
    let placed = file.placed.into_iter().map(|region| {
        let SavedPlacementEntry {
            site,
            thread,
            nth,
            pages,
            runs,
        } = region;
        Ok(SavedPlacement {
            signature: parsed(&site, path)?,
            thread,
            nth,
            pages,
            runs,
        })
    });
    Ok(RegionProfile {
        call_sites: sites.collect::<Result<_>>()?,
        saved_placements: placed.collect::<Result<_>>()?,
    })
}

/// Makes `learnt` what the file at `path` knows of call sites that allocate memory: a run starts
/// from all that it knew.
pub fn save_regions(path: &Path, learnt: &RegionProfile) -> Result<()> {
    let mut file = read(path)?;
    let known = learnt.call_sites.iter().map(|&(signature, class)| {
        let known = match class {
            RegionTier::Local => TierEntry::Local,
            RegionTier::Remote => TierEntry::Remote,
        };
        (format!("{signature:016x}"), known)
    });
    file.regions = known.collect();
    let placed = learnt
        .saved_placements
        .iter()
        .map(|region| SavedPlacementEntry {
            site: format!("{:016x}", region.signature),
            thread: region.thread,
            nth: region.nth,
            pages: region.pages,
            runs: region.runs.clone(),
        });
    file.placed = placed.collect();
    write(path, &file)
}

/// What the file at `path` knows of call sites that read files; nothing, if there is no such file
/// yet.
pub fn load_sites(path: &Path) -> Result<Vec<SiteProfile>> {
    let known = |(signature, known): (String, CallSiteEntry)| {
        let CallSiteEntry {
            sequential,
            looping,
            period,
        } = known;
        Ok(SiteProfile {
            signature: parsed(&signature, path)?,
            sequential,
            looping,
            period,
        })
    };
    read(path)?.sites.into_iter().map(known).collect()
}

/// Adds to the file at `path` what was learnt, replacing what it knew of the same call sites.
pub fn save_sites(path: &Path, learnt: &[SiteProfile]) -> Result<()> {
    let mut file = read(path)?;
    let learnt = learnt.iter().map(|site| {
        let known = CallSiteEntry {
            sequential: site.sequential,
            looping: site.looping,
            period: site.period,
        };
        (format!("{:016x}", site.signature), known)
    });
    file.sites.extend(learnt);
    write(path, &file)
}

/// What the file at `path` knows of the trace's call sites; nothing, if there is no such file yet.
pub fn load_for_trace(path: &Path, trace: &Trace) -> Result<Vec<SiteRecord>> {
    let sites = (0..)
        .map(Site)
        .zip(trace.sites().iter().map(|row| row.signature));
    Ok(site_profile::import(&load_sites(path)?, sites))
}

/// As [`save_sites`], of the trace's call sites.
pub fn save_for_trace(path: &Path, trace: &Trace, learnt: &[SiteRecord]) -> Result<()> {
    let signature = |site: Site| trace.sites()[site.index()].signature;
    save_sites(path, &site_profile::export(learnt, signature))
}
