//! The code of a process: which files are mapped where, their names and their unwind tables.
//!
//! All is read of the process itself, from its mappings and its memory: so it does not matter which
//! files it sees, and whether they were replaced since. Nothing is opened by a path, but of /proc.

use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;

use framehop::Unwinder as _;
use hither_ids::Pid;
use hither_session::call_stack::{SIGNAL_RETURN, is_signal_return, module_key};
use hither_session::record::RUN_TIME_CODE;
use hither_trace::labels::is_runtime;
use rustc_hash::FxHashMap;

use super::arch;
use super::elf::{Image, MappedCode, StaticProgram, UnwindTable};

/// How long the mappings are not read again, at first and at most: it doubles with each time that
/// they did not have what was looked for.
const READ_AGAIN_MIN_NS: u64 = 50_000;
const READ_AGAIN_MAX_NS: u64 = 50_000_000;

/// What ends the name of a file that was removed.
const REMOVED: &[u8] = b" (deleted)";

/// Unwind tables of files, by the keys of modules: processes share them.
pub(super) type Tables = FxHashMap<u64, UnwindTable>;

/// The code of a process.
#[derive(Clone)]
pub(super) struct AddressSpace {
    process: Pid,
    /// Of the program's file, as the kernel names it.
    program: Vec<u8>,
    /// Where its files are, if it sees others than we do: what paths begin with, in place of the
    /// path of its root in its mount namespace.
    root: Option<(Vec<u8>, Vec<u8>)>,
    mappings: Vec<Mapping>,
    read_ns: u64,
    read_again_ns: u64,
    modules: Vec<Module>,
    pub(super) unwinder: arch::Unwinder,
    /// Of the module that stands for code that no file holds.
    pub(super) run_time_key: u64,
}

/// A line of /proc/PID/maps.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    is_code: bool,
    /// Device and inode, as the line has them.
    file: Box<[u8]>,
    path: Box<[u8]>,
}

/// A mapped program or library.
#[derive(Clone)]
pub(super) struct Module {
    start: u64,
    end: u64,
    /// What was added to its addresses when it was mapped.
    pub(super) bias: u64,
    pub(super) key: u64,
    pub(super) build_id: Vec<u8>,
    pub(super) path: Vec<u8>,
    /// It has the functions of the C library: that which makes a system call is no call site.
    pub(super) has_c_library: bool,
    pub(super) table: Option<UnwindTable>,
}

/// What is at an address.
pub(super) enum Code {
    /// A module, by its index.
    Module(usize),
    /// Code that no file holds.
    RunTime,
    /// Nothing is mapped there, or nothing that is code.
    None,
    /// It may have been mapped since the mappings were read.
    NotRead,
}

impl AddressSpace {
    /// Of a process. None if it has ended, or may not be looked at.
    pub(super) fn of(process: Pid, run_time_key: u64, now_ns: u64) -> Option<AddressSpace> {
        let mut space = AddressSpace {
            process,
            program: link(process, "exe"),
            root: None,
            mappings: Vec::new(),
            read_ns: 0,
            read_again_ns: READ_AGAIN_MIN_NS,
            modules: Vec::new(),
            unwinder: arch::Unwinder::new(),
            run_time_key,
        };
        let namespace = |of: &str| fs::read_link(format!("/proc/{of}/ns/mnt")).ok();
        if namespace(&process.to_string()) != namespace("self") {
            let own = format!("/proc/{process}/root").into_bytes();
            space.root = Some((own, link(process, "root")));
        }
        space.read_mappings(now_ns).then_some(space)
    }

    /// Of a process that has ended, by that which it was forked from.
    pub(super) fn forked_to(&self, process: Pid) -> AddressSpace {
        AddressSpace {
            process,
            ..self.clone()
        }
    }

    fn read_mappings(&mut self, now_ns: u64) -> bool {
        self.read_ns = now_ns;
        let Ok(text) = fs::read(format!("/proc/{}/maps", self.process)) else {
            return false;
        };
        let mappings: Vec<Mapping> = text
            .split(|&byte| byte == b'\n')
            .filter_map(Mapping::parse)
            .collect();
        if mappings.is_empty() {
            return false;
        }
        self.mappings = mappings;
        true
    }

    /// What the call is in that returns to `address`.
    pub(super) fn find(&mut self, address: u64, now_ns: u64, tables: &mut Tables) -> Code {
        // The return address may be the first byte after the module's code.
        let Some(call) = address.checked_sub(1) else {
            return Code::None;
        };
        let is_in = |module: &Module| (module.start..module.end).contains(&call);
        if let Some(at) = self.modules.iter().position(is_in) {
            return Code::Module(at);
        }
        let mut found = self.mapping_at(call).cloned();
        if found.is_none() {
            if now_ns < self.read_ns + self.read_again_ns {
                return Code::NotRead;
            }
            self.read_mappings(now_ns);
            found = self.mapping_at(call).cloned();
            self.read_again_ns = match found {
                Some(_) => READ_AGAIN_MIN_NS,
                None => (2 * self.read_again_ns).min(READ_AGAIN_MAX_NS),
            };
        }
        let Some(mapping) = found.filter(|mapping| mapping.is_code) else {
            return Code::None;
        };
        if mapping.is_special() {
            return Code::None;
        }
        match self.load(&mapping, tables) {
            Some(module) => {
                self.add(module);
                Code::Module(self.modules.len() - 1)
            }
            None => Code::RunTime,
        }
    }

    /// Reads all programs and libraries that are mapped now: once the process has ended, none can
    /// be read.
    pub(super) fn load_all(&mut self, tables: &mut Tables) {
        for mapping in self.mappings.clone() {
            let start = mapping.start;
            let is_known = |module: &Module| (module.start..module.end).contains(&start);
            let is_module = mapping.is_code && !mapping.is_special();
            if is_module
                && !self.modules.iter().any(is_known)
                && let Some(module) = self.load(&mapping, tables)
            {
                self.add(module);
            }
        }
    }

    fn mapping_at(&self, address: u64) -> Option<&Mapping> {
        let after = self
            .mappings
            .partition_point(|mapping| mapping.start <= address);
        let mapping = self.mappings.get(after.checked_sub(1)?)?;
        (address < mapping.end).then_some(mapping)
    }

    /// Whether code is mapped at an address.
    pub(super) fn is_code(&self, address: u64) -> bool {
        self.mapping_at(address)
            .is_some_and(|mapping| mapping.is_code)
    }

    pub(super) fn module(&self, at: usize) -> &Module {
        &self.modules[at]
    }

    /// The build-id and the path of the module of this key.
    pub(super) fn named(&self, key: u64) -> Option<(&[u8], &[u8])> {
        if key == self.run_time_key {
            return Some((&[], RUN_TIME_CODE));
        }
        let module = self.modules.iter().find(|module| module.key == key)?;
        Some((&module.build_id, &module.path))
    }

    fn add(&mut self, module: Module) {
        let sections = module.table.as_ref().map(UnwindTable::sections);
        self.unwinder.add_module(framehop::Module::new(
            String::new(),
            module.start..module.end,
            module.bias,
            sections.unwrap_or_default(),
        ));
        self.modules.push(module);
    }

    /// Whether code is where a signal handler returns to.
    pub(super) fn is_signal_return(&self, address: u64) -> bool {
        let mut code = [0; SIGNAL_RETURN.len()];
        // Only libc has it, and nothing else is worth a system call.
        self.read_code(address, &mut code) && is_signal_return(&code)
    }

    /// The code at an address.
    pub(super) fn read_code(&self, address: u64, to: &mut [u8]) -> bool {
        let memory = File::open(format!("/proc/{}/mem", self.process));
        memory.is_ok_and(|memory| memory.read_exact_at(to, address).is_ok())
    }

    /// Where we find a file that the process has mapped.
    fn here(&self, path: &[u8]) -> Vec<u8> {
        let Some((here, there)) = &self.root else {
            return path.to_vec();
        };
        let below = path.strip_prefix(&there[..]).unwrap_or(path);
        let below = below.strip_prefix(b"/").unwrap_or(below);
        [&here[..], b"/", below].concat()
    }

    /// The module that a mapping is of. None if it is no program or library.
    fn load(&self, mapping: &Mapping, tables: &mut Tables) -> Option<Module> {
        if mapping.path.is_empty() {
            return None;
        }
        let memory = File::open(format!("/proc/{}/mem", self.process)).ok()?;
        let read = |address, bytes| read_at(&memory, address, bytes);
        // The same file may be mapped more than once.
        let is_first = |other: &&Mapping| {
            other.offset == 0 && other.file == mapping.file && other.start <= mapping.start
        };
        let first = self.mappings.iter().rev().find(is_first)?;
        let code = MappedCode {
            address: mapping.start,
            offset: mapping.offset,
        };
        let image = Image::read(first.start, code, &read)?;
        let mut build_id = image.build_id(&read);
        let mut table = None;
        let path = mapping.path.strip_suffix(REMOVED).unwrap_or(&mapping.path);
        let is_static = mapping.path[..] == self.program[..] && !image.has_linker();
        if is_static {
            let file = File::open(format!("/proc/{}/exe", self.process)).ok()?;
            let file = |at, bytes| read_at(&file, at, bytes);
            let program = StaticProgram::read(&file).unwrap_or_default();
            build_id = build_id.or(program.build_id);
            table = program.table;
        }
        let build_id = build_id.unwrap_or_default();
        let key = module_key(&build_id, path);
        // Without a build-id, the same key may be that of another file in another process.
        let known = tables.get(&key).filter(|_| !build_id.is_empty()).cloned();
        let table = known.or_else(|| image.unwind_table(&read)).or(table);
        if let Some(table) = &table {
            tables.insert(key, table.clone());
        }
        let addresses = image.addresses()?;
        Some(Module {
            start: addresses.start,
            end: addresses.end,
            bias: image.bias(),
            key,
            build_id,
            path: self.here(path),
            has_c_library: is_static || is_runtime(&String::from_utf8_lossy(path)),
            table,
        })
    }
}

impl Mapping {
    /// Reads a line. None of what is neither code nor of a file.
    fn parse(line: &[u8]) -> Option<Mapping> {
        // Names may have spaces.
        let mut words = line.splitn(6, |&byte| byte == b' ');
        let mut word = || str::from_utf8(words.next()?).ok();
        let (start, end) = word()?.split_once('-')?;
        let rights = word()?;
        let offset = word()?;
        let (device, inode) = (word()?, word()?);
        let path = words.next().unwrap_or_default().trim_ascii_start();
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(Mapping {
            start: number(start)?,
            end: number(end)?,
            offset: number(offset)?,
            is_code: rights.as_bytes().get(2) == Some(&b'x'),
            file: format!("{device} {inode}").into_bytes().into(),
            path: path.into(),
        })
    }

    /// Of the kernel: system calls without a call.
    fn is_special(&self) -> bool {
        matches!(&self.path[..], b"[vdso]" | b"[vsyscall]")
    }
}

fn read_at(file: &File, at: u64, bytes: u64) -> Option<Vec<u8>> {
    let mut read = vec![0; usize::try_from(bytes).ok()?];
    file.read_exact_at(&mut read, at).ok()?;
    Some(read)
}

/// Where a process's link of this name leads.
fn link(process: Pid, name: &str) -> Vec<u8> {
    let target = fs::read_link(format!("/proc/{process}/{name}"));
    target.map_or_else(|_| Vec::new(), |target| target.into_os_string().into_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_read() {
        let line = b"7f0a1000-7f0a3000 r-xp 00002000 fd:01 1234     /opt/a b (deleted)";
        let mapping = Mapping::parse(line).expect("a mapping");
        assert_eq!((mapping.start, mapping.end), (0x7f0a_1000, 0x7f0a_3000));
        assert_eq!((mapping.offset, mapping.is_code), (0x2000, true));
        assert_eq!(&mapping.path[..], b"/opt/a b (deleted)");
        assert_eq!(&mapping.file[..], b"fd:01 1234");
        let anonymous = Mapping::parse(b"1000-2000 rwxp 00000000 00:00 0 ");
        assert_eq!(&anonymous.expect("a mapping").path[..], b"");
        for none in [
            &b""[..],
            b"1000 r-xp 0 0 0",
            b"1000-x r-xp 00000000 00:00 0",
        ] {
            assert_eq!(Mapping::parse(none), None);
        }
    }

    #[test]
    fn the_code_of_this_process_is_found() {
        let own = Pid(std::process::id());
        let mut tables = Tables::default();
        let mut space = AddressSpace::of(own, 7, 0).expect("this process lives");
        let here = lines_of_maps_are_read as fn() as usize as u64 + 1;
        let Code::Module(at) = space.find(here, 1, &mut tables) else {
            panic!("it is in a module");
        };
        let exe = std::env::current_exe().expect("known").into_os_string();
        let module = space.module(at);
        assert_eq!(module.path, exe.into_vec());
        assert!(!module.build_id.is_empty() && !module.has_c_library);
        assert!(
            module
                .table
                .as_ref()
                .is_some_and(|table| table.covers(here - module.bias))
        );
        assert!(matches!(space.find(here, 1, &mut tables), Code::Module(again) if again == at));
        assert!(matches!(space.find(1, 1, &mut tables), Code::NotRead));
        assert!(matches!(
            space.find(1, READ_AGAIN_MAX_NS, &mut tables),
            Code::None
        ));
        assert!(matches!(space.find(0, 1, &mut tables), Code::None));
    }
}
