//! The log of a live run: JSON lines, one for each thing that the controller heard and each that it
//! decided, in order.
//!
//! The first line is what the controller started from, so that the rest can be replayed: the same
//! inputs must give the same decisions ([`replay`]). Names of call sites and the end's figures
//! follow last; finding names takes too long to do while a program runs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use hither_trace::schema::SiteRow;
use serde::Serialize;
use serde_json::{Value, json};

use crate::controller::{Controller, TimedInput};
use crate::error::{Error, Result};

#[derive(Serialize)]
struct Header<'a, S> {
    #[serde(flatten)]
    format: BTreeMap<&'static str, u32>,
    #[serde(flatten)]
    config: &'a S,
}

/// A log that is written.
#[derive(Debug)]
pub(crate) struct DecisionLog<C> {
    path: PathBuf,
    /// Nothing once writing has failed.
    file: Option<BufWriter<File>>,
    failure: Option<io::Error>,
    of: PhantomData<fn(C)>,
}

impl<C: Controller> DecisionLog<C> {
    /// Makes the file, and replaces one that is there.
    pub(crate) fn create(path: &Path, config: &C::Config) -> Result<Self> {
        let file = File::create(path).map_err(|source| Error::File {
            path: path.to_owned(),
            source,
        })?;
        let mut log = DecisionLog {
            path: path.to_owned(),
            file: Some(BufWriter::new(file)),
            failure: None,
            of: PhantomData,
        };
        log.line(&Header {
            format: BTreeMap::from([C::FORMAT]),
            config,
        });
        Ok(log)
    }

    fn line(&mut self, line: &impl Serialize) {
        let Some(file) = &mut self.file else {
            return;
        };
        let written = serde_json::to_writer(&mut *file, line)
            .map_err(io::Error::from)
            .and_then(|()| file.write_all(b"\n"));
        self.note(written);
    }

    /// The program runs on without a log that cannot be written; the first failure is told at the
    /// end.
    fn note(&mut self, written: io::Result<()>) {
        if let Err(failure) = written {
            self.failure = Some(failure);
            self.file = None;
        }
    }

    pub(crate) fn input(&mut self, at: &TimedInput<C::Input>) {
        self.line(at);
    }

    pub(crate) fn decision(&mut self, decision: &C::Decision) {
        self.line(decision);
    }

    /// What is known by name of a call site.
    pub(crate) fn site(&mut self, site: &SiteRow) {
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

    /// Completes the file, and says whether all of it could be written.
    pub(crate) fn finish(mut self, end: &Value) -> Result<(), Error> {
        self.line(&json!({ "end": end }));
        let flushed = self.file.as_mut().map_or(Ok(()), Write::flush);
        self.note(flushed);
        match self.failure.take() {
            None => Ok(()),
            Some(source) => Err(Error::File {
                path: std::mem::take(&mut self.path),
                source,
            }),
        }
    }
}

/// A log whose decisions are not those that its inputs lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The line, counted from 1.
    pub line: usize,
    /// What stands there.
    pub logged: String,
    /// What was decided now.
    pub decided: String,
}

/// Replays a log: drives the policy by its inputs once more, and compares the decisions. Returns
/// how many there were, or the first that differs.
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
        let mismatch = |logged: &str, decided: Option<C::Decision>| Mismatch {
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
        } else if value.get("decision").is_some() {
            let logged: C::Decision =
                serde_json::from_value(value).map_err(|error| wrong(number, error.to_string()))?;
            let now = decided.next();
            if now.as_ref() != Some(&logged) {
                return Ok(Err(mismatch(&line, now)));
            }
            decisions += 1;
        } else {
            if let Some(left) = decided.next() {
                return Ok(Err(mismatch(&line, Some(left))));
            }
            if value.get("input").is_some() {
                let at: TimedInput<C::Input> = serde_json::from_value(value)
                    .map_err(|error| wrong(number, error.to_string()))?;
                let controller = controller
                    .as_mut()
                    .ok_or_else(|| wrong(number, "it does not begin with a header".to_owned()))?;
                let mut out = Vec::new();
                controller.input(&at, &mut out);
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

/// 64-bit numbers as hexadecimal strings: most readers of JSON have 53 bits.
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
