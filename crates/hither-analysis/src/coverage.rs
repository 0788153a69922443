//! How much of what a program read is in its trace, and whether that is enough for a verdict.
//!
//! The kernel counts what each process reads (`rchar` in `/proc/PID/io`). What neither the records
//! nor the counts of the recorder account for was read by calls that it did not see. What a program
//! touches in mapped files, and how often, is known only of recordings with `--mapped`.

use hither_trace::Trace;
use hither_trace::schema::{Losses, Seen, Touches};
use serde::Serialize;

use crate::format::{bytes, counted, duration_ns, percent};

/// What a process reads at its start, before the recorder sees it: the headers of its libraries,
/// 832 bytes each.
const START_BYTES: u64 = 32 << 10;

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
    /// By calls that the recorder did not see, as far as the kernel counted. `None`: it did not.
    pub unseen_bytes: Option<u64>,
    /// Moved by accesses that were lost. Those of them that were reads are in `unseen_bytes` too.
    pub lost_bytes: u64,
    /// In mapped ranges of files.
    pub mapped_bytes: u64,
    /// The files of `mapped_bytes`.
    pub mapped_files: u64,
    /// Whether each mapping counts as a read of what it maps (`--maps`).
    pub maps_are_reads: bool,
    /// How touches of mapped files were recorded (`record --mapped`). `None`: they were not.
    pub touches: Option<Touches>,
    /// Processes that went on, unrecorded, when the program had ended.
    pub left_running: u64,
    /// The recorded share of what was read by calls and, taken once, of what was mapped: from 0 to
    /// 1.
    pub share: f64,
    /// The programs that were not recorded, and why.
    #[serde(skip)]
    programs: Vec<String>,
}

impl Coverage {
    /// `None` if the trace does not say, since it was not recorded by hither.
    pub fn of(trace: &Trace) -> Option<Coverage> {
        let (meta, maps) = (trace.meta(), trace.options().include_maps);
        let processes = meta.processes.len() as u64;
        Some(Coverage::of_recording(
            &meta.seen?,
            &meta.losses,
            processes,
            maps,
        ))
    }

    /// Of a recording of so many processes. `maps` says that each mapping counts as a read.
    pub fn of_recording(seen: &Seen, losses: &Losses, processes: u64, maps: bool) -> Coverage {
        let programs = losses.not_recorded.iter();
        let unseen = seen.unseen_bytes.unwrap_or(0);
        let starts = START_BYTES.saturating_mul(processes);
        let unseen = match losses.not_recorded.is_empty() && unseen <= starts {
            true => 0,
            false => unseen,
        };
        let mapped = match maps || seen.touches.is_some() {
            true => 0,
            false => seen.mapped_bytes,
        };
        let all = seen.recorded_bytes.saturating_add(unseen);
        let all = all.saturating_add(mapped);
        Coverage {
            recorded_bytes: seen.recorded_bytes,
            unseen_bytes: seen.unseen_bytes.map(|_| unseen),
            lost_bytes: losses.dropped_bytes,
            mapped_bytes: seen.mapped_bytes,
            mapped_files: seen.mapped_files,
            maps_are_reads: maps,
            touches: seen.touches,
            left_running: seen.left_running,
            share: match all {
                0 => 1.0,
                all => seen.recorded_bytes as f64 / all as f64,
            },
            programs: programs
                .map(|program| format!("{}: {}", program.path, program.reason))
                .collect(),
        }
    }

    /// What was seen and what was not, in words that follow "seen:".
    pub fn words(&self) -> String {
        let mut recorded = bytes(self.recorded_bytes) + " that the program read of files";
        if self.maps_are_reads && self.mapped_bytes > 0 {
            recorded += &format!(
                ", and {} in {}, each mapping taken for one read",
                bytes(self.mapped_bytes),
                counted(self.mapped_files, "mapped file")
            );
        }
        if let Some(touches) = self.touches.filter(|_| self.mapped_bytes > 0) {
            recorded += &format!(
                ", and touches of {} in {}, {}",
                bytes(self.mapped_bytes),
                counted(self.mapped_files, "mapped file"),
                self.sampling(touches)
            );
        }
        let hidden = self.hidden();
        if !hidden.is_empty() {
            // What is touched in mappings, and by processes that go on, has no known bound.
            let is_bounded = self.mapped_is_seen() && self.left_running == 0;
            let share = match is_bounded && self.unseen_bytes.is_some() {
                true => format!(", {} or more", percent(self.share)),
                false => String::new(),
            };
            return format!("{recorded}{share}; not seen: {}", hidden.join(", "));
        }
        match self.unseen_bytes {
            Some(_) if self.recorded_bytes + self.mapped_bytes == 0 => {
                "all; nothing was read of files".to_owned()
            }
            Some(_) => format!("all {recorded}"),
            None => format!("{recorded}; the kernel does not say how much it read in all"),
        }
    }

    /// The words as a sentence.
    pub fn sentence(&self) -> String {
        format!("Seen: {}.", self.words())
    }

    /// Whether there is no mapped byte whose touches are not in the trace.
    fn mapped_is_seen(&self) -> bool {
        self.mapped_bytes == 0 || self.maps_are_reads || self.touches.is_some()
    }

    /// How touches were recorded.
    fn sampling(&self, touches: Touches) -> String {
        let first = touches.first_only_files.min(self.mapped_files);
        let interval = format!(
            "sampled at least every {}",
            duration_ns(touches.interval_ns as f64)
        );
        match first {
            0 => interval,
            _ if first == self.mapped_files => "only the first by each process".to_owned(),
            _ => format!("{interval}, of {first} of them only the first by each process"),
        }
    }

    /// What was not seen, in parts of a sentence. What is too little to matter is left out.
    fn hidden(&self) -> Vec<String> {
        let matters =
            |part: u64| part as f64 > MENTIONED_MIN_SHARE * self.recorded_bytes as f64 && part > 0;
        let mut hidden = Vec::new();
        if let Some(unseen) = self.unseen_bytes.filter(|&unseen| matters(unseen)) {
            let unseen = bytes(unseen);
            let mut part = format!("{unseen} read by calls that the recorder did not see");
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
        if matters(self.mapped_bytes) && !self.mapped_is_seen() {
            hidden.push(format!(
                "what was touched of {} in {}",
                bytes(self.mapped_bytes),
                counted(self.mapped_files, "mapped file")
            ));
        }
        if matters(self.lost_bytes) {
            let lost = bytes(self.lost_bytes);
            hidden.push(format!("lost accesses, which moved {lost}"));
        }
        if self.left_running > 0 {
            hidden.push(format!(
                "{} that went on when the program had ended",
                counted(self.left_running, "process")
            ));
        }
        hidden
    }

    /// That there is no verdict, and what to do, if most may not have been seen.
    pub(crate) fn no_verdict(&self) -> Option<String> {
        let nothing_known = self.recorded_bytes == 0 && self.left_running > 0;
        if 1.0 - self.share < BLIND_MIN_SHARE && !nothing_known {
            return None;
        }
        let mut remedies = Vec::new();
        if !self.mapped_is_seen() {
            remedies.push(
                "`record --mapped` records touches of mapped files; \
                 --maps counts each mapping as one read of what it maps",
            );
        }
        if self.lost_bytes > 0 {
            remedies.push("A larger --ring-bytes loses less");
        }
        if self.unseen_bytes.is_some_and(|unseen| unseen > 0) {
            remedies
                .push("`strace -f -y -ttt -o LOG CMD` sees static programs: `hither import LOG`");
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
        if self.left_running > 0 {
            return Some(format!(
                "{} went on, unrecorded, when the program had ended",
                counted(self.left_running, "process")
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

#[cfg(test)]
mod tests {
    use hither_trace::schema::NotRecorded;

    use super::*;

    /// Of a recording of one process.
    fn coverage(recorded: u64, unseen: u64, mapped: u64, programs: &[&str]) -> Coverage {
        let seen = Seen {
            recorded_bytes: recorded,
            unseen_bytes: Some(unseen),
            mapped_bytes: mapped,
            mapped_files: u64::from(mapped > 0),
            ..Seen::default()
        };
        let not_recorded = programs.iter().map(|path| NotRecorded {
            path: (*path).to_owned(),
            reason: "statically linked".to_owned(),
            count: 1,
        });
        let losses = Losses {
            not_recorded: not_recorded.collect(),
            ..Losses::default()
        };
        Coverage::of_recording(&seen, &losses, 1, false)
    }

    #[test]
    fn what_was_not_seen_is_said_and_little_is_not() {
        let mib = 1 << 20;
        let all = coverage(200 * mib, mib, mib, &[]);
        let said = "Seen: all 200.00 MiB that the program read of files.";
        assert_eq!(all.sentence(), said);
        assert_eq!((all.no_verdict(), all.doubt()), (None, None));
        let some = coverage(100 * mib, 0, 20 * mib, &[]);
        assert_eq!(
            some.words(),
            "100.00 MiB that the program read of files; not seen: what was touched of 20.00 MiB \
             in 1 mapped file"
        );
        assert!(some.doubt().is_some() && some.no_verdict().is_none());
        let little = coverage(mib, 450 * mib, 0, &["/bin/busybox"]);
        assert_eq!(
            little.words(),
            "1.00 MiB that the program read of files, 0.2 % or more; not seen: 450.00 MiB read \
             by calls that the recorder did not see (/bin/busybox: statically linked)"
        );
        let told = little.no_verdict().expect("no verdict");
        assert!(
            told.contains("strace") && !told.contains("--maps"),
            "{told}"
        );
    }

    #[test]
    fn starts_of_programs_are_left_out_unless_one_was_not_recorded() {
        assert_eq!(
            coverage(0, 7000, 0, &[]).words(),
            "all; nothing was read of files"
        );
        let words = coverage(0, 7000, 0, &["/bin/busybox"]).words();
        assert!(words.contains("not seen: 6.84 KiB"), "{words}");
    }

    #[test]
    fn lost_writes_are_not_unseen_reads() {
        let seen = Seen {
            recorded_bytes: 1 << 20,
            unseen_bytes: Some(0),
            ..Seen::default()
        };
        let losses = Losses {
            dropped_bytes: 8 << 30,
            ..Losses::default()
        };
        let coverage = Coverage::of_recording(&seen, &losses, 1, false);
        assert_eq!(coverage.share, 1.0);
        assert_eq!(coverage.no_verdict(), None);
        assert!(
            coverage
                .words()
                .ends_with("lost accesses, which moved 8.00 GiB")
        );
    }

    #[test]
    fn mappings_that_count_as_reads_are_seen() {
        let seen = Seen {
            unseen_bytes: Some(0),
            mapped_bytes: 64 << 20,
            mapped_files: 1,
            ..Seen::default()
        };
        let coverage = Coverage::of_recording(&seen, &Losses::default(), 1, true);
        assert_eq!(
            coverage.words(),
            "all 0 B that the program read of files, and 64.00 MiB in 1 mapped file, each mapping \
             taken for one read"
        );
        assert_eq!(coverage.no_verdict(), None);
    }

    #[test]
    fn touches_of_mapped_files_are_seen_and_said_to_be_sampled() {
        let mut seen = Seen {
            recorded_bytes: 1 << 20,
            unseen_bytes: Some(0),
            mapped_bytes: 64 << 20,
            mapped_files: 2,
            touches: Some(Touches {
                interval_ns: 100_000_000,
                ..Touches::default()
            }),
            ..Seen::default()
        };
        let of = |seen: &Seen| Coverage::of_recording(seen, &Losses::default(), 1, false);
        assert_eq!(
            of(&seen).words(),
            "all 1.00 MiB that the program read of files, and touches of 64.00 MiB in 2 mapped \
             files, sampled at least every 100 ms"
        );
        assert_eq!((of(&seen).no_verdict(), of(&seen).doubt()), (None, None));
        let first = |files| Touches {
            first_only_files: files,
            ..seen.touches.expect("recorded")
        };
        (seen.touches, seen.mapped_files) = (Some(first(1)), 2);
        let words = of(&seen).words();
        assert!(
            words.ends_with("of 1 of them only the first by each process"),
            "{words}"
        );
        seen.touches = seen.touches.map(|touches| Touches {
            first_only_files: 2,
            ..touches
        });
        let words = of(&seen).words();
        assert!(
            words.ends_with("mapped files, only the first by each process"),
            "{words}"
        );
        assert!(of(&seen).doubt().is_some());
        seen.touches = None;
        let told = of(&seen).no_verdict().expect("no verdict");
        assert!(told.contains("`record --mapped`"), "{told}");
    }

    #[test]
    fn a_daemon_that_goes_on_is_said_and_a_doubt() {
        let mut daemon = coverage(0, 0, 0, &[]);
        daemon.left_running = 1;
        let words = daemon.words();
        let ends = "files; not seen: 1 process that went on when the program had ended";
        assert!(words.ends_with(ends), "{words}");
        assert!(daemon.no_verdict().is_some() && daemon.doubt().is_some());
        daemon.recorded_bytes = 1 << 30;
        assert!(daemon.no_verdict().is_none() && daemon.doubt().is_some());
    }
}
