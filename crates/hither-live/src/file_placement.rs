//! Runs a program with the pages of files that it reads in placed on nodes: on one, or on several
//! in turn.
//!
//! The program's library does it (`placed` in hither-preload), since where a page goes is decided
//! in the thread that reads it; the agent says which nodes, and looks on. If it dies, pages go on
//! being placed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use hither_sys::machine::{Machine, ThisMachine};
use hither_sys::record::{Bind, BindMode};
use hither_sys::session::{FileReads, Session, SessionOptions};
use hither_sys::syscalls;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::run::launch::{self, Instrumentation, Supervised};

/// What to run, and where its files' pages go.
#[derive(Clone, Debug)]
pub struct FilePlacementOptions {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Path of the recorder's library, which the program loads.
    pub preload: PathBuf,
    /// The one node, by the kernel's number; all of them in turn where there is none.
    pub node: Option<u32>,
}

/// A run that has ended.
#[derive(Debug)]
pub struct Ran {
    /// How the program ended.
    pub exit: ExitStatus,
    /// The nodes that pages went to, by the kernel's numbers.
    pub nodes: Vec<u32>,
    /// Nothing was placed, since there is one node only.
    pub one_node: bool,
    /// How it read its files.
    pub reads: FileReads,
}

impl Ran {
    /// All of it as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "nodes": self.nodes,
            "reads_placed": self.reads.placed,
            "reads_left_alone": self.reads.left,
        })
    }
}

/// Runs the program to its end. It has this process's standard streams and process group.
///
/// # Errors
/// The node has no memory, or none that this process may have; the kernel refuses memory policies;
/// or the program cannot be started.
pub fn run(options: &FilePlacementOptions) -> Result<Ran> {
    launch::check_preload(&options.preload)?;
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
    // One node that all pages go to anyway is nothing to place them on.
    let is_choice = nodes.len() > 1 || options.node.is_some();
    let file_nodes = nodes.iter().map(|node| 1 << node).sum();
    let session = Session::create(SessionOptions {
        files: false,
        file_nodes: if is_choice { file_nodes } else { 0 },
        ..SessionOptions::default()
    });
    let mut session = session.map_err(Error::Session)?;
    let path = session.path().to_owned();
    let tools = Instrumentation {
        preload: &options.preload,
        session: &path,
    };
    let attend = |_, (), ended: &AtomicBool| {
        while !ended.load(Ordering::Acquire) {
            thread::park();
        }
        session.close();
        session.file_reads()
    };
    let attended = launch::supervise("files", &options.command, tools, || (), attend)?;
    let Supervised { exit, made, .. } = attended;
    Ok(Ran {
        exit,
        nodes,
        one_node: !is_choice,
        reads: made,
    })
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
        let options = FilePlacementOptions {
            command: vec!["true".into()],
            preload: "/bin/sh".into(),
            node: Some(63),
        };
        let error = run(&options).expect_err("there is no such node");
        assert!(
            error.to_string().starts_with("node 63 has no memory"),
            "{error}"
        );
        assert!(!syscalls::thread_has_policy(), "what was tried has stayed");
    }
}
