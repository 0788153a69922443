//! The objects of a trace whose format names them in each record.

use std::borrow::Borrow;
use std::hash::Hash;

use rustc_hash::FxHashMap;

use crate::schema::ObjectRow;
use crate::sink::Sink;

/// The objects so far, by what a record calls them.
#[derive(Debug)]
pub(crate) struct Objects<N: ToOwned + ?Sized>
where
    N::Owned: Eq + Hash,
{
    numbers: FxHashMap<N::Owned, u32>,
}

impl<N: ToOwned + Eq + Hash + ?Sized> Objects<N>
where
    N::Owned: Borrow<N> + Eq + Hash,
{
    pub(crate) fn new() -> Objects<N> {
        Objects {
            numbers: FxHashMap::default(),
        }
    }

    /// The number of an object. One that is new is added to `sink`, with the path that `path`
    /// gives.
    pub(crate) fn number(
        &mut self,
        sink: &mut dyn Sink,
        name: &N,
        time_ns: u64,
        path: impl FnOnce() -> Vec<u8>,
    ) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = sink.add_object(ObjectRow {
            path: path(),
            first_seen_ns: time_ns,
            ..ObjectRow::default()
        });
        self.numbers.insert(name.to_owned(), number);
        number
    }
}
