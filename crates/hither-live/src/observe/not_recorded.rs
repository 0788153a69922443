//! Lists programs that ran and were not recorded, and why.
//!
//! The library announces each exec before it happens. If the program that the exec starts does not
//! announce itself, it cannot be recorded: it is static, or setuid, or for another machine. The
//! file is inspected when the exec is announced, since builds remove the programs that they make.
//!
//! One case is missed: a program that is not recorded and execs one that is. The second one's
//! announcement is taken for the first's.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hither_ids::Pid;
use hither_session::preload::ELF_MACHINE;
use hither_trace::schema::NotRecorded;
use object::elf::{FileHeader64, PT_INTERP};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, FileKind};
use rustc_hash::FxHashMap;

use super::streams::NamespacedPid;

/// The reason for a program that could have loaded the recorder's library.
const NOT_LOADED: &str = "did not load the recorder: killed early, or run without its environment, \
    with other privileges, in another IPC namespace, under a seccomp filter or with a low limit on \
    its memory";

/// The reason for a program that runs where the library's file is not, or cannot be opened.
const HIDDEN: &str = "cannot open the recorder's library: runs in a root without it (chroot, \
    mount namespace), or confined (Landlock)";

/// How many scripts that name a script as their interpreter the kernel follows.
const SCRIPTS_MAX: usize = 4;

/// An exec whose program has not yet announced itself.
#[derive(Debug)]
struct Pending {
    time_ns: u64,
    path: PathBuf,
    /// See [`Record::Exec`](hither_session::record::Record::Exec).
    hidden: bool,
}

/// A program that has announced itself; the latest is the greatest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Started {
    time_ns: u64,
    image: u32,
}

/// Matches execs with the programs that they start.
#[derive(Debug, Default)]
pub(crate) struct Execs {
    pending: FxHashMap<NamespacedPid, Vec<Pending>>,
    /// By process, its latest program without a known exec. The exec may be in a ring that is read
    /// later.
    unclaimed: FxHashMap<NamespacedPid, Started>,
    reasons: FxHashMap<PathBuf, String>,
}

impl Execs {
    /// Process `pid` is about to exec `path`. Program image `by` reports it; `None`: the agent. (A
    /// program may announce itself and its next exec at once, in either order of time. It is not
    /// the program that the exec starts.)
    pub(crate) fn announced(
        &mut self,
        by: Option<u32>,
        pid: NamespacedPid,
        time_ns: u64,
        path: &[u8],
        hidden: bool,
    ) {
        let started = self.unclaimed.get(&pid);
        if started.is_some_and(|started| started.time_ns >= time_ns && by != Some(started.image)) {
            self.unclaimed.remove(&pid);
            return;
        }
        let path = located(pid, Path::new(OsStr::from_bytes(path)));
        if !hidden && !self.reasons.contains_key(&path) {
            self.reasons.insert(path.clone(), reason(&path));
        }
        self.pending.entry(pid).or_default().push(Pending {
            time_ns,
            path,
            hidden,
        });
    }

    /// The last exec announced for `pid` failed.
    pub(crate) fn failed(&mut self, pid: NamespacedPid) {
        self.take(pid, u64::MAX);
    }

    /// Program image `image` announces itself. It is not a fork of a program that recorded: no exec
    /// has started that.
    pub(crate) fn started(&mut self, pid: NamespacedPid, time_ns: u64, image: u32) {
        if !self.take(pid, time_ns) {
            let youngest = self.unclaimed.entry(pid).or_default();
            *youngest = Started { time_ns, image }.max(*youngest);
        }
    }

    /// Takes the last exec of `pid` up to `time_ns` off the list, if there is one.
    fn take(&mut self, pid: NamespacedPid, time_ns: u64) -> bool {
        let Some(list) = self.pending.get_mut(&pid) else {
            return false;
        };
        let Some(last) = list.iter().rposition(|exec| exec.time_ns <= time_ns) else {
            return false;
        };
        list.remove(last);
        if list.is_empty() {
            self.pending.remove(&pid);
        }
        true
    }

    /// The programs that never announced themselves, by path and reason.
    pub(crate) fn finish(self) -> Vec<NotRecorded> {
        let mut counts: BTreeMap<(&Path, &str), u64> = BTreeMap::new();
        for exec in self.pending.values().flatten() {
            let reason = if exec.hidden {
                HIDDEN
            } else {
                self.reasons.get(&exec.path).map_or("", String::as_str)
            };
            *counts.entry((&exec.path, reason)).or_default() += 1;
        }
        let row = |((path, reason), count): ((&Path, &str), u64)| NotRecorded {
            path: path.to_string_lossy().into_owned(),
            reason: reason.to_owned(),
            count,
        };
        counts.into_iter().map(row).collect()
    }
}

/// Where a program that a process names is, as seen from here. A relative path is relative to the
/// working folder of the process, and an absolute one to its root, as far as the process still
/// exists and its id is one of ours. A bare name is looked for along PATH.
fn located(pid: NamespacedPid, path: &Path) -> PathBuf {
    let of_process = |what: &str| {
        let link = || fs::read_link(format!("/proc/{}/{what}", pid.pid)).ok();
        pid.namespace.is_own().then(link).flatten()
    };
    let root = of_process("root").unwrap_or_else(|| PathBuf::from("/"));
    let within = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    if path.is_absolute() {
        return within(path);
    }
    if path.as_os_str().as_bytes().contains(&b'/') {
        // The link shows the folder as seen from here.
        return of_process("cwd").map_or_else(|| path.to_owned(), |folder| folder.join(path));
    }
    on_path(path.as_os_str(), within).unwrap_or_else(|| path.to_owned())
}

/// Where `execvp` finds a program, for messages: the first executable file of that name along PATH,
/// each path of which `within` turns into one as seen from here.
pub(crate) fn on_path(program: &OsStr, within: impl Fn(&Path) -> PathBuf) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_executable = |path: &PathBuf| {
        let metadata = path.metadata();
        metadata.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&folders)
        .map(|folder| within(&folder.join(program)))
        .find(is_executable)
}

/// Why next to nothing is seen of what a program reads that [`makes_own_calls`].
pub(crate) const MADE_BY_GO: &str = "made by Go, which calls the kernel without libc";

/// Why the program at `path` does not announce itself.
pub(crate) fn reason(path: &Path) -> String {
    obstacle(path).unwrap_or_else(|| NOT_LOADED.to_owned())
}

/// What prevents the program at `path`, or the interpreter of a script there, from loading the
/// recorder's library, as far as its file shows.
pub(crate) fn obstacle(path: &Path) -> Option<String> {
    let mut file = path.to_owned();
    for _ in 0..=SCRIPTS_MAX {
        match inspect(&file) {
            ProgramKind::Script(interpreter) => file = interpreter,
            ProgramKind::Loads => return None,
            ProgramKind::Cannot(reason) if file == path => return Some(reason.to_owned()),
            ProgramKind::Cannot(reason) => {
                return Some(format!("interpreter {}: {reason}", file.display()));
            }
        }
    }
    Some("script of a script of a script".to_owned())
}

/// What a file shows about loading the library.
enum ProgramKind {
    /// It cannot load it.
    Cannot(&'static str),
    /// Its interpreter has to.
    Script(PathBuf),
    /// Nothing prevents it.
    Loads,
}

fn inspect(path: &Path) -> ProgramKind {
    try_inspect(path).unwrap_or_else(|error| {
        ProgramKind::Cannot(match error.kind() {
            std::io::ErrorKind::NotFound => "not found: removed since, or in another root",
            _ => "cannot be read",
        })
    })
}

fn try_inspect(path: &Path) -> std::io::Result<ProgramKind> {
    let metadata = path.metadata()?;
    if !metadata.is_file() {
        return Ok(ProgramKind::Cannot("not a regular file"));
    }
    if changes_identity(&metadata) {
        return Ok(ProgramKind::Cannot("setuid or setgid"));
    }
    let mut start = Vec::new();
    File::open(path)?.take(256).read_to_end(&mut start)?;
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = line
            .split(|&byte| byte == b'\n')
            .next()
            .unwrap_or_default()
            .trim_ascii_start();
        let interpreter = line
            .split(u8::is_ascii_whitespace)
            .next()
            .unwrap_or_default();
        return Ok(ProgramKind::Script(PathBuf::from(OsStr::from_bytes(
            interpreter,
        ))));
    }
    let cache = ReadCache::new(File::open(path)?);
    Ok(match FileKind::parse(&cache) {
        Ok(FileKind::Elf64) => elf(&cache).unwrap_or(ProgramKind::Cannot("damaged ELF file")),
        Ok(FileKind::Elf32) => ProgramKind::Cannot("32-bit program"),
        _ => ProgramKind::Cannot("not an ELF program"),
    })
}

/// Whether running the file changes the user or group, which makes the dynamic linker ignore
/// `LD_PRELOAD`.
fn changes_identity(metadata: &fs::Metadata) -> bool {
    const SETUID: u32 = 0o4000;
    const SETGID: u32 = 0o2000;
    let mode = metadata.mode();
    // The files in /proc/self belong to the effective user and group.
    fs::metadata("/proc/self").is_ok_and(|own| {
        (mode & SETUID != 0 && metadata.uid() != own.uid())
            || (mode & SETGID != 0 && metadata.gid() != own.gid())
    })
}

fn elf(cache: &ReadCache<File>) -> object::Result<ProgramKind> {
    let header = FileHeader64::<Endianness>::parse(cache)?;
    let endian = header.endian()?;
    if header.e_machine(endian).0 != ELF_MACHINE {
        return Ok(ProgramKind::Cannot("for another machine"));
    }
    let segments = header.program_headers(endian, cache)?;
    let Some(segment) = segments
        .iter()
        .find(|segment| segment.p_type(endian) == PT_INTERP)
    else {
        return Ok(ProgramKind::Cannot("statically linked"));
    };
    match segment.interpreter(endian, cache)? {
        Some(linker) if linker.windows(7).any(|part| part == b"ld-musl") => {
            Ok(ProgramKind::Cannot("linked with musl, not glibc"))
        }
        _ => Ok(ProgramKind::Loads),
    }
}

/// Whether a program that has announced itself makes its system calls without libc, though it loads
/// it: those in Go do, and the library sees next to nothing of what they read.
///
/// A program can write any name into its records, such as that of a pipe, whose opening would wait:
/// only a regular file is opened.
pub(crate) fn makes_own_calls(pid: Pid, exe: &[u8]) -> bool {
    let running = PathBuf::from(format!("/proc/{pid}/exe"));
    let paths = [running.as_path(), Path::new(OsStr::from_bytes(exe))];
    let found = paths.into_iter().find_map(|path| {
        let is_file = path.metadata().ok()?.is_file();
        is_file.then(|| File::open(path).ok()).flatten()
    });
    found.is_some_and(is_of_go)
}

/// Whether Go's linker has made it.
pub(crate) fn is_of_go(program: File) -> bool {
    has_note_of_go(&ReadCache::new(program)).unwrap_or(false)
}

fn has_note_of_go(cache: &ReadCache<File>) -> object::Result<bool> {
    let header = FileHeader64::<Endianness>::parse(cache)?;
    let endian = header.endian()?;
    for segment in header.program_headers(endian, cache)? {
        let Some(mut notes) = segment.notes(endian, cache)? else {
            continue;
        };
        while let Some(note) = notes.next()? {
            if note.name() == b"Go" {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use hither_ids::Pid;

    use std::process::Command;

    use hither_kernel::pid_namespace::PidNamespace;

    use super::*;

    fn rows(execs: Execs) -> Vec<(String, u64)> {
        execs
            .finish()
            .into_iter()
            .map(|row| (row.path, row.count))
            .collect()
    }

    #[test]
    fn a_pipe_in_the_place_of_a_program_is_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        let made = Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo starts").success());
        // No process has this number.
        let pid = Pid(u32::MAX >> 1);
        assert!(!makes_own_calls(pid, pipe.as_os_str().as_bytes()));
    }

    fn announced(execs: &mut Execs, pid: u32, time_ns: u64, path: &str) {
        execs.announced(
            None,
            NamespacedPid::own(Pid(pid)),
            time_ns,
            path.as_bytes(),
            false,
        );
    }

    #[test]
    fn execs_are_matched_in_whatever_order_the_rings_are_read() {
        let mut execs = Execs::default();
        announced(&mut execs, 1, 10, "/matched");
        execs.started(NamespacedPid::own(Pid(1)), 11, 101);
        execs.started(NamespacedPid::own(Pid(2)), 21, 102);
        announced(&mut execs, 2, 20, "/matched/though/read/later");
        announced(&mut execs, 3, 30, "/failed");
        execs.failed(NamespacedPid::own(Pid(3)));
        announced(&mut execs, 5, 50, "/static");
        // A program may announce itself because of its next exec.
        execs.started(NamespacedPid::own(Pid(6)), 61, 9);
        execs.announced(Some(9), NamespacedPid::own(Pid(6)), 60, b"/static", false);
        assert_eq!(rows(execs), [("/static".to_owned(), 2)]);
    }

    #[test]
    fn a_process_number_used_again_does_not_hide_the_first_program() {
        let mut execs = Execs::default();
        announced(&mut execs, 1, 10, "/static");
        announced(&mut execs, 1, 20, "/dynamic");
        execs.started(NamespacedPid::own(Pid(1)), 21, 104);
        assert_eq!(rows(execs), [("/static".to_owned(), 1)]);
    }

    #[test]
    fn a_process_number_of_another_namespace_is_another_process() {
        let mut execs = Execs::default();
        let inside = |bits| NamespacedPid {
            namespace: PidNamespace::from_bits(bits),
            pid: Pid(1),
        };
        execs.announced(None, inside(7), 10, b"/static", false);
        execs.announced(None, inside(8), 10, b"/dynamic", false);
        execs.started(NamespacedPid::own(Pid(1)), 11, 1);
        execs.started(inside(8), 12, 2);
        assert_eq!(rows(execs), [("/static".to_owned(), 1)]);
    }

    #[test]
    fn a_failed_exec_does_not_take_another_with_it() {
        let mut execs = Execs::default();
        announced(&mut execs, 1, 10, "/a/tool");
        execs.failed(NamespacedPid::own(Pid(1)));
        execs.failed(NamespacedPid::own(Pid(1)));
        announced(&mut execs, 1, 11, "/b/tool");
        assert_eq!(rows(execs), [("/b/tool".to_owned(), 1)]);
    }

    #[test]
    fn a_program_that_cannot_see_the_library_is_reported_as_that() {
        let mut execs = Execs::default();
        execs.announced(None, NamespacedPid::own(Pid(1)), 10, b"/bin/sh", true);
        announced(&mut execs, 2, 10, "/bin/sh");
        let reasons: Vec<String> = execs.finish().into_iter().map(|row| row.reason).collect();
        assert_eq!(reasons, [HIDDEN, NOT_LOADED]);
    }

    #[test]
    fn programs_are_found_where_the_process_finds_them() {
        let here = std::env::current_dir().expect("a working folder");
        let own = NamespacedPid::own(Pid::own());
        assert_eq!(located(own, Path::new("./tool")), here.join("./tool"));
        assert_eq!(located(own, Path::new("/tool")), Path::new("/tool"));
        let gone = NamespacedPid::own(Pid(u32::MAX));
        assert_eq!(located(gone, Path::new("./tool")), Path::new("./tool"));
        let shell = located(gone, Path::new("sh"));
        assert!(shell.is_absolute() && shell.ends_with("sh"), "{shell:?}");
        assert_eq!(located(gone, Path::new("no-such")), Path::new("no-such"));
        let within =
            |path: &Path| Path::new("/proc/self/root").join(path.strip_prefix("/").unwrap());
        let found = on_path(OsStr::new("sh"), within).expect("a shell");
        assert!(found.starts_with("/proc/self/root"), "{found:?}");
    }

    #[test]
    fn files_say_why() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| folder.path().join(name);
        let compile = |name: &str, flags: &[&str]| {
            fs::write(at("a.c"), "int main(void) { return 0; }\n").expect("written");
            let compiler = Command::new("gcc")
                .args(flags)
                .arg("-o")
                .arg(at(name))
                .arg(at("a.c"))
                .output();
            assert!(
                compiler.expect("gcc starts").status.success(),
                "gcc {flags:?}"
            );
            at(name)
        };
        let fixed = compile("static", &["-static"]);
        assert_eq!(reason(&fixed), "statically linked");
        assert_eq!(
            reason(&compile("pie", &["-static-pie"])),
            "statically linked"
        );
        assert!(reason(&compile("dynamic", &[])).starts_with("did not load the recorder"));
        assert_eq!(
            reason(&compile(
                "musl",
                &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]
            )),
            "linked with musl, not glibc"
        );

        let mut image = fs::read(&fixed).expect("read");
        image[18] = 243;
        fs::write(at("riscv"), &image).expect("written");
        assert_eq!(reason(&at("riscv")), "for another machine");
        image[4] = 1;
        fs::write(at("small"), &image).expect("written");
        assert_eq!(reason(&at("small")), "32-bit program");
        fs::write(at("cut"), &fs::read(at("dynamic")).expect("read")[..70]).expect("written");
        assert_eq!(reason(&at("cut")), "damaged ELF file");

        fs::write(at("script"), format!("#! {} -x\nhello\n", fixed.display())).expect("written");
        assert_eq!(
            reason(&at("script")),
            format!("interpreter {}: statically linked", fixed.display())
        );
        fs::write(at("loop"), format!("#!{}\n", at("loop").display())).expect("written");
        assert_eq!(reason(&at("loop")), "script of a script of a script");
        assert_eq!(
            reason(&at("missing")),
            "not found: removed since, or in another root"
        );
        assert_eq!(reason(&at("a.c")), "not an ELF program");
        assert_eq!(reason(folder.path()), "not a regular file");

        let own = fs::metadata("/proc/self").expect("read");
        fs::set_permissions(&fixed, fs::Permissions::from_mode(0o4755)).expect("changed");
        let metadata = fixed.metadata().expect("read");
        assert_eq!(changes_identity(&metadata), metadata.uid() != own.uid());
    }
}
