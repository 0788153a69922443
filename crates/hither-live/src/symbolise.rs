//! Finds the function, source file and line of a return address in a module.
//!
//! Names are looked up once, after the program has ended, so that it costs the program nothing, and
//! only in modules that a recorded call stack touches. Modules are independent of each other and
//! spread over the machine's cores. Within a module, `addr2line` reads only the compilation units
//! of the given addresses.
//!
//! Of libc and the other libraries of the runtime, only function names are looked up.
//!
//! A wrong name is worse than none: a file with another build-id than the recorded one is not used.
//!
//! Where calls were inlined, the *outermost* function is named, with the line in it where the
//! inlined chain begins. It is the function that exists in the machine code, so that a program has
//! the same function names with and without its debug information, and a call site in one's own
//! code is not named after a wrapper of the standard library.

mod debuginfod;
mod find;
mod module;
mod symbols;

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use addr2line::Loader;
use hither_trace::labels::is_runtime;

pub use self::module::Module;

/// The source location of a return address. Fields are `None` where neither debug information nor
/// symbols have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceLocation {
    /// The demangled name of the function.
    pub function: Option<String>,
    /// The source file as the compiler recorded it.
    pub file: Option<String>,
    /// The line of the call.
    pub line: Option<u32>,
}

/// Looks up names in files of this machine.
#[derive(Clone, Debug)]
pub struct Symboliser {
    places: find::Places,
}

impl Symboliser {
    /// A symboliser for a program that was recorded from `recorded` on, with debug information
    /// under `/usr/lib/debug`, and from the debuginfod servers that `DEBUGINFOD_URLS` names.
    pub fn new(recorded: SystemTime) -> Self {
        let places = find::Places {
            debug_root: PathBuf::from("/usr/lib/debug"),
            servers: std::env::var_os(debuginfod::SERVERS).unwrap_or_default(),
            recorded,
        };
        Symboliser { places }
    }

    /// Looks for separate debug information under `root`.
    pub fn debug_root(mut self, root: impl Into<PathBuf>) -> Self {
        self.places.debug_root = root.into();
        self
    }

    /// Asks these debuginfod servers, separated by spaces, for what this machine does not have.
    pub fn servers(mut self, servers: impl Into<OsString>) -> Self {
        self.places.servers = servers.into();
        self
    }

    /// The locations of the given return addresses of each module. An address is relative to the
    /// module's load bias, so it is an address in the file's own numbering. The answers are in the
    /// order of the questions.
    pub fn locations(&self, questions: &[(Module, Vec<u64>)]) -> Vec<Vec<SourceLocation>> {
        let answers: Vec<Mutex<Vec<SourceLocation>>> =
            questions.iter().map(|_| Mutex::default()).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                let Some((module, addresses)) = questions.get(i) else {
                    break;
                };
                let locations = self.module_locations(module, addresses);
                *answers[i].lock().unwrap_or_else(PoisonError::into_inner) = locations;
            }
        };
        let threads = std::thread::available_parallelism()
            .map_or(1, usize::from)
            .min(questions.len());
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        answers
            .into_iter()
            .map(|a| a.into_inner().unwrap_or_else(PoisonError::into_inner))
            .collect()
    }

    fn module_locations(&self, module: &Module, addresses: &[u64]) -> Vec<SourceLocation> {
        let mut locations = vec![SourceLocation::default(); addresses.len()];
        let Some(found) = find::debug_file(module, &self.places) else {
            return locations;
        };
        // Nobody looks for lines of libc, and to unpack its debug information (`libc6-dbg`) took
        // half of the CPU time of a short recording: 40 of 75 ms.
        let wants_lines = found.has_debug_info && !is_runtime(&module.path.to_string_lossy());
        // If the supplement is damaged, the names of the rest are still found.
        let loader = wants_lines.then(|| {
            Loader::new_with_sup(&found.path, found.supplement.as_deref())
                .or_else(|_| Loader::new(&found.path))
                .ok()
        });
        if let Some(loader) = loader.flatten() {
            for (location, &address) in locations.iter_mut().zip(addresses) {
                *location = described(&loader, call(address));
            }
        }
        if locations.iter().any(|location| location.function.is_none()) {
            let calls: Vec<u64> = addresses.iter().copied().map(call).collect();
            for (location, name) in locations
                .iter_mut()
                .zip(symbols::names(&found.path, &calls))
            {
                location.function = location
                    .function
                    .take()
                    .or(name.map(|name| demangle(&name)));
            }
        }
        locations
    }
}

/// The last byte of the call that returns to `return_address`, since the return address may be the
/// first byte of another function or line.
fn call(return_address: u64) -> u64 {
    return_address.saturating_sub(1)
}

/// The location of `address` by the debug information.
fn described(loader: &Loader, address: u64) -> SourceLocation {
    let mut location = SourceLocation::default();
    let Ok(mut frames) = loader.find_frames(address) else {
        return location;
    };
    // Frames come innermost first; the last is the function that the machine code belongs to.
    let mut outermost = None;
    while let Ok(Some(frame)) = frames.next() {
        outermost = Some(frame);
    }
    if let Some(frame) = outermost {
        if let Some(line) = frame.location {
            location.file = line.file.map(str::to_owned);
            location.line = line.line.filter(|&number| number > 0);
        }
        location.function = frame
            .function
            .and_then(|name| name.raw_name().ok().map(|raw| demangle(&raw)));
    }
    location
}

/// The name as its author wrote it: without the version that symbol tables append, demangled. A
/// name of C is left as it is: `f` would be a `float` in C++'s encoding of types.
fn demangle(name: &str) -> String {
    let bare = name.split_once('@').map_or(name, |(bare, _version)| bare);
    if bare.starts_with("_Z") || bare.starts_with("_R") {
        addr2line::demangle_auto(Cow::Borrowed(bare), None).into_owned()
    } else {
        bare.to_owned()
    }
}

#[cfg(test)]
mod tests;
