//! A workload: parts that take turns, as a stream of accesses and the tables of a trace folder.

use std::path::Path;

use hither_core::random::{Random, mix};
use hither_core::spec::RegistryEntry;

use super::generator::{GeneratorSpec, Pattern, SHARED, Step};
use hither_trace::LoadOptions;
use hither_trace::REFERENCE_CLOCK;
use hither_trace::Result;
use hither_trace::Trace;
use hither_trace::TraceBuilder;
use hither_trace::Writer;
use hither_trace::schema::{AccessRow, Meta, ObjectRow, ProcessRow, RowOp, SiteRow, ThreadRow};

/// References generated at a time.
const BATCH_REFERENCES: usize = 1 << 14;

/// A part of a workload.
pub struct Part {
    /// The generator, with its parameters.
    pub spec: GeneratorSpec,
    /// The name of its process, and the prefix of its files and call sites: the generator's name,
    /// numbered where several parts have the same generator.
    pub name: String,
    pattern: Box<dyn Pattern>,
    /// Random numbers of the pattern.
    random: Random,
    /// Random numbers that choose writes. They are separate, so the share of writes does not change
    /// the blocks.
    random_op: Random,
    burst: u64,
    writes: f64,
    /// The number of its first object. Its first site has the next number, since site 0 is unknown.
    first_file: u32,
    /// The use of its files so far.
    files: Vec<FileUse>,
}

/// The use of a file so far.
#[derive(Clone, Copy, Debug, Default)]
struct FileUse {
    highest: u32,
    /// Ticks of the first and the last reference. `None` without a reference.
    seen: Option<(u64, u64)>,
}

impl Part {
    fn new(spec: GeneratorSpec, name: String, seed: u64, first_file: u32) -> Part {
        let entry = spec.entry();
        let shared = entry.params.len() - SHARED.len();
        let values = spec.values();
        let mut random = Random::new(seed);
        let random_op = Random::new(random.bits());
        Part {
            spec,
            name,
            pattern: (entry.build)(values, &mut random),
            random,
            random_op,
            burst: values.count(shared + 1),
            writes: values.real(shared + 2),
            first_file,
            files: vec![FileUse::default(); entry.files.len()],
        }
    }

    fn weight(&self) -> f64 {
        self.spec
            .values()
            .real(self.spec.entry().params.len() - SHARED.len())
    }

    /// The names of its files and call sites.
    fn file_names(&self) -> impl Iterator<Item = String> {
        let ends = self.spec.entry().files.iter();
        ends.map(|end| format!("{}{end}", self.name))
    }
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.spec)
    }
}

/// A stream of references of parts that take turns.
#[derive(Debug)]
pub struct Workload {
    seed: u64,
    parts: Vec<Part>,
    /// The part whose turn it is, and the references left in its turn.
    turn: usize,
    left: u64,
    /// Random numbers that choose the next part.
    random: Random,
    /// Cumulative chances of the parts.
    chances: Vec<f64>,
    ticks: u64,
    steps: Vec<Step>,
}

impl Workload {
    /// The workload of these parts.
    ///
    /// # Panics
    ///
    /// Panics if there are none.
    pub fn new(specs: &[GeneratorSpec], seed: u64) -> Workload {
        assert!(!specs.is_empty(), "a workload has a part");
        let mut parts: Vec<Part> = Vec::with_capacity(specs.len());
        let mut files = 0;
        for (number, spec) in (1u64..).zip(specs) {
            let name = spec.entry().name();
            let alike = |other: &&GeneratorSpec| other.entry().name() == name;
            let before = specs[..parts.len()].iter().filter(alike).count();
            let name = match specs.iter().filter(alike).count() {
                1 => name.to_owned(),
                _ => format!("{name}-{}", before + 1),
            };
            parts.push(Part::new(*spec, name, mix(seed ^ mix(number)), files));
            files += spec.entry().files.len() as u32;
        }
        let mut sum = 0.0;
        let chances = parts.iter().map(|part| {
            sum += part.weight() / part.burst as f64;
            sum
        });
        Workload {
            seed,
            chances: chances.collect(),
            parts,
            turn: 0,
            left: 0,
            random: Random::new(seed),
            ticks: 0,
            steps: Vec::new(),
        }
    }

    /// The parts.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The references made so far.
    pub fn references(&self) -> u64 {
        self.ticks
    }

    /// Replaces the contents of `rows` by the next `count` references, each to one block of the
    /// default size.
    pub fn fill(&mut self, count: usize, rows: &mut Vec<AccessRow>) {
        rows.clear();
        rows.reserve(count);
        while rows.len() < count {
            if self.left == 0 {
                self.begin_turn();
            }
            let steps = self.left.min((count - rows.len()) as u64);
            self.left -= steps;
            self.go_on(steps as usize, rows);
        }
    }

    fn begin_turn(&mut self) {
        let last = self.parts.len() - 1;
        if last > 0 {
            let drawn = self.random.unit() * self.chances[last];
            let turn = self.chances.partition_point(|&sum| sum <= drawn);
            self.turn = turn.min(last);
            self.left = self.parts[self.turn].burst;
        } else {
            self.left = u64::MAX;
        }
    }

    /// Appends the next `count` references of the current part.
    fn go_on(&mut self, count: usize, rows: &mut Vec<AccessRow>) {
        let block_bytes = u64::from(LoadOptions::default().block_bytes);
        let part = &mut self.parts[self.turn];
        self.steps.resize(count, Step::default());
        part.pattern.fill(&mut part.random, &mut self.steps);
        for step in &self.steps {
            let file = &mut part.files[step.file as usize];
            file.highest = file.highest.max(step.index);
            let first = file.seen.map_or(self.ticks, |(first, _)| first);
            file.seen = Some((first, self.ticks));
            let write = part.writes > 0.0 && part.random_op.unit() < part.writes;
            rows.push(AccessRow {
                time_ns: self.ticks,
                process: self.turn as u32,
                thread: self.turn as u32,
                site: part.first_file + step.file + 1,
                object: part.first_file + step.file,
                op: if write { RowOp::Write } else { RowOp::Read },
                offset: u64::from(step.index) * block_bytes,
                length: block_bytes,
                ..AccessRow::default()
            });
            self.ticks += 1;
        }
    }

    /// The objects of the references so far: files named for their parts.
    pub fn objects(&self) -> Vec<ObjectRow> {
        let block_bytes = u64::from(LoadOptions::default().block_bytes);
        let of = |part: &Part| {
            let rows = part.file_names().zip(&part.files).map(|(name, file)| {
                let (first_seen_ns, last_seen_ns) = file.seen.unwrap_or_default();
                ObjectRow {
                    path: name.into_bytes(),
                    size: file
                        .seen
                        .map_or(0, |_| (u64::from(file.highest) + 1) * block_bytes),
                    first_seen_ns,
                    last_seen_ns,
                    ..ObjectRow::default()
                }
            });
            rows.collect::<Vec<_>>()
        };
        self.parts.iter().flat_map(of).collect()
    }

    /// The call sites: the unknown one, then functions named for their parts.
    pub fn sites(&self) -> Vec<SiteRow> {
        let known = self
            .parts
            .iter()
            .flat_map(Part::file_names)
            .map(|name| SiteRow {
                signature: signature(&name),
                function: Some(name),
                ..SiteRow::default()
            });
        std::iter::once(SiteRow::unknown()).chain(known).collect()
    }

    /// The contents of `meta.json`: a process with one thread per part, and the command that
    /// generates the trace again.
    pub fn meta(&self) -> Meta {
        let specs = || self.parts.iter().map(|part| part.spec.to_string());
        let parts = || (0u32..).zip(&self.parts);
        let more = [
            ("parts", specs().collect::<Vec<_>>().into()),
            ("references", self.ticks.into()),
            ("seed", self.seed.into()),
        ];
        let generated = more.map(|(key, value): (&str, serde_json::Value)| (key.to_owned(), value));
        let generated = serde_json::Value::Object(generated.into_iter().collect());
        let numbers = [
            "--references".to_owned(),
            self.ticks.to_string(),
            "--seed".to_owned(),
            self.seed.to_string(),
        ];
        let command = ["hither", "gen"].map(str::to_owned).into_iter();
        Meta {
            clock: REFERENCE_CLOCK.to_owned(),
            command: command.chain(specs()).chain(numbers).collect(),
            processes: parts()
                .map(|(process, part)| ProcessRow {
                    process,
                    pid: process + 1,
                    exe: part.name.clone(),
                    command: vec![part.spec.to_string()],
                    ..ProcessRow::default()
                })
                .collect(),
            threads: parts()
                .map(|(thread, _)| ThreadRow {
                    thread,
                    process: thread,
                    tid: thread + 1,
                })
                .collect(),
            more: [("generated".to_owned(), generated)].into_iter().collect(),
            ..Meta::default()
        }
    }

    /// The next `references` as a trace. References beyond the memory budget of `options` lie in a
    /// temporary file. Export formats with next uses need this. Errors name `path`. `progress` is
    /// as for [`Workload::write`].
    pub fn trace(
        &mut self,
        references: u64,
        path: &Path,
        options: &LoadOptions,
        mut progress: impl FnMut(u64),
    ) -> Result<Trace> {
        let mut builder = TraceBuilder::new(path, options)?;
        // Sizes are not known yet. References need only the numbers of the rows.
        builder.describe(self.objects(), self.sites(), self.meta());
        let (mut rows, mut done) = (Vec::with_capacity(BATCH_REFERENCES), 0);
        while done < references {
            self.fill(
                (references - done).min(BATCH_REFERENCES as u64) as usize,
                &mut rows,
            );
            rows.iter().try_for_each(|row| builder.request(row))?;
            done += rows.len() as u64;
            progress(done);
        }
        builder.finish()
    }

    /// Writes the next `references` as a trace folder. `progress` is called now and then with the
    /// number of references done. `force` is as for [`Writer::create`].
    pub fn write(
        &mut self,
        references: u64,
        folder: impl AsRef<Path>,
        force: bool,
        mut progress: impl FnMut(u64),
    ) -> Result<()> {
        let mut writer = Writer::create(folder, force)?;
        let mut rows = Vec::with_capacity(BATCH_REFERENCES);
        while writer.accesses() < references {
            let left = references - writer.accesses();
            self.fill(left.min(BATCH_REFERENCES as u64) as usize, &mut rows);
            for row in &rows {
                writer.push(row)?;
            }
            progress(writer.accesses());
        }
        writer.finish(&self.objects(), &self.sites(), &self.meta())
    }
}

/// The signature of the call site of that name, by the rule of FNV-1a with a better mix. It is the
/// same in every run, so a saved profile of the site stays valid.
pub(super) fn signature(name: &str) -> u64 {
    name.bytes()
        .fold(1, |hash, byte| mix(hash ^ u64::from(byte)).max(1))
}
