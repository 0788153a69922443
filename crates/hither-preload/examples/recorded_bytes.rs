//! Runs a command under the preload library and prints, as tab-separated lines, what was recorded of each file:
//! operation, bytes, calls, path. `experiments/recorder_coverage.py` holds this against what strace saw.
//!
//! Usage: `recorded_bytes LIBRARY OUTPUT COMMAND...`

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::process::{Command, ExitCode};
use std::time::Duration;

use hither_sys::record::{IN_KERNEL, Op, Record};
use hither_sys::session::{Session, SessionOptions};

#[derive(Default)]
struct Totals {
    paths: BTreeMap<u64, String>,
    moved: BTreeMap<(u64, &'static str), (u64, u64)>,
    sites: u64,
    unsigned: u64,
}

impl Totals {
    fn take(&mut self, record: Record<'_>) {
        match record {
            Record::Object { object, path, .. } => {
                self.paths
                    .insert(object, String::from_utf8_lossy(path).into_owned());
            }
            Record::Site { .. } => self.sites += 1,
            Record::Access {
                op,
                flags,
                object,
                length,
                signature,
                ..
            } => {
                let name = match op {
                    Op::Read if flags & IN_KERNEL != 0 => "read-in-kernel",
                    Op::Read => "read",
                    Op::Write if flags & IN_KERNEL != 0 => "write-in-kernel",
                    Op::Write => "write",
                    Op::Map => "map",
                    Op::Unmap => "unmap",
                    Op::Truncate => "truncate",
                };
                let (bytes, calls) = self.moved.entry((object, name)).or_default();
                *bytes += length;
                *calls += 1;
                self.unsigned += u64::from(signature <= 1);
            }
            _ => {}
        }
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(library), Some(output), Some(program)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: recorded_bytes LIBRARY OUTPUT COMMAND...".into());
    };
    let mut session = Session::create(SessionOptions::default())?;
    let mut child = Command::new(program)
        .args(arguments)
        .env("LD_PRELOAD", library)
        .env("HITHER_SESSION", session.path())
        .spawn()?;
    let mut totals = Totals::default();
    let mut turns = 0;
    let status = loop {
        let ended = child.try_wait()?;
        let drained = session.drain(|_, record| totals.take(record));
        turns += 1;
        if turns % 64 == 0 || ended.is_some() {
            session.reap(|_, record| totals.take(record));
        }
        if let Some(status) = ended {
            break status;
        }
        if drained == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let mut file = std::fs::File::create(output)?;
    for ((object, name), (bytes, calls)) in &totals.moved {
        let path = totals.paths.get(object).map_or("?", String::as_str);
        writeln!(file, "{name}\t{bytes}\t{calls}\t{path}")?;
    }
    let lost = session.lost();
    writeln!(
        file,
        "#sites\t{}\t{}\t{lost:?}",
        totals.sites, totals.unsigned
    )?;
    Ok(ExitCode::from(status.code().unwrap_or(1) as u8))
}
