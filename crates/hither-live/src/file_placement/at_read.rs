//! Places the pages of files as a program reads them in: on one node, or on several in turn.
//!
//! The library in the program does it (`read_placement` in hither-preload), since the memory policy
//! of the thread that reads a page decides where it goes. The agent chooses the nodes. If the agent
//! dies, the library goes on.

use std::thread;

use hither_ids::KernelNode;
use hither_kernel::machine::{Machine, ThisMachine};
use hither_kernel::memory_policy::{Bind, BindMode};
use hither_kernel::syscalls;
use hither_session::session::FileReads;
use serde::Serialize;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::mechanism::{Mechanism, RunState, SessionNeeds};

/// The result of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReadPlacementReport {
    /// The kernel's numbers of the nodes that pages went to.
    pub nodes: Vec<KernelNode>,
    /// Nothing was placed, since there is only one node.
    #[serde(skip)]
    pub one_node: bool,
    /// Reads that may have brought pages in, and placed them.
    pub reads_placed: u64,
    /// Reads that may have brought pages in, by threads with a memory policy of their own.
    pub reads_left_alone: u64,
}

impl ReadPlacementReport {
    /// All of it as JSON.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// The mechanism in a run.
#[derive(Debug)]
pub(crate) struct ReadPlacement {
    nodes: Vec<KernelNode>,
    /// There are several nodes, or one was chosen by name. Otherwise there is nothing to do.
    is_choice: bool,
}

impl ReadPlacement {
    /// The mechanism at the start of a run: on this node, or on all of them in turn.
    ///
    /// # Errors
    /// The node has no memory, or none for this process, or the kernel refuses memory policies.
    pub(super) fn new(node: Option<KernelNode>) -> Result<ReadPlacement> {
        let nodes = allowed_nodes().map_err(Error::Nodes)?;
        let is_named = node.is_some();
        let nodes = match node {
            None => nodes,
            Some(node) if nodes.contains(&node) => vec![node],
            Some(node) => {
                let nodes: Vec<String> = nodes.iter().map(KernelNode::to_string).collect();
                return Err(Error::NoNode {
                    node,
                    nodes: nodes.join(", "),
                });
            }
        };
        let is_choice = nodes.len() > 1 || is_named;
        Ok(ReadPlacement { nodes, is_choice })
    }

    /// The result of the run.
    pub(super) fn finish(self, run: &RunState) -> ReadPlacementReport {
        let FileReads { placed, left } = run.library.file_reads();
        ReadPlacementReport {
            nodes: self.nodes,
            one_node: !self.is_choice,
            reads_placed: placed,
            reads_left_alone: left,
        }
    }
}

/// The programs do the work: there is nothing to drain, to decide and to log.
impl Mechanism for ReadPlacement {
    fn needs(&self) -> SessionNeeds {
        let file_nodes = self.nodes.iter().filter_map(|node| node.mask()).sum();
        SessionNeeds {
            file_nodes: if self.is_choice { file_nodes } else { 0 },
            ..SessionNeeds::default()
        }
    }

    fn decides(&self) -> bool {
        false
    }
}

/// The nodes from which a thread of this process may allocate memory, of those that a memory policy
/// can name.
fn allowed_nodes() -> std::result::Result<Vec<KernelNode>, String> {
    let nodes = ThisMachine.nodes().map_err(|error| error.to_string())?;
    let with_memory = nodes.iter().filter(|node| node.bytes > 0);
    let numbers: Vec<KernelNode> = with_memory.map(|node| node.node).collect();
    // In a thread of its own, since the policy that is tried stays with the thread.
    let tried = thread::spawn(move || {
        let tried = numbers.into_iter().filter_map(|node| {
            let policy = Bind {
                mode: BindMode::Preferred,
                nodes: node.mask()?,
            };
            Some((node, syscalls::set_policy(policy)))
        });
        tried.collect::<Vec<(KernelNode, std::result::Result<(), i32>)>>()
    });
    let tried = tried.join().unwrap_or_default();
    let allowed: Vec<KernelNode> = tried
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
    use hither_testing::skip::skip_on_this_machine;

    #[test]
    fn a_node_that_is_not_there_is_refused() {
        let nodes = match allowed_nodes() {
            Ok(nodes) => nodes,
            Err(why) => return skip_on_this_machine(why),
        };
        assert!(
            !nodes.is_empty() && !nodes.contains(&KernelNode(63)),
            "{nodes:?}"
        );
        let error = ReadPlacement::new(Some(KernelNode(63))).expect_err("there is no such node");
        assert!(
            error.to_string().starts_with("node 63 has no memory"),
            "{error}"
        );
        assert!(!syscalls::thread_has_policy(), "what was tried has stayed");
    }
}
