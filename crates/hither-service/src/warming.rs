//! What is asked of a node about files of its mounts: to warm, pin, unpin and evict them. The node
//! lists its source itself, and answers by a JSON line for each step. A client that goes away ends
//! the work.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, stream};
use hither_analysis::format::bytes as readable;
use hither_mount::Consistency;
use hither_node::holds::HoldKind;
use hither_node::source::{Entry, FileVersion, Kind, SourceError, SourcePath};
use hither_node::store::disk::tier::DiskTier;
use hither_node::volume::{Place, Volume};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::Sender;

use crate::served::Served;

/// Directories that are listed at the same time.
const LISTINGS_MAX: usize = 16;

/// How often the client hears how far the work is.
const INTERVAL: Duration = Duration::from_millis(200);

/// Errors of single files that are told; further ones are only counted.
const ERRORS_MAX: usize = 10;

/// Of the disk's limit, what is filled, in sixteenths: the rest is for what else is written.
const DISK_SIXTEENTHS: u64 = 15;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Bring files into the cache.
    Warm,
    /// Bring files into memory and onto the disk, and keep them there.
    Pin,
    /// Keep them no longer.
    Unpin,
    /// Drop files from the cache.
    Evict,
}

/// A line of an answer.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// Files are looked for: so many were found.
    Listed(u64),
    /// What will be done. Comes before the work begins.
    Plan(Report),
    /// So many bytes are there.
    Done(u64),
    /// Nothing is done, and why.
    Refused(String),
    /// What was done: the last line.
    End(Report),
}

/// What was done, or will be.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Files that were found.
    pub files: u64,
    /// Their length in all.
    pub bytes: u64,
    /// Of these, what was in the cache already.
    pub cached_bytes: u64,
    /// What was brought there.
    pub loaded_bytes: u64,
    /// Files that do not fit.
    pub left_out_files: u64,
    /// Their length in all.
    pub left_out_bytes: u64,
    /// Files that changed too recently to be kept.
    pub unsettled_files: u64,
    /// Files that were pinned, are no longer, or that stay since they are.
    pub pinned_files: u64,
    /// The length in all of those that memory holds, or held.
    pub pinned_memory_bytes: u64,
    /// The length in all of those that the disk holds, or held.
    pub pinned_disk_bytes: u64,
    /// What was dropped from memory.
    pub evicted_memory_bytes: u64,
    /// What was dropped from the disk.
    pub evicted_disk_bytes: u64,
    /// Files that failed.
    pub failed_files: u64,
    /// Why, of the first of them.
    pub errors: Vec<String>,
}

impl Report {
    fn fail(&mut self, error: String) {
        self.failed_files += 1;
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(error);
        }
    }

    /// Counts a file of `bytes` that is pinned at `place`, or was.
    fn count_pin(&mut self, bytes: u64, place: Place) {
        self.pinned_files += 1;
        if matches!(place, Place::Memory | Place::Both) {
            self.pinned_memory_bytes += bytes;
        }
        if matches!(place, Place::Disk | Place::Both) {
            self.pinned_disk_bytes += bytes;
        }
    }
}

/// Why no work is done, or no further.
enum End {
    /// Something is wrong with what is asked for.
    Refused(String),
    /// The client has gone away.
    Gone,
}

/// Does the work, and sends a line for each step.
pub(crate) async fn tell(
    served: Arc<Served>,
    work: Work,
    jobs: usize,
    paths: Vec<PathBuf>,
    sender: Sender<String>,
) {
    let client = Client(sender);
    let result = tokio::select! {
        () = client.0.closed() => return,
        result = run(&served, work, jobs, &paths, &client) => result,
    };
    let _ = match result {
        Ok(report) => client.send(&Line::End(report)).await,
        Err(End::Refused(reason)) => client.send(&Line::Refused(reason)).await,
        Err(End::Gone) => Ok(()),
    };
}

/// Who asked.
struct Client(Sender<String>);

impl Client {
    async fn send(&self, line: &Line) -> Result<(), End> {
        // It fails on a map whose keys are no texts.
        let line = serde_json::to_string(line).expect("a document");
        self.0.send(line).await.map_err(|_| End::Gone)
    }
}

async fn run(
    served: &Served,
    work: Work,
    jobs: usize,
    paths: &[PathBuf],
    client: &Client,
) -> Result<Report, End> {
    let targets = targets(served, paths).map_err(End::Refused)?;
    match work {
        Work::Warm => warm(served, &targets, jobs, client).await,
        Work::Pin => pin(served, &targets, jobs, client).await,
        Work::Unpin => Ok(unpin(&targets)),
        Work::Evict => evict(&targets, client).await,
    }
}

/// A path of a volume.
struct Target {
    volume: Arc<Volume>,
    is_immutable: bool,
    path: SourcePath,
}

impl Target {
    /// Another path of the same volume.
    fn with_path(&self, path: SourcePath) -> Target {
        Target {
            volume: Arc::clone(&self.volume),
            is_immutable: self.is_immutable,
            path,
        }
    }
}

/// Where the paths lie in the volumes. One that lies below another one is left out.
fn targets(served: &Served, paths: &[PathBuf]) -> Result<Vec<Target>, String> {
    // A directory comes before all that is in it.
    let mut targets: Vec<Target> = Vec::new();
    for path in paths.iter().collect::<BTreeSet<_>>() {
        let target = target(served, path)
            .ok_or_else(|| format!("{} is in no mount of this node", path.display()))?;
        let is_inside = |other: &Target| {
            Arc::ptr_eq(&other.volume, &target.volume) && target.path.is_at_or_below(&other.path)
        };
        if !targets.iter().any(is_inside) {
            targets.push(target);
        }
    }
    Ok(targets)
}

fn target(served: &Served, path: &Path) -> Option<Target> {
    let (number, path) = served.mounted_at(path)?;
    let volume = &served.volumes[number];
    Some(Target {
        volume: Arc::clone(&volume.volume),
        is_immutable: volume.consistency == Consistency::Immutable,
        path,
    })
}

/// A file that was found.
struct Found {
    volume: Arc<Volume>,
    file: FileVersion,
    is_settled: bool,
}

/// Calls `on_file` with each file at or below the targets. Links are not followed. Directories that
/// cannot be listed are errors of the report.
async fn find(
    targets: &[Target],
    client: &Client,
    report: &mut Report,
    mut on_file: impl FnMut(&mut Report, Found),
) -> Result<(), End> {
    let mut directories = Vec::new();
    for target in targets {
        let path = &target.path;
        let entry = if path.is_root() {
            None
        } else {
            match target.volume.source().stat(path).await {
                Ok(entry) => Some(entry),
                Err(error) => return Err(End::Refused(error.to_string())),
            }
        };
        match entry {
            Some(entry) if entry.kind != Kind::Directory => match target.found(path, &entry) {
                Some(file) => on_file(report, file),
                None => return Err(End::Refused(format!("{path} is no file or directory"))),
            },
            _ => directories.push(target.with_path(path.clone())),
        }
    }
    let mut told = Instant::now();
    let mut listings = FuturesUnordered::new();
    loop {
        while listings.len() < LISTINGS_MAX
            && let Some(directory) = directories.pop()
        {
            listings.push(list(directory));
        }
        let Some((directory, result)) = listings.next().await else {
            return Ok(());
        };
        let entries = match result {
            Ok(entries) => entries,
            Err(error) => {
                report.fail(error.to_string());
                continue;
            }
        };
        for (path, entry) in entries {
            if entry.kind == Kind::Directory {
                directories.push(directory.with_path(path));
            } else if let Some(file) = directory.found(&path, &entry) {
                on_file(report, file);
            }
            if told.elapsed() >= INTERVAL {
                told = Instant::now();
                client.send(&Line::Listed(report.files)).await?;
            }
        }
    }
}

impl Target {
    /// What is at `path` of the volume, if it is a file.
    fn found(&self, path: &SourcePath, entry: &Entry) -> Option<Found> {
        let (file, is_settled) = entry.file(path)?;
        Some(Found {
            volume: Arc::clone(&self.volume),
            file,
            is_settled: is_settled || self.is_immutable,
        })
    }
}

/// All that is in a directory.
async fn list(directory: Target) -> (Target, Result<Vec<(SourcePath, Entry)>, SourceError>) {
    let (source, path) = (directory.volume.source(), &directory.path);
    let mut entries = Vec::new();
    let mut from = None;
    loop {
        match source.list(path, from).await {
            Ok(page) => {
                let named = page.entries.into_iter();
                entries.extend(named.filter_map(|(name, entry)| Some((path.join(&name)?, entry))));
                from = page.next;
                if from.is_none() {
                    return (directory, Ok(entries));
                }
            }
            Err(error) => return (directory, Err(error)),
        }
    }
}

/// A file that is brought into the cache, and what holds it meanwhile.
struct Task<H> {
    found: Found,
    place: Place,
    cached_bytes: u64,
    hold: H,
}

/// Counts a file that was found. Whether it can be kept.
fn count(report: &mut Report, found: &Found) -> bool {
    report.files += 1;
    report.bytes += found.file.bytes;
    if !found.volume.can_number(&found.file) {
        report.fail(format!("{} is too long", found.file.path));
        return false;
    }
    if !found.is_settled {
        report.unsettled_files += 1;
    }
    found.is_settled
}

async fn warm(
    served: &Served,
    targets: &[Target],
    jobs: usize,
    client: &Client,
) -> Result<Report, End> {
    let mut report = Report::default();
    let mut tasks = Vec::new();
    let disk = served.node.disk();
    let mut disk_room = disk.map_or(0, |disk| disk.usage().limit_bytes / 16 * DISK_SIXTEENTHS);
    find(targets, client, &mut report, |report, found| {
        if !count(report, &found) {
            return;
        }
        let (volume, file) = (&found.volume, &found.file);
        let cached = volume.cached_bytes(file, Place::Either);
        report.cached_bytes += cached;
        let on_disk = DiskTier::footprint(file.bytes);
        let (place, hold) = if on_disk <= disk_room {
            disk_room -= on_disk;
            (Place::Disk, None)
        } else {
            (Place::Either, volume.hold(file, HoldKind::Warmed))
        };
        if place == Place::Disk || hold.is_some() || cached == file.bytes {
            tasks.push(Task {
                found,
                place,
                cached_bytes: cached,
                hold,
            });
        } else {
            report.left_out_files += 1;
            report.left_out_bytes += file.bytes - cached;
        }
    })
    .await?;
    client.send(&Line::Plan(report.clone())).await?;
    let ended = load(tasks, jobs, &mut report, client).await?;
    // Only now may something else take the place of what was loaded first.
    drop(ended);
    Ok(report)
}

/// Does the tasks, `jobs` at the same time. Returns those that went well.
async fn load<H>(
    tasks: Vec<Task<H>>,
    jobs: usize,
    report: &mut Report,
    client: &Client,
) -> Result<Vec<Task<H>>, End> {
    let total: u64 = tasks.iter().map(|task| task.found.file.bytes).sum();
    let cached_before: u64 = tasks.iter().map(|task| task.cached_bytes).sum();
    let done = Arc::new(AtomicU64::new(report.bytes - total));
    let mut results = stream::iter(tasks)
        .map(|task| {
            let done = Arc::clone(&done);
            async move {
                let (volume, file) = (&task.found.volume, &task.found.file);
                let result = volume.warm(file, task.place, &done).await;
                (task, result)
            }
        })
        .buffer_unordered(jobs);
    let mut ticks = tokio::time::interval(INTERVAL);
    let mut ended = Vec::new();
    loop {
        tokio::select! {
            next = results.next() => match next {
                None => break,
                Some((task, Ok(0))) => ended.push(task),
                Some((task, Ok(lost))) => report.fail(format!(
                    "{}: {} could not be kept: memory is short, or the disk is behind or fails",
                    task.found.file.path,
                    readable(lost),
                )),
                Some((_, Err(error))) => report.fail(error.to_string()),
            },
            _ = ticks.tick() => client.send(&Line::Done(done.load(Ordering::Relaxed))).await?,
        }
    }
    drop(results);
    let loaded = done.load(Ordering::Relaxed) - (report.bytes - total);
    report.loaded_bytes = loaded.saturating_sub(cached_before);
    Ok(ended)
}

async fn pin(
    served: &Served,
    targets: &[Target],
    jobs: usize,
    client: &Client,
) -> Result<Report, End> {
    let node = &served.node;
    let mut report = Report::default();
    let mut files = Vec::new();
    let (mut in_memory, mut on_disk) = (0, 0);
    find(targets, client, &mut report, |report, found| {
        if !count(report, &found) {
            return;
        }
        let (volume, file) = (&found.volume, &found.file);
        volume.unpin_unless(&file.path, Some(file));
        let cached = volume.cached_bytes(file, Place::Either);
        report.cached_bytes += cached;
        if let Some(place) = volume.pinned_place(file) {
            report.count_pin(file.bytes, place);
            return;
        }
        in_memory += node.store().footprint(file.bytes);
        on_disk += DiskTier::footprint(file.bytes);
        if in_memory <= node.pinned_bytes_max() || on_disk <= node.pinned_disk_bytes_max() {
            files.push((found, cached));
        }
    })
    .await?;
    let fits_disk = on_disk <= node.room_to_pin_on_disk();
    let refused = || {
        let room = readable(node.room_to_hold(HoldKind::Pinned));
        let (asked, disk) = match node.disk() {
            Some(_) => {
                let room = readable(node.room_to_pin_on_disk());
                (on_disk, format!(" and {room} on the disk"))
            }
            None => (in_memory, String::new()),
        };
        let asked = readable(asked);
        let reason = format!("{asked} more were to be pinned: there is room for {room} in memory");
        End::Refused(format!("{reason}{disk}"))
    };
    if !fits_disk && in_memory > node.room_to_hold(HoldKind::Pinned) {
        return Err(refused());
    }
    let mut tasks = Vec::new();
    for (found, cached_bytes) in files {
        let pin = found.volume.make_pin(&found.file, fits_disk);
        // Another one may have taken the room meanwhile.
        let hold = pin.ok_or_else(refused)?;
        tasks.push(Task {
            place: hold.place(),
            found,
            cached_bytes,
            hold,
        });
    }
    client.send(&Line::Plan(report.clone())).await?;
    for task in load(tasks, jobs, &mut report, client).await? {
        let Found { volume, file, .. } = &task.found;
        report.count_pin(file.bytes, task.place);
        volume.pin(file, task.hold);
    }
    Ok(report)
}

fn unpin(targets: &[Target]) -> Report {
    let mut report = Report::default();
    for target in targets {
        for pin in target.volume.unpin(&target.path) {
            report.bytes += pin.bytes();
            report.count_pin(pin.bytes(), pin.place());
        }
    }
    report
}

async fn evict(targets: &[Target], client: &Client) -> Result<Report, End> {
    let mut report = Report::default();
    let mut files = Vec::new();
    find(targets, client, &mut report, |report, found| {
        report.files += 1;
        report.bytes += found.file.bytes;
        if found.volume.pinned_place(&found.file).is_some() {
            report.pinned_files += 1;
        } else if found.volume.can_number(&found.file) {
            files.push(found);
        }
    })
    .await?;
    let mut told = Instant::now();
    for found in files {
        let (memory_bytes, disk_bytes) = found.volume.evict(&found.file).await;
        report.evicted_memory_bytes += memory_bytes;
        report.evicted_disk_bytes += disk_bytes;
        if told.elapsed() >= INTERVAL {
            told = Instant::now();
            client.send(&Line::Listed(report.files)).await?;
        }
    }
    Ok(report)
}
