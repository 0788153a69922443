//! A running QEMU: its sockets, its control protocol (QMP), and its end.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::tools::Tools;
use crate::interrupt;
use crate::machine::Machine;

/// Number of a guest's last lines that an error shows.
pub(crate) const LINES_SHOWN: usize = 15;

/// Timeout of a read from a socket: a fraction of the shortest job.
const POLL_TIMEOUT: Duration = Duration::from_millis(20);

/// A QEMU process, killed when dropped.
pub(super) struct Qemu {
    child: Child,
    folder: TempDir,
    /// The guest's second serial port.
    port: UnixStream,
    qmp: Qmp,
    timeout: Duration,
    deadline: Instant,
    cpu_seconds: f64,
}

/// The destination of the guest's console.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Console {
    /// Into a file, for errors.
    File,
    /// To the user's terminal, in both directions.
    Terminal,
}

impl Qemu {
    /// Starts QEMU with the machine's devices and a disk that `write_disk` writes. `extra` makes it
    /// boot or resume.
    pub(super) fn start(
        tools: &Tools,
        machine: &Machine,
        write_disk: impl FnOnce(&Path) -> Result<()>,
        extra: &[String],
        console: Console,
        timeout: Duration,
    ) -> Result<Self> {
        interrupt::check()?;
        let folder = TempDir::with_prefix("lab-").context("a folder for QEMU's files")?;
        let disk = folder.path().join("job");
        write_disk(&disk)
            .with_context(|| format!("writing the guest's disk {}", disk.display()))?;
        let mut command = tools.qemu();
        command
            .args(machine.options(tools.qemu_major()))
            .args([
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
                "-no-reboot",
                "-rtc",
                "clock=vm",
            ])
            .arg("-kernel")
            .arg(tools.kernel())
            .arg("-initrd")
            .arg(tools.initramfs())
            .args(["-append", super::qemu::KERNEL_ARGUMENTS])
            .args(["-serial", "chardev:console"])
            .args([
                "-chardev",
                "socket,id=port,path=port,server=on,wait=off",
                "-serial",
                "chardev:port",
            ])
            .args([
                "-chardev",
                "socket,id=qmp,path=qmp,server=on,wait=off",
                "-mon",
                "chardev=qmp,mode=control",
            ])
            .args(["-drive", "if=none,id=job,format=raw,file=job"])
            .args(["-device", "virtio-blk-pci,drive=job"])
            .args(extra)
            .current_dir(folder.path())
            .stderr(fs::File::create(folder.path().join("errors"))?);
        command.arg("-chardev");
        match console {
            // Its own process group: on Ctrl-C the lab decides what to do.
            Console::File => command
                .arg("file,id=console,path=console")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .process_group(0),
            Console::Terminal => command.arg("stdio,id=console,signal=off"),
        };
        let mut child = command.spawn().context("starting QEMU")?;
        let deadline = Instant::now() + timeout;
        let connected =
            connect(&mut child, &folder.path().join("port"), deadline).and_then(|port| {
                Ok((
                    port,
                    Qmp::new(connect(&mut child, &folder.path().join("qmp"), deadline)?)?,
                ))
            });
        match connected {
            Ok((port, qmp)) => {
                port.set_read_timeout(Some(POLL_TIMEOUT))?;
                Ok(Self {
                    child,
                    folder,
                    port,
                    qmp,
                    timeout,
                    deadline,
                    cpu_seconds: 0.0,
                })
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                interrupt::check()?;
                let said = fs::read_to_string(folder.path().join("errors")).unwrap_or_default();
                let said = said.trim();
                if said.is_empty() {
                    return Err(error.context("QEMU did not start"));
                }
                Err(anyhow!("QEMU did not start: {said}{}", hint(said)))
            }
        }
    }

    /// QEMU's working folder: its files may be named relative to it.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The kernel's messages so far.
    pub(super) fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.file("console")).unwrap_or_default())
            .replace('\r', "")
    }

    pub(super) fn cpu_seconds(&self) -> f64 {
        self.cpu_seconds
    }

    /// Sends a QMP command and gives its answer.
    pub(super) fn command(&mut self, name: &str, arguments: Value) -> Result<Value> {
        self.qmp.command(name, arguments)
    }

    /// Repeats a query until its `status` is one of `wanted`.
    pub(super) fn wait_status(&mut self, query: &str, wanted: &str) -> Result<()> {
        loop {
            let answer = self.command(query, json!({}))?;
            match answer["status"].as_str() {
                Some(status) if status == wanted => return Ok(()),
                Some("failed" | "cancelled" | "internal-error" | "guest-panicked") => {
                    return Err(self.failure(&format!("failed at {query} ({answer})")));
                }
                _ => self.tick()?,
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Writes to the guest's second serial port.
    pub(super) fn send(&mut self, text: &str) -> Result<()> {
        self.port
            .write_all(text.as_bytes())
            .context("writing to the guest")
    }

    /// Reads the guest's second serial port until `done` accepts what arrived.
    pub(super) fn receive<T>(
        &mut self,
        mut done: impl FnMut(&[u8]) -> Result<Option<T>>,
    ) -> Result<T> {
        let (mut bytes, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            match self.port.read(&mut buffer) {
                Ok(0) => return Err(self.failure("ended before it answered")),
                Ok(read) => {
                    bytes.extend_from_slice(&buffer[..read]);
                    if let Some(found) = done(&bytes)? {
                        return Ok(found);
                    }
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(error).context("reading from the guest"),
            }
            self.tick()?;
        }
    }

    /// Waits until QEMU has ended by itself.
    pub(super) fn wait(&mut self) -> Result<()> {
        // A zombie's times stay readable until it is waited for.
        while !self.read_times()? {
            self.tick()?;
            std::thread::sleep(POLL_TIMEOUT / 4);
        }
        let status = self.child.wait()?;
        if !status.success() {
            return Err(self.failure(&format!("ended with {status}")));
        }
        Ok(())
    }

    /// Fails after the time limit or a signal.
    pub(super) fn tick(&mut self) -> Result<()> {
        interrupt::check()?;
        if Instant::now() > self.deadline {
            let seconds = self.timeout.as_secs();
            return Err(self.failure(&format!("was not done after {seconds} s")));
        }
        Ok(())
    }

    /// Reads the CPU time so far (proc_pid_stat(5), fields 14 and 15, in hundredths of a second);
    /// whether the process has ended.
    fn read_times(&mut self) -> Result<bool> {
        let path = format!("/proc/{}/stat", self.child.id());
        let text = fs::read_to_string(&path).context(path.clone())?;
        let fields: Vec<&str> = text
            .rsplit_once(") ")
            .map(|(_, rest)| rest.split(' ').collect())
            .unwrap_or_default();
        let [state, user, system] = [0, 11, 12].map(|i| fields.get(i).copied().unwrap_or_default());
        let hundredths = |text: &str| {
            text.parse::<f64>()
                .with_context(|| format!("{path}: {text:?}"))
        };
        self.cpu_seconds = (hundredths(user)? + hundredths(system)?) / 100.0;
        Ok(state == "Z")
    }

    /// QEMU's own messages, and the plugin's.
    pub(super) fn errors(&self) -> String {
        fs::read_to_string(self.file("errors")).unwrap_or_default()
    }

    /// An error with the last lines of the console and of QEMU's messages.
    pub(super) fn failure(&self, what: &str) -> anyhow::Error {
        if let Err(interrupted) = interrupt::check() {
            return interrupted;
        }
        let last = |text: &str| {
            let lines: Vec<_> = text
                .lines()
                .filter(|line| !line.trim().is_empty())
                .collect();
            lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n  ")
        };
        let mut message = format!("the guest {what}");
        let said_nothing = message.len();
        for (name, text) in [("its console", self.console()), ("QEMU", self.errors())] {
            if !text.trim().is_empty() {
                message.push_str(&format!("; {name} said last:\n  {}", last(&text)));
            }
        }
        if message.len() == said_nothing {
            message
                .push_str("; nothing was said: is the disk of the temporary files full (TMPDIR)?");
        }
        anyhow!(message)
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // Both fail if the process has been waited for, as it should be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Connects to a socket that QEMU makes shortly after its start.
fn connect(child: &mut Child, path: &Path, deadline: Instant) -> Result<UnixStream> {
    loop {
        if let Ok(stream) = UnixStream::connect(path) {
            return Ok(stream);
        }
        interrupt::check()?;
        if let Some(status) = child.try_wait()? {
            bail!("ended with {status}");
        }
        if Instant::now() > deadline {
            bail!("no connection to {}", path.display());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Advice for messages of QEMU that give none.
fn hint(said: &str) -> &'static str {
    if said.contains("version `GLIBC_") {
        "\n(the plugin is linked to a newer C library than the one in the cache, which QEMU runs \
         with: give one that was built on Debian 12 or older by --plugin)"
    } else {
        ""
    }
}

/// The control protocol: one JSON object per line in each direction.
struct Qmp {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Qmp {
    fn new(stream: UnixStream) -> Result<Self> {
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let reader = BufReader::new(stream.try_clone()?);
        let mut qmp = Self { stream, reader };
        qmp.line()?;
        qmp.command("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.reader
            .read_line(&mut line)
            .context("no answer from QEMU's control socket")?;
        serde_json::from_str(&line).with_context(|| format!("QEMU's control socket: {line:?}"))
    }

    fn command(&mut self, name: &str, arguments: Value) -> Result<Value> {
        writeln!(
            self.stream,
            "{}",
            json!({"execute": name, "arguments": arguments})
        )
        .context("writing to QEMU's control socket")?;
        loop {
            let mut answer = self.line()?;
            if !answer["error"].is_null() {
                bail!("QEMU refused {name}: {}", answer["error"]["desc"]);
            }
            // Lines of another kind are events.
            if answer.get("return").is_some() {
                return Ok(answer["return"].take());
            }
        }
    }
}
