//! The log of a run: JSON lines, one for each input of a controller and each of its decisions, in
//! order.
//!
//! A controller's first line has what it started from, so that the rest can be replayed: equal
//! inputs must give equal decisions ([`replay`]). Names of call sites and the final figures come
//! last, since looking up names takes too long while a program runs. If a run has several
//! controllers, they share the file, and the key `controller` names the one of each line.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hither_trace::schema::SiteRow;
use serde::Serialize;
use serde_json::{Value, json};

use crate::controller::{Controller, DecisionOf, TimedInput};
use crate::error::{Error, Result};

#[derive(Serialize)]
struct Header<'a, S> {
    #[serde(flatten)]
    format: BTreeMap<&'static str, u32>,
    #[serde(flatten)]
    config: &'a S,
}

/// The key of [`Tagged`] lines that names their controller.
const CONTROLLER: &str = "controller";

/// A line of a file that several controllers share.
#[derive(Serialize)]
struct Tagged<'a, L> {
    controller: &'static str,
    #[serde(flatten)]
    line: &'a L,
}

/// The file of a log. All controllers of a run write to it.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    /// Several controllers write to it: each line names its own.
    is_shared: bool,
    writer: Mutex<LogWriter>,
}

#[derive(Debug)]
struct LogWriter {
    /// `None` once writing has failed.
    file: Option<BufWriter<File>>,
    failure: Option<io::Error>,
}

impl LogFile {
    /// Creates the file, and replaces an existing one.
    pub(crate) fn create(path: &Path, is_shared: bool) -> Result<Arc<LogFile>> {
        let file = File::create(path).map_err(|source| Error::LogNotCreated {
            path: path.to_owned(),
            source,
        })?;
        Ok(Arc::new(LogFile {
            path: path.to_owned(),
            is_shared,
            writer: Mutex::new(LogWriter {
                file: Some(BufWriter::new(file)),
                failure: None,
            }),
        }))
    }

    /// Writes, unless writing has failed before. The program runs on without a log; the first
    /// failure is reported at the end.
    fn write(&self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = &mut writer.file else {
            return;
        };
        if let Err(failure) = write(file) {
            writer.failure = Some(failure);
            writer.file = None;
        }
    }

    fn line(&self, line: &impl Serialize) {
        self.write(|file| {
            serde_json::to_writer(&mut *file, line)?;
            file.write_all(b"\n")
        });
    }

    /// Flushes the file. An error is the first failure of all writes; it is returned once.
    fn flush(&self) -> Result<()> {
        self.write(Write::flush);
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        match writer.failure.take() {
            None => Ok(()),
            Some(source) => Err(Error::File {
                path: self.path.clone(),
                source,
            }),
        }
    }
}

/// A controller's part of a log.
#[derive(Debug)]
pub(crate) struct DecisionLog<C> {
    file: Arc<LogFile>,
    of: PhantomData<fn(C)>,
}

impl<C: Controller> DecisionLog<C> {
    /// Writes the first line.
    pub(crate) fn begin(file: &Arc<LogFile>, config: &C::Config) -> Self {
        let log = DecisionLog {
            file: Arc::clone(file),
            of: PhantomData,
        };
        log.line(&Header {
            format: BTreeMap::from([C::FORMAT]),
            config,
        });
        log
    }

    fn line(&self, line: &impl Serialize) {
        if self.file.is_shared {
            self.file.line(&Tagged {
                controller: C::NAME,
                line,
            })
        } else {
            self.file.line(line)
        }
    }

    pub(crate) fn input(&self, at: &TimedInput<C::Input>) {
        self.line(at);
    }

    pub(crate) fn decision(&self, decision: &DecisionOf<C>) {
        self.line(decision);
    }

    /// Writes a call site with its names.
    pub(crate) fn site(&self, site: &SiteRow) {
        let frames = site.frames.iter().map(|frame| {
            json!({
                "module": frame.module,
                "offset": format!("{:#x}", frame.offset),
                "function": frame.function,
                "file": frame.file,
                "line": frame.line,
            })
        });
        self.line(&json!({
            "site": format!("{:#x}", site.signature),
            "function": site.function,
            "file": site.file,
            "line": site.line,
            "module": site.module,
            "frames": frames.collect::<Vec<Value>>(),
        }));
    }

    /// Writes the last line. An error is the first failure to write any line.
    pub(crate) fn finish(self, end: &impl Serialize) -> Result<()> {
        #[derive(Serialize)]
        struct End<'a, E> {
            end: &'a E,
        }
        self.line(&End { end });
        self.file.flush()
    }
}

/// A log whose decisions are not those that its inputs lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The line, counted from 1.
    pub line: usize,
    /// What it says.
    pub logged: String,
    /// What was decided now.
    pub decided: String,
}

/// Replays a log: gives its inputs to a new controller, and compares the decisions. Returns how
/// many there were, or the first that differs.
pub(crate) fn replay<C: Controller>(path: &Path) -> Result<std::result::Result<usize, Mismatch>> {
    let wrong =
        |line: usize, what: String| Error::Log(format!("{}:{}: {what}", path.display(), line + 1));
    let failed = |source| Error::File {
        path: path.to_owned(),
        source,
    };
    let file = BufReader::new(File::open(path).map_err(failed)?);
    let (name, format) = C::FORMAT;
    let mut controller: Option<C> = None;
    let mut decided = Vec::new().into_iter();
    let mut decisions = 0;
    let mut lines = 0;
    for (number, line) in file.lines().enumerate() {
        lines = number + 1;
        let line = line.map_err(failed)?;
        let value: Value =
            serde_json::from_str(&line).map_err(|error| wrong(number, error.to_string()))?;
        if value
            .get(CONTROLLER)
            .is_some_and(|controller| *controller != json!(C::NAME))
        {
            continue;
        }
        let mismatch = |logged: &str, decided: Option<DecisionOf<C>>| Mismatch {
            line: number + 1,
            logged: logged.to_owned(),
            decided: decided
                .map_or_else(|| "nothing".to_owned(), |decision| format!("{decision:?}")),
        };
        if let Some(found) = value.get(name) {
            if *found != json!(format) {
                let what = format!("format {found}, and this version reads {format}");
                return Err(wrong(number, what));
            }
            let config =
                serde_json::from_value(value).map_err(|error| wrong(number, error.to_string()))?;
            controller = Some(C::new(&config)?);
        } else if value.get("order").is_some() || value.get("note").is_some() {
            let now = decided.next();
            if now
                .as_ref()
                .is_none_or(|now| as_logged(now) != without_controller(value))
            {
                return Ok(Err(mismatch(&line, now)));
            }
            decisions += 1;
        } else {
            if let Some(left) = decided.next() {
                return Ok(Err(mismatch(&line, Some(left))));
            }
            if value.get("input").is_some() {
                let time_ns = value["time_ns"]
                    .as_u64()
                    .ok_or_else(|| wrong(number, "it has no time_ns".to_owned()))?;
                let input = serde_json::from_value(value);
                let input = input.map_err(|error| wrong(number, error.to_string()))?;
                let at = TimedInput { time_ns, input };
                let controller = controller
                    .as_mut()
                    .ok_or_else(|| wrong(number, "it does not begin with a header".to_owned()))?;
                let mut out = Vec::new();
                controller.step(&at, &mut out);
                decided = out.into_iter();
            }
        }
    }
    match decided.next() {
        None => Ok(Ok(decisions)),
        Some(left) => Ok(Err(Mismatch {
            line: lines + 1,
            logged: "the file ends".to_owned(),
            decided: format!("{left:?}"),
        })),
    }
}

/// A decision as a log has it.
fn as_logged(decision: &impl Serialize) -> Value {
    let text = serde_json::to_string(decision).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// A line without the name of its controller.
fn without_controller(mut line: Value) -> Value {
    if let Some(line) = line.as_object_mut() {
        line.remove(CONTROLLER);
    }
    line
}

/// 64-bit numbers as hexadecimal strings: most readers of JSON keep 53 bits of a number.
pub(crate) mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{value:#x}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.strip_prefix("0x");
        digits
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .ok_or_else(|| de::Error::custom(format!("{text:?} is no hexadecimal number")))
    }
}
