//! Where a trace folder is made: beside its place, under a hidden name, locked by its writer.
//!
//! The hidden sibling is `.NAME.partial-PID`. Its writer holds a lock on `accesses.parquet`, which
//! the kernel releases when the writer ends, however it ends. So a sibling without a lock was left
//! by a writer that was killed; this is true in containers too, where process ids mean nothing.
//!
//! A trace holds command lines and names of files: its folder and files are its owner's alone.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::journal::{self, JOURNAL};
use crate::private_file::PRIVATE_MODE;
use crate::schema::{ACCESSES, FILES};

/// Checks that `folder` has the files of a trace folder and nothing else, so that it may be
/// replaced. [`Error::NotATrace`] says why not; whatever the system refuses is [`Error::Io`], which
/// says nothing of what the folder is.
fn trace_folder(folder: &Path) -> Result<()> {
    let not_a_trace = |problem: String| {
        let path = folder.to_owned();
        Err(Error::NotATrace { path, problem })
    };
    let metadata = fs::symlink_metadata(folder).map_err(Error::io(folder))?;
    if !metadata.is_dir() {
        return not_a_trace("it is not a folder".to_owned());
    }
    let mut found = [false; FILES.len()];
    for entry in fs::read_dir(folder).map_err(Error::io(folder))? {
        let name = entry.map_err(Error::io(folder))?.file_name();
        match FILES.iter().position(|file| name == *file) {
            Some(file) => found[file] = true,
            None => return not_a_trace(format!("it holds {}", name.display())),
        }
    }
    match found.iter().position(|found| !found) {
        Some(file) => not_a_trace(format!("it holds no {}", FILES[file])),
        None => Ok(()),
    }
}

/// The temporary path of a trace folder or exported file until it gets the name `path`, for callers
/// that clean up when they end early. `None` if `path` has no file name.
pub fn partial_path(path: &Path) -> Option<PathBuf> {
    let place = Destination::new(path, false).ok()?;
    Some(place.sibling("partial"))
}

/// The final path of a trace folder, and whether it may be replaced.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) folder: PathBuf,
    parent: PathBuf,
    name: String,
    force: bool,
}

impl Destination {
    pub(crate) fn new(folder: &Path, force: bool) -> Result<Destination> {
        let not_a_name = || Error::NotATrace {
            path: folder.to_owned(),
            problem: "it has no name of its own".to_owned(),
        };
        let name = folder.file_name().ok_or_else(not_a_name)?;
        let parent = match folder.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let name = name.to_string_lossy().into_owned();
        Ok(Destination {
            folder: folder.to_owned(),
            parent,
            name,
            force,
        })
    }

    fn sibling(&self, role: &str) -> PathBuf {
        let process = std::process::id();
        self.parent.join(format!(".{}.{role}-{process}", self.name))
    }

    /// The siblings of a role, of any process, in order of their names.
    fn siblings(&self, role: &str) -> Vec<PathBuf> {
        let prefix = format!(".{}.{role}-", self.name);
        let is_one = |name: &str| {
            let id = name.strip_prefix(&prefix).unwrap_or_default();
            let mut numbers = id.splitn(2, '.');
            let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            numbers.all(|number| !number.is_empty() && is_number(number))
        };
        let entries = fs::read_dir(&self.parent).into_iter().flatten().flatten();
        let mut siblings: Vec<PathBuf> = entries
            .filter(|entry| is_one(&entry.file_name().to_string_lossy()))
            // By the path that the user gave, which has no `./` that they did not write.
            .map(|entry| self.folder.with_file_name(entry.file_name()))
            .collect();
        siblings.sort();
        siblings
    }

    /// Whether a folder exists that will be replaced. An error if it must not be.
    pub(crate) fn check(&self) -> Result<bool> {
        let exists = match fs::symlink_metadata(&self.folder) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(Error::io(&self.folder)(error)),
        };
        if exists && !self.force {
            return Err(Error::Exists {
                path: self.folder.clone(),
            });
        }
        if exists {
            trace_folder(&self.folder)?;
        }
        Ok(exists)
    }

    /// Gives the complete trace in `partial` its name. An old trace is first moved to a hidden
    /// name. A crash between the two renames leaves both traces beside each other; then
    /// [`clear_leftovers`](Self::clear_leftovers) moves the old one back. (NFS and others have no
    /// atomic exchange, so this path is needed anyway.)
    pub(crate) fn publish(&self, partial: &Path) -> Result<()> {
        let old = self.sibling("old");
        let replaced = self.check()?;
        if replaced {
            fs::rename(&self.folder, &old).map_err(Error::io(&self.folder))?;
        }
        if let Err(error) = fs::rename(partial, &self.folder) {
            if replaced {
                // Best effort: the first error is the one to report.
                let _ = fs::rename(&old, &self.folder);
            }
            return Err(Error::io(&self.folder)(error));
        }
        sync_folder(&self.parent)?;
        match fs::remove_dir_all(&old) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io(&old)(error)),
            _ => Ok(()),
        }
    }

    /// Removes what killed writers of this trace have left, and moves back a trace that one of them
    /// was about to replace. What can be recovered stays.
    pub(crate) fn clear_leftovers(&self) {
        for sibling in self.siblings("partial") {
            // Errors are not reported: what cannot be removed is in nobody's way.
            match Leftover::of(&sibling) {
                Leftover::InUse | Leftover::Recoverable => {}
                Leftover::Useless => drop(remove(&sibling)),
            }
        }
        // A file of such a name is not hither's.
        let olds = self.siblings("old").into_iter();
        for old in olds.filter(|old| trace_folder(old).is_ok()) {
            let process = old
                .to_string_lossy()
                .rsplit_once('-')
                .map(|(_, id)| id.to_owned());
            let writer = format!(".{}.partial-{}", self.name, process.unwrap_or_default());
            let writer = self.folder.with_file_name(writer);
            let _ = match fs::symlink_metadata(&self.folder) {
                Ok(_) => remove(&old),
                Err(_) if Leftover::of(&writer) == Leftover::InUse => Ok(()),
                Err(_) => fs::rename(&old, &self.folder),
            };
        }
    }

    /// What killed writers of this trace have left that can be recovered.
    pub(crate) fn recoverable(&self) -> Vec<PathBuf> {
        let mut siblings = self.siblings("partial");
        siblings.retain(|sibling| Leftover::of(sibling) == Leftover::Recoverable);
        siblings
    }
}

/// Removes what killed writers of the trace or file `path` have left beside it, unless it can be
/// recovered.
pub fn clear_leftovers(path: &Path) {
    if let Ok(place) = Destination::new(path, false) {
        place.clear_leftovers();
    }
}

/// The recordings that were killed before `trace` was complete and that can be recovered.
pub fn recoverable(trace: &Path) -> Vec<PathBuf> {
    Destination::new(trace, false).map_or(Vec::new(), |place| place.recoverable())
}

/// The trace that a hidden folder was to become: `T` for `.T.partial-PID`.
pub(crate) fn intended(partial: &Path) -> Option<PathBuf> {
    let name = partial.file_name()?.to_str()?;
    let (name, _) = name.strip_prefix('.')?.rsplit_once(".partial-")?;
    (!name.is_empty()).then(|| partial.with_file_name(name))
}

fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

/// Whether a folder holds nothing but what a writer makes.
fn is_partial(folder: &Path) -> bool {
    let is_ours = |entry: io::Result<fs::DirEntry>| {
        let name = entry.map(|entry| entry.file_name());
        name.is_ok_and(|name| FILES.iter().chain([&JOURNAL]).any(|file| name == *file))
    };
    fs::read_dir(folder).is_ok_and(|mut entries| entries.all(is_ours))
}

/// What a hidden sibling is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leftover {
    /// Its writer lives, or may live.
    InUse,
    /// Its writer was killed, and rows of it can be read.
    Recoverable,
    /// Its writer was killed before anything was worth keeping.
    Useless,
}

impl Leftover {
    fn of(path: &Path) -> Leftover {
        // An export is a file, a trace a folder; nothing else is opened, which could wait.
        let locked = match fs::symlink_metadata(path) {
            Ok(about) if about.is_dir() && is_partial(path) => path.join(ACCESSES),
            Ok(about) if about.is_file() => path.to_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Leftover::Useless,
            _ => return Leftover::InUse,
        };
        match OpenOptions::new().write(true).open(&locked) {
            Ok(file) => match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock | TryLockError::Error(_)) => return Leftover::InUse,
            },
            // A writer that lives and has not yet made the file makes the folder again.
            Err(error) if error.kind() == ErrorKind::NotFound => return Leftover::Useless,
            Err(_) => return Leftover::InUse,
        }
        match journal::has_row_group(path) {
            Ok(true) => Leftover::Recoverable,
            Ok(false) => match trace_folder(path) {
                Ok(()) => Leftover::Recoverable,
                Err(Error::NotATrace { .. }) => Leftover::Useless,
                // What cannot be read now may be worth keeping.
                Err(_) => Leftover::InUse,
            },
            Err(_) => Leftover::InUse,
        }
    }
}

/// Takes the lock of a writer. An error of kind `WouldBlock` if another process has it. On a file
/// system without locks, no sibling is ever taken for a leftover.
fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(ErrorKind::WouldBlock.into()),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

/// Creates a file of this mode, less the umask, and locks it. Another process that clears leftovers
/// may remove it in between; an error of kind `NotFound` or `WouldBlock` says so.
pub fn create_locked(path: &Path, mode: u32) -> io::Result<File> {
    use std::os::unix::fs::MetadataExt;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    lock(&file)?;
    if file.metadata()?.ino() == fs::symlink_metadata(path)?.ino() {
        Ok(file)
    } else {
        Err(ErrorKind::NotFound.into())
    }
}

/// How often a folder is made that another process removes at once.
const ATTEMPTS_MAX: u32 = 10;

/// The folder with its temporary name. It is removed on drop, unless it is kept.
#[derive(Debug)]
pub(crate) struct PartialFolder {
    pub(crate) path: PathBuf,
    /// `accesses.parquet`, locked.
    file: File,
    remove: bool,
}

impl PartialFolder {
    pub(crate) fn create(place: &Destination) -> Result<PartialFolder> {
        let path = place.sibling("partial");
        if Leftover::of(&path) == Leftover::Recoverable {
            // In containers, process ids are the same in each run.
            let mut names = (1..).map(|n: u64| PathBuf::from(format!("{}.{n}", path.display())));
            let free = names.find(|name| !name.exists()).expect("endless");
            fs::rename(&path, free).map_err(Error::create(&place.folder, &place.parent))?;
        }
        let mut attempts = 0;
        let file = loop {
            // The error (missing, read-only, full) is about the parent folder. The user knows it
            // and the trace, not the temporary name.
            let made = fs::DirBuilder::new().mode(0o700).create(&path);
            made.map_err(Error::create(&place.folder, &place.parent))?;
            let accesses = path.join(ACCESSES);
            match create_locked(&accesses, PRIVATE_MODE) {
                Ok(file) => break file,
                Err(error) => {
                    attempts += 1;
                    let cleared =
                        matches!(error.kind(), ErrorKind::NotFound | ErrorKind::WouldBlock);
                    let _ = fs::remove_dir_all(&path);
                    if !cleared || attempts == ATTEMPTS_MAX {
                        return Err(Error::io(&accesses)(error));
                    }
                }
            }
        };
        Ok(PartialFolder {
            path,
            file,
            remove: true,
        })
    }

    /// Opens what a killed writer has left. It stays unless it is published.
    pub(crate) fn open(path: &Path) -> Result<PartialFolder> {
        let accesses = path.join(ACCESSES);
        let file = OpenOptions::new().read(true).write(true).open(&accesses);
        let file = file.map_err(Error::io(&accesses))?;
        if lock(&file).is_err() {
            return Err(Error::NotATrace {
                path: path.to_owned(),
                problem: "it is still being written".to_owned(),
            });
        }
        Ok(PartialFolder {
            path: path.to_owned(),
            file,
            remove: false,
        })
    }

    /// The file of the accesses, which has the lock of the folder.
    pub(crate) fn accesses(&self) -> &File {
        &self.file
    }

    pub(crate) fn keep(&mut self, keep: bool) {
        self.remove = !keep;
    }

    pub(crate) fn is_kept(&self) -> bool {
        !self.remove
    }
}

impl Drop for PartialFolder {
    fn drop(&mut self) {
        if self.remove {
            // Nobody can receive an error here, and what stays behind is hidden and has a telling
            // name.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Makes the names of a folder's files durable.
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(Error::io(folder))
}
