//! What the tests of sources share: whole reads and listings, and bytes to compare.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use futures_util::TryStreamExt;
use hither_node::source::{Entry, FileVersion, Kind, Source, SourceError, SourcePath};

pub(crate) fn path(text: &str) -> SourcePath {
    SourcePath::new(text.as_bytes()).unwrap()
}

/// The current version of a file, and whether it is settled.
pub(crate) async fn version(source: &dyn Source, path: &SourcePath) -> (FileVersion, bool) {
    let entry = source.stat(path).await.unwrap();
    let Kind::File { version, settled } = entry.kind else {
        panic!("{path} is no file: {entry:?}");
    };
    let file = FileVersion {
        path: path.clone(),
        version,
        bytes: entry.bytes,
    };
    (file, settled)
}

pub(crate) async fn read(
    source: &dyn Source,
    file: &FileVersion,
    range: Range<u64>,
) -> Result<Vec<u8>, SourceError> {
    let chunks: Vec<Bytes> = source.read(file, range).await?.try_collect().await?;
    Ok(chunks.concat())
}

/// All pages of a listing. No name may occur twice.
pub(crate) async fn list_all(source: &dyn Source, path: &SourcePath) -> BTreeMap<Vec<u8>, Entry> {
    let mut all = BTreeMap::new();
    let mut from = None;
    loop {
        let page = source.list(path, from).await.unwrap();
        for (name, entry) in page.entries {
            let twice = all.insert(name.clone(), entry);
            assert!(twice.is_none(), "{} is listed twice", name.escape_ascii());
        }
        from = page.next;
        if from.is_none() {
            return all;
        }
    }
}

/// Bytes that differ at each position and from seed to seed.
pub(crate) fn contents(length: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    (0..length).map(|_| random.next() as u8).collect()
}

/// A generator of numbers (xorshift64): the same seed gives the same ones.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        let mut state = self.0.wrapping_mul(2) | 1;
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.0 = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 24
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
