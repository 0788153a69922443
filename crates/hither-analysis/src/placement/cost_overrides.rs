//! Costs that replace those of the model: one list of names and numbers for both engines.

use std::fmt;
use std::str::FromStr;

use hither_core::Topology;
use hither_sim::placement::{files, memory};

use crate::{Error, Result};

/// `NAME=VALUE,...`. The names depend on the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CostOverrides(String);

impl FromStr for CostOverrides {
    type Err = String;

    fn from_str(text: &str) -> Result<CostOverrides, String> {
        let parts = text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty());
        let parts: Vec<&str> = parts.collect();
        match parts.iter().find(|part| !part.contains('=')) {
            Some(part) => Err(format!("`{part}` is not NAME=VALUE")),
            None => Ok(CostOverrides(parts.join(","))),
        }
    }
}

impl fmt::Display for CostOverrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl CostOverrides {
    /// The costs of caches of file blocks of this size on a topology.
    pub(super) fn files(&self, topology: &Topology, block_bytes: u32) -> Result<files::FileCosts> {
        let costs = files::FileCosts::of(topology, block_bytes).with(&self.0);
        costs.map_err(|error| Error::Usage(error.to_string()))
    }

    /// Whether a page that comes back from swap has a price: then pages may be reclaimed.
    pub fn reclaims(&self) -> bool {
        let mut names = self.0.split(',').filter_map(|part| part.split_once('='));
        names.any(|(name, value)| name.trim() == "refault_ns" && value.trim() != "0")
    }

    /// The costs of pages of memory.
    pub(super) fn pages(&self) -> Result<memory::MemoryCosts> {
        let costs = self.0.parse::<memory::MemoryCosts>();
        costs.map_err(|error| Error::Usage(error.to_string()))
    }
}
