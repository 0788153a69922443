//! A guest's job and its result.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::initramfs;
use super::process::{Console, Qemu};
use super::snapshot::{self, Guest};
use crate::cache::Cache;
use crate::counts;

/// Alignment of partitions.
const PARTITION_ALIGNMENT_BYTES: u64 = 1 << 20;

/// A job for a guest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Job {
    files: Vec<(PathBuf, String)>,
    programs: Vec<PathBuf>,
    disk_mib: Option<u32>,
    outside: Option<PathBuf>,
    script: String,
    plugin: Option<PluginArgs>,
    timeout: Duration,
}

/// The counting plugin and its options.
#[derive(Clone, Debug)]
pub(crate) struct PluginArgs {
    /// The absolute path of the shared library.
    pub(crate) library: PathBuf,
    /// Its options, `key=value`, without `out`, `cpus` and `memory`, which depend on the guest.
    pub(crate) options: Vec<String>,
}

/// The result of a job.
#[derive(Debug)]
pub(crate) struct Ran {
    /// What the script wrote to its standard output.
    pub(crate) stdout: String,
    /// The script's exit status.
    pub(crate) status: i32,
    /// The kernel's messages since the resume and the script's standard error.
    pub(crate) console: String,
    /// The plugin's output. Empty without a plugin.
    pub(crate) counts: Vec<counts::Interval>,
    /// Time from QEMU's start to its end.
    pub(crate) host_seconds: f64,
    /// CPU time that QEMU took.
    pub(crate) cpu_seconds: f64,
}

impl Job {
    /// A job that runs `script` by `sh` in `/job`. The guest is killed after `timeout` of the
    /// host's time.
    pub(crate) fn new(script: impl Into<String>, timeout: Duration) -> Self {
        Self {
            script: script.into(),
            timeout,
            ..Self::default()
        }
    }

    /// Puts a file of the host at `/job/NAME`; it stays executable.
    pub(crate) fn file(mut self, path: impl Into<PathBuf>, name: impl Into<String>) -> Self {
        self.files.push((path.into(), name.into()));
        self
    }

    /// Puts a program of the host at `/job/NAME` (its file name), together with the libraries that
    /// `ldd` names. They may not fit the guest's libraries, so `/job/NAME` is a script that starts
    /// the program with its own loader.
    pub(crate) fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.programs.push(path.into());
        self
    }

    /// Adds a partition of `mib` MiB with an empty ext4, which `initramfs::MOUNT` mounts.
    pub(crate) fn disk(mut self, mib: u32) -> Self {
        self.disk_mib = Some(mib);
        self
    }

    /// Adds a partition with the content of this file, which `outside::mount` mounts.
    pub(crate) fn outside(mut self, image: impl Into<PathBuf>) -> Self {
        self.outside = Some(image.into());
        self
    }

    /// Runs the job under the plugin.
    pub(crate) fn plugin(mut self, plugin: PluginArgs) -> Self {
        self.plugin = Some(plugin);
        self
    }

    /// Writes the guest's disk: a partition with a tar archive of the job, and one for files if the
    /// job has one.
    fn write(&self, to: &Path) -> Result<()> {
        let mut disk = File::create(to)?;
        disk.seek(SeekFrom::Start(PARTITION_ALIGNMENT_BYTES))?;
        self.write_archive(&disk)?;
        let end = disk
            .stream_position()?
            .next_multiple_of(PARTITION_ALIGNMENT_BYTES);
        disk.set_len(end)?;
        let bytes = u64::from(self.disk_mib.unwrap_or(0)) << 20;
        if bytes > 0 {
            disk.set_len(end + bytes)?;
            make_ext4(to, end, bytes)?;
        }
        let files_end = end + bytes;
        let mut outside_end = files_end;
        if let Some(image) = &self.outside {
            disk.seek(SeekFrom::Start(files_end))?;
            let mut image = File::open(image).with_context(|| image.display().to_string())?;
            outside_end += io::copy(&mut image, &mut disk)?;
        }
        // A partition of size 0 is an unused entry.
        let partitions = [
            PARTITION_ALIGNMENT_BYTES..end,
            end..files_end,
            files_end..outside_end,
        ];
        Ok(disk.write_all_at(&boot_record(&partitions), 0)?)
    }

    fn write_archive(&self, to: &File) -> Result<()> {
        let mut archive = tar::Builder::new(to);
        append(&mut archive, "script", self.script.as_bytes(), false)?;
        for (path, name) in &self.files {
            append_file(&mut archive, path, name)?;
        }
        let mut libraries = BTreeSet::new();
        for program in &self.programs {
            let name = program
                .file_name()
                .and_then(|name| name.to_str())
                .with_context(|| program.display().to_string())?;
            let needed = needed_libraries(program)?;
            let Some(loader) = needed
                .iter()
                .find(|library| file_name(library).starts_with("ld-"))
            else {
                append_file(&mut archive, program, name)?;
                continue;
            };
            append_file(&mut archive, program, &format!(".host/{name}"))?;
            let start = format!(
                "#!/bin/sh\n\
                 exec /job/.host/{} --library-path /job/.host /job/.host/{name} \"$@\"\n",
                file_name(loader)
            );
            append(&mut archive, name, start.as_bytes(), true)?;
            libraries.extend(needed);
        }
        for library in libraries {
            append_file(
                &mut archive,
                &library,
                &format!(".host/{}", file_name(&library)),
            )?;
        }
        archive.finish()?;
        Ok(())
    }
}

/// Makes an ext4 in a file, without a journal: the journal's thread would write at times of its
/// own.
fn make_ext4(image: &Path, at: u64, bytes: u64) -> Result<()> {
    mke2fs(|command| {
        command
            .arg("-E")
            .arg(format!("offset={at}"))
            .arg(image)
            .arg(format!("{}k", bytes >> 10));
    })
}

/// Makes an ext4 without a journal by `mke2fs`, with these further arguments.
pub(super) fn mke2fs(arguments: impl FnOnce(&mut Command)) -> Result<()> {
    let mut command = Command::new("mke2fs");
    command
        .args(["-q", "-F", "-t", "ext4", "-O", "^has_journal"])
        .env("PATH", search_path());
    arguments(&mut command);
    let output = command.output();
    let output = output.context("running mke2fs (Debian: apt install e2fsprogs)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "mke2fs: {}", said.trim());
    Ok(())
}

/// The search path of programs. Users often lack the folders of administrators.
fn search_path() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

/// A partition table of at most four partitions, in bytes. Of a master boot record Linux needs only
/// these entries and the last two bytes.
fn boot_record(partitions: &[Range<u64>]) -> [u8; 512] {
    const LINUX: u8 = 0x83;
    let mut record = [0; 512];
    for (entry, partition) in record[446..510].chunks_mut(16).zip(partitions) {
        if partition.is_empty() {
            continue;
        }
        entry[4] = LINUX;
        let sectors = |bytes: u64| ((bytes / 512) as u32).to_le_bytes();
        entry[8..12].copy_from_slice(&sectors(partition.start));
        entry[12..16].copy_from_slice(&sectors(partition.end - partition.start));
    }
    record[510..].copy_from_slice(&[0x55, 0xaa]);
    record
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn append_file(archive: &mut tar::Builder<&File>, path: &Path, name: &str) -> Result<()> {
    let place = || path.display().to_string();
    let executable = fs::metadata(path).with_context(place)?.permissions().mode() & 0o111 != 0;
    append(
        archive,
        name,
        &fs::read(path).with_context(place)?,
        executable,
    )
    .with_context(place)
}

fn append(
    archive: &mut tar::Builder<&File>,
    name: &str,
    content: &[u8],
    executable: bool,
) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(if executable { 0o755 } else { 0o644 });
    Ok(archive.append_data(&mut header, name, content)?)
}

/// The shared libraries of a program, including its loader. Empty for a static program.
fn needed_libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd")
        .arg(program)
        .output()
        .context("running ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("not a dynamic executable") || text.contains("statically linked") {
            return Ok(Vec::new());
        }
        bail!("ldd {}: {}", program.display(), said.trim());
    }
    parse_ldd(&text).with_context(|| program.display().to_string())
}

/// Reads lines such as `libc.so.6 => /lib/libc.so.6 (0x...)` and
/// `/lib64/ld-linux-x86-64.so.2 (0x...)`.
fn parse_ldd(text: &str) -> Result<Vec<PathBuf>> {
    let mut libraries = Vec::new();
    for line in text.lines().map(str::trim) {
        let (name, target) = line.split_once(" => ").unwrap_or((line, line));
        if target == "not found" {
            bail!("the library {name} is not found");
        }
        if target.starts_with('/') {
            libraries.push(target.split(" (").next().unwrap_or(target).into());
        }
    }
    Ok(libraries)
}

/// Finds status and output in the guest's answer, once it is complete.
fn parse_result(bytes: &[u8]) -> Result<Option<(i32, String)>> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return Ok(None);
    };
    let line = String::from_utf8_lossy(&bytes[..end]);
    let words: Vec<&str> = line.split_whitespace().collect();
    let [initramfs::RESULT, status, length] = words[..] else {
        bail!("the guest answered {line:?}")
    };
    let (status, length) = (status.parse()?, length.parse::<usize>()?);
    let output = bytes.get(end + 1..end + 1 + length);
    Ok(output.map(|output| (status, String::from_utf8_lossy(output).into_owned())))
}

impl Guest<'_> {
    /// Resumes the machine, runs the job, and waits for the guest's end.
    pub(crate) fn run(&self, job: &Job) -> Result<Ran> {
        let begin = Instant::now();
        let mut qemu = self.resume(job, Console::File)?;
        let (status, stdout) = qemu.receive(parse_result)?;
        qemu.wait()?;
        // If a count could not be written or a region has no end, the counts are incomplete.
        let errors = qemu.errors();
        let complaint = errors.lines().find(|line| line.starts_with("lab-plugin:"));
        ensure!(
            complaint.is_none() || status != 0,
            complaint.unwrap_or_default().to_owned()
        );
        let counts = if job.plugin.is_some() {
            let text = fs::read_to_string(qemu.file("counts"));
            counts::read(&text.context("the plugin wrote no counts")?)?
        } else {
            Vec::new()
        };
        Ok(Ran {
            stdout,
            status,
            console: qemu.console(),
            counts,
            host_seconds: begin.elapsed().as_secs_f64(),
            cpu_seconds: qemu.cpu_seconds(),
        })
    }

    /// Resumes the machine and runs a job whose console is the user's terminal, until the guest's
    /// end.
    pub(crate) fn run_on_terminal(&self, job: &Job) -> Result<()> {
        self.resume(job, Console::Terminal)?.wait()
    }

    fn resume(&self, job: &Job, console: Console) -> Result<Qemu> {
        Cache::touch(&self.snapshot);
        let mut options = snapshot::resume_options(&self.snapshot);
        if let Some(plugin) = &job.plugin {
            let mut value = format!(
                "file={},out=counts",
                plugin.library.display().to_string().replace(',', ",,")
            );
            let memory = self.machine.memory_argument(self.tools.qemu_major());
            for option in [self.machine.cpus_argument(), memory]
                .iter()
                .chain(&plugin.options)
            {
                value.push(',');
                value.push_str(option);
            }
            options.extend(["-plugin".into(), value]);
        }
        let mut qemu = Qemu::start(
            self.tools,
            &self.machine,
            |disk| job.write(disk),
            &options,
            console,
            job.timeout,
        )?;
        // The snapshot was taken of a stopped machine, and resumes stopped: the plugin is in place
        // before the first instruction.
        qemu.wait_status("query-status", "paused")?;
        qemu.command("cont", json!({}))?;
        qemu.send("go\n")?;
        Ok(qemu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_taken_when_it_is_whole() {
        assert_eq!(parse_result(b"LAB-RES").unwrap(), None);
        assert_eq!(parse_result(b"LAB-RESULT 3 4\nab").unwrap(), None);
        assert_eq!(
            parse_result(b"LAB-RESULT 3 4\nab\ncrest").unwrap(),
            Some((3, "ab\nc".into()))
        );
        assert!(parse_result(b"garbage\n").is_err());
    }

    #[test]
    fn libraries_are_read_from_ldd() {
        let text = "\tlinux-vdso.so.1 (0x00007ff)\n\
                    \tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(
            parse_ldd(text).unwrap(),
            [
                Path::new("/lib/libc.so.6"),
                Path::new("/lib64/ld-linux-x86-64.so.2")
            ]
        );
        assert!(parse_ldd("\tliba.so => not found\n").is_err());
    }

    #[test]
    fn the_archive_has_the_script_and_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let tool = folder.path().join("tool");
        fs::write(&tool, "content").unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o700)).unwrap();
        let image = folder.path().join("image");
        Job::new("true", Duration::from_secs(1))
            .file(&tool, "bin/tool")
            .disk(16)
            .write(&image)
            .unwrap();
        let bytes = fs::read(&image).unwrap();
        let word = |at: usize| u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()));
        assert_eq!(word(446 + 8) * 512, PARTITION_ALIGNMENT_BYTES);
        let files = word(446 + 16 + 8) as usize * 512;
        assert_eq!(word(446 + 16 + 12) * 512, 16 << 20);
        assert_eq!(bytes.len(), files + (16 << 20));
        // The magic number of ext4, in its superblock.
        assert_eq!(bytes[files + 1024 + 56..][..2], [0x53, 0xef]);
        let mut archive = tar::Archive::new(&bytes[PARTITION_ALIGNMENT_BYTES as usize..files]);
        let entries: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap())
            .collect();
        let found: Vec<_> = entries
            .iter()
            .map(|e| {
                (
                    e.path().unwrap().display().to_string(),
                    e.header().mode().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            found,
            [("script".into(), 0o644), ("bin/tool".into(), 0o755)]
        );
    }
}
