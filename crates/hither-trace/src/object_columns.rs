//! What a trace of objects says of each reference besides the object: its size, its time, how long
//! it may be kept, and what it costs to get. Each is a column of its own. One whose values are all
//! the same takes no memory.

use std::borrow::Cow;

use hither_core::{Access, Life, Op};

use crate::error::Result;
use crate::store::{CHUNK_REFERENCES, SpillList};

/// A reference to an object of any size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObjectRequest {
    /// The number of the object in its trace, or the hash of its name.
    pub id: u64,
    /// What it does.
    pub op: Op,
    /// The size of the object.
    pub bytes: u64,
    /// When it is, in nanoseconds from any moment on; 0 where the trace has no times.
    pub time_ns: u64,
    /// How long the object may be kept from then on; 0: for ever.
    pub ttl_ns: u64,
    /// What it costs to get the object, in any unit.
    pub cost: f32,
}

impl ObjectRequest {
    /// A read of an object at no known time.
    pub fn read(id: u64, bytes: u64) -> ObjectRequest {
        ObjectRequest {
            id,
            op: Op::Read,
            bytes,
            time_ns: 0,
            ttl_ns: 0,
            cost: 1.0,
        }
    }
}

/// The columns of a trace.
#[derive(Debug)]
pub(crate) struct ObjectColumns {
    bytes: Column,
    time_ns: Column,
    ttl_ns: Column,
    cost: Column,
}

impl ObjectColumns {
    /// Columns that use about `memory_bytes`.
    pub(crate) fn new(memory_bytes: u64) -> ObjectColumns {
        let column = |usual| Column::new(memory_bytes / 4, usual);
        ObjectColumns {
            bytes: column(1),
            time_ns: column(0),
            ttl_ns: column(0),
            cost: column(1f32.to_bits().into()),
        }
    }

    pub(crate) fn push(&mut self, request: &ObjectRequest) -> Result<()> {
        self.bytes.push(request.bytes)?;
        self.time_ns.push(request.time_ns)?;
        self.ttl_ns.push(request.ttl_ns)?;
        self.cost.push(request.cost.to_bits().into())
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether any object may be kept for some time only.
    pub(crate) fn has_lives(&self) -> bool {
        !self.ttl_ns.is_usual
    }

    /// Completes accesses of one chunk, from this place in it on.
    pub(crate) fn fill(&self, chunk: usize, start: usize, out: &mut [Access]) -> Result<()> {
        let (bytes, costs) = (self.bytes.chunk(chunk)?, self.cost.chunk(chunk)?);
        for (access, at) in out.iter_mut().zip(start..) {
            access.bytes = bytes.get(at);
            access.cost = f32::from_bits(costs.get(at) as u32);
        }
        Ok(())
    }

    /// Replaces `out` by the lives of those of a range of references.
    pub(crate) fn lives(&self, from: usize, to: usize, out: &mut Vec<Life>) -> Result<()> {
        out.clear();
        let mut at = from;
        while at < to {
            let chunk = at / CHUNK_REFERENCES;
            let (times, ttls) = (self.time_ns.chunk(chunk)?, self.ttl_ns.chunk(chunk)?);
            let end = to.min((chunk + 1) * CHUNK_REFERENCES);
            out.extend((at..end).map(|at| Life {
                now_ns: times.get(at % CHUNK_REFERENCES),
                ttl_ns: ttls.get(at % CHUNK_REFERENCES),
            }));
            at = end;
        }
        Ok(())
    }

    /// Keeps only the references that are marked.
    pub(crate) fn retain(&mut self, kept: &[bool]) -> Result<()> {
        let columns = [
            &mut self.bytes,
            &mut self.time_ns,
            &mut self.ttl_ns,
            &mut self.cost,
        ];
        columns
            .into_iter()
            .try_for_each(|column| column.retain(kept))
    }
}

/// A number for each reference.
#[derive(Debug)]
struct Column {
    /// Chunks of the numbers in 32 bits, or in 64 as two words each where one needs them; empty
    /// where all are usual.
    full: SpillList,
    open: Vec<u64>,
    usual: u64,
    /// Whether all are.
    is_usual: bool,
}

/// The numbers of a chunk.
struct ColumnChunk<'a> {
    words: Cow<'a, [u32]>,
    wide: bool,
    usual: u64,
}

impl ColumnChunk<'_> {
    #[inline]
    fn get(&self, at: usize) -> u64 {
        if self.words.is_empty() {
            self.usual
        } else if self.wide {
            u64::from(self.words[2 * at]) | u64::from(self.words[2 * at + 1]) << 32
        } else {
            self.words[at].into()
        }
    }
}

impl Column {
    fn new(memory_bytes: u64, usual: u64) -> Column {
        Column {
            full: SpillList::new(memory_bytes),
            open: Vec::new(),
            usual,
            is_usual: true,
        }
    }

    fn len(&self) -> usize {
        self.full.len() * CHUNK_REFERENCES + self.open.len()
    }

    #[inline]
    fn push(&mut self, value: u64) -> Result<()> {
        self.is_usual &= value == self.usual;
        self.open.push(value);
        if self.open.len() == CHUNK_REFERENCES {
            let words = self.packed();
            self.open.clear();
            self.full.push(words)?;
        }
        Ok(())
    }

    /// The open chunk in words.
    fn packed(&self) -> Vec<u32> {
        if self.open.iter().all(|&value| value == self.usual) {
            Vec::new()
        } else if self.open.iter().all(|&value| u32::try_from(value).is_ok()) {
            self.open.iter().map(|&value| value as u32).collect()
        } else {
            let halves = |&value: &u64| [value as u32, (value >> 32) as u32];
            self.open.iter().flat_map(halves).collect()
        }
    }

    fn chunk(&self, number: usize) -> Result<ColumnChunk<'_>> {
        let (words, length) = if number < self.full.len() {
            (self.full.get(number)?, CHUNK_REFERENCES)
        } else {
            (Cow::Owned(self.packed()), self.open.len())
        };
        Ok(ColumnChunk {
            wide: words.len() > length,
            words,
            usual: self.usual,
        })
    }

    fn retain(&mut self, kept: &[bool]) -> Result<()> {
        let mut left = Column::new(self.full.memory_left_bytes(), self.usual);
        for (chunk, kept) in kept.chunks(CHUNK_REFERENCES).enumerate() {
            let values = self.chunk(chunk)?;
            for (at, _) in kept.iter().enumerate().filter(|(_, kept)| **kept) {
                left.push(values.get(at))?;
            }
        }
        *self = left;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_wherever_it_lay() {
        // A chunk of usual ones, one of small ones, one with a large one, and an open one.
        let value = |at: usize| match at / CHUNK_REFERENCES {
            0 => 7,
            1 => at as u64,
            2 if at % CHUNK_REFERENCES == 5 => u64::MAX,
            _ => 3,
        };
        let length = 3 * CHUNK_REFERENCES + 17;
        for memory_bytes in [0, 50_000, u64::MAX] {
            let mut column = Column::new(memory_bytes, 7);
            for at in 0..length {
                column.push(value(at)).unwrap();
            }
            assert!(!column.is_usual && column.len() == length);
            let found = |column: &Column| -> Vec<u64> {
                let chunks = (0..column.len()).step_by(CHUNK_REFERENCES).enumerate();
                let values = chunks.map(|(number, start)| {
                    let chunk = column.chunk(number).unwrap();
                    let count = CHUNK_REFERENCES.min(column.len() - start);
                    (0..count).map(|at| chunk.get(at)).collect::<Vec<_>>()
                });
                values.flatten().collect()
            };
            assert!(found(&column).into_iter().eq((0..length).map(value)));
            let kept: Vec<bool> = (0..length).map(|at| at % 3 == 0).collect();
            column.retain(&kept).unwrap();
            let third = (0..length).step_by(3).map(value);
            assert!(found(&column).into_iter().eq(third));
        }
    }
}
