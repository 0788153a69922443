//! What a user asks to be generated: patterns or programs, with their options, checked.

use std::path::Path;
use std::str::FromStr;

use hither_core::SpecError;

use super::generator::GeneratorSpec;
use super::program::{MixOptions, ProgramMix, ProgramSpec, THREADS_MAX};
use super::workload::Workload;
use hither_trace::LoadOptions;
use hither_trace::Result;
use hither_trace::Trace;

/// The most nodes of a machine: they have 16-bit numbers.
pub const NODES_MAX: u32 = 65_534;

/// References of patterns, where their number is not named.
const DEFAULT_REFERENCES: u64 = 1_000_000;

/// A pattern or a program, by its name and parameters.
#[derive(Clone, Copy, Debug)]
pub enum RequestPart {
    /// A pattern without end, of one thread.
    Pattern(GeneratorSpec),
    /// A program with threads and a clock.
    Program(ProgramSpec),
}

impl FromStr for RequestPart {
    type Err = String;

    fn from_str(text: &str) -> Result<RequestPart, String> {
        let unknown = match text.parse() {
            Ok(spec) => return Ok(RequestPart::Program(spec)),
            Err(SpecError::Unknown { hint, known, .. }) => (hint, known),
            Err(error) => return Err(error.to_string()),
        };
        match text.parse() {
            Ok(spec) => Ok(RequestPart::Pattern(spec)),
            Err(SpecError::Unknown {
                name, hint, known, ..
            }) => {
                let hint = [hint, unknown.0].into_iter().find(|hint| !hint.is_empty());
                let hint = hint.unwrap_or_default();
                Err(format!(
                    "unknown generator `{name}`{hint}; \
                     the patterns are {known}, and the programs {}",
                    unknown.1
                ))
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Options of a request. What is `None` has a default.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestOptions {
    /// References of patterns, at least 1 [default: a million].
    pub references: Option<u64>,
    /// Threads of each program, at least 1 [default: the program's].
    pub threads: Option<u32>,
    /// Nodes of the machine that programs run on, 1 to [`NODES_MAX`] [default: one a thread].
    pub nodes: Option<u32>,
    /// As [`MixOptions::migrate_every`] [default: never].
    pub migrate_every: Option<u64>,
    /// As [`MixOptions::queues`], at least 1 [default: all programs begin together].
    pub queues: Option<u32>,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// A checked request, which can be generated.
#[derive(Debug)]
pub enum Request {
    /// Patterns that take turns, and how many references they make.
    Patterns(Workload, u64),
    /// Programs that run at the same time, or in queues.
    Programs(ProgramMix),
}

impl Request {
    /// Checks a request. The error says in one sentence what is wrong.
    pub fn new(parts: &[RequestPart], options: &RequestOptions) -> Result<Request, String> {
        let (mut patterns, mut programs) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                RequestPart::Pattern(spec) => patterns.push(*spec),
                RequestPart::Program(spec) => programs.push(*spec),
            }
        }
        match (patterns.first(), programs.first()) {
            (None, None) => Err("nothing to generate: name a pattern or a program".to_owned()),
            (Some(_), None) => Request::of_patterns(&patterns, options),
            (None, Some(_)) => Request::of_programs(&programs, options),
            (Some(pattern), Some(program)) => Err(format!(
                "{} is a pattern without end and {} a program with a clock: they cannot be mixed",
                pattern.entry().name,
                program.entry().name
            )),
        }
    }

    fn of_patterns(
        patterns: &[GeneratorSpec],
        options: &RequestOptions,
    ) -> Result<Request, String> {
        let given = [
            ("threads", options.threads.is_some()),
            ("nodes", options.nodes.is_some()),
            ("migrations", options.migrate_every.is_some()),
            ("queues", options.queues.is_some()),
        ];
        if let Some((what, _)) = given.into_iter().find(|(_, given)| *given) {
            let name = patterns[0].entry().name;
            return Err(format!(
                "{name} is a pattern of one thread: {what} are for programs"
            ));
        }
        match options.references.unwrap_or(DEFAULT_REFERENCES) {
            0 => Err("a trace has at least one reference".to_owned()),
            references => Ok(Request::Patterns(
                Workload::new(patterns, options.seed),
                references,
            )),
        }
    }

    fn of_programs(programs: &[ProgramSpec], options: &RequestOptions) -> Result<Request, String> {
        let entries = || programs.iter().map(ProgramSpec::entry);
        if options.references.is_some() {
            return Err(format!(
                "{} is a program, whose length goes by its parameters: \
                 a number of references is for patterns",
                programs[0].entry().name
            ));
        }
        if options.threads == Some(0) {
            return Err("a program has at least one thread".to_owned());
        }
        if options.queues == Some(0) {
            return Err("programs run in at least one queue".to_owned());
        }
        let threads = options.threads.unwrap_or(0);
        if let Some(entry) = entries().find(|entry| threads > entry.threads_max.min(THREADS_MAX)) {
            let (name, most) = (entry.name, entry.threads_max.min(THREADS_MAX));
            return Err(format!("{name} has at most {most} threads"));
        }
        if options
            .nodes
            .is_some_and(|nodes| !(1..=NODES_MAX).contains(&nodes))
        {
            return Err(format!("a machine has 1 to {NODES_MAX} nodes"));
        }
        let mix = MixOptions {
            threads: options.threads,
            nodes: options.nodes,
            seed: options.seed,
            migrate_every: options.migrate_every.unwrap_or(0),
            queues: options.queues,
        };
        Ok(Request::Programs(ProgramMix::new(programs, mix)))
    }

    /// Generates the whole trace, which errors call `name`. What of it goes beyond `memory_bytes`
    /// lies in a temporary file. `progress` is called now and then with the part that is done, from
    /// 0 to 1.
    pub fn trace(
        &mut self,
        name: &Path,
        memory_bytes: u64,
        mut progress: impl FnMut(f64),
    ) -> Result<Trace> {
        let options = LoadOptions {
            keep_repeats: matches!(self, Request::Patterns(..)),
            memory_bytes,
            ..LoadOptions::default()
        };
        match self {
            Request::Patterns(workload, references) => {
                let all = *references;
                workload.trace(all, name, &options, |done| {
                    progress(done as f64 / all as f64)
                })
            }
            Request::Programs(mix) => mix.trace(name, &options, progress),
        }
    }
}
