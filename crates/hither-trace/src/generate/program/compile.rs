//! Building a large program: tar packs the sources, then make runs compilers, many short processes
//! each for a source and the headers that it includes, while cscope indexes all sources; at last
//! the linker reads all objects.
//!
//! The paper did it with Linux 2.6.12 and says which programs ran and that compilers read headers
//! many times. Chosen here: numbers and sizes (a twelfth of that kernel's by default); headers by
//! Zipf's law, each once a source; whole files in one call, as cc1 reads them; buffers of 10 KiB in
//! tar and of 4 KiB in cscope, which reads by stdio; an assembler after each compiler, fed through
//! a temporary file; objects half as large again as their sources, tar's output a quarter of its
//! input (gzip), cscope's half. Each new process goes to a node with the fewest running ones.

use super::files::{Balance, File, Job, Pace, Piece, work};
use super::{Execution, Program, Stopped, THREADS_MAX, count, switch};
use crate::generate::Scatter;
use crate::generate::zipf::Ranks;
use crate::schema::RowOp;
use hither_core::Random;
use hither_core::registry::{Param, ParamKind};
use hither_core::spec::Values;

/// The line in the registry.
pub(super) const ENTRY: Program = Program {
    name: "compile",
    summary: "tar, then compilers that share headers beside cscope, then the linker; a compiler \
              at a time a thread",
    source: "the Tar + Gcc + Cscope test of the dual-layered file cache (sections 4 and 5)",
    params: &[
        count("sources", "how many source files", 1000, 1 << 20),
        count(
            "source_mib",
            "the size of all sources together",
            16,
            1 << 20,
        ),
        count("headers", "how many headers", 600, 1 << 20),
        count("header_mib", "the size of all headers together", 5, 1 << 20),
        count(
            "includes",
            "how many headers a source includes",
            60,
            1 << 16,
        ),
        Param {
            name: "skew",
            doc: "the exponent of Zipf's law for the popularity of headers",
            kind: ParamKind::Real {
                default: 0.8,
                min: 0.0,
                max: 20.0,
            },
        },
        switch("tar", "whether the sources are packed first", 1),
        switch("cscope", "whether they are indexed meanwhile", 1),
    ],
    threads: 8,
    threads_max: THREADS_MAX,
    iterates: false,
    run,
};

/// As much as there is, in one call (2 GiB less a page is what one call can move).
const WHOLE: u64 = (1 << 31) - (1 << 12);
const TAR_BUFFER: u64 = 10 << 10;
const STDIO_BUFFER: u64 = 4 << 10;

/// Reads all of `files` and writes `output` in between, in proportion to what was read.
fn filter(files: &[File], output: File, buffer: u64, [reads, writes]: [u32; 2]) -> Vec<Piece> {
    let whole: u64 = files.iter().map(|file| file.bytes).sum();
    let mut written = output.whole(writes, RowOp::Write, buffer).peekable();
    let (mut done, mut pieces) = (0, Vec::new());
    for piece in files
        .iter()
        .flat_map(|file| file.whole(reads, RowOp::Read, buffer))
    {
        pieces.push(piece);
        done += piece.length;
        let due = (u128::from(done) * u128::from(output.bytes) / u128::from(whole)) as u64;
        while let Some(piece) = written.next_if(|piece| piece.offset + piece.length <= due) {
            pieces.push(piece);
        }
    }
    pieces.extend(written);
    pieces
}

/// The compiler's or the assembler's turn for a source.
#[derive(Clone, Copy)]
enum Step {
    Compile(usize),
    Assemble(usize, File),
}

/// The call sites of the build's programs: two each, where it reads and where it writes.
struct Sites {
    tar: [u32; 2],
    compiler: [u32; 2],
    header: u32,
    assembler: [u32; 2],
    cscope: [u32; 2],
    linker: [u32; 2],
}

impl Sites {
    fn new(execution: &mut Execution) -> Sites {
        let pair =
            |execution: &mut Execution, names: [&str; 2]| names.map(|name| execution.site(name));
        let assembler = ["as.input_file_give_next_buffer", "as.write_object"];
        Sites {
            tar: pair(execution, ["tar.dump_file", "tar.flush_write"]),
            compiler: pair(execution, ["cc1.read_file_guts", "cc1.output_asm"]),
            header: execution.site("cc1.read_include"),
            assembler: pair(execution, assembler),
            cscope: pair(execution, ["cscope.build", "cscope.dbputc"]),
            linker: pair(execution, ["ld.bfd_read", "ld.bfd_write"]),
        }
    }
}

/// Draws the headers of each source.
struct Includes {
    headers: Vec<File>,
    /// How many a source includes.
    count: usize,
    popular: Ranks,
    scatter: Scatter,
    random: Random,
    /// The last source that included each header.
    seen: Vec<usize>,
}

impl Includes {
    /// The reads of the headers of the source with this number.
    fn read(&mut self, number: usize, site: u32, pieces: &mut Vec<Piece>) {
        for _ in 0..self.count {
            let rank = self.popular.draw(&mut self.random) - 1;
            let mut header = self.scatter.place(rank) as usize;
            // One that it has already brings in the next that it has not.
            while self.seen[header] == number {
                header = (header + 1) % self.headers.len();
            }
            self.seen[header] = number;
            pieces.extend(self.headers[header].whole(site, RowOp::Read, WHOLE));
        }
    }
}

fn run(values: &Values, execution: &mut Execution) -> Result<(), Stopped> {
    let mut random = execution.random(0);
    let mib = |at: usize| values.count(at) << 20;
    let sources = File::folder(execution, mib(1), values.count(0), &mut random, |number| {
        format!("/usr/src/linux/d{:02}/s{number:05}.c", number / 50)
    });
    let headers = File::folder(execution, mib(3), values.count(2), &mut random, |number| {
        format!("/usr/src/linux/include/h{number:04}.h")
    });
    let all: Vec<File> = sources.iter().chain(&headers).copied().collect();
    let total: u64 = all.iter().map(|file| file.bytes).sum();
    let sites = Sites::new(execution);
    let mut pace = Pace::new(execution.random(1));
    let mut balance = Balance::new(execution, execution.random(2));
    let mut now = 0;

    if values.count(6) == 1 {
        let archive = File::new(execution, "/usr/src/linux.tar.gz", total.div_ceil(4));
        let pieces = filter(&all, archive, TAR_BUFFER, sites.tar);
        let tar = ["tar", "czf", "/usr/src/linux.tar.gz", "/usr/src/linux"];
        now = alone(execution, &mut pace, &mut balance, now, &tar, pieces)?;
    }

    let popular = Ranks::new(values.count(2), values.real(5));
    let scatter = Scatter::new(values.count(2), random.bits());
    let mut includes = Includes {
        count: values.count(4).min(values.count(2)) as usize,
        popular,
        scatter,
        random,
        seen: vec![usize::MAX; headers.len()],
        headers,
    };
    let objects: Vec<File> = (sources.iter().enumerate())
        .map(|(number, source)| {
            let path = format!("/usr/src/linux/d{:02}/s{number:05}.o", number / 50);
            File::new(execution, path, source.bytes + source.bytes.div_ceil(2))
        })
        .collect();
    let jobs = execution.threads();
    let mut index = (values.count(7) == 1).then(|| {
        let output = File::new(execution, "/usr/src/linux/cscope.out", total.div_ceil(2));
        filter(&all, output, STDIO_BUFFER, sites.cscope)
    });
    let mut started = 0;
    let mut after: Vec<Option<Step>> = vec![None; jobs as usize];
    // The slot after the compilers' is cscope's.
    let slots = jobs + u32::from(index.is_some());
    let next = |execution: &mut Execution, balance: &mut Balance, slot: u32| {
        if slot == jobs {
            let pieces = index.take()?;
            let cscope = balance.process(execution, &["cscope", "-b", "-R"]);
            return Some(Job::of_new(cscope, pieces));
        }
        execution.done(started as f64 / sources.len() as f64);
        let step = after[slot as usize].take().or_else(|| {
            let step = (started < sources.len()).then_some(Step::Compile(started))?;
            started += 1;
            Some(step)
        })?;
        match step {
            Step::Compile(number) => {
                let source = sources[number];
                let assembly =
                    File::new(execution, format!("/tmp/cc{number:06}.s"), source.bytes * 3);
                let reads = source.whole(sites.compiler[0], RowOp::Read, WHOLE);
                let mut pieces: Vec<Piece> = reads.collect();
                includes.read(number, sites.header, &mut pieces);
                pieces.extend(assembly.whole(sites.compiler[1], RowOp::Write, STDIO_BUFFER));
                after[slot as usize] = Some(Step::Assemble(number, assembly));
                let compiler = balance.process(execution, &["cc1", "-O2"]);
                Some(Job::of_new(compiler, pieces))
            }
            Step::Assemble(number, assembly) => {
                let read = assembly.whole(sites.assembler[0], RowOp::Read, 32 << 10);
                let output = objects[number];
                let written = output.whole(sites.assembler[1], RowOp::Write, STDIO_BUFFER);
                let pieces = read.chain(written).collect();
                Some(Job::of_new(balance.process(execution, &["as"]), pieces))
            }
        }
    };
    now = work(execution, &mut pace, &mut balance, slots, now, next)?;

    let size = objects.iter().map(|object| object.bytes).sum::<u64>();
    let image = File::new(execution, "/usr/src/linux/vmlinux", size.div_ceil(2));
    let read = objects
        .iter()
        .flat_map(|object| object.whole(sites.linker[0], RowOp::Read, WHOLE));
    let written = image.whole(sites.linker[1], RowOp::Write, 256 << 10);
    let pieces = read.chain(written).collect();
    let linker = ["ld", "-o", "vmlinux"];
    alone(execution, &mut pace, &mut balance, now, &linker, pieces)?;
    Ok(())
}

/// A program that runs alone, to its end.
fn alone(
    execution: &mut Execution,
    pace: &mut Pace,
    balance: &mut Balance,
    now: u64,
    command: &[&str],
    pieces: Vec<Piece>,
) -> Result<u64, Stopped> {
    let mut pieces = Some(pieces);
    let next = |execution: &mut Execution, balance: &mut Balance, _| {
        let pieces = pieces.take()?;
        Some(Job::of_new(balance.process(execution, command), pieces))
    };
    work(execution, pace, balance, 1, now, next)
}
