//! What a [`FileHost`] is told and what it answers, as lines of text. A node's log of it replays to
//! the same answers: the same code makes the same decisions, wherever it runs.
//!
//! A log is a line for the start of each host, and after it a line for each call with its answer:
//! a letter and numbers, and then a letter and numbers. Distances are those between members of a
//! cluster: a matrix, whatever shape the members have.

use std::fmt::{self, Write};
use std::io::{self, BufRead};
use std::str::FromStr;
use std::sync::Arc;

use super::entry::PlacementEntry;
use super::events::{Action, IncomingBlock};
use super::file_host::{FileHost, FileHostSettings};
use crate::ids::{Block, Node};
use crate::spec::Spec;
use crate::topology::{Latencies, Topology};

/// A call of a [`FileHost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostCall {
    /// [`FileHost::set_now_ns`].
    Time(u64),
    /// [`FileHost::set_frames`].
    Frames(Node, u32, u32),
    /// [`FileHost::grow`].
    Grow(u32),
    /// [`FileHost::place`].
    Place(Block, Node),
    /// [`FileHost::access`].
    Access(Block, Node),
    /// [`FileHost::end_action`].
    EndAction(Block, bool),
    /// [`FileHost::added`].
    Added(Block, Node),
    /// [`FileHost::removed`].
    Removed(Block, Node),
    /// [`FileHost::victim`].
    Victim(Block, Node, IncomingBlock),
    /// [`FileHost::forget`].
    Forget(Block),
}

/// What a [`FileHost`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostAnswer {
    /// Nothing is to be done.
    Nothing,
    /// A node: who keeps or takes a block, or who is to drop it.
    Node(Node),
    /// What is to be done.
    Action(Action),
}

impl HostAnswer {
    /// The node, if it is one.
    pub fn node(self) -> Option<Node> {
        match self {
            HostAnswer::Node(node) => Some(node),
            HostAnswer::Nothing | HostAnswer::Action(_) => None,
        }
    }

    /// The action, if it is one.
    pub fn action(self) -> Option<Action> {
        match self {
            HostAnswer::Action(action) => Some(action),
            HostAnswer::Nothing | HostAnswer::Node(_) => None,
        }
    }
}

impl HostCall {
    /// Makes the call.
    pub fn make(self, host: &mut FileHost) -> HostAnswer {
        let node = |node: Option<Node>| node.map_or(HostAnswer::Nothing, HostAnswer::Node);
        match self {
            HostCall::Time(ns) => host.set_now_ns(ns),
            HostCall::Frames(node, frames, free) => host.set_frames(node, frames, free),
            HostCall::Grow(blocks) => host.grow(blocks),
            HostCall::Place(block, by) => return HostAnswer::Node(host.place(block, by)),
            HostCall::Access(block, by) => {
                let action = host.access(block, by);
                return action.map_or(HostAnswer::Nothing, HostAnswer::Action);
            }
            HostCall::EndAction(block, done) => host.end_action(block, done),
            HostCall::Added(block, at) => return node(host.added(block, at)),
            HostCall::Removed(block, at) => host.removed(block, at),
            HostCall::Victim(block, at, incoming) => return node(host.victim(block, at, incoming)),
            HostCall::Forget(block) => host.forget(block),
        }
        HostAnswer::Nothing
    }

    fn words(self) -> (char, Vec<u64>) {
        let pair = |block: Block, node: Node| vec![block.0.into(), node.0.into()];
        match self {
            HostCall::Time(ns) => ('t', vec![ns]),
            HostCall::Frames(node, all, free) => {
                ('f', vec![node.0.into(), all.into(), free.into()])
            }
            HostCall::Grow(blocks) => ('g', vec![blocks.into()]),
            HostCall::Place(block, by) => ('p', pair(block, by)),
            HostCall::Access(block, by) => ('r', pair(block, by)),
            HostCall::EndAction(block, done) => ('s', vec![block.0.into(), done.into()]),
            HostCall::Added(block, at) => ('a', pair(block, at)),
            HostCall::Removed(block, at) => ('d', pair(block, at)),
            HostCall::Victim(block, at, incoming) => {
                // 0 is storage.
                let from = incoming.from.map_or(0, |from| u64::from(from.0) + 1);
                let more = [from, incoming.migrates.into()];
                ('v', [pair(block, at), more.to_vec()].concat())
            }
            HostCall::Forget(block) => ('x', vec![block.0.into()]),
        }
    }

    fn parse(letter: &str, numbers: &[u64]) -> Option<HostCall> {
        Some(match (letter, numbers) {
            ("t", &[ns]) => HostCall::Time(ns),
            ("f", &[at, all, free]) => HostCall::Frames(node(at)?, small(all)?, small(free)?),
            ("g", &[blocks]) => HostCall::Grow(small(blocks)?),
            ("p", &[at, by]) => HostCall::Place(block(at)?, node(by)?),
            ("r", &[at, by]) => HostCall::Access(block(at)?, node(by)?),
            ("s", &[at, done]) => HostCall::EndAction(block(at)?, done != 0),
            ("a", &[of, at]) => HostCall::Added(block(of)?, node(at)?),
            ("d", &[of, at]) => HostCall::Removed(block(of)?, node(at)?),
            ("v", &[of, at, from, migrates]) => {
                let from = match from {
                    0 => None,
                    from => Some(node(from - 1)?),
                };
                let migrates = migrates != 0;
                HostCall::Victim(block(of)?, node(at)?, IncomingBlock { from, migrates })
            }
            ("x", &[at]) => HostCall::Forget(block(at)?),
            _ => return None,
        })
    }
}

fn small(number: u64) -> Option<u32> {
    u32::try_from(number).ok()
}

fn node(number: u64) -> Option<Node> {
    u16::try_from(number).ok().map(Node)
}

fn block(number: u64) -> Option<Block> {
    small(number).map(Block)
}

/// A call and its answer, as a line of a log without its end.
pub fn log_line(call: HostCall, answer: HostAnswer) -> String {
    let (letter, numbers) = call.words();
    let mut line = words(letter, &numbers);
    let to = |block: Block, node: Node| vec![block.0.into(), node.0.into()];
    let (letter, numbers) = match answer {
        HostAnswer::Nothing => return line,
        HostAnswer::Node(node) => ('n', vec![node.0.into()]),
        HostAnswer::Action(action) => match action {
            Action::Migrate { block, to: node } => ('m', to(block, node)),
            Action::Replicate { block, to: node } => ('c', to(block, node)),
            Action::Drop { block, at } => ('o', to(block, at)),
            Action::Promote { block, at } => ('k', to(block, at)),
        },
    };
    line.push_str(" > ");
    line.push_str(&words(letter, &numbers));
    line
}

fn words(letter: char, numbers: &[u64]) -> String {
    let mut line = String::from(letter);
    for number in numbers {
        // Writing to a string does not fail.
        let _ = write!(line, " {number}");
    }
    line
}

/// The line for the start of a host: its placement, its node, and the distances by row: hops, after
/// the latencies of none and of each hop, or latencies in nanoseconds.
pub fn start_line(settings: &FileHostSettings) -> String {
    let topology = &settings.topology;
    let (local_ns, hop_ns) = (topology.local_ns(), topology.hop_ns());
    let by_hops = |from, to| local_ns + hop_ns * topology.hops(from, to);
    let mut pairs = topology
        .all()
        .flat_map(|from| topology.all().map(move |to| (from, to)));
    let is_by_hops = pairs.all(|(from, to)| topology.latency_ns(from, to) == by_hops(from, to));
    let mut line = format!("start {} {}", settings.policy, settings.at.0);
    line.push_str(&if is_by_hops {
        format!(" {local_ns}+{hop_ns}")
    } else {
        " ns".to_owned()
    });
    for from in topology.all() {
        let mut separator = ' ';
        for to in topology.all() {
            let distance = if is_by_hops {
                topology.hops(from, to)
            } else {
                topology.latency_ns(from, to)
            };
            let _ = write!(line, "{separator}{distance}");
            separator = ',';
        }
    }
    line
}

/// What came of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Hosts that were started.
    pub hosts: u64,
    /// Calls that were made.
    pub calls: u64,
    /// Answers that say that something is to be done, or where a block goes. All were the same.
    pub decisions: u64,
}

/// Why a log does not replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// A line is none of a log.
    #[error("line {line}: {text:?} is no line of a placement log")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is there.
        text: String,
    },
    /// The host answers something else.
    #[error("line {line}: the log has {logged:?}, and the replay gives {replayed:?}")]
    Differs {
        /// Its number, from 1.
        line: u64,
        /// What the log has.
        logged: String,
        /// What the host answers now.
        replayed: String,
    },
}

/// Makes the calls of a log again and compares the answers.
///
/// # Errors
/// See [`ReplayError`].
pub fn replay(log: impl BufRead) -> Result<Replayed, ReplayError> {
    let mut replayed = Replayed::default();
    let mut host: Option<FileHost> = None;
    for (line, text) in (1..).zip(log.lines()) {
        let text = text?;
        let wrong = || ReplayError::Line {
            line,
            text: text.chars().take(100).collect(),
        };
        if let Some(start) = text.strip_prefix("start ") {
            host = Some(start_host(start).ok_or_else(wrong)?);
            replayed.hosts += 1;
            continue;
        }
        let host = host.as_mut().ok_or_else(wrong)?;
        let call = text.split(" > ").next().and_then(parse_call);
        let call = call.filter(|call| fits(*call, host)).ok_or_else(wrong)?;
        let answer = call.make(host);
        let again = log_line(call, answer);
        if again != text {
            return Err(ReplayError::Differs {
                line,
                logged: text,
                replayed: again,
            });
        }
        replayed.calls += 1;
        replayed.decisions += u64::from(answer != HostAnswer::Nothing);
    }
    Ok(replayed)
}

fn parse_call(text: &str) -> Option<HostCall> {
    let mut words = text.split(' ');
    let letter = words.next()?;
    let numbers: Result<Vec<u64>, _> = words.map(u64::from_str).collect();
    HostCall::parse(letter, &numbers.ok()?)
}

/// Whether the call's nodes and blocks exist: a log may have been changed by hand.
fn fits(call: HostCall, host: &FileHost) -> bool {
    /// More than a home's directory has.
    const BLOCKS_MAX: u32 = 1 << 27;
    let is_node = |node: Node| node.index() < host.nodes().len();
    let is_block = |block: Block| block.0 < host.nodes().blocks();
    match call {
        HostCall::Time(_) => true,
        HostCall::Frames(node, all, free) => is_node(node) && free <= all,
        HostCall::Grow(blocks) => blocks <= BLOCKS_MAX,
        HostCall::EndAction(block, _) | HostCall::Forget(block) => is_block(block),
        HostCall::Place(block, node)
        | HostCall::Access(block, node)
        | HostCall::Added(block, node)
        | HostCall::Removed(block, node) => is_block(block) && is_node(node),
        HostCall::Victim(block, node, incoming) => {
            is_block(block) && is_node(node) && incoming.from.is_none_or(is_node)
        }
    }
}

fn start_host(text: &str) -> Option<FileHost> {
    let mut words = text.split(' ');
    let policy: Spec<PlacementEntry> = words.next()?.parse().ok()?;
    let at = Node(words.next()?.parse().ok()?);
    let unit = words.next()?;
    let rows: Option<Vec<Vec<u32>>> = words
        .map(|row| row.split(',').map(|number| number.parse().ok()).collect())
        .collect();
    let rows = rows?;
    let nodes = rows.len();
    if at.index() >= nodes || rows.iter().any(|row| row.len() != nodes) {
        return None;
    }
    let topology = match unit.split_once('+') {
        Some((local_ns, hop_ns)) => {
            let hops = rows.concat().into_iter().map(u16::try_from);
            let latencies = Latencies {
                local_ns: local_ns.parse().ok()?,
                hop_ns: hop_ns.parse().ok()?,
                storage_ns: None,
            };
            let hops: Vec<u16> = hops.collect::<Result<_, _>>().ok()?;
            Topology::from_hops("log", &hops, latencies)
        }
        None => Topology::from_matrix("log", &rows.concat()),
    };
    let topology = topology.ok()?;
    FileHost::new(&FileHostSettings {
        policy,
        topology: Arc::new(topology),
        at,
        capacity: vec![0; nodes],
        block_bytes: 0,
    })
}

impl fmt::Display for Replayed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} calls to {} hosts, {} decisions: all are the same",
            self.calls, self.hosts, self.decisions
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use crate::entry::RegistryEntry;

    fn settings(policy: &str, topology: Topology) -> FileHostSettings {
        FileHostSettings {
            policy: policy.parse().expect("a placement"),
            capacity: vec![0; topology.nodes()],
            topology: Arc::new(topology),
            at: Node(1),
            block_bytes: 0,
        }
    }

    /// A log of random calls, with at least one decision of the placement.
    fn log(settings: &FileHostSettings, seed: u64) -> String {
        let mut random = Random::new(seed);
        let mut host = FileHost::new(settings).expect("a placement for clusters");
        let nodes = settings.topology.nodes() as u64;
        let mut log = start_line(settings) + "\n";
        let mut make = |call: HostCall| {
            log += &log_line(call, call.make(&mut host));
            log.push('\n');
        };
        make(HostCall::Grow(16));
        for step in 0..3000 {
            let block = Block(random.below(16) as u32);
            let [at, by] = [0; 2].map(|_| Node(random.below(nodes) as u16));
            make(match random.below(8) {
                0 => HostCall::Time(step * 3_000_000),
                1 => HostCall::Frames(at, 8, random.below(9) as u32),
                2 => HostCall::Place(block, by),
                3 => HostCall::Added(block, at),
                4 => HostCall::Removed(block, at),
                5 => HostCall::EndAction(block, random.below(2) == 0),
                6 => {
                    let from = (random.below(2) == 0).then_some(by);
                    let migrates = from.is_some();
                    HostCall::Victim(block, at, IncomingBlock { from, migrates })
                }
                _ if random.below(100) == 0 => HostCall::Forget(block),
                _ => HostCall::Access(block, by),
            });
        }
        log
    }

    #[test]
    fn a_log_replays_to_the_same_decisions() {
        let all = PlacementEntry::all().iter();
        for entry in all.filter(|entry| entry.runs_in_clusters()) {
            let matrix = [0, 40, 70, 40, 0, 55, 70, 55, 0];
            let matrix = Topology::from_matrix("some", &matrix).expect("a matrix");
            let hops = [0, 1, 2, 1, 0, 1, 2, 1, 0];
            let line = Topology::from_hops("line", &hops, Latencies::default());
            let line = line.expect("a line");
            for topology in [line, Topology::uniform(4), matrix] {
                let log = log(&settings(entry.name, topology), 5);
                let replayed = replay(log.as_bytes()).expect("it replays");
                assert_eq!(
                    (replayed.hosts, replayed.calls),
                    (1, 3001),
                    "{}",
                    entry.name
                );
                assert!(replayed.decisions > 100, "{}: {replayed}", entry.name);
            }
        }
    }

    #[test]
    fn another_decision_is_found_and_named() {
        let log = log(&settings("always-migrate", Topology::uniform(4)), 6);
        let at = log.find("> m").expect("a migration");
        let line = log[..at].lines().count();
        let changed = log.replacen("> m", "> c", 1);
        let error = replay(changed.as_bytes())
            .expect_err("another answer")
            .to_string();
        assert!(error.starts_with(&format!("line {line}: ")), "{error}");
    }

    #[test]
    fn what_is_no_log_is_named() {
        let start = "start one-step 0 70+34 0,1 1,0\n";
        for (text, line) in [
            ("r 1 2\n".to_owned(), 1),
            ("start nothing 0 70+34 0\n".to_owned(), 1),
            ("start one-step 2 70+34 0,1 1,0\n".to_owned(), 1),
            ("start one-step 0 70+34 0,1 1\n".to_owned(), 1),
            ("start one-step 0 70+34 0,70000 1,0\n".to_owned(), 1),
            (format!("{start}r 0 0\n"), 2),
            (format!("{start}g 4294967295\n"), 2),
            (format!("{start}g 1\nr 0 2\n"), 3),
            (format!("{start}g 1\nq 0 1\n"), 3),
            (format!("{start}f 0 1 2\n"), 2),
        ] {
            let error = replay(text.as_bytes()).expect_err("no log");
            let named = matches!(error, ReplayError::Line { line: at, .. } if at == line);
            assert!(named, "{text:?}: {error}");
        }
    }
}
