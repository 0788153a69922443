//! The model against a naive model: the same rules over plain lists, without a directory, a lock or
//! packed words.

use super::tests::{machine, run};
use super::*;

/// A list of sets, each a list of lines, most recent first.
struct NaiveCache {
    ways: usize,
    sets: Vec<Vec<u64>>,
}

impl NaiveCache {
    fn new(geometry: Geometry) -> Self {
        Self {
            ways: geometry.ways,
            sets: vec![Vec::new(); (geometry.bytes / 64) as usize / geometry.ways],
        }
    }
    fn set(&mut self, line: u64) -> &mut Vec<u64> {
        let count = self.sets.len() as u64;
        &mut self.sets[(line % count) as usize]
    }
    fn holds(&self, line: u64) -> bool {
        self.sets.iter().flatten().any(|&held| held == line)
    }
    fn remove(&mut self, line: u64) {
        self.set(line).retain(|&held| held != line);
    }
    fn fetch(&mut self, line: u64) -> Option<u64> {
        let ways = self.ways;
        let set = self.set(line);
        set.retain(|&held| held != line);
        set.insert(0, line);
        if set.len() > ways { set.pop() } else { None }
    }
}

/// The location of a line's modified contents. Lines that are not in it are clean.
type Modified = std::collections::BTreeMap<u64, Owner>;

struct Twin {
    machine: Machine,
    l1: Vec<NaiveCache>,
    l2: Vec<NaiveCache>,
    llc: Vec<NaiveCache>,
    modified: Modified,
    counts: Vec<CpuCounts>,
    accesses: Vec<u64>,
}

impl Twin {
    fn new(machine: &Machine) -> Self {
        let nodes = machine.nodes();
        let per_cpu = |level: Option<Geometry>| {
            level.map_or(Vec::new(), |level| {
                machine
                    .cpus
                    .iter()
                    .map(|_| NaiveCache::new(level))
                    .collect()
            })
        };
        Self {
            l1: per_cpu(Some(machine.l1)),
            l2: per_cpu(machine.l2),
            llc: machine.llc.map_or(Vec::new(), |level| {
                (0..nodes).map(|_| NaiveCache::new(level)).collect()
            }),
            modified: Modified::new(),
            counts: machine
                .cpus
                .iter()
                .map(|&node| CpuCounts::zero(node, nodes))
                .collect(),
            accesses: vec![0; machine.cpus.len()],
            machine: machine.clone(),
        }
    }

    fn cpu_holds(&self, cpu: usize, line: u64) -> bool {
        self.l1[cpu].holds(line) || self.l2.get(cpu).is_some_and(|l2| l2.holds(line))
    }

    fn node_holds(&self, node: usize, line: u64) -> bool {
        let cpus = (0..self.l1.len()).filter(|&cpu| self.machine.cpus[cpu] == node);
        self.llc.get(node).is_some_and(|llc| llc.holds(line))
            || cpus.into_iter().any(|cpu| self.cpu_holds(cpu, line))
    }

    fn owner_node(&self, line: u64) -> Option<usize> {
        Some(match *self.modified.get(&line)? {
            Owner::Cpu(cpu) => self.machine.cpus[cpu],
            Owner::Node(node) => node,
        })
    }

    fn drop_from_cpu(&mut self, cpu: usize, line: u64) {
        self.l1[cpu].remove(line);
        if let Some(l2) = self.l2.get_mut(cpu) {
            l2.remove(line);
        }
    }

    fn home(&self, line: u64) -> usize {
        let address = line * 64;
        self.machine
            .memory
            .iter()
            .find(|range| (range.start..range.end).contains(&address))
            .unwrap()
            .node
    }

    fn write_back(&mut self, cpu: usize, line: u64) {
        let home = self.home(line);
        self.counts[cpu].write_backs[home] += 1;
        self.modified.remove(&line);
    }

    fn access(&mut self, access: &Access) {
        let Access {
            cpu, store, mode, ..
        } = *access;
        let line = access.physical / 64;
        let (node, home, nodes) = (
            self.machine.cpus[cpu],
            self.home(line),
            self.machine.nodes(),
        );
        self.accesses[cpu] += 1;
        let (in_l1, held, in_node) = (
            self.l1[cpu].holds(line),
            self.cpu_holds(cpu, line),
            self.node_holds(node, line),
        );
        let far = (0..nodes).find(|&other| other != node && self.node_holds(other, line));
        let near = (0..self.l1.len()).any(|other| {
            other != cpu && self.machine.cpus[other] == node && self.cpu_holds(other, line)
        });
        let service = match (in_node, far, self.owner_node(line)) {
            (false, _, Some(owner)) => Service::CacheOf(owner),
            (false, _, None) => Service::MemoryOf(home),
            (true, Some(far), _) if store => Service::CacheOf(far),
            _ if !held || (store && near) => Service::Node,
            _ if in_l1 => Service::L1,
            _ => Service::L2,
        };
        self.counts[cpu].count(service, store, mode);

        if store {
            for other in (0..self.l1.len()).filter(|&other| other != cpu) {
                self.drop_from_cpu(other, line);
            }
            for other in (0..self.llc.len()).filter(|&other| other != node) {
                self.llc[other].remove(line);
            }
            self.modified.insert(line, Owner::Cpu(cpu));
        } else if self
            .modified
            .get(&line)
            .is_some_and(|&owner| owner != Owner::Cpu(cpu))
        {
            if self.owner_node(line) == Some(node) && !self.llc.is_empty() {
                self.modified.insert(line, Owner::Node(node));
            } else {
                self.write_back(cpu, line);
            }
        }

        if in_l1 {
            self.l1[cpu].fetch(line);
            return;
        }
        if !held && let Some(victim) = self.llc.get_mut(node).and_then(|llc| llc.fetch(line)) {
            for other in (0..self.l1.len())
                .filter(|&other| self.machine.cpus[other] == node)
                .collect::<Vec<_>>()
            {
                self.drop_from_cpu(other, victim);
            }
            if self.owner_node(victim) == Some(node) {
                self.write_back(cpu, victim);
            }
        }
        let from_l2 = self.l2.get_mut(cpu).and_then(|l2| l2.fetch(line));
        if let Some(victim) = from_l2 {
            self.l1[cpu].remove(victim);
        }
        let from_l1 = self.l1[cpu].fetch(line);
        let gone = if self.l2.is_empty() { from_l1 } else { from_l2 };
        if let Some(victim) = gone
            && self.modified.get(&victim) == Some(&Owner::Cpu(cpu))
        {
            if self.llc.is_empty() {
                self.write_back(cpu, victim);
            } else {
                self.modified.insert(victim, Owner::Node(node));
            }
        }
    }
}

/// Checks all state: the directory names exactly the holders, levels are inclusive, and an owner is
/// the only holder.
fn check(model: &Model) {
    let shared = model.lock();
    let held = |cpu: usize, line: u64| {
        let mut l2 = shared.l2.get(cpu).into_iter().flat_map(Cache::lines);
        if shared.l2.is_empty() {
            model.l1[cpu].holds(line)
        } else {
            l2.any(|held| held == line)
        }
    };
    let all = shared.l2.iter().chain(&shared.llc).flat_map(Cache::lines);
    let lines: std::collections::BTreeSet<_> = all
        .chain(model.l1.iter().flat_map(L1::lines).map(|(line, _)| line))
        .collect();
    for (cpu, l1) in model.l1.iter().enumerate() {
        for (line, modified) in l1.lines() {
            assert!(held(cpu, line), "L1 within L2");
            let (_, slot) = shared.directory.locate(line).unwrap();
            assert_eq!(
                modified,
                shared.directory.get(slot).owner == Some(Owner::Cpu(cpu)),
                "a tag is modified for the owner alone"
            );
        }
    }
    let mut owned = 0;
    for &line in &lines {
        let (_, slot) = shared.directory.locate(line).unwrap();
        let entry = shared.directory.get(slot);
        let cpus = (0..model.l1.len())
            .filter(|&cpu| held(cpu, line))
            .fold(0, |mask, cpu| mask | 1 << cpu);
        assert_eq!(entry.cpus, cpus, "holders of {line:x}");
        let nodes =
            (0..shared.llc.len()).filter(|&node| shared.llc[node].lines().any(|held| held == line));
        let nodes = nodes.fold(0, |mask, node| mask | 1 << node);
        assert_eq!(entry.nodes, nodes, "nodes of {line:x}");
        if !shared.llc.is_empty() {
            assert!(
                bits(cpus).all(|cpu| nodes & 1 << shared.node_of[cpu] != 0),
                "L2 within LLC"
            );
        }
        match entry.owner {
            Some(Owner::Cpu(cpu)) => {
                assert_eq!(cpus, 1 << cpu);
                assert!(nodes & !(1 << shared.node_of[cpu]) == 0);
            }
            Some(Owner::Node(node)) => assert_eq!(nodes, 1 << node),
            None => continue,
        }
        owned += 1;
    }
    let slots = shared.directory.slots();
    let entries = (0..slots).map(|slot| shared.directory.get(slot));
    let (mut named, mut owners) = (0, 0);
    for entry in entries {
        named += usize::from(entry.cpus != 0 || entry.nodes != 0);
        owners += usize::from(entry.owner.is_some());
    }
    assert_eq!(
        (named, owners),
        (lines.len(), owned),
        "the directory names no line that nobody holds"
    );
}

/// splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31) % bound
    }
}

#[test]
fn equals_the_naive_twin() {
    let topologies: [&[usize]; 4] = [&[0], &[0, 0, 0], &[0, 1, 2], &[0, 0, 1, 1, 2]];
    for (index, cpus) in topologies.into_iter().enumerate() {
        for (l2, llc) in [(true, true), (true, false), (false, true), (false, false)] {
            let machine = machine(cpus, l2, llc);
            let (model, mut twin) = (Model::new(&machine), Twin::new(&machine));
            let mut random = Random(index as u64);
            for step in 0..6000 {
                // Hot lines that all share, lines of the CPU's own, and the cold rest: more than
                // the LLC's 256 lines together.
                let cpu = random.below(cpus.len() as u64) as usize;
                let line = match random.below(4) {
                    0 => random.below(8),
                    1 => 64 + random.below(40) + 40 * cpu as u64,
                    _ => random.below(600),
                };
                let node = random.below(machine.nodes() as u64);
                let address = (node << 21) + 64 * line + random.below(8) * 8;
                let mode = if random.below(3) == 0 {
                    Mode::Kernel
                } else {
                    Mode::User
                };
                let access = Access {
                    cpu,
                    physical: address,
                    linear: address,
                    store: random.below(3) == 0,
                    mode,
                };
                run(&model, &access);
                twin.access(&access);
                if step % 500 == 0 {
                    check(&model);
                }
            }
            check(&model);
            let (counts, _) = model.totals();
            assert_eq!(counts, twin.counts, "cpus {cpus:?}, l2 {l2}, llc {llc}");
            for (counts, accesses) in counts.iter().zip(&twin.accesses) {
                assert_eq!(counts.accesses().iter().sum::<u64>(), *accesses);
            }
        }
    }
}

#[test]
fn threads_leave_the_state_whole_and_lose_no_access() {
    const EACH: u64 = 20_000;
    let cpus = [0, 0, 1, 1];
    let model = Model::new(&machine(&cpus, true, true));
    std::thread::scope(|scope| {
        for cpu in 0..cpus.len() {
            let model = &model;
            scope.spawn(move || {
                let mut random = Random(cpu as u64);
                for _ in 0..EACH {
                    let address = 64 * random.below(32) + (random.below(2) << 21);
                    let access = Access {
                        cpu,
                        physical: address,
                        linear: address,
                        store: random.below(2) == 0,
                        mode: Mode::User,
                    };
                    run(model, &access);
                }
            });
        }
    });
    check(&model);
    for counts in model.totals().0 {
        assert_eq!(counts.accesses(), [EACH, 0]);
    }
}
