//! The traces of Mooncake (Qin and others, FAST 2025), JSON lines: a request for a language model,
//! whose prompt is a list of blocks of the KV cache, by the hashes of all tokens up to their ends:
//! `{"timestamp": 0, "input_length": 600, "output_length": 20, "hash_ids": [0, 7, 33]}`.
//!
//! Each block is one reference, in the order of the prompt.

use hither_core::Op;
use serde::Deserialize;

use super::reader::{Format, RecordKind};
use crate::error::Result;
use crate::sink::Sink;
use crate::source::Input;
use crate::text::Lines;

/// The entry in the registry.
pub(super) const FORMAT: Format = Format {
    name: "mooncake",
    doc: "JSON lines, `{\"timestamp\": 0, \"hash_ids\": [0, 7]}` a prompt (Mooncake, KV caches)",
    records: RecordKind::Keys,
    matches: Some(|head| {
        let mut lines = head.lines().filter(|line| !line.is_empty());
        lines
            .next()
            .is_some_and(|line| serde_json::from_slice::<Prompt>(line).is_ok())
    }),
    read,
};

/// A line. Other fields are ignored.
#[derive(Deserialize)]
struct Prompt {
    hash_ids: Vec<u64>,
}

fn read(input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<Option<String>> {
    let mut lines = Lines::of(input);
    while let Some(line) = lines.next()? {
        if line.bytes.is_empty() {
            sink.separator();
            continue;
        }
        let prompt: Prompt = serde_json::from_slice(line.bytes)
            .map_err(|error| line.error(format!("not a prompt with hash_ids: {error}")))?;
        for block in prompt.hash_ids {
            sink.key(block, Op::Read)?;
        }
    }
    Ok(None)
}
