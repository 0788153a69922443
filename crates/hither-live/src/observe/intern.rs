//! Gives dense numbers to the keys in records.
//!
//! Keys are numbered when an access that names them is written, so that numbers follow the order of
//! the trace. Definitions are kept by key: they may come before their use, after it, or never.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::hash::Hash;
use std::os::unix::ffi::OsStrExt;

use hither_ids::{FileKey, Pid};
use hither_kernel::file_id::{FileId, mix};
use hither_session::record::{self, RUN_TIME_CODE, Record};
use rustc_hash::FxHashMap;

use super::hashed_names::HashedNames;
use super::perf_maps::PerfMaps;
use crate::symbolise::Module;

/// What names of Python functions begin with.
pub(super) const PYTHON_FUNCTION: &str = "py::";

/// The key of the module that stands for named code made at run time: offsets in it are hashes of
/// names. The key is no hash of a build-id but by an accident as rare as that of two build-ids.
const NAMED_CODE: u64 = 0x6e61_6d65_645f_6a69;

/// Numbers keys from 0 in order of first appearance.
#[derive(Debug)]
pub(crate) struct Numbers<K> {
    numbers: FxHashMap<K, u32>,
    keys: Vec<K>,
}

impl<K> Default for Numbers<K> {
    fn default() -> Self {
        Numbers {
            numbers: FxHashMap::default(),
            keys: Vec::new(),
        }
    }
}

impl<K: Copy + Eq + Hash> Numbers<K> {
    pub(crate) fn number(&mut self, key: K) -> u32 {
        *self.numbers.entry(key).or_insert_with(|| {
            self.keys.push(key);
            self.keys.len() as u32 - 1
        })
    }

    /// The keys, in the order of their numbers.
    pub(crate) fn keys(&self) -> &[K] {
        &self.keys
    }
}

/// A call site, as a program reported it.
#[derive(Debug)]
pub(crate) struct SiteDefinition {
    pub(crate) truncated: bool,
    /// Module key and return address of each frame, innermost first.
    pub(crate) frames: Box<[(u64, u64)]>,
}

/// A file, as a program reported it.
#[derive(Debug, Default)]
pub(crate) struct ObjectDefinition {
    pub(crate) id: FileId,
    pub(crate) size: u64,
    pub(crate) path: Vec<u8>,
}

/// All definitions so far. Of several definitions of one key the first counts.
///
/// A call stack with code made at run time has another signature in each process, since that code
/// has other addresses there. Its site is defined by the names of such code instead, and the
/// process's signature stands for that of this site.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    sites: FxHashMap<u64, SiteDefinition>,
    /// The sites that the signatures of processes stand for.
    stands_for: FxHashMap<u64, u64>,
    /// Names of code made at run time, by their hashes.
    names: FxHashMap<u64, Box<str>>,
    perf_maps: PerfMaps,
    pub(crate) objects: FxHashMap<FileKey, ObjectDefinition>,
    pub(crate) modules: FxHashMap<u64, Module>,
    /// Files have these names, if they are not to have their own.
    pub(crate) hashed_names: Option<HashedNames>,
}

impl Definitions {
    /// What is known of a file.
    pub(crate) fn object(&self, object: FileKey) -> Option<&ObjectDefinition> {
        self.objects.get(&object)
    }

    /// A path as the trace has it.
    pub(super) fn named<'a>(&self, path: &'a [u8]) -> Cow<'a, [u8]> {
        match &self.hashed_names {
            Some(names) => Cow::Owned(names.path(path)),
            None => Cow::Borrowed(path),
        }
    }

    /// The devices of all files.
    pub(crate) fn devices(&self) -> BTreeSet<u64> {
        self.objects.values().map(|file| file.id.device).collect()
    }

    /// The signature that is the same in each process.
    #[inline]
    pub(crate) fn site_of(&self, signature: u64) -> u64 {
        *self.stands_for.get(&signature).unwrap_or(&signature)
    }

    /// What is known of a site.
    pub(crate) fn site(&self, signature: u64) -> Option<&SiteDefinition> {
        self.sites.get(&self.site_of(signature))
    }

    /// The name of a frame of code made at run time.
    pub(crate) fn code_name(&self, (module, offset): (u64, u64)) -> Option<&str> {
        let name = (module == NAMED_CODE).then(|| self.names.get(&offset))?;
        name.map(|name| &**name)
    }

    fn is_run_time(&self, module: u64) -> bool {
        let module = self.modules.get(&module);
        module.is_some_and(|module| module.path.as_os_str().as_bytes() == RUN_TIME_CODE)
    }

    /// The frame of code made at run time, by the maps of these processes.
    fn named_frame(&mut self, address: u64, pids: &[Pid]) -> Option<[u64; 2]> {
        let maps = &mut self.perf_maps;
        let name: Box<str> = pids
            .iter()
            .find_map(|&pid| maps.name(pid, address).map(Box::from))?;
        let hash = name
            .bytes()
            .fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        self.names.entry(hash).or_insert(name);
        Some([NAMED_CODE, hash])
    }

    /// Leaves out the frames of CPython's program or library from a stack with Python functions:
    /// which of its functions make a call changes while it runs, as it specialises its bytecode.
    fn leave_out_interpreter(&self, frames: &mut Vec<[u64; 2]>) {
        let is_python = |&[module, offset]: &[u64; 2]| {
            let name = self.code_name((module, offset));
            name.is_some_and(|name| name.starts_with(PYTHON_FUNCTION))
        };
        // A trampoline calls the interpreter's loop. That of the innermost one comes first of all.
        let innermost = frames.iter().position(is_python);
        let called = innermost.and_then(|at| frames.get(at.checked_sub(1)?));
        if let Some(&[interpreter, _]) = called {
            frames.retain(|&[module, _]| module != interpreter);
        }
    }

    /// A call site of a process, as [`Definitions::on_record`].
    fn on_site(
        &mut self,
        signature: u64,
        mut truncated: bool,
        frames: &[[u64; 2]],
        maps_of: impl FnOnce() -> Vec<Pid>,
    ) {
        if self.stands_for.contains_key(&signature) {
            return;
        }
        let mut site = signature;
        let mut frames = frames.to_vec();
        if frames.iter().any(|&[module, _]| self.is_run_time(module)) {
            let pids = maps_of();
            let mut named: Vec<[u64; 2]> = Vec::new();
            for [module, offset] in frames {
                let frame = if self.is_run_time(module) {
                    self.named_frame(offset, &pids)
                } else {
                    Some([module, offset])
                };
                // What lies beyond code without a name is as little known.
                let Some(frame) = frame else {
                    truncated = true;
                    break;
                };
                if !named.contains(&frame) {
                    named.push(frame);
                }
            }
            self.leave_out_interpreter(&mut named);
            site = record::signature(named.as_flattened());
            self.stands_for.insert(signature, site);
            frames = named;
        }
        let definition = || SiteDefinition {
            truncated,
            frames: frames
                .into_iter()
                .map(|[module, at]| (module, at))
                .collect(),
        };
        self.sites.entry(site).or_insert_with(definition);
    }

    /// Takes in a record, if it defines something. `maps_of`: the processes whose maps may have the
    /// names of code made at run time, as [`Streams::maps_of`] says.
    pub(crate) fn on_record(&mut self, record: &Record<'_>, maps_of: impl FnOnce() -> Vec<Pid>) {
        match *record {
            Record::Site {
                signature,
                truncated,
                frames,
            } => self.on_site(signature, truncated, frames.as_chunks().0, maps_of),
            Record::Module {
                module,
                build_id,
                path,
            } => {
                let definition = || Module {
                    path: OsStr::from_bytes(path).into(),
                    build_id: build_id.to_owned(),
                };
                self.modules.entry(module).or_insert_with(definition);
            }
            Record::Object {
                object,
                id,
                size,
                path,
                ..
            } => {
                let path = self.named(path).into_owned();
                let definition = ObjectDefinition { id, size, path };
                self.objects.entry(object).or_insert(definition);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_first_appearance() {
        let mut numbers = Numbers::default();
        assert_eq!(
            [7, 3, 7, 9, 3].map(|key| numbers.number(key)),
            [0, 1, 0, 2, 1]
        );
        assert_eq!(numbers.keys(), [7, 3, 9]);
    }

    #[test]
    fn stacks_through_trampolines_are_named_alike_in_each_process() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let map = |pid: Pid, base: u64| {
            let lines = format!(
                "{base:x} b py::load:a.py\n{:x} b py::main:a.py\n{:x} b stub\n",
                base + 0x10,
                base + 0x20
            );
            std::fs::write(folder.path().join(format!("perf-{pid}.map")), lines).expect("written");
        };
        let mut definitions = Definitions {
            perf_maps: PerfMaps::new(folder.path()),
            ..Definitions::default()
        };
        let (libc, python, one, two) = (1, 2, 3, 4);
        for (module, path) in [
            (one, RUN_TIME_CODE),
            (two, RUN_TIME_CODE),
            (python, b"/python"),
        ] {
            let module = Record::Module {
                module,
                build_id: &[],
                path,
            };
            definitions.on_record(&module, Vec::new);
        }
        let mut define = |signature, frames: &[u64], pids: &[Pid]| {
            let site = Record::Site {
                signature,
                truncated: false,
                frames,
            };
            definitions.on_record(&site, || pids.to_vec());
            let site = definitions.site_of(signature);
            let SiteDefinition { truncated, frames } = definitions.site(signature).expect("known");
            let names: Vec<String> = frames
                .iter()
                .map(|&frame| match definitions.code_name(frame) {
                    Some(name) => name.to_owned(),
                    None => format!("{}:{}", frame.0, frame.1),
                })
                .collect();
            let truncated = if *truncated { " ..." } else { "" };
            (site, names.join(" ") + truncated)
        };
        map(Pid(7), 0x1000);
        map(Pid(8), 0x8000);
        let whole = define(
            70,
            &[libc, 5, python, 6, one, 0x1006, python, 7, one, 0x1016],
            &[Pid(7)],
        );
        assert_eq!(whole.1, "1:5 py::load:a.py py::main:a.py");
        // Another process, other positions in the interpreter.
        let frames = [
            libc, 5, python, 9, two, 0x8006, python, 8, two, 0x8016, python, 1,
        ];
        assert_eq!(define(80, &frames, &[Pid(8)]), whole);
        // A forked child, whose own map does not have the functions that called the fork.
        let frames = [libc, 5, python, 6, two, 0x1006, two, 0x1016];
        assert_eq!(define(81, &frames, &[Pid(9), Pid(7)]), whole);
        // Other code is named, and nothing is left out.
        let other = define(71, &[libc, 5, python, 6, one, 0x1026, python, 7], &[Pid(7)]);
        assert_eq!(other.1, "1:5 2:6 stub 2:7");
        // Without a name, the stack ends there, as that of a walk that ends there.
        let unnamed = define(72, &[libc, 5, python, 6, one, 0x1036, python, 7], &[Pid(7)]);
        let ended = [libc, 5, python, 6];
        assert_eq!(
            unnamed,
            (record::signature(&ended), "1:5 2:6 ...".to_owned())
        );
        // What has no such code is what it was.
        assert_eq!(define(90, &ended, &[Pid(7)]), (90, "1:5 2:6".to_owned()));
    }
}
