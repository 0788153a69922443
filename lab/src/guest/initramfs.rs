//! The guest's root file system: a cpio archive (newc) with busybox, numactl and an init that waits
//! for a job.
//!
//! No file of it depends on the machine or the job, so one archive serves all snapshots.

use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Kernel modules, in the order in which init loads them. Everything else that the guest needs is
/// built into Debian's cloud kernel. They have no dependencies: `depends=` of each is empty (6.12,
/// 2026-11).
pub(super) const MODULES: [&str; 1] = ["virtio_blk"];

/// The commands that mount a job's partition of files at `folder`.
pub(crate) fn mount(folder: &str) -> String {
    format!("mkdir -p {folder}\nmount -t ext4 /dev/vda2 {folder}\n")
}

/// Programs and libraries, by their paths in the packages.
const FILES: [&str; 6] = [
    "bin/busybox",
    "usr/bin/numactl",
    "usr/bin/numastat",
    "usr/bin/migratepages",
    "lib/x86_64-linux-gnu/libc.so.6",
    "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
];

/// Init's message when the boot is done and it waits for a job.
pub(super) const READY: &str = "LAB-READY";

/// Init's message when the CPUs did not come to rest.
pub(super) const RESTLESS: &str = "LAB-RESTLESS";

/// The first word of the line before a job's output. Status and size in bytes follow.
pub(super) const RESULT: &str = "LAB-RESULT";

// What the kernel still does after a boot (deferred work, RCU's callbacks, threads that start)
// would be counted as the job's: init waits for two seconds in a row in which the CPUs together
// were busy for less than a hundredth of the time. It sleeps by reading from the silent port: a
// program that sleeps would be work. Fields of /proc/stat are ticks: user, nice, system, idle,
// iowait, irq, softirq.
//
// The block device's driver is loaded after the resume, because only then does its size say how
// long the job is. Output goes to a file first: bytes on a serial port cost an exit of the emulator
// each, which would land in the counts.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /root /job /etc
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t debugfs debug /sys/kernel/debug
mkdir -p /dev/shm /dev/pts
mount -t tmpfs tmp /tmp
mount -t tmpfs shm /dev/shm
export PATH=/usr/bin:/bin HOME=/root
ip link set lo up 2> /dev/null
exec 3<> /dev/ttyS1
stty raw -echo < /dev/ttyS1
at_rest=0 second=0
while [ $at_rest -lt 2 ]; do
  if [ $second = 60 ]; then echo @RESTLESS@ >&3; break; fi
  read -r _ a b c i d e f _ < /proc/stat
  read -t 1 -r nothing <&3
  read -r _ a2 b2 c2 i2 d2 e2 f2 _ < /proc/stat
  busy=$((a2 + b2 + c2 + e2 + f2 - a - b - c - e - f))
  idle=$((i2 + d2 - i - d))
  if [ $((busy * 100)) -lt $((busy + idle)) ]; then at_rest=$((at_rest + 1)); else at_rest=0; fi
  second=$((second + 1))
done
echo @READY@ >&3
read -r go <&3
for module in @MODULES@; do insmod /lib/modules/$module.ko; done
cd /job
tar -x -f /dev/vda1
echo 3 > /proc/sys/vm/drop_caches
sh ./script > /tmp/.stdout 2> /dev/console < /dev/null
status=$?
echo @RESULT@ $status $(stat -c %s /tmp/.stdout) >&3
cat /tmp/.stdout >&3
exec 3>&-
poweroff -f
"#;

/// Builds the archive from the packages unpacked at `root`.
pub(super) fn build(root: &Path) -> Result<Vec<u8>> {
    let mut archive = Cpio::default();
    for folder in [
        "bin",
        "lib",
        "lib64",
        "lib/modules",
        "lib/x86_64-linux-gnu",
        "usr",
        "usr/bin",
        "dev",
    ] {
        archive.folder(folder);
    }
    for file in FILES {
        archive.file(file, &read(&root.join(file))?);
    }
    archive.file(
        "lib/x86_64-linux-gnu/libnuma.so.1",
        &read(&root.join("usr/lib/x86_64-linux-gnu/libnuma.so.1"))?,
    );
    archive.link(
        "lib64/ld-linux-x86-64.so.2",
        "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
    );
    for module in MODULES {
        archive.file(
            &format!("lib/modules/{module}.ko"),
            &kernel_module(root, module)?,
        );
    }
    let init = INIT
        .replace("@MODULES@", &MODULES.join(" "))
        .replace("@READY@", READY)
        .replace("@RESTLESS@", RESTLESS)
        .replace("@RESULT@", RESULT);
    archive.file("init", init.as_bytes());
    Ok(archive.finish())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}

/// Finds and unpacks a kernel module below `lib/modules`.
fn kernel_module(root: &Path, module: &str) -> Result<Vec<u8>> {
    let mut open = vec![root.join("lib/modules")];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            } else if let Some(packing) = name.strip_prefix(&format!("{module}.ko")) {
                let bytes = read(&entry.path())?;
                return match packing {
                    "" => Ok(bytes),
                    ".xz" => {
                        let mut unpacked = Vec::new();
                        liblzma::read::XzDecoder::new(&bytes[..])
                            .read_to_end(&mut unpacked)
                            .context(name)?;
                        Ok(unpacked)
                    }
                    _ => bail!("the kernel's module {name}: only xz is known"),
                };
            }
        }
    }
    bail!("the kernel's package has no module {module}")
}

/// A cpio archive in the `newc` format (the kernel's
/// Documentation/driver-api/early-userspace/buffer-format.rst).
#[derive(Default)]
struct Cpio {
    bytes: Vec<u8>,
    entries: u32,
}

impl Cpio {
    fn folder(&mut self, name: &str) {
        self.entry(name, 0o040_755, &[]);
    }

    fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, 0o100_755, content);
    }

    fn link(&mut self, name: &str, target: &str) {
        self.entry(name, 0o120_777, target.as_bytes());
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    /// Owner and time are 0, so that the archive depends only on its content.
    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let bytes = u32::try_from(content.len()).expect("no file of the guest has 4 GiB");
        let name_bytes = u32::try_from(name.len() + 1).expect("names are short");
        self.bytes.extend_from_slice(b"070701");
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            bytes,
            0,
            0,
            0,
            0,
            name_bytes,
            0,
        ];
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an archive by the format's rules: `(name, mode, content)`.
    fn entries(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = Vec::new();
        loop {
            assert_eq!(&bytes[..6], b"070701");
            let field = |i: usize| {
                u32::from_str_radix(
                    std::str::from_utf8(&bytes[6 + 8 * i..14 + 8 * i]).unwrap(),
                    16,
                )
                .unwrap() as usize
            };
            let (mode, content_bytes, name_bytes) = (field(1), field(6), field(11));
            let name = std::str::from_utf8(&bytes[110..110 + name_bytes - 1])
                .unwrap()
                .to_owned();
            assert_eq!(bytes[110 + name_bytes - 1], 0);
            let start = (110 + name_bytes).next_multiple_of(4);
            let end = start + content_bytes;
            if name == "TRAILER!!!" {
                assert_eq!(bytes.len(), end);
                return found;
            }
            found.push((
                name,
                u32::try_from(mode).unwrap(),
                bytes[start..end].to_vec(),
            ));
            bytes = &bytes[end.next_multiple_of(4)..];
        }
    }

    #[test]
    fn the_archive_reads_back() {
        let mut archive = Cpio::default();
        archive.folder("bin");
        archive.file("bin/a", b"12345");
        archive.link("bin/bcd", "/bin/a");
        let read = entries(&archive.finish());
        let expected = [
            ("bin", 0o040_755, &b""[..]),
            ("bin/a", 0o100_755, b"12345"),
            ("bin/bcd", 0o120_777, b"/bin/a"),
        ];
        assert_eq!(
            read,
            expected.map(|(name, mode, content)| (name.to_owned(), mode, content.to_vec()))
        );
    }
}
