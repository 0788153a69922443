//! Completes a trace that was cut: by a full disk while the program ran, or because the agent was
//! killed.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hither_trace::schema::{Cut, Losses, Meta, ObjectRow, Seen, SiteRow};
use hither_trace::{Error, Kept, PartialTrace, Result, publish_complete};

use super::sites;
use super::summary::RecordingSummary;
use crate::symbolise::Symboliser;

/// The tables of a trace.
#[derive(Clone, Debug)]
pub(crate) struct TraceTables {
    pub(crate) objects: Vec<ObjectRow>,
    pub(crate) sites: Vec<SiteRow>,
    pub(crate) meta: Meta,
}

impl TraceTables {
    /// Completes a trace with those rows of these tables that its accesses name. `describe` adds to
    /// the metadata what follows from them. A trace of nothing does not replace another one, which
    /// is [`Error::Exists`].
    pub(crate) fn complete_cut(
        mut self,
        partial: &mut PartialTrace,
        describe: impl FnOnce(&Kept, &mut TraceTables),
    ) -> Result<CutRecording> {
        let kept = partial.count()?;
        let destination = partial.destination();
        if kept.accesses == 0 && destination.exists() {
            // No more is lost than the recording.
            return Err(Error::Exists {
                path: destination.to_owned(),
            });
        }
        kept.trim(&mut self.objects, &mut self.sites, &mut self.meta);
        describe(&kept, &mut self);
        partial.complete(&self.objects, &self.sites, &self.meta)?;
        let TraceTables {
            objects,
            sites,
            meta,
        } = self;
        Ok(CutRecording {
            summary: RecordingSummary {
                accesses: kept.accesses,
                bytes_read: kept.bytes_read,
                bytes_written: kept.bytes_written,
                objects: objects.len(),
                sites: sites.len() - 1,
                processes: meta.processes.len(),
                threads: meta.threads.len(),
                out_of_order: 0,
            },
            losses: meta.losses,
            seen: meta.seen.unwrap_or_default(),
            cut: meta.cut,
        })
    }
}

/// What a trace holds that was cut.
#[derive(Clone, Debug)]
pub struct CutRecording {
    /// What is in it.
    pub summary: RecordingSummary,
    /// What is missing, as far as it is known.
    pub losses: Losses,
    /// How much of what the program read is in it, likewise.
    pub seen: Seen,
    /// Where it ends, and why. `None`: nothing is missing after all.
    pub cut: Option<Cut>,
}

/// A trace that was recovered.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// The trace.
    pub trace: PathBuf,
    /// What is in it. `None`: it is complete, and had lacked only its name.
    pub recording: Option<CutRecording>,
}

/// Makes a trace of `.NAME.partial-PID`, which a killed recording has left, and gives it the name
/// NAME. Call sites get the names that their files still have.
pub fn recover(partial: &Path, force: bool) -> Result<Recovered> {
    if let Some(trace) = publish_complete(partial, force)? {
        return Ok(Recovered {
            trace,
            recording: None,
        });
    }
    let (mut partial, objects, mut sites, meta) = PartialTrace::open(partial, force)?;
    let started = SystemTime::UNIX_EPOCH + Duration::from_nanos(meta.started_unix_ns);
    sites::name(&mut sites, &Symboliser::new(started));
    let tables = TraceTables {
        objects,
        sites,
        meta,
    };
    let recording = tables.complete_cut(&mut partial, |kept, tables| {
        let mapped: Vec<u64> = kept
            .objects
            .iter()
            .zip(&tables.objects)
            .filter_map(|(kept, row)| mapped_bytes(&row.path, row.size, kept.mapped.as_ref()?))
            .collect();
        let seen = tables.meta.seen.get_or_insert_default();
        seen.recorded_bytes = kept.bytes_read;
        seen.mapped_files = mapped.len() as u64;
        seen.mapped_bytes = mapped.into_iter().fold(0, u64::saturating_add);
        tables.meta.cut = Some(Cut {
            time_ns: kept.last_ns,
            reason: "the recorder was killed".to_owned(),
            ..Cut::default()
        });
    })?;
    Ok(Recovered {
        trace: partial.destination().to_owned(),
        recording: Some(recording),
    })
}

/// The bytes of a file that a mapping has, as far as the file went when it was first used, or goes
/// now. Shared memory is none.
pub(crate) fn mapped_bytes(path: &[u8], size: u64, range: &Range<u64>) -> Option<u64> {
    if path.starts_with(b"/dev/shm/") {
        return None;
    }
    let now = std::fs::metadata(std::ffi::OsStr::from_bytes(path)).map_or(0, |file| file.len());
    let bytes = range.end.min(size.max(now)).saturating_sub(range.start);
    (bytes > 0).then_some(bytes)
}
