//! Finds the file with the debug information or symbols of a module.
//!
//! Candidates are, in order: the file itself if it has debug information, separate debug
//! information by build-id, by the file's `.gnu_debuglink`, from a debuginfod server, and the file
//! itself for its ELF symbols. Each must have the recorded build-id. (The link's checksum would do
//! too, but costs a pass over a file of gigabytes; every debug file of a distribution has a
//! build-id.) Compressed mini debug information (`.gnu_debugdata`) is not used.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hither_trace::labels::is_runtime;
use object::read::ReadCache;
use object::{Object, ObjectSection};

use super::debuginfod;
use super::module::Module;

/// A file to read names from.
pub(super) struct Found {
    pub(super) path: PathBuf,
    /// Whether it has debug information, and not only symbols.
    pub(super) has_debug_info: bool,
    /// The file that `.gnu_debugaltlink` names: debug information shared by several files (dwz).
    pub(super) supplement: Option<PathBuf>,
}

/// The headers of an ELF file that matter here.
struct Headers {
    build_id: Vec<u8>,
    has_debug_info: bool,
    debug_link: Option<PathBuf>,
    supplement: Option<(PathBuf, Vec<u8>)>,
}

/// Where to look for files.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// The folder of separate debug information.
    pub(super) debug_root: PathBuf,
    /// The servers of debug information, as debuginfod's clients name them; empty for none.
    pub(super) servers: OsString,
    /// A module without a build-id counts as the recorded one if its file is not newer than this.
    pub(super) recorded: SystemTime,
}

/// The best file for a module's names. `None` if the file on disk is not the recorded one.
pub(super) fn debug_file(module: &Module, places: &Places) -> Option<Found> {
    let Places {
        debug_root,
        servers,
        recorded,
    } = places;
    let own = Headers::read(&module.path).filter(|own| {
        own.build_id == module.build_id
            && (!own.build_id.is_empty() || is_older(&module.path, *recorded))
    });
    if let Some(own) = &own
        && own.has_debug_info
    {
        return Some(own.found(&module.path, debug_root));
    }
    if !module.build_id.is_empty() {
        let by_id = by_build_id(debug_root, &module.build_id);
        let linked = own
            .as_ref()
            .map(|own| own.debug_link_paths(&module.path, debug_root));
        // Nobody looks for lines of the runtime; its functions are among its symbols.
        let asks = !servers.is_empty() && !is_runtime(&module.path.to_string_lossy());
        let served =
            asks.then(|| std::iter::once_with(|| debuginfod::find(servers, &module.build_id)));
        let served = served.into_iter().flatten().flatten();
        let local = by_id.into_iter().chain(linked.into_iter().flatten());
        for path in local.chain(served) {
            if let Some(headers) = Headers::read(&path)
                && headers.has_debug_info
                && headers.build_id == module.build_id
            {
                return Some(headers.found(&path, debug_root));
            }
        }
    }
    own.map(|own| own.found(&module.path, debug_root))
}

/// Whether the file was last changed before `recorded`. The times of contents and of the inode both
/// count, so that a file moved into place is seen.
fn is_older(path: &Path, recorded: SystemTime) -> bool {
    use std::os::unix::fs::MetadataExt;
    let since_epoch = recorded
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    path.metadata()
        .is_ok_and(|metadata| metadata.mtime().max(metadata.ctime()) <= since_epoch as i64)
}

/// The path `ROOT/.build-id/xx/yyyy.debug`.
fn by_build_id(debug_root: &Path, build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(debug_root.join(format!(".build-id/{first:02x}/{rest}.debug")))
}

impl Headers {
    /// Reads the headers of a file. `None` where there is no regular ELF file (`[vdso]`, a deleted
    /// file).
    fn read(path: &Path) -> Option<Self> {
        // A fifo or device under a module's name must not block or be read from.
        if !path.metadata().ok()?.is_file() {
            return None;
        }
        let cache = ReadCache::new(File::open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let as_path = |name: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(name));
        Some(Headers {
            build_id: file.build_id().ok().flatten().unwrap_or_default().to_vec(),
            has_debug_info: file
                .section_by_name(".debug_info")
                .is_some_and(|section| section.size() > 0),
            debug_link: file
                .gnu_debuglink()
                .ok()
                .flatten()
                .map(|(name, _checksum)| as_path(name)),
            supplement: file
                .gnu_debugaltlink()
                .ok()
                .flatten()
                .map(|(name, id)| (as_path(name), id.to_vec())),
        })
    }

    /// The paths where a debugger looks for the linked file, in its order.
    fn debug_link_paths(&self, module: &Path, debug_root: &Path) -> Vec<PathBuf> {
        // Symbolic links are resolved first: debug files lie beside the installed file.
        let real = module.canonicalize().unwrap_or_else(|_| module.to_owned());
        let (Some(link), Some(folder)) = (&self.debug_link, real.parent()) else {
            return Vec::new();
        };
        let under_root = debug_root.join(folder.strip_prefix("/").unwrap_or(folder));
        [folder, &folder.join(".debug"), &under_root]
            .iter()
            .map(|place| place.join(link))
            .collect()
    }

    fn found(&self, path: &Path, debug_root: &Path) -> Found {
        let supplement = self.supplement.as_ref().and_then(|(name, build_id)| {
            let beside = path
                .canonicalize()
                .ok()
                .and_then(|real| Some(real.parent()?.join(name)));
            [by_build_id(debug_root, build_id), beside]
                .into_iter()
                .flatten()
                .find(|candidate| {
                    Headers::read(candidate).is_some_and(|headers| headers.build_id == *build_id)
                })
        });
        Found {
            path: path.to_owned(),
            has_debug_info: self.has_debug_info,
            supplement,
        }
    }
}
