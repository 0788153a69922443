//! Tests calibrations of simulated machines.

use std::fs;
use std::io;
use std::time::Duration;

use hither_ids::{Address, KernelNode, Pid};
use hither_kernel::machine::{Identity, Machine, MoveError, Nearest, NodeMemory, PageState};
use hither_kernel::memory_probe::{MemoryProbe, ProbeError};
use hither_kernel::page_faults::{PageFaults, WatchError};

use super::*;

/// For each pair of nodes, picoseconds of a load in each chunk.
type Loads = Vec<Vec<Result<Vec<u64>, ProbeError>>>;

/// A machine with given measurements.
#[derive(Clone)]
struct Scripted {
    nodes: Vec<NodeMemory>,
    loads: Loads,
    moves: Result<Vec<u64>, ProbeError>,
    kernel: &'static str,
}

impl MemoryProbe for Scripted {
    fn loads(&mut self, cpus: &[u32], node: KernelNode, _: usize) -> Result<Vec<u64>, ProbeError> {
        let at = |wanted: &dyn Fn(&NodeMemory) -> bool| self.nodes.iter().position(wanted);
        let from = at(&|of| of.cpus == cpus).expect("one of the nodes");
        let to = at(&|of| of.node == node).expect("one of the nodes");
        self.loads[from][to].clone()
    }

    fn moves(&mut self, _: (KernelNode, KernelNode), _: usize) -> Result<Vec<u64>, ProbeError> {
        self.moves.clone()
    }
}

impl Machine for Scripted {
    fn nodes(&self) -> io::Result<Vec<NodeMemory>> {
        Ok(self.nodes.clone())
    }

    fn page_bytes(&self) -> u64 {
        4096
    }

    fn huge_page_bytes(&self) -> Option<u64> {
        None
    }

    fn move_pages(
        &self,
        _: Pid,
        _: &[Address],
        _: Option<KernelNode>,
        _: &mut Vec<PageState>,
    ) -> Result<(), MoveError> {
        Err(MoveError::NoCall)
    }

    fn faults(&self) -> Result<Box<dyn PageFaults>, WatchError> {
        Err(WatchError::NotPermitted { paranoid: None })
    }

    fn probe(&self) -> Option<Box<dyn MemoryProbe>> {
        Some(Box::new(self.clone()))
    }

    fn identity(&self) -> Option<Identity> {
        Some(Identity {
            cpu: "a processor".to_owned(),
            kernel: self.kernel.to_owned(),
        })
    }
}

fn node(node: KernelNode, cpus: &[u32], distances: &[u32]) -> NodeMemory {
    NodeMemory {
        node,
        cpus: cpus.to_vec(),
        bytes: (8 << 30) - 12345,
        distances: distances.to_vec(),
        ..NodeMemory::default()
    }
}

/// Two nodes with CPUs, and one with memory alone.
fn machine(ns: [[u64; 3]; 2]) -> Scripted {
    // A chunk that was disturbed changes nothing.
    let of = |ns: u64| Ok(vec![ns * 1000, 1_000_000, ns * 1000, ns * 1000 - 1, 1]);
    let mut loads: Loads = ns.iter().map(|row| row.map(of).to_vec()).collect();
    loads.push(vec![Err(ProbeError::NoCpu); 3]);
    Scripted {
        nodes: vec![
            node(KernelNode(0), &[0, 1], &[10, 21, 17]),
            node(KernelNode(1), &[2, 3], &[21, 10, 28]),
            node(KernelNode(4), &[], &[17, 28, 10]),
        ],
        loads,
        moves: Ok(vec![700, 650, 5000]),
        kernel: "6.18",
    }
}

fn costs(machine: &Scripted) -> Costs {
    let measured = Calibration::measure(machine, &machine.nodes, Effort::THOROUGH);
    Costs::of(&machine.nodes, measured.as_ref())
}

fn sources(costs: &Costs) -> String {
    let letter = |&(_, source): &(u32, LatencySource)| match source {
        LatencySource::Measured => 'm',
        LatencySource::Latencies => 'l',
        LatencySource::Distances => 'd',
    };
    costs.latencies.iter().map(letter).collect()
}

#[test]
fn what_is_measured_counts_and_the_rest_is_in_proportion() {
    let costs = costs(&machine([[80, 130, 200], [131, 82, 260]]));
    // The node of the third row has no CPU: its local loads take as long as the others', and remote
    // ones are by distance.
    assert_eq!(
        costs.latency_ns(),
        [80, 130, 200, 131, 82, 260, 139, 229, 82]
    );
    assert_eq!(sources(&costs), "mmmmmmddd");
    assert_eq!(costs.migration_ns, Some(700));
}

#[test]
fn without_measurement_distances_are_what_they_were() {
    let nodes = machine([[80; 3]; 2]).nodes;
    let costs = Costs::of(&nodes, None);
    assert_eq!(
        costs.latency_ns(),
        [70, 147, 119, 147, 70, 196, 119, 196, 70]
    );
    assert_eq!((sources(&costs), costs.migration_ns), ("d".repeat(9), None));
    let topology = crate::numa::topology::topology(&nodes).expect("nodes");
    let all = topology.all();
    let pairs = all.flat_map(|from| topology.all().map(move |to| (from, to)));
    assert!(
        pairs
            .map(|(from, to)| topology.latency_ns(from, to))
            .eq(costs.latency_ns())
    );
}

#[test]
fn nodes_that_are_made_up_are_what_they_are_said_to_be() {
    // All are within the noise.
    let flat = costs(&machine([[80, 83, 79], [81, 80, 84]]));
    let nodes = machine([[80; 3]; 2]).nodes;
    assert_eq!(flat.latencies, Costs::of(&nodes, None).latencies);
    // The cost of moving counts all the same.
    assert_eq!(flat.migration_ns, Some(700));
    // If one pair of several is implausible, only that pair is not used.
    let one = costs(&machine([[80, 60, 200], [160, 80, 260]]));
    assert_eq!(&sources(&one)[..3], "mdm");
    // By distance it is 168 ns; it is the farthest node, so that it takes at least as long as the
    // other.
    assert_eq!(one.latency_ns()[..3], [80, 200, 200]);
}

#[test]
fn what_cannot_be_measured_falls_back_in_order() {
    let mut machine = machine([[80, 130, 200], [131, 82, 260]]);
    for row in &mut machine.loads {
        row[2] = Err(ProbeError::NoMemory);
    }
    // It is nearer than node 1 by distance, so that it takes at most as long as measured there.
    assert_eq!(costs(&machine).latency_ns()[..3], [80, 130, 130]);
    machine.nodes[2].nearest = Some(Nearest {
        nodes: vec![KernelNode(0)],
        read_ns: 190,
    });
    let told = costs(&machine);
    assert_eq!(told.latency_ns()[..3], [80, 130, 190]);
    assert_eq!(&sources(&told)[..6], "mmlmmd");
    machine.moves = Err(ProbeError::Refused(1));
    for row in &mut machine.loads {
        row.fill(Err(ProbeError::NoFlush));
    }
    let measured = Calibration::measure(&machine, &machine.nodes, Effort::THOROUGH);
    assert_eq!(measured, None);
}

#[test]
fn whatever_is_measured_other_nodes_are_farther() {
    for seed in 0..2000_u64 {
        let ns = |pair: u64| 1 + (seed * 31 + pair * 7919) * 2_654_435_761 % 400;
        let machine = machine([[ns(0), ns(1), ns(2)], [ns(3), ns(4), ns(5)]]);
        let costs = costs(&machine);
        let rows = costs.latency_ns();
        for (from, row) in rows.chunks(3).enumerate() {
            let farther = |(to, &ns): (usize, &u32)| to == from || ns > row[from];
            assert!(row.iter().enumerate().all(farther), "{rows:?}");
        }
        assert!(crate::numa::topology::with_latencies(&machine.nodes, &rows).is_ok());
    }
}

#[test]
fn what_takes_too_long_is_given_up() {
    let machine = machine([[80, 130, 200], [131, 82, 260]]);
    let effort = Effort {
        at_most: Duration::ZERO,
        ..Effort::THOROUGH
    };
    assert_eq!(Calibration::measure(&machine, &machine.nodes, effort), None);
}

#[test]
fn a_second_run_reads_what_the_first_one_measured() {
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = scratch.path().join("not/there/yet");
    let measured = machine([[80, 130, 200], [131, 82, 260]]);
    let known =
        |machine: &Scripted| StoredCalibration::load(machine, &machine.nodes, Some(&folder));
    assert!(
        known(&measured).calibration.is_none(),
        "a run measures nothing"
    );
    let keep = |machine: &Scripted| {
        let measured = Calibration::measure(machine, &machine.nodes, Effort::THOROUGH);
        let cache = CalibrationCache::new(&folder);
        cache.keep(&measured.expect("measured")).expect("kept");
    };
    keep(&measured);
    let first = known(&measured);
    assert_eq!(first.problem, None);
    assert!(first.calibration.is_some());
    let slower = Scripted {
        loads: machine([[90, 140, 210], [141, 92, 270]]).loads,
        ..measured.clone()
    };
    assert_eq!(known(&slower).calibration, first.calibration, "not again");
    let newer = Scripted {
        kernel: "6.19",
        ..slower.clone()
    };
    assert_eq!(known(&newer).calibration, None, "it needs its own");
    keep(&newer);
    assert_ne!(known(&newer).calibration, first.calibration);
    assert_eq!(known(&measured).calibration, first.calibration);
    let files = || fs::read_dir(&folder).expect("there").flatten();
    assert_eq!(files().count(), 2, "nothing else is left");
    // Nothing is known without a folder, or on one node.
    assert!(
        StoredCalibration::load(&slower, &slower.nodes, None)
            .calibration
            .is_none()
    );
    assert!(
        StoredCalibration::load(&slower, &slower.nodes[..1], Some(&folder))
            .calibration
            .is_none()
    );
}

#[test]
fn files_that_are_wrong_or_of_others_are_told_of() {
    let scratch = tempfile::tempdir().expect("a folder");
    let cache = CalibrationCache::new(scratch.path());
    let of = machine([[80, 130, 200], [131, 82, 260]]);
    let calibration = Calibration::measure(&of, &of.nodes, Effort::THOROUGH).expect("measured");
    let path = cache.keep(&calibration).expect("kept");
    let good = fs::read_to_string(&path).expect("there");
    assert_eq!(cache.read(&of, &of.nodes), Ok(Some(calibration)));

    let wrong = |text: &str, told: &str| {
        fs::write(&path, text).expect("written");
        let problem = cache.read(&of, &of.nodes).expect_err("refused");
        assert!(problem.contains(told), "{problem}");
        let known = StoredCalibration::load(&of, &of.nodes, Some(scratch.path()));
        assert_eq!(known.problem.as_ref(), Some(&problem));
        assert_eq!(known.calibration, None);
    };
    wrong("", "EOF");
    wrong(&good[..good.len() / 2], "EOF");
    wrong(&good.replace("a processor", "another"), "another machine");
    wrong(&good.replacen("80,", "", 1), "another machine");
    wrong(
        &good.replacen("\"hither_calibration\": 1", "\"hither_calibration\": 2", 1),
        "version",
    );

    fs::remove_dir_all(scratch.path()).expect("removed");
    fs::write(scratch.path(), "no folder").expect("written");
    let known = StoredCalibration::load(&of, &of.nodes, Some(scratch.path()));
    assert!(known.calibration.is_none());
}
