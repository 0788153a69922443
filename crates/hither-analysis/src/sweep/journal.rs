//! The journal of a sweep: a file beside its output with the counts so far.
//!
//! Each entry is a line that begins with a checksum. A last line that was cut short, by a killed
//! process or a crash, is detected and dropped. The first line has the hash of the plan, so that a
//! journal is not used for another sweep. The file is locked (`flock`) while a sweep runs; the lock
//! ends with the process.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hither_sim::ObjectOutcome;
use hither_sim::placement::Totals;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::plan::hex;
use crate::placement::{CaseResult, CaseSummary, PlacementCase, RunSettings};
use crate::result_rows::{ObjectCells, PlacementColumns, TraceInfo};
use crate::{Error, Result};

/// The first line of a journal.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    journal: u32,
    plan: String,
}

/// The version of the format.
const JOURNAL_VERSION: u32 = 4;

/// An event of a sweep.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum JournalEntry {
    /// A trace was loaded.
    Trace {
        /// The index of the trace in the plan.
        trace: usize,
        /// The columns of result rows that describe it.
        source: TraceInfo,
        /// The sizes and times of its files.
        stamp: String,
    },
    /// Caches of a trace were simulated.
    Done {
        /// The index of the trace in the plan.
        trace: usize,
        /// The counts of each cache.
        counts: Vec<ItemCounts>,
    },
}

/// The result of one cache or placement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ItemCounts {
    /// Its index among the items of the trace.
    pub(super) cache: usize,
    pub(super) hits: u64,
    pub(super) misses: u64,
    /// Whether it is an estimate that was refused.
    pub(super) refused: bool,
    /// The bits of the standard error, if there is one: JSON has no exact fractions.
    pub(super) error_bits: Option<u64>,
    /// The further counts of a cache of objects.
    pub(super) objects: Option<ObjectCells>,
    /// The further counts of a placement.
    pub(super) placed: Option<PlacementCounts>,
}

/// The counts of a placement after its warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlacementCounts {
    pub(super) totals: Totals,
    pub(super) modelled_time_ns: u64,
    pub(super) imbalance_bits: u64,
}

impl ItemCounts {
    /// The counts of a cache.
    pub(super) fn cache((&cache, outcome): (&usize, &hither_sim::CacheOutcome)) -> ItemCounts {
        let error = outcome
            .estimate
            .and_then(|estimate| estimate.standard_error);
        ItemCounts {
            cache,
            hits: outcome.hits,
            misses: outcome.misses,
            refused: outcome.is_refused(),
            error_bits: error.map(f64::to_bits),
            objects: None,
            placed: None,
        }
    }

    /// The counts of a cache of objects.
    pub(super) fn objects((&cache, outcome): (&usize, &ObjectOutcome)) -> ItemCounts {
        let error = outcome.errors().map(|[of_objects, _]| of_objects);
        ItemCounts {
            cache,
            hits: outcome.hits,
            misses: outcome.misses,
            refused: error.is_some_and(|error| error.refused.is_some()),
            error_bits: error
                .and_then(|error| error.standard_error)
                .map(f64::to_bits),
            objects: Some(ObjectCells::of(outcome)),
            placed: None,
        }
    }

    /// The counts of a placement.
    pub(super) fn placed(
        (&cache, CaseResult { outcome, .. }): (&usize, &CaseResult),
    ) -> ItemCounts {
        let totals = outcome.totals;
        ItemCounts {
            cache,
            hits: totals.local + totals.remote,
            misses: totals.misses,
            refused: false,
            error_bits: None,
            objects: None,
            placed: Some(PlacementCounts {
                totals,
                modelled_time_ns: outcome.modelled_time_ns,
                imbalance_bits: outcome.node_imbalance().to_bits(),
            }),
        }
    }
}

impl PlacementCounts {
    /// The placement columns of a result row.
    pub(super) fn columns<'a>(
        &'a self,
        case: &'a PlacementCase,
        running: &'a RunSettings,
    ) -> PlacementColumns<'a> {
        PlacementColumns {
            running,
            result: CaseSummary {
                case,
                totals: &self.totals,
                modelled_time_ns: self.modelled_time_ns,
            },
            node_imbalance: f64::from_bits(self.imbalance_bits),
        }
    }
}

/// An open, locked journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens the journal of the sweep with that plan and reads its entries.
    pub fn open(path: PathBuf, plan: &str) -> Result<(Journal, Vec<JournalEntry>)> {
        let file = locked(&path)?;
        let mut journal = Journal { path, file };
        let mut text = Vec::new();
        journal
            .file
            .read_to_end(&mut text)
            .map_err(Error::of_file(&journal.path))?;
        let Some((entries, kept)) = entries(&journal.path, &text, plan)? else {
            return journal.begin(plan);
        };
        journal
            .file
            .set_len(kept)
            .map_err(Error::of_file(&journal.path))?;
        journal
            .file
            .seek(SeekFrom::End(0))
            .map_err(Error::of_file(&journal.path))?;
        Ok((journal, entries))
    }

    /// The entries so far of a journal of the sweep with that plan, which may be at work.
    pub(super) fn read(path: &Path, plan: &str) -> Result<Vec<JournalEntry>> {
        let text = fs::read(path).map_err(Error::of_file(path))?;
        let entries = entries(path, &text, plan)?;
        Ok(entries.map_or_else(Vec::new, |(entries, _)| entries))
    }

    /// Empties the journal and writes a new header.
    fn begin(mut self, plan: &str) -> Result<(Journal, Vec<JournalEntry>)> {
        let header = Header {
            journal: JOURNAL_VERSION,
            plan: plan.to_owned(),
        };
        let emptied = self.file.set_len(0).and_then(|()| self.file.rewind());
        let begun = emptied
            .map_err(Error::of_file(&self.path))
            .and_then(|()| self.write(&header));
        match begun {
            Ok(()) => Ok((self, Vec::new())),
            Err(error) => {
                // An empty journal beside an output looks like that of a sweep which was killed at
                // its very end. The next sweep would then replace the output without --force.
                let _ = self.remove();
                Err(error)
            }
        }
    }

    /// The path of the journal.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends an entry and waits until it is on the disk.
    pub(super) fn append(&mut self, entry: &JournalEntry) -> Result<()> {
        self.write(entry)
    }

    fn write(&mut self, what: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(what)?;
        let line = format!("{} {text}\n", checksum(text.as_bytes()));
        let written = self
            .file
            .write_all(line.as_bytes())
            .and_then(|()| self.file.sync_data());
        written.map_err(Error::of_file(&self.path))
    }

    /// Removes the journal.
    pub(super) fn remove(self) -> Result<()> {
        fs::remove_file(&self.path).map_err(Error::of_file(&self.path))
    }
}

/// Opens and locks the file at `path`.
///
/// The previous owner of the lock may remove the file between opening and locking, so the path is
/// looked up again after locking.
fn locked(path: &Path) -> Result<File> {
    loop {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(Error::of_writing(path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Unusable {
                    path: path.to_owned(),
                    problem: "another sweep with this output is at work".to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(Error::of_file(path)(error)),
        }
        let ours = file.metadata().map_err(Error::of_file(path))?.ino();
        if fs::metadata(path).is_ok_and(|there| there.ino() == ours) {
            return Ok(file);
        }
    }
}

/// The entries in the text of a journal of the sweep with that plan, and the bytes of its whole
/// lines. `None`: nothing of a sweep is in it yet.
fn entries(path: &Path, text: &[u8], plan: &str) -> Result<Option<(Vec<JournalEntry>, u64)>> {
    let unusable = |problem: String| Error::Unusable {
        path: path.to_owned(),
        problem,
    };
    let mut lines = sound_lines(text).map_err(|line| {
        unusable(format!(
            "a damaged journal of a sweep; without the file the sweep begins anew: \
             line {line} is damaged"
        ))
    })?;
    if lines.is_empty() {
        return Ok(None);
    }
    let kept = lines.iter().map(|line| line.len() + CHECKSUM_DIGITS + 2);
    let kept = kept.sum::<usize>() as u64;
    let foreign = |cause: String| {
        unusable(format!(
            "not a journal that this version of hither wrote; without the file the sweep begins \
             anew{cause}"
        ))
    };
    let unread = |error: serde_json::Error| foreign(format!(": {error}"));
    let header: Header = serde_json::from_str(lines.remove(0)).map_err(unread)?;
    if header.journal != JOURNAL_VERSION {
        return Err(foreign(String::new()));
    }
    let entries = lines.iter().map(|line| serde_json::from_str(line));
    let entries: Vec<JournalEntry> = entries.collect::<Result<_, _>>().map_err(unread)?;
    if header.plan == plan {
        return Ok(Some((entries, kept)));
    }
    let done = |entry: &JournalEntry| matches!(entry, JournalEntry::Done { .. });
    if !entries.iter().any(done) {
        return Ok(None);
    }
    Err(unusable(
        "the journal of an unfinished sweep with other traces, policies, sizes or options, or by \
         another version of hither; without the file the sweep begins anew, -o names another \
         output"
            .to_owned(),
    ))
}

/// The length of a checksum in hexadecimal digits.
const CHECKSUM_DIGITS: usize = 16;

/// An upper bound of the length of the first line.
const HEADER_BYTES_MAX: usize = 160;

fn checksum(text: &[u8]) -> String {
    let mut digits = hex(&Sha256::digest(text));
    digits.truncate(CHECKSUM_DIGITS);
    digits
}

/// The lines without their checksums, and without a last line that was cut short.
///
/// Fails with the number of the line, from 1, where a complete line is damaged, or where the first
/// line was cut short but is too long for a header.
fn sound_lines(bytes: &[u8]) -> Result<Vec<&str>, usize> {
    let mut sound = Vec::new();
    for (number, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let cut = !line.ends_with(b"\n") && (number > 0 || line.len() < HEADER_BYTES_MAX);
        match sound_line(line) {
            Some(text) => sound.push(text),
            None if cut => {}
            None => return Err(number + 1),
        }
    }
    Ok(sound)
}

fn sound_line(line: &[u8]) -> Option<&str> {
    let (sum, text) = line
        .strip_suffix(b"\n")?
        .split_at_checked(CHECKSUM_DIGITS)?;
    let text = text.strip_prefix(b" ")?;
    if checksum(text).as_bytes() == sum {
        str::from_utf8(text).ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(trace: usize) -> JournalEntry {
        JournalEntry::Done {
            trace,
            counts: [(0, 5, None), (1, u64::MAX, Some(u64::MAX))]
                .map(|(cache, hits, error_bits)| ItemCounts {
                    cache,
                    hits,
                    misses: 6,
                    refused: false,
                    error_bits,
                    objects: None,
                    placed: error_bits.map(|imbalance_bits| PlacementCounts {
                        totals: Totals {
                            hit_ns: u64::MAX,
                            ..Totals::default()
                        },
                        modelled_time_ns: 7,
                        imbalance_bits,
                    }),
                })
                .to_vec(),
        }
    }

    #[test]
    fn a_journal_cut_anywhere_keeps_its_whole_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv.journal");
        let (mut journal, entries) = Journal::open(path.clone(), "plan").unwrap();
        assert!(entries.is_empty());
        (0..3).for_each(|trace| journal.append(&done(trace)).unwrap());
        drop(journal);
        let whole = fs::read(&path).unwrap();
        let ends: Vec<usize> = (0..whole.len()).filter(|&at| whole[at] == b'\n').collect();
        assert_eq!(ends.len(), 4);
        for length in 0..=whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let (mut journal, entries) = Journal::open(path.clone(), "plan").unwrap();
            let lines = ends.iter().filter(|&&end| end < length).count();
            let expected: Vec<JournalEntry> = (0..lines.saturating_sub(1)).map(done).collect();
            assert_eq!(entries, expected, "cut at {length}");
            journal.append(&done(9)).unwrap();
            drop(journal);
            let (_, entries) = Journal::open(path.clone(), "plan").unwrap();
            assert_eq!(entries.len(), expected.len() + 1);
            assert_eq!(entries.last(), Some(&done(9)));
        }
    }

    #[test]
    fn damage_another_plan_and_a_second_sweep_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv.journal");
        let open = |plan: &str| Journal::open(path.clone(), plan);
        let (mut journal, _) = open("plan").unwrap();
        journal.append(&done(0)).unwrap();
        let busy = open("plan").unwrap_err().to_string();
        assert!(
            busy.ends_with("another sweep with this output is at work"),
            "{busy}"
        );
        drop(journal);
        let other = open("other").unwrap_err().to_string();
        assert!(other.contains("other traces, policies"), "{other}");

        let mut bytes = fs::read(&path).unwrap();
        bytes[20] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let damaged = format!("{:#}", open("plan").unwrap_err());
        assert!(damaged.contains("line 1 is damaged"), "{damaged}");
        fs::remove_file(&path).unwrap();
        let (journal, entries) = open("other").unwrap();
        assert!(entries.is_empty());
        journal.remove().unwrap();
        assert!(!path.exists());
    }
}
