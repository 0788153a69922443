//! A static C program that waits until it may go on, and files for it.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hither_testing::needs::ON_A_DISK;
use hither_testing::skip::{skip, skip_on_this_machine};
use tempfile::TempDir;

/// Whether the kernel cannot be observed here, which is said.
fn cannot_observe() -> bool {
    let why = match fs::read("/sys/kernel/btf/vmlinux") {
        Err(error) => format!("/sys/kernel/btf/vmlinux: {error}"),
        Ok(btf) => {
            let wanted = b"btf_trace_sys_exit\0";
            let has_tracepoints = btf.windows(wanted.len()).any(|bytes| bytes == wanted);
            let status = fs::read_to_string("/proc/self/status").unwrap();
            let namespace = fs::metadata("/proc/self/ns/pid").unwrap().ino();
            if !status.contains("Uid:\t0\t0") {
                "only root may load programs into the kernel".to_owned()
            } else if !has_tracepoints {
                "the kernel has no tracepoint sys_exit".to_owned()
            } else if namespace != 0xefff_fffc {
                "not in the initial pid namespace".to_owned()
            } else {
                return false;
            }
        }
    };
    skip_on_this_machine(why);
    true
}

/// A folder on a disk, as a temporary one may be all page cache, and the compiled program in it.
pub(crate) struct Scratch {
    pub(crate) folder: TempDir,
    pub(crate) program: PathBuf,
}

impl Scratch {
    /// None if the kernel cannot be observed here, or nothing be compiled, which is said.
    pub(crate) fn new() -> Option<Scratch> {
        if cannot_observe() {
            return None;
        }
        let folder = TempDir::new_in(ON_A_DISK).unwrap();
        let program = folder.path().join("accesses");
        // A guest has no compiler.
        if let Some(compiled) = std::env::var_os("HITHER_TEST_ACCESSES") {
            fs::copy(compiled, &program).unwrap();
            return Some(Scratch { folder, program });
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/accesses.c");
        let built = Command::new("cc")
            .args(["-O1", "-fno-omit-frame-pointer", "-static"])
            .args(["-Wall", "-Werror", "-o"])
            .args([&program, &source])
            .output();
        let why = match built {
            Ok(output) if output.status.success() => return Some(Scratch { folder, program }),
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        skip(format!("cc -static: {why}"));
        None
    }

    /// A file of so many pages that is on the disk, and in the page cache, too, if it is `cached`.
    pub(crate) fn file(&self, name: &str, pages: usize, cached: bool) -> TestFile {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, vec![7; pages * 4096]).unwrap();
        fs::File::open(&path).unwrap().sync_all().unwrap();
        let file = TestFile { path };
        if !cached {
            self.start("drop", &file, &[(0, 0)]).run();
        }
        file
    }

    /// Starts the program: it waits before it accesses the file at these offsets and lengths.
    pub(crate) fn start(&self, mode: &str, file: &TestFile, at: &[(u64, u64)]) -> Program {
        self.start_by(Command::new(&self.program), mode, file, at)
    }

    /// The same by a command that comes before the mode.
    pub(crate) fn start_by(
        &self,
        mut command: Command,
        mode: &str,
        file: &TestFile,
        at: &[(u64, u64)],
    ) -> Program {
        let numbers = at.iter().flat_map(|(offset, length)| [offset, length]);
        let mut child = command
            .arg(mode)
            .arg(&file.path)
            .args(numbers.map(u64::to_string))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Then its own file has been read.
        let mut ready = [0];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut ready)
            .unwrap();
        Program(child)
    }
}

/// A file.
pub(crate) struct TestFile {
    pub(crate) path: PathBuf,
}

/// A started program.
pub(crate) struct Program(Child);

impl Program {
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Lets it go on, waits until it has ended, and returns what it has printed.
    pub(crate) fn run(mut self) -> String {
        self.0.stdin.take().unwrap().write_all(b"\n").unwrap();
        let mut printed = String::new();
        self.0
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut printed)
            .unwrap();
        assert!(self.0.wait().unwrap().success());
        printed
    }
}
