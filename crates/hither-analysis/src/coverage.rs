//! How much of what a program read is in its trace, and whether that is enough for a verdict.
//!
//! The kernel counts what each process reads (`rchar` in `/proc/PID/io`). What neither the records
//! nor the counts of the recorder account for was read by calls that it did not see. What a program
//! touches in mapped files, and how often, is known only of recordings with `--mapped`.

use hither_trace::Trace;
use hither_trace::schema::{Cut, Losses, Seen, Touches};
use serde::Serialize;

use crate::format::{bytes, count, counted, duration_ns, percent};

/// What a process reads at its start, before the recorder sees it: the headers of its libraries,
/// 832 bytes each. A program with a window has 140 of them.
const START_BYTES: u64 = 128 << 10;

/// Less than this share of the recorded bytes is not mentioned.
const MENTIONED_MIN_SHARE: f64 = 0.01;

/// From this share on, what was not seen is a doubt about a verdict.
const DOUBT_MIN_SHARE: f64 = 0.1;

/// From this share on, there is no verdict.
const BLIND_MIN_SHARE: f64 = 0.5;

/// The most programs that are named.
const NAMED_PROGRAMS_MAX: usize = 3;

/// How much of what a program read of files was recorded. All in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Coverage {
    /// Of files, by recorded calls.
    pub recorded_bytes: u64,
    /// Those of them that bypassed the page cache (`O_DIRECT`).
    pub direct_bytes: u64,
    /// By calls that the recorder did not see, as far as the kernel counted. `None`: it did not.
    pub unseen_bytes: Option<u64>,
    /// Whether the kernel said how much programs read in all. If it did and `unseen_bytes` is
    /// `None`, it counted less than was recorded: nobody waited for some processes.
    pub total_known: bool,
    /// Moved by accesses that were lost. Those of them that were reads are in `unseen_bytes` too.
    pub lost_bytes: u64,
    /// In mapped ranges of files.
    pub mapped_bytes: u64,
    /// What of these was in the page cache at the end. `None`: not known.
    pub mapped_cached_bytes: Option<u64>,
    /// The files of `mapped_bytes`.
    pub mapped_files: u64,
    /// Whether each mapping counts as a read of what it maps (`--maps`).
    pub maps_are_reads: bool,
    /// How touches of mapped files were recorded (`record --mapped`). `None`: they were not.
    pub touches: Option<Touches>,
    /// Processes that went on, unrecorded, when the program had ended.
    pub left_running: u64,
    /// Processes that set up an io_uring: reads by it are in no record.
    pub io_uring_processes: u64,
    /// If a process has an io_uring, what storage delivered beyond all that was recorded, not seen
    /// or mapped: so much may have been read by it, beside what was cached. Programs, libraries and
    /// readahead are in it.
    pub io_uring_bytes: u64,
    /// The recorded share of what was read by calls and, taken once, of what was mapped: from 0 to
    /// 1.
    pub share: f64,
    /// All is by the kernel's events, and so all of the page cache but what was lost.
    pub by_kernel: bool,
    /// By the kernel's events alone, where these were recorded beside the library's: whole pages.
    pub kernel_alone_bytes: u64,
    /// The kernel lacks events of touches of mapped files.
    pub touches_unseen: bool,
    /// The share of the accesses of whose call site no more is known than the program and the file.
    pub unknown_sites: f64,
    /// Where the trace ends, if it ends before the program did.
    pub cut: Option<Cut>,
    /// The programs that were not recorded, and why.
    #[serde(skip)]
    programs: Vec<String>,
}

impl Coverage {
    /// `None` if the trace does not say, since it was not recorded by hither.
    pub fn of(trace: &Trace) -> Option<Coverage> {
        let (meta, maps) = (trace.meta(), trace.options().include_maps);
        let processes = meta.processes.len() as u64;
        let coverage = Coverage::of_recording(&meta.seen?, &meta.losses, processes, maps);
        Some(coverage.with_cut(meta.cut.clone()))
    }

    /// Of a trace that ends before the program did.
    pub fn with_cut(self, cut: Option<Cut>) -> Coverage {
        let lost = cut.as_ref().and_then(|cut| cut.lost_read_bytes);
        let lost = lost.unwrap_or(0) as f64;
        // The recorded bytes are this share of all but what the cut took away.
        let recorded = self.recorded_bytes as f64;
        let share = if lost <= 0.0 {
            self.share
        } else if recorded > 0.0 {
            recorded / (recorded / self.share + lost)
        } else {
            0.0
        };
        Coverage { share, cut, ..self }
    }

    /// Of a recording of so many processes. `maps` says that each mapping counts as a read.
    pub fn of_recording(seen: &Seen, losses: &Losses, processes: u64, maps: bool) -> Coverage {
        let programs = losses.not_recorded.iter();
        let unseen = seen.unseen_bytes.unwrap_or(0);
        let starts = START_BYTES.saturating_mul(processes);
        let starts = if seen.kernel_events { 0 } else { starts };
        let unseen = if losses.not_recorded.is_empty() && unseen <= starts {
            0
        } else {
            unseen
        };
        let known = seen.recorded_bytes.saturating_add(unseen);
        let io_uring_bytes = match (seen.io_uring_processes, seen.storage_bytes) {
            (1.., Some(read)) => read.saturating_sub(known.saturating_add(seen.mapped_bytes)),
            _ => 0,
        };
        let mut coverage = Coverage {
            recorded_bytes: seen.recorded_bytes,
            direct_bytes: seen.direct_bytes,
            unseen_bytes: seen.unseen_bytes.map(|_| unseen),
            total_known: seen.unseen_bytes.is_some() || seen.called_bytes.is_some(),
            lost_bytes: losses.dropped_bytes,
            mapped_bytes: seen.mapped_bytes,
            mapped_cached_bytes: seen.mapped_cached_bytes,
            mapped_files: seen.mapped_files,
            maps_are_reads: maps,
            touches: seen.touches,
            left_running: seen.left_running,
            io_uring_processes: seen.io_uring_processes,
            io_uring_bytes,
            share: 1.0,
            by_kernel: seen.kernel_events,
            kernel_alone_bytes: seen.kernel_alone_bytes,
            touches_unseen: seen.touches_unseen,
            unknown_sites: seen.unknown_sites as f64 / seen.accesses.max(1) as f64,
            cut: None,
            programs: programs
                .map(|program| format!("{}: {}", program.path, program.reason))
                .collect(),
        };
        let (_, mapped) = coverage.mapped_unseen();
        let all = known.saturating_add(mapped).saturating_add(io_uring_bytes);
        if all > 0 {
            coverage.share = seen.recorded_bytes as f64 / all as f64;
        }
        coverage
    }

    /// What was seen and what was not, in words that follow "seen:".
    pub fn words(&self) -> String {
        let mut words = match self.cut_words() {
            Some(cut) => format!("{cut}; {}", self.words_until_cut()),
            None => self.words_until_cut(),
        };
        if self.unknown_sites > MENTIONED_MIN_SHARE {
            words += &format!(
                "; the call sites of {} of the accesses are not known, but for program and file",
                percent(self.unknown_sites)
            );
        }
        words
    }

    /// That the trace ends before the program did, where and why.
    fn cut_words(&self) -> Option<String> {
        let cut = self.cut.as_ref()?;
        let seconds = |ns: u64| format!("{:.2} s", ns as f64 / 1e9);
        let of = cut
            .ran_ns
            .map_or(String::new(), |ran_ns| format!(" of {}", seconds(ran_ns)));
        let after = seconds(cut.time_ns);
        let mut words = format!("cut after {after}{of}, because {}", cut.reason);
        if let (Some(lost), Some(read)) = (cut.lost_accesses, cut.lost_read_bytes) {
            let (lost, read) = (counted(lost, "later access"), bytes(read));
            words += &format!(" ({lost} lost, which read {read})");
        }
        Some(words)
    }

    fn words_until_cut(&self) -> String {
        let whose = if self.by_kernel {
            " read of the page cache, by the kernel's events"
        } else {
            " that the program read of files"
        };
        let mut recorded = bytes(self.recorded_bytes) + whose;
        if self.cut.is_some() {
            recorded += " until then";
        }
        if self.kernel_alone_bytes as f64 > MENTIONED_MIN_SHARE * self.recorded_bytes as f64 {
            let alone = bytes(self.kernel_alone_bytes);
            recorded += &format!(" ({alone} of it by the kernel's events alone)");
        }
        if self.direct_share() > MENTIONED_MIN_SHARE {
            recorded += &format!(
                " ({} of it past the page cache, by O_DIRECT)",
                bytes(self.direct_bytes)
            );
        }
        if self.maps_are_reads && self.mapped_bytes > 0 {
            recorded += &format!(
                ", and {} in {}, each mapping taken for one read",
                bytes(self.mapped_bytes),
                counted(self.mapped_files, "mapped file")
            );
        }
        if let Some(touches) = self.touches
            && self.mapped_bytes > touches.unseen_bytes
        {
            let files = self.mapped_files.saturating_sub(touches.unseen_files);
            recorded += &format!(
                ", and touches of {} in {}, {}",
                bytes(self.mapped_bytes - touches.unseen_bytes),
                counted(files, "mapped file"),
                sampling(touches, files)
            );
        }
        let hidden = self.hidden();
        if !hidden.is_empty() {
            // What is touched in mappings, read by io_uring, and by processes that go on, has no
            // known bound.
            let is_bounded = self.mapped_is_seen() && !self.has_unbounded();
            let share = if is_bounded && self.unseen_bytes.is_some() {
                format!(", {} or more", percent(self.share))
            } else {
                String::new()
            };
            return format!("{recorded}{share}; not seen: {}", hidden.join(", "));
        }
        match self.unseen_bytes {
            _ if self.cut.is_some() => recorded,
            Some(_) if self.recorded_bytes + self.mapped_bytes == 0 => {
                "all; nothing was read of files".to_owned()
            }
            Some(_) => format!("all {recorded}"),
            None if self.total_known => format!(
                "{recorded}; the kernel counted less, since nobody waited for some processes"
            ),
            None => format!("{recorded}; the kernel does not say how much it read in all"),
        }
    }

    /// Whether something read an amount that nobody counted.
    fn has_unbounded(&self) -> bool {
        self.left_running > 0 || self.io_uring_processes > 0 || self.touches_unseen
    }

    /// Whether it is not known how much was read that is not in the trace.
    pub(crate) fn is_open_ended(&self) -> bool {
        let first_only = |touches: Touches| touches.first_only_files > 0;
        self.has_unbounded()
            || self.unseen_bytes.is_none()
            || self.cut.is_some()
            || self.touches.is_some_and(first_only)
    }

    /// The words as a sentence.
    pub fn sentence(&self) -> String {
        format!("Seen: {}.", self.words())
    }

    /// The mapped files whose touches are not in the trace, and their bytes.
    fn mapped_unseen(&self) -> (u64, u64) {
        match self.touches {
            _ if self.maps_are_reads => (0, 0),
            Some(touches) => (touches.unseen_files, touches.unseen_bytes),
            None => (self.mapped_files, self.mapped_bytes),
        }
    }

    /// Whether there is no mapped byte whose touches are not in the trace.
    fn mapped_is_seen(&self) -> bool {
        self.mapped_unseen().1 == 0
    }

    /// What was not seen, in parts of a sentence. What is too little to matter is left out.
    fn hidden(&self) -> Vec<String> {
        let matters =
            |part: u64| part as f64 > MENTIONED_MIN_SHARE * self.recorded_bytes as f64 && part > 0;
        let mut hidden = Vec::new();
        let of_calls = self.unseen_bytes.filter(|_| !self.by_kernel);
        if let Some(unseen) = of_calls.filter(|&unseen| matters(unseen)) {
            let unseen = bytes(unseen);
            let mut part =
                format!("{unseen} read of files or pipes by calls that the recorder did not see");
            let mut named: Vec<&str> = self.programs.iter().map(String::as_str).collect();
            if named.len() > NAMED_PROGRAMS_MAX {
                named.truncate(NAMED_PROGRAMS_MAX);
                named.push("others");
            }
            if !named.is_empty() {
                part += &format!(" ({})", named.join("; "));
            }
            hidden.push(part);
        }
        if self.touches_unseen {
            hidden.push("touches of mapped files, which this kernel does not report".to_owned());
        }
        let (files, unseen) = self.mapped_unseen();
        if matters(unseen) {
            let cached = match self.mapped_cached_bytes {
                Some(cached) if unseen == self.mapped_bytes => {
                    format!(", of which {} are cached", bytes(cached))
                }
                _ => String::new(),
            };
            hidden.push(format!(
                "what was touched of {} in {}{cached}",
                bytes(unseen),
                counted(files, "mapped file")
            ));
        }
        if matters(self.lost_bytes) {
            let lost = bytes(self.lost_bytes);
            hidden.push(format!("lost accesses, which moved {lost}"));
        }
        if self.io_uring_processes > 0 {
            let much = if matters(self.io_uring_bytes) {
                format!(", up to {} from storage", bytes(self.io_uring_bytes))
            } else {
                String::new()
            };
            hidden.push(format!(
                "what {} may have read by io_uring{much}",
                counted(self.io_uring_processes, "process")
            ));
        }
        if self.left_running > 0 {
            hidden.push(format!(
                "{} that went on when the program had ended",
                counted(self.left_running, "process")
            ));
        }
        hidden
    }

    /// The share of the recorded bytes that bypassed the page cache.
    fn direct_share(&self) -> f64 {
        self.direct_bytes as f64 / self.recorded_bytes.max(1) as f64
    }

    /// Whether nothing bounds what was not seen: the kernel did not count, or counted too little
    /// where programs were not recorded. A trace that is cut has no count, and says so.
    fn is_blind(&self) -> bool {
        let is_complete = self.cut.is_none() && self.unseen_bytes.is_none();
        is_complete && (!self.total_known || !self.programs.is_empty())
    }

    /// That there is no verdict, and what to do, if most may not have been seen, or bypasses the
    /// page cache.
    pub(crate) fn no_verdict(&self) -> Option<String> {
        if self.direct_share() >= BLIND_MIN_SHARE {
            return Some(format!(
                "No verdict: of the {} that the program read of files, {} bypass the page cache \
                 (O_DIRECT), which serves none of it. `hither sim` says what a cache of the \
                 program's own would serve.",
                bytes(self.recorded_bytes),
                bytes(self.direct_bytes)
            ));
        }
        let is_open = self.has_unbounded() || self.cut.is_some();
        let nothing_known = self.recorded_bytes == 0 && is_open;
        if self.is_blind() {
            return Some(format!(
                "No verdict: how much the program read in all is not known, and so not whether \
                 these {} are most of it. The kernel's count is {}.",
                bytes(self.recorded_bytes),
                if self.total_known {
                    "too small, since nobody waited for some processes, and not all programs \
                         could be recorded"
                } else {
                    "missing (/proc/self/io)"
                }
            ));
        }
        if 1.0 - self.share < BLIND_MIN_SHARE && !nothing_known {
            return None;
        }
        let mut remedies = Vec::new();
        if self.cut.is_some() {
            remedies.push("A recording that is not cut tells more");
        }
        if !self.mapped_is_seen() {
            remedies.push(match self.touches {
                _ if self.by_kernel => {
                    "Of what is mapped already, the kernel reports no touch: \
                     `record --mapped -- CMD` samples them"
                }
                Some(_) => "`--maps` counts each mapping as one read of what it maps",
                None => {
                    "`record --mapped` records touches of mapped files; \
                     --maps counts each mapping as one read of what it maps"
                }
            });
        }
        if self.lost_bytes > 0 {
            remedies.push("On a less busy machine, or as root, the recorder loses less");
        }
        if !self.by_kernel && self.unseen_bytes.is_some_and(|unseen| unseen > 0) {
            remedies
                .push("`strace -f -y -ttt -o LOG CMD` sees static programs: `hither import LOG`");
        }
        if self.io_uring_processes > 0 {
            remedies.push("Many programs can be told to read without io_uring");
        }
        if self.left_running > 0 {
            remedies.push("A server is recorded until its first process ends: keep that running");
        }
        let remedies = remedies.join(". ");
        Some(format!(
            "No verdict: half or more of this program's data may not have been seen. {remedies}."
        ))
    }

    /// A doubt about the verdict, if much was not seen.
    pub(crate) fn doubt(&self) -> Option<String> {
        if let Some(cut) = self.cut_words() {
            return Some(format!("the recording is {cut}"));
        }
        if self.left_running > 0 {
            return Some(format!(
                "{} went on, unrecorded, when the program had ended",
                counted(self.left_running, "process")
            ));
        }
        if self.io_uring_processes > 0 {
            return Some(format!(
                "{} may have read by io_uring, which is not recorded",
                counted(self.io_uring_processes, "process")
            ));
        }
        if self.unseen_bytes.is_none() && self.cut.is_none() {
            let less = "the kernel counted less than was recorded";
            return Some(less.to_owned());
        }
        if self.direct_share() >= DOUBT_MIN_SHARE {
            return Some(format!(
                "{} of what the program read bypassed the page cache (O_DIRECT)",
                percent(self.direct_share())
            ));
        }
        if let Some(touches) = self.touches
            && touches.first_only_files > 0
            && self.mapped_bytes as f64 > DOUBT_MIN_SHARE * self.recorded_bytes as f64
        {
            return Some(format!(
                "of {} only the first touches by each process were recorded",
                counted(touches.first_only_files, "mapped file")
            ));
        }
        (1.0 - self.share >= DOUBT_MIN_SHARE).then(|| {
            format!(
                "perhaps only {} of what the program read was recorded",
                percent(self.share)
            )
        })
    }
}

/// What share `lost` is of all, beside what was recorded.
pub(crate) fn share(lost: u64, recorded: u64) -> f64 {
    lost as f64 / lost.saturating_add(recorded).max(1) as f64
}

/// The share of the accesses that was lost, beside so many recorded ones, or of the bytes that they
/// moved: the larger one.
pub(crate) fn lost_share(losses: &Losses, accesses: u64, moved: u64) -> f64 {
    let of_accesses = share(losses.dropped_events, accesses);
    of_accesses.max(share(losses.dropped_bytes, moved))
}

/// The accesses that a recording lost, and why, as part of a sentence. `None` if there are none.
pub fn lost(losses: &Losses) -> Option<String> {
    let Losses {
        dropped_events,
        dropped_bytes,
        dropped_ring_full,
        dropped_no_ring,
        dropped_nested,
        ..
    } = *losses;
    if dropped_events == 0 {
        return None;
    }
    let all = format!(
        "{}, which moved {}",
        counted(dropped_events, "access"),
        bytes(dropped_bytes)
    );
    let causes = [
        (
            dropped_ring_full,
            "the recorder got too little CPU time to take them in",
        ),
        (
            dropped_no_ring,
            "there was no buffer or no memory for their threads",
        ),
        (
            dropped_nested,
            "signal handlers made them within the recorder",
        ),
    ];
    let causes: Vec<(u64, &str)> = causes.into_iter().filter(|of| of.0 > 0).collect();
    Some(match causes[..] {
        [] => all,
        [(number, cause)] if number == dropped_events => format!("{all}: {cause}"),
        _ => {
            let part = |(number, cause): &(u64, &str)| format!("{} since {cause}", count(*number));
            let parts: Vec<String> = causes.iter().map(part).collect();
            format!("{all}: {}", parts.join(", "))
        }
    })
}

/// How touches of so many files were recorded.
fn sampling(touches: Touches, files: u64) -> String {
    let first = touches.first_only_files.min(files);
    let interval = format!(
        "sampled at least every {}",
        duration_ns(touches.interval_ns as f64)
    );
    match first {
        0 => interval,
        _ if first == files => "only the first by each process".to_owned(),
        _ => format!("{interval}, of {first} of them only the first by each process"),
    }
}

#[cfg(test)]
mod tests;
