//! Names of code that programs make at run time.
//!
//! A runtime that wants its code named appends a line a function to `/tmp/perf-PID.map`, before
//! the function is first called: `START LENGTH NAME`, the numbers hexadecimal. The file stays after
//! the process has ended.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hither_ids::Pid;

/// How many processes' maps are kept; of others, they are read again.
const MAPS_MAX: usize = 16;

/// No more of a map is read: some runtimes write a line for each version of each function.
const MAP_BYTES_MAX: u64 = 64 << 20;

/// The maps of processes.
#[derive(Debug)]
pub(crate) struct PerfMaps {
    folder: PathBuf,
    /// By process id.
    maps: VecDeque<(Pid, PerfMap)>,
}

/// What was read of one map.
#[derive(Debug, Default)]
struct PerfMap {
    read_bytes: u64,
    /// The end and the name of each function, by its start. Of several lines the last counts: a
    /// process with the same id may have written to the file before.
    functions: BTreeMap<u64, (u64, Box<str>)>,
}

impl Default for PerfMaps {
    fn default() -> Self {
        PerfMaps::new("/tmp")
    }
}

impl PerfMaps {
    pub(crate) fn new(folder: impl Into<PathBuf>) -> Self {
        PerfMaps {
            folder: folder.into(),
            maps: VecDeque::new(),
        }
    }

    /// The name of the function of process `pid` to which a call returns at `address`.
    pub(crate) fn name(&mut self, pid: Pid, address: u64) -> Option<&str> {
        let path = self.folder.join(format!("perf-{pid}.map"));
        let at = match self.maps.iter().position(|&(of, _)| of == pid) {
            Some(at) => at,
            None => {
                if self.maps.len() == MAPS_MAX {
                    self.maps.pop_front();
                }
                self.maps.push_back((pid, PerfMap::default()));
                self.maps.len() - 1
            }
        };
        let (_, map) = self.maps.get_mut(at)?;
        let call = address.saturating_sub(1);
        if map.find(call).is_none() {
            map.read_on(&path);
        }
        map.find(call)
    }
}

impl PerfMap {
    fn find(&self, address: u64) -> Option<&str> {
        let (_, (end, name)) = self.functions.range(..=address).next_back()?;
        (address < *end).then_some(name)
    }

    /// Takes in the lines that were added.
    fn read_on(&mut self, path: &Path) {
        let Some(mut file) = open(path) else { return };
        if file.seek(SeekFrom::Start(self.read_bytes)).is_err() {
            return;
        }
        let mut added = Vec::new();
        let rest = MAP_BYTES_MAX.saturating_sub(self.read_bytes);
        // What was read before an error is as good as the rest.
        let _ = file.take(rest).read_to_end(&mut added);
        // The last line may not be whole yet.
        let whole = added
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        self.read_bytes += whole as u64;
        for line in added[..whole].split(|&byte| byte == b'\n') {
            if let Some((start, end, name)) = function(&String::from_utf8_lossy(line)) {
                self.functions.insert(start, (end, name.into()));
            }
        }
    }
}

/// Start, end and name of a function, by a line of a map.
fn function(line: &str) -> Option<(u64, u64, &str)> {
    let (start, rest) = line.split_once(' ')?;
    let (length, name) = rest.split_once(' ')?;
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let start = number(start)?;
    Some((start, start.checked_add(number(length)?)?, name))
}

/// Opens a map, if it is this user's or root's: anybody may write to `/tmp`.
fn open(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    // A pipe of that name would wait for a writer.
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path).ok()?;
    let (found, own) = (file.metadata().ok()?, fs::metadata("/proc/self").ok()?);
    let is_trusted = found.uid() == own.uid() || found.uid() == 0;
    (found.is_file() && is_trusted).then_some(file)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn functions_are_found_by_the_newest_line_and_as_lines_are_added() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("perf-7.map");
        let mut maps = PerfMaps::new(folder.path());
        assert_eq!(maps.name(Pid(7), 0x1006), None, "there is no map yet");
        let lines = "1000 b py::old:a.py\nno line\n1000 b py::load:a b.py\n0x1010 5 x\n1020 b part";
        fs::write(&path, lines).expect("written");
        assert_eq!(maps.name(Pid(7), 0x1006), Some("py::load:a b.py"));
        // A call that ends the code returns to the first byte after it.
        assert_eq!(maps.name(Pid(7), 0x1015), Some("x"));
        for address in [0, 0x1000, 0x1010, 0x1016, 0x1026, u64::MAX] {
            assert_eq!(maps.name(Pid(7), address), None, "{address:#x}");
        }
        let mut file = OpenOptions::new().append(true).open(&path).expect("opened");
        file.write_all(b"ial\n").expect("written");
        assert_eq!(maps.name(Pid(7), 0x1026), Some("partial"));
        assert_eq!(maps.name(Pid(8), 0x1026), None, "another process");
        for pid in 100..200 {
            maps.name(Pid(pid), 1);
        }
        assert_eq!(maps.maps.len(), MAPS_MAX);
        assert_eq!(maps.name(Pid(7), 0x1026), Some("partial"), "read again");
    }

    #[test]
    fn only_plain_files_are_maps() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let text = folder.path().join("text");
        fs::write(&text, "1000 b f\n").expect("written");
        let link = folder.path().join("perf-1.map");
        std::os::unix::fs::symlink(&text, link).expect("linked");
        let made = std::process::Command::new("mkfifo")
            .arg(folder.path().join("perf-2.map"))
            .status();
        assert!(made.expect("mkfifo starts").success());
        fs::create_dir(folder.path().join("perf-3.map")).expect("made");
        let mut maps = PerfMaps::new(folder.path());
        for pid in [1, 2, 3] {
            assert_eq!(maps.name(Pid(pid), 0x1006), None, "{pid}");
        }
    }
}
