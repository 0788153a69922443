//! The build of a large program. tar packs the sources. Then make runs compilers, many short
//! processes, each for one source and the headers that it includes, while cscope indexes all
//! sources. Last, the linker reads all objects.
//!
//! The paper used Linux 2.6.12. It names the programs and says that compilers read headers many
//! times. The rest is chosen here:
//! - numbers and sizes: a twelfth of that kernel's by default;
//! - headers by Zipf's law, each once per source;
//! - whole files in one call, as cc1 reads them; buffers of 10 KiB in tar, and of 4 KiB in cscope,
//!   which uses stdio;
//! - an assembler after each compiler, fed through a temporary file;
//! - objects are one and a half times as large as their sources, tar's output is a quarter of its
//!   input (gzip), cscope's half;
//! - each new process runs on a node with the fewest running threads, as today's Linux balances on
//!   exec. With `sticky`, a compiler or an assembler stays on make's node by that chance; make runs
//!   where the first compiler ran. Linux 2.6.7, the paper's, keeps a process where it is on exec if
//!   nothing else runs there (`sched_balance_exec`), so with one job at a time nearly all stay.
//!
//! `tar`, `gcc` and `cscope` leave out what is not wanted; the paper also ran each of the three
//! alone.

use super::definition::{Program, THREADS_MAX};
use super::execution::{Execution, Stopped};
use super::files::{File, FileRequest, Job, Scheduler, TimeModel, work};
use crate::permutation::Permutation;
use crate::zipf::ZipfRanks;
use hither_core::Random;
use hither_core::registry::Param;
use hither_core::spec::Values;
use hither_trace::schema::RowOp;

/// The line in the registry.
pub(super) const ENTRY: Program = Program {
    name: "compile",
    summary: "tar, then compilers that share headers beside cscope, then the linker; one \
              compiler per thread at a time",
    source: "the Tar + Gcc + Cscope test of the dual-layered file cache (sections 4 and 5)",
    params: &[
        Param::count("sources", "how many source files", 1000, 1..=1 << 20),
        Param::count(
            "source_mib",
            "the size of all sources together",
            16,
            1..=1 << 20,
        ),
        Param::count("headers", "how many headers", 600, 1..=1 << 20),
        Param::count(
            "header_mib",
            "the size of all headers together",
            5,
            1..=1 << 20,
        ),
        Param::count(
            "includes",
            "how many headers a source includes",
            60,
            1..=1 << 16,
        ),
        Param::real(
            "skew",
            "the exponent of Zipf's law for the popularity of headers",
            0.8,
            0.0..=20.0,
        ),
        Param::switch("tar", "whether the sources are packed first", true),
        Param::switch("cscope", "whether they are indexed meanwhile", true),
        Param::switch("gcc", "whether they are compiled and linked", true),
        Param::real(
            "sticky",
            "the chance that a compiler or assembler stays on the node of make",
            0.0,
            0.0..=1.0,
        ),
    ],
    threads: 8,
    threads_max: THREADS_MAX,
    iterates: false,
    run,
};

/// The largest request of one call: 2 GiB less a page. Whole files are read with it.
const CALL_BYTES_MAX: u64 = (1 << 31) - (1 << 12);
const TAR_BUFFER_BYTES: u64 = 10 << 10;
const STDIO_BUFFER_BYTES: u64 = 4 << 10;

/// Reads all of `files`, and writes `output` along the way in proportion to what was read.
fn filter(
    files: &[File],
    output: File,
    buffer: u64,
    [reads, writes]: [u32; 2],
) -> Vec<FileRequest> {
    let whole: u64 = files.iter().map(|file| file.bytes).sum();
    let mut written = output.whole(writes, RowOp::Write, buffer).peekable();
    let (mut done, mut requests) = (0, Vec::new());
    for request in files
        .iter()
        .flat_map(|file| file.whole(reads, RowOp::Read, buffer))
    {
        requests.push(request);
        done += request.length;
        let due = (u128::from(done) * u128::from(output.bytes) / u128::from(whole)) as u64;
        while let Some(request) = written.next_if(|request| request.offset + request.length <= due)
        {
            requests.push(request);
        }
    }
    requests.extend(written);
    requests
}

/// What the next process of a slot does with a source.
#[derive(Clone, Copy)]
enum BuildStep {
    Compile(usize),
    Assemble(usize, File),
}

/// The call sites of the build's programs: one that reads and one that writes for each.
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
    /// Headers per source.
    count: usize,
    popular: ZipfRanks,
    permutation: Permutation,
    random: Random,
    /// The last source that included each header.
    seen: Vec<usize>,
}

impl Includes {
    /// The reads of the headers of source `number`.
    fn read(&mut self, number: usize, site: u32, requests: &mut Vec<FileRequest>) {
        for _ in 0..self.count {
            let rank = self.popular.draw(&mut self.random) - 1;
            let mut header = self.permutation.apply(rank) as usize;
            // A header that the source has already included stands for the next one not included.
            while self.seen[header] == number {
                header = (header + 1) % self.headers.len();
            }
            self.seen[header] = number;
            requests.extend(self.headers[header].whole(site, RowOp::Read, CALL_BYTES_MAX));
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
    let mut time_model = TimeModel::new(execution.random(1));
    let mut scheduler = Scheduler::new(execution, execution.random(2));
    let mut now = 0;

    if values.count(6) == 1 {
        let (tar, requests) = archive(execution, &all, total, &sites);
        now = alone(
            execution,
            &mut time_model,
            &mut scheduler,
            now,
            &tar,
            requests,
        )?;
    }

    let mut includes = Includes {
        count: values.count(4).min(values.count(2)) as usize,
        popular: ZipfRanks::new(values.count(2), values.real(5)),
        permutation: Permutation::new(values.count(2), random.bits()),
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
    let gcc = values.count(8) == 1;
    let (jobs, sticky) = (execution.threads(), values.real(9));
    // Where make runs.
    let mut make = None;
    let mut index = (values.count(7) == 1).then(|| {
        let output = File::new(execution, "/usr/src/linux/cscope.out", total.div_ceil(2));
        filter(&all, output, STDIO_BUFFER_BYTES, sites.cscope)
    });
    let mut started = 0;
    let mut after: Vec<Option<BuildStep>> = vec![None; jobs as usize];
    // The last slot, after the compilers', is cscope's.
    let slots = jobs + u32::from(index.is_some());
    let next = |execution: &mut Execution, scheduler: &mut Scheduler, slot: u32| {
        if slot == jobs {
            let requests = index.take()?;
            let cscope = scheduler.process(execution, &["cscope", "-b", "-R"]);
            return Some(Job::of_new(cscope, requests));
        }
        execution.done(started as f64 / sources.len() as f64);
        let step = after[slot as usize].take().or_else(|| {
            let step = (gcc && started < sources.len()).then_some(BuildStep::Compile(started))?;
            started += 1;
            Some(step)
        })?;
        match step {
            BuildStep::Compile(number) => {
                let source = sources[number];
                let assembly =
                    File::new(execution, format!("/tmp/cc{number:06}.s"), source.bytes * 3);
                let reads = source.whole(sites.compiler[0], RowOp::Read, CALL_BYTES_MAX);
                let mut requests: Vec<FileRequest> = reads.collect();
                includes.read(number, sites.header, &mut requests);
                requests.extend(assembly.whole(
                    sites.compiler[1],
                    RowOp::Write,
                    STDIO_BUFFER_BYTES,
                ));
                after[slot as usize] = Some(BuildStep::Assemble(number, assembly));
                let compiler = scheduler.child(execution, &["cc1", "-O2"], make, sticky);
                make.get_or_insert(compiler.node);
                Some(Job::of_new(compiler, requests))
            }
            BuildStep::Assemble(number, assembly) => {
                let requests = assemble(assembly, objects[number], &sites);
                let assembler = scheduler.child(execution, &["as"], make, sticky);
                Some(Job::of_new(assembler, requests))
            }
        }
    };
    now = work(execution, &mut time_model, &mut scheduler, slots, now, next)?;
    if !gcc {
        return Ok(());
    }
    let (linker, requests) = link(execution, &objects, &sites);
    alone(
        execution,
        &mut time_model,
        &mut scheduler,
        now,
        &linker,
        requests,
    )?;
    Ok(())
}

/// The command and the requests of tar, which reads all files and writes an archive of a quarter of
/// their `total` bytes.
fn archive(
    execution: &mut Execution,
    all: &[File],
    total: u64,
    sites: &Sites,
) -> ([&'static str; 4], Vec<FileRequest>) {
    let archive = File::new(execution, "/usr/src/linux.tar.gz", total.div_ceil(4));
    let command = ["tar", "czf", "/usr/src/linux.tar.gz", "/usr/src/linux"];
    (command, filter(all, archive, TAR_BUFFER_BYTES, sites.tar))
}

/// The requests of the assembler, which reads a file of assembly and writes an object.
fn assemble(assembly: File, object: File, sites: &Sites) -> Vec<FileRequest> {
    let read = assembly.whole(sites.assembler[0], RowOp::Read, 32 << 10);
    let written = object.whole(sites.assembler[1], RowOp::Write, STDIO_BUFFER_BYTES);
    read.chain(written).collect()
}

/// The command and the requests of the linker, which reads all objects and writes the image of the
/// kernel.
fn link(
    execution: &mut Execution,
    objects: &[File],
    sites: &Sites,
) -> ([&'static str; 3], Vec<FileRequest>) {
    let size = objects.iter().map(|object| object.bytes).sum::<u64>();
    let image = File::new(execution, "/usr/src/linux/vmlinux", size.div_ceil(2));
    let read = objects
        .iter()
        .flat_map(|object| object.whole(sites.linker[0], RowOp::Read, CALL_BYTES_MAX));
    let written = image.whole(sites.linker[1], RowOp::Write, 256 << 10);
    (["ld", "-o", "vmlinux"], read.chain(written).collect())
}

/// Runs one program by itself until it ends.
fn alone(
    execution: &mut Execution,
    time_model: &mut TimeModel,
    scheduler: &mut Scheduler,
    now: u64,
    command: &[&str],
    requests: Vec<FileRequest>,
) -> Result<u64, Stopped> {
    let mut requests = Some(requests);
    let next = |execution: &mut Execution, scheduler: &mut Scheduler, _| {
        let requests = requests.take()?;
        Some(Job::of_new(scheduler.process(execution, command), requests))
    };
    work(execution, time_model, scheduler, 1, now, next)
}
