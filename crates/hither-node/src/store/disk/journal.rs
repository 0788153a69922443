//! The journal: which blocks are on the disk, as a list of changes.
//!
//! Records are of one length and each has a checksum of its own, so a damaged one is skipped and
//! the others still count. A record is written before the block that it names: whatever takes room
//! on the disk is listed, and what is listed but was not written does not have its checksum.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_64;

use crate::key::{BlockKey, ChunkKey, FileKey};
use crate::protocol::Blocks;

/// Length of a record.
pub(super) const RECORD_BYTES: usize = 44;

/// A change of what is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A block is there, unless its bytes do not have this checksum.
    Stored {
        key: BlockKey,
        bytes: u32,
        checksum: u64,
    },
    /// Blocks are no longer there.
    Removed(Blocks),
    /// The tier was closed: nothing is on the disk but what was listed.
    Closed,
}

impl Record {
    /// Kind, file, number of the block or chunk, length, checksum or mask, and the record's own
    /// checksum; little-endian.
    fn encode(&self) -> [u8; RECORD_BYTES] {
        let (kind, file, number, bytes, value) = match *self {
            Record::Stored {
                key,
                bytes,
                checksum,
            } => (1_u32, key.file.0, key.index, bytes, checksum),
            Record::Removed(Blocks { chunk, mask }) => (2, chunk.file.0, chunk.number, 0, mask),
            Record::Closed => (3, 0, 0, 0, 0),
        };
        let mut record = [0; RECORD_BYTES];
        record[..4].copy_from_slice(&kind.to_le_bytes());
        record[4..20].copy_from_slice(&file.to_le_bytes());
        record[20..24].copy_from_slice(&number.to_le_bytes());
        record[24..28].copy_from_slice(&bytes.to_le_bytes());
        record[28..36].copy_from_slice(&value.to_le_bytes());
        let check = XxHash3_64::oneshot(&record[..36]);
        record[36..].copy_from_slice(&check.to_le_bytes());
        record
    }

    /// `None` where this is no record.
    fn decode(record: &[u8; RECORD_BYTES]) -> Option<Record> {
        fn part<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
            let mut part = [0; N];
            part.copy_from_slice(&record[at..at + N]);
            part
        }
        if XxHash3_64::oneshot(&record[..36]) != u64::from_le_bytes(part(record, 36)) {
            return None;
        }
        let file = FileKey(u128::from_le_bytes(part(record, 4)));
        let number = u32::from_le_bytes(part(record, 20));
        let bytes = u32::from_le_bytes(part(record, 24));
        let value = u64::from_le_bytes(part(record, 28));
        match u32::from_le_bytes(part(record, 0)) {
            1 => Some(Record::Stored {
                key: BlockKey {
                    file,
                    index: number,
                },
                bytes,
                checksum: value,
            }),
            2 => Some(Record::Removed(Blocks::new(
                ChunkKey { file, number },
                value,
            ))),
            3 => Some(Record::Closed),
            _ => None,
        }
    }
}

/// What a journal that was read says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Replayed {
    /// Records that are damaged.
    pub(super) damaged: u64,
    /// Whether the tier was closed in order.
    pub(super) is_closed: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Journal {
    /// Opens the journal at `path`, or makes it, and passes its records to `replay`.
    pub(super) fn open(
        path: &Path,
        mut replay: impl FnMut(Record),
    ) -> io::Result<(Journal, Replayed)> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.mode(0o600).open(path)?;
        let mut replayed = Replayed::default();
        let mut reader = BufReader::with_capacity(1 << 20, &file);
        let mut bytes = 0;
        let mut record = [0; RECORD_BYTES];
        loop {
            match reader.read_exact(&mut record) {
                Ok(()) => {}
                // A torn record at the end is written over.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            }
            bytes += RECORD_BYTES as u64;
            let decoded = Record::decode(&record);
            replayed.is_closed = decoded == Some(Record::Closed);
            match decoded {
                Some(record) => replay(record),
                None => replayed.damaged += 1,
            }
        }
        let path = path.to_owned();
        Ok((Journal { path, file, bytes }, replayed))
    }

    /// Length of the journal.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a record. If that fails, the next one takes its place.
    pub(super) fn append(&mut self, record: &Record) -> io::Result<()> {
        self.file.write_all_at(&record.encode(), self.bytes)?;
        self.bytes += RECORD_BYTES as u64;
        Ok(())
    }

    /// Replaces the journal by one with these records, at once: it is written beside it.
    pub(super) fn rewrite(&mut self, records: impl Iterator<Item = Record>) -> io::Result<()> {
        let beside = self.path.with_extension("new");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.mode(0o600).open(&beside)?;
        let mut writer = BufWriter::with_capacity(1 << 20, &file);
        let mut bytes = 0;
        for record in records {
            writer.write_all(&record.encode())?;
            bytes += RECORD_BYTES as u64;
        }
        writer.flush()?;
        drop(writer);
        // After a power cut there is the old one or the new one, whole.
        file.sync_data()?;
        fs::rename(&beside, &self.path)?;
        self.file = file;
        self.bytes = bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let file = FileKey(u128::MAX / 3);
        let chunk = ChunkKey { file, number: 9 };
        vec![
            Record::Stored {
                key: BlockKey { file, index: 1 },
                bytes: 4096,
                checksum: 77,
            },
            Record::Removed(Blocks::new(chunk, 0b101)),
            Record::Closed,
        ]
    }

    fn replay(path: &Path) -> (Vec<Record>, Replayed, u64) {
        let mut found = Vec::new();
        let (journal, replayed) = Journal::open(path, |record| found.push(record)).unwrap();
        (found, replayed, journal.bytes())
    }

    #[test]
    fn records_are_read_back_and_damaged_ones_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = Journal::open(&path, |_| panic!("it is empty")).unwrap();
        for record in records() {
            journal.append(&record).unwrap();
        }
        let (found, replayed, bytes) = replay(&path);
        assert_eq!(found, records());
        assert!(replayed.is_closed);
        assert_eq!(bytes, 3 * RECORD_BYTES as u64);
        // Any bit that turns costs its record, and no other.
        let whole = fs::read(&path).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, damaged).unwrap();
            let (found, replayed, _) = replay(&path);
            let mut expected = records();
            expected.remove(bit / 8 / RECORD_BYTES);
            assert_eq!((found, replayed.damaged), (expected, 1));
        }
        // A torn end costs the last record, and the next one takes its place.
        for length in 2 * RECORD_BYTES..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let (mut journal, replayed) = Journal::open(&path, |_| {}).unwrap();
            assert!(!replayed.is_closed);
            journal.append(&Record::Closed).unwrap();
            assert_eq!(replay(&path).0, records());
        }
    }

    #[test]
    fn a_rewritten_journal_has_the_new_records_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = Journal::open(&path, |_| {}).unwrap();
        for record in records().iter().cycle().take(100) {
            journal.append(record).unwrap();
        }
        journal.rewrite(records().into_iter().take(1)).unwrap();
        journal.append(&records()[1]).unwrap();
        assert_eq!(replay(&path).0, records()[..2]);
        assert_eq!(journal.bytes(), 2 * RECORD_BYTES as u64);
    }
}
