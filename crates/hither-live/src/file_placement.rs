//! Pages of files that a program reads in are placed on nodes: on one, or on several in turn.
//!
//! The program's library does it (`read_placement` in hither-preload), since where a page goes is
//! decided in the thread that reads it; the agent says which nodes. If it dies, pages go on being
//! placed.

use std::thread;

use hither_sys::machine::{Machine, ThisMachine};
use hither_sys::record::{Bind, BindMode};
use hither_sys::session::FileReads;
use hither_sys::syscalls;
use serde::Serialize;
use serde_json::Value;

use crate::agent::{RunState, SessionNeeds};
use crate::error::{Error, Result};

/// Where pages of files go.
#[derive(Clone, Copy, Debug, Default)]
pub struct FilePlacementOptions {
    /// The one node, by the kernel's number; all of them in turn where there is none.
    pub node: Option<u32>,
}

/// What was done about the pages that a program read in.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FilePlacementReport {
    /// The nodes that pages went to, by the kernel's numbers.
    pub nodes: Vec<u32>,
    /// Nothing was placed, since there is one node only.
    #[serde(skip)]
    pub one_node: bool,
    /// Reads that might bring pages in, and had them placed.
    pub reads_placed: u64,
    /// Reads that might, by threads with a memory policy of their own.
    pub reads_left_alone: u64,
}

impl FilePlacementReport {
    /// All of it as JSON.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// Placement that is set up for a run.
#[derive(Debug)]
pub(crate) struct FilePlacement {
    nodes: Vec<u32>,
    /// There is a choice of nodes: one that all pages go to anyway is nothing to place them on.
    is_choice: bool,
}

impl FilePlacement {
    /// Sets it up.
    ///
    /// # Errors
    /// The node has no memory, or none that this process may have; or the kernel refuses memory
    /// policies.
    pub(crate) fn set_up(options: &FilePlacementOptions) -> Result<FilePlacement> {
        let nodes = allowed_nodes().map_err(Error::Nodes)?;
        let nodes = match options.node {
            None => nodes,
            Some(node) if nodes.contains(&node) => vec![node],
            Some(node) => {
                let nodes: Vec<String> = nodes.iter().map(u32::to_string).collect();
                return Err(Error::NoNode {
                    node,
                    nodes: nodes.join(", "),
                });
            }
        };
        let is_choice = nodes.len() > 1 || options.node.is_some();
        Ok(FilePlacement { nodes, is_choice })
    }

    pub(crate) fn session(&self) -> SessionNeeds {
        let file_nodes = self.nodes.iter().map(|node| 1 << node).sum();
        SessionNeeds {
            file_nodes: if self.is_choice { file_nodes } else { 0 },
            ..SessionNeeds::default()
        }
    }

    /// What came of it.
    pub(crate) fn finish(self, run: &RunState) -> FilePlacementReport {
        let FileReads { placed, left } = run.session.file_reads();
        FilePlacementReport {
            nodes: self.nodes,
            one_node: !self.is_choice,
            reads_placed: placed,
            reads_left_alone: left,
        }
    }
}

/// The nodes that a thread of ours may have its memory from, of those that a policy can name.
fn allowed_nodes() -> std::result::Result<Vec<u32>, String> {
    let nodes = ThisMachine.nodes().map_err(|error| error.to_string())?;
    let with_memory = nodes.iter().filter(|node| node.bytes > 0 && node.node < 64);
    let numbers: Vec<u32> = with_memory.map(|node| node.node).collect();
    // The policy that is tried goes with its thread.
    let tried = thread::spawn(move || {
        let allows = |node: u32| {
            syscalls::set_policy(Bind {
                mode: BindMode::Preferred,
                nodes: 1 << node,
            })
        };
        let tried = numbers.into_iter().map(|node| (node, allows(node)));
        tried.collect::<Vec<(u32, std::result::Result<(), i32>)>>()
    });
    let tried = tried.join().unwrap_or_default();
    let allowed: Vec<u32> = tried
        .iter()
        .filter(|(_, allowed)| allowed.is_ok())
        .map(|(node, _)| *node)
        .collect();
    match (allowed.is_empty(), tried.first()) {
        (true, Some(&(_, Err(errno)))) => Err(format!(
            "set_mempolicy: {}",
            std::io::Error::from_raw_os_error(errno)
        )),
        _ => Ok(allowed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip_on_this_machine;

    #[test]
    fn a_node_that_is_not_there_is_refused() {
        let nodes = match allowed_nodes() {
            Ok(nodes) => nodes,
            Err(why) => return skip_on_this_machine(why),
        };
        assert!(!nodes.is_empty() && !nodes.contains(&63), "{nodes:?}");
        let options = FilePlacementOptions { node: Some(63) };
        let error = FilePlacement::set_up(&options).expect_err("there is no such node");
        assert!(
            error.to_string().starts_with("node 63 has no memory"),
            "{error}"
        );
        assert!(!syscalls::thread_has_policy(), "what was tried has stayed");
    }
}
