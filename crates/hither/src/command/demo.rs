//! `hither demo`: what steering gains on this machine, in under a minute.
//!
//! A small program reads a file again and again where memory is short, alone and under
//! `hither run`, in turn. The file, the memory limit and the program are the demo's own, and
//! nothing of them is left: not at an error, and not at Ctrl-C.

mod memory_limit;

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use hither_analysis::format::{bytes, counted, percent};
use hither_analysis::table::{Align, Table};
use hither_core::Random;
use hither_kernel::process;
use rustix::fs::{Advice, fadvise, statfs};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGTERM};
use signal_hook::flag;

use self::memory_limit::{LIMIT_BYTES, MemoryLimit};
use super::subcommand::Subcommand;
use crate::exit::INTERRUPTED;
use crate::ui::{self, Ui};

/// The size of the file: more than the memory holds, less than twice as much.
const FILE_BYTES: u64 = 256 << 20;

/// Has the file that `hither demo`, as the program of the demo, reads.
const READ_VARIABLE: &str = "HITHER_DEMO_READS";

/// How often the program reads the file.
const PASSES: u32 = 5;

/// What is kept of the file where memory cannot be limited.
const CACHE_BYTES: u64 = 128 << 20;

/// Both are run as often as this at most.
const ROUNDS_MAX: usize = 3;

/// No round is started that may end later than this.
const ROUNDS_TIME_MAX: Duration = Duration::from_secs(40);

/// From this share of the bytes on, steering has gained nothing.
const NO_GAIN_SHARE: f64 = 0.98;

/// What is written and read at once.
const CHUNK_BYTES: usize = 128 << 10;

/// How often it is looked whether a program has ended.
const POLL: Duration = Duration::from_millis(5);

/// So long an interrupted program has to end by itself.
const END_TIME_MAX: Duration = Duration::from_secs(3);

/// File systems in memory, by their numbers (statfs(2)): tmpfs and ramfs.
const MEMORY_FILE_SYSTEMS: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Where temporary files are on a disk, if those of TMPDIR are not.
const ON_DISK: &str = "/var/tmp";

const EXAMPLES: &str = "\
Examples:
  hither demo                what steering gains here
  hither demo /mnt/disk      on the disk of this folder";

/// Show what steering gains on this machine, in under a minute
///
/// A small program reads a file of 256 MiB five times in 160 MiB of memory, alone and under `hither
/// run`, in turn. The table has what each read from storage, and how long it took.
///
/// The memory limit is that of a cgroup of the demo's own, or of a scope of the user's systemd. If
/// neither can be had, `hither run --cache` keeps 128 MiB of the file cached in both cases: by LRU,
/// much like the kernel, and by the default policy. The demo removes what it has made, also if it
/// is interrupted.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct Demo {
    /// The folder for its file, which needs 256 MiB [default: TMPDIR, or /tmp]
    ///
    /// If that is in memory, it is /var/tmp.
    folder: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What a run of the program came to.
#[derive(Clone, Copy, Debug, Serialize)]
struct Measured {
    /// Bytes from storage, by the kernel's count.
    read_bytes: u64,
    seconds: f64,
}

/// A run without steering, and one with it.
#[derive(Clone, Copy, Debug, Serialize)]
struct Round {
    plain: Measured,
    steered: Measured,
}

/// All that came of it.
#[derive(Debug, Serialize)]
struct Outcome {
    /// Where its file was.
    folder: PathBuf,
    file_bytes: u64,
    passes: u32,
    /// What limited the memory: `cgroup`, `systemd`, or `cache`, the option of `hither run`.
    limited_by: &'static str,
    /// The limit on memory, or on what is cached of the file.
    limit_bytes: u64,
    rounds: Vec<Round>,
    /// The median of each figure.
    medians: Round,
}

/// A signal asked the demo to end.
#[derive(Debug)]
struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

impl Subcommand for Demo {
    const NAME: &'static str = "demo";

    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        if let Some(file) = std::env::var_os(READ_VARIABLE) {
            read_again(Path::new(&file))?;
            return Ok(ExitCode::SUCCESS);
        }
        match self.outcome(ui) {
            Ok(outcome) if self.json => ui::print_json(&outcome)?,
            Ok(outcome) => ui::print(&outcome.text())?,
            // All that was made is removed by now.
            Err(error) if error.is::<Interrupted>() => return Ok(ExitCode::from(INTERRUPTED)),
            Err(error) => return Err(error),
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Demo {
    fn outcome(&self, ui: &Ui) -> anyhow::Result<Outcome> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register(signal, interrupted.clone()).context("watching for signals")?;
        }
        let parent = parent(self.folder.clone())?;
        let mut folder = tempfile::Builder::new();
        let folder = folder.prefix("hither-demo-").tempdir_in(&parent);
        let folder =
            folder.with_context(|| format!("cannot create a folder in {}", parent.display()))?;
        let limit = MemoryLimit::find();
        let stage = Stage {
            file: folder.path().join("data"),
            hither: std::env::current_exe().context("cannot find hither's own program")?,
            limit,
            interrupted,
        };
        let spinner = ui.spinner("writing a file");
        stage.write_file()?;
        spinner.set_message("reading it, alone and under `hither run`");
        let rounds = stage.rounds()?;
        spinner.finish_and_clear();
        Ok(Outcome {
            folder: parent,
            file_bytes: FILE_BYTES,
            passes: PASSES,
            limited_by: stage.limit.name(),
            limit_bytes: if matches!(stage.limit, MemoryLimit::Cache) {
                CACHE_BYTES
            } else {
                LIMIT_BYTES
            },
            medians: medians(&rounds),
            rounds,
        })
    }
}

/// The folder to make one in. In memory, nothing is read from storage.
fn parent(named: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let in_memory = |folder: &Path| -> anyhow::Result<bool> {
        let about = statfs(folder).with_context(|| folder.display().to_string())?;
        Ok(MEMORY_FILE_SYSTEMS.contains(&(about.f_type as u64)))
    };
    let is_named = named.is_some();
    let folder = named.unwrap_or_else(std::env::temp_dir);
    if !in_memory(&folder)? {
        return Ok(folder);
    }
    let disk = PathBuf::from(ON_DISK);
    if !is_named && in_memory(&disk).is_ok_and(|in_memory| !in_memory) {
        return Ok(disk);
    }
    bail!(
        "{} is in memory: nothing is read from storage there. `hither demo FOLDER` names one on a \
         disk",
        folder.display()
    )
}

/// What the runs need.
struct Stage {
    file: PathBuf,
    hither: PathBuf,
    limit: MemoryLimit,
    interrupted: Arc<AtomicBool>,
}

impl Stage {
    fn check(&self) -> Result<(), Interrupted> {
        if self.interrupted.load(Ordering::Relaxed) {
            Err(Interrupted)
        } else {
            Ok(())
        }
    }

    /// Writes the file: of random bytes, which no file system compresses.
    fn write_file(&self) -> anyhow::Result<()> {
        let of_file = || {
            format!(
                "cannot write {} to {}",
                bytes(FILE_BYTES),
                self.file.display()
            )
        };
        let mut random = Random::new(1);
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        let mut file = File::create_new(&self.file).with_context(of_file)?;
        for _ in 0..FILE_BYTES / CHUNK_BYTES as u64 {
            self.check()?;
            chunk.clear();
            while chunk.len() < CHUNK_BYTES {
                chunk.extend(random.bits().to_ne_bytes());
            }
            file.write_all(&chunk).with_context(of_file)?;
        }
        file.sync_all().with_context(of_file)
    }

    /// Both, in turn, in an order that changes.
    fn rounds(&self) -> anyhow::Result<Vec<Round>> {
        let start = Instant::now();
        let mut rounds = Vec::new();
        let mut longest = Duration::ZERO;
        while rounds.len() < ROUNDS_MAX && start.elapsed() + longest <= ROUNDS_TIME_MAX {
            let began = Instant::now();
            let round = if rounds.len().is_multiple_of(2) {
                let plain = self.measure(false)?;
                let steered = self.measure(true)?;
                Round { plain, steered }
            } else {
                let steered = self.measure(true)?;
                let plain = self.measure(false)?;
                Round { plain, steered }
            };
            rounds.push(round);
            longest = longest.max(began.elapsed());
        }
        Ok(rounds)
    }

    /// Runs the program once, from storage.
    fn measure(&self, steered: bool) -> anyhow::Result<Measured> {
        fadvise(File::open(&self.file)?, 0, None, Advice::DontNeed)
            .context("cannot drop the file from the page cache")?;
        let mut command = self.command(steered);
        let before = process::children_read_bytes();
        let start = Instant::now();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {:?}", command.get_program()))?;
        self.wait(child)?;
        Ok(Measured {
            seconds: start.elapsed().as_secs_f64(),
            read_bytes: process::children_read_bytes() - before,
        })
    }

    fn command(&self, steered: bool) -> Command {
        let mut command = self.limit.command(&self.hither);
        let has_limit = !matches!(self.limit, MemoryLimit::Cache);
        if steered || !has_limit {
            let policy = if steered { "" } else { "=lru" };
            command.args(["-q", "run", &format!("--page-cache{policy}")]);
            if !has_limit {
                command.args(["--cache", &format!("{CACHE_BYTES}B")]);
            }
            command.arg("--").arg(&self.hither);
        }
        command.arg("demo").env(READ_VARIABLE, &self.file);
        command
    }

    /// Waits for a program. If the demo is interrupted, so is the program.
    fn wait(&self, mut child: Child) -> anyhow::Result<()> {
        let id = i32::try_from(child.id()).expect("the kernel's numbers are small");
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if let Err(interrupted) = self.check() {
                // `hither run` passes it on.
                let _ = process::kill(id, SIGTERM);
                let asked = Instant::now();
                while child.try_wait()?.is_none() {
                    if asked.elapsed() > END_TIME_MAX {
                        let _ = process::kill(id, SIGKILL);
                    }
                    thread::sleep(POLL);
                }
                return Err(interrupted.into());
            }
            thread::sleep(POLL);
        };
        // A terminal's signal ends the program, too.
        self.check()?;
        if !status.success() {
            bail!("the program of the demo failed: {status}");
        }
        Ok(())
    }
}

/// What the program does: it reads a file from beginning to end, [`PASSES`] times.
fn read_again(file: &Path) -> anyhow::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    for _ in 0..PASSES {
        let mut file = File::open(file).with_context(|| file.display().to_string())?;
        while file.read(&mut chunk)? > 0 {}
    }
    Ok(())
}

/// The median of each figure.
fn medians(rounds: &[Round]) -> Round {
    let median = |of: &dyn Fn(&Round) -> Measured| {
        let mut bytes: Vec<u64> = rounds.iter().map(|round| of(round).read_bytes).collect();
        let mut seconds: Vec<f64> = rounds.iter().map(|round| of(round).seconds).collect();
        bytes.sort_unstable();
        seconds.sort_by(f64::total_cmp);
        Measured {
            read_bytes: bytes[bytes.len() / 2],
            seconds: seconds[seconds.len() / 2],
        }
    };
    Round {
        plain: median(&|round| round.plain),
        steered: median(&|round| round.steered),
    }
}

impl Outcome {
    fn text(&self) -> String {
        let Round { plain, steered } = self.medians;
        let has_limit = self.limited_by != MemoryLimit::Cache.name();
        let (why, memory, names) = if has_limit {
            let memory = format!("of memory ({})", self.limited_by);
            ("", memory, ["alone", "hither run"])
        } else {
            let why = "Memory cannot be limited here, so hither limits what is cached.\n";
            let names = ["by lru, much like the kernel", "by hither's policy"];
            (why, "of cache".to_owned(), names)
        };
        let mut table = Table::new([
            ("", Align::Left),
            ("read from storage", Align::Right),
            ("seconds", Align::Right),
        ]);
        for (name, measured) in names.into_iter().zip([plain, steered]) {
            table.row([
                name.to_owned(),
                bytes(measured.read_bytes),
                format!("{:.2}", measured.seconds),
            ]);
        }
        format!(
            "{why}A program reads a file of {} {} times, in {} {memory}:\n\n{}\n{}\n\
             For a program of yours: hither advise -- CMD\n",
            bytes(self.file_bytes),
            self.passes,
            bytes(self.limit_bytes),
            table.render(),
            self.verdict()
        )
    }

    /// What that means.
    fn verdict(&self) -> String {
        let Round { plain, steered } = self.medians;
        if plain.read_bytes < self.file_bytes {
            return format!(
                "The kernel counted less than the file once: {} is not on a local disk, or has a \
                 cache of its own. Steering gains nothing there.",
                self.folder.display()
            );
        }
        let share = steered.read_bytes as f64 / plain.read_bytes as f64;
        let rounds = counted(self.rounds.len() as u64, "round");
        let seconds = plain.seconds - steered.seconds;
        let time = if seconds >= 0.0 { "less" } else { "more" };
        let time = format!("{:.2} s {time} (medians of {rounds})", seconds.abs());
        if share > 2.0 - NO_GAIN_SHARE {
            let more = percent(share - 1.0);
            return format!("Steering lost here: {more} more was read, and it took {time}.");
        }
        if share >= NO_GAIN_SHARE {
            return format!("Steering gained nothing here: as much was read, and it took {time}.");
        }
        format!(
            "Steering read {} less from storage, and took {time}.",
            percent(1.0 - share)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(read_bytes: u64, seconds: f64) -> Measured {
        Measured {
            read_bytes,
            seconds,
        }
    }

    fn outcome(plain: Measured, steered: Measured) -> Outcome {
        let rounds = vec![Round { plain, steered }];
        Outcome {
            folder: PathBuf::from("/tmp"),
            file_bytes: FILE_BYTES,
            passes: PASSES,
            limited_by: "cgroup",
            limit_bytes: LIMIT_BYTES,
            medians: medians(&rounds),
            rounds,
        }
    }

    #[test]
    fn a_loss_is_called_a_loss() {
        let all = PASSES as u64 * FILE_BYTES;
        let said = |steered: Measured| outcome(measured(all, 2.0), steered).verdict();
        assert_eq!(
            said(measured(all / 2, 1.5)),
            "Steering read 50.0 % less from storage, and took 0.50 s less (medians of 1 round)."
        );
        assert_eq!(
            said(measured(all / 2, 2.5)),
            "Steering read 50.0 % less from storage, and took 0.50 s more (medians of 1 round)."
        );
        let nothing = said(measured(all, 2.5));
        assert!(
            nothing.starts_with("Steering gained nothing here"),
            "{nothing}"
        );
        let unseen = outcome(measured(0, 2.0), measured(0, 2.0)).verdict();
        assert!(unseen.contains("not on a local disk"), "{unseen}");
    }

    #[test]
    fn the_median_of_each_figure_counts() {
        let round = |read_bytes, seconds| Round {
            plain: measured(read_bytes, seconds),
            steered: measured(1, 1.0),
        };
        let found = medians(&[round(5, 3.0), round(9, 1.0), round(7, 2.0)]).plain;
        assert_eq!((found.read_bytes, found.seconds), (7, 2.0));
    }
}
