//! Files of the disk tier that the kernel reads by itself, past the node.
//!
//! Nobody compares checksums then. So a file is lent only once each of its blocks was read, and had
//! its checksum, since the tier was opened, and it has lost none since.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use super::index::{Located, Verification};
use super::tier::{DiskTier, Hold};
use crate::key::{BlockKey, FileKey};

/// What is read at once to verify a file.
const READ_BYTES: usize = 1 << 20;

/// A file of the disk tier that has all bytes of a version. It is not evicted while this lives.
pub struct Lent {
    file: File,
    _hold: Hold,
}

impl AsFd for Lent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl DiskTier {
    /// The file of a version of `bytes`, if all of it is here and was verified.
    pub fn lend(&self, file: FileKey, bytes: u64) -> Option<Lent> {
        let blocks = bytes.div_ceil(self.shared.block_bytes.into());
        let is_verified = || {
            let index = self.shared.index.lock();
            index.verification(file, blocks) == Some(Verification::Done)
        };
        if !is_verified() {
            return None;
        }
        let hold = self.hold(file);
        let lent = self.shared.folder.lend(file).ok()?;
        let is_whole = lent.metadata().ok()?.len() == bytes;
        // What was removed before it was held, or before it was opened, is no longer verified.
        (is_whole && is_verified()).then_some(Lent {
            file: lent,
            _hold: hold,
        })
    }

    /// Whether [`verify`](Self::verify) has something to do for a version of `bytes`: all of it is
    /// here. To who hears yes it is due; who asks meanwhile hears no.
    pub fn begin_verification(&self, file: FileKey, bytes: u64) -> bool {
        let blocks = bytes.div_ceil(self.shared.block_bytes.into());
        let mut index = self.shared.index.lock();
        let is_due = index.verification(file, blocks) == Some(Verification::None);
        if is_due {
            index.set_verification(file, Verification::Running);
        }
        is_due
    }

    /// Reads all of a version. Has each block its checksum, the file may be lent from then on.
    /// Blocks that have not are removed, and returned. Waits for the disk.
    pub fn verify(&self, file: FileKey, bytes: u64) -> Vec<BlockKey> {
        let _hold = self.hold(file);
        let block_bytes = u64::from(self.shared.block_bytes);
        let blocks = bytes.div_ceil(block_bytes);
        let count = (READ_BYTES as u64 / block_bytes).max(1);
        let mut memory = vec![0; (count * block_bytes) as usize];
        let mut next = 0;
        while next < blocks {
            let end = (next + count).min(blocks);
            let located: Vec<Located> = {
                let index = self.shared.index.lock();
                let key = |it| BlockKey {
                    file,
                    index: it as u32,
                };
                (next..end).map_while(|it| index.get(&key(it))).collect()
            };
            if located.len() as u64 != end - next {
                return Vec::new();
            }
            let is_wrong = |it: &&Located| {
                let start = u64::from(it.key.index) * block_bytes;
                u64::from(it.bytes) != (bytes - start).min(block_bytes)
            };
            if let Some(wrong) = located.iter().find(is_wrong) {
                self.discard(wrong, None);
                return vec![wrong.key];
            }
            let mut buffers: Vec<&mut [u8]> = memory
                .chunks_mut(block_bytes as usize)
                .zip(&located)
                .map(|(buffer, block)| &mut buffer[..block.bytes as usize])
                .collect();
            let read = located.iter().zip(self.read(&located, &mut buffers));
            let bad: Vec<BlockKey> = read.filter(|it| !it.1).map(|it| it.0.key).collect();
            if !bad.is_empty() {
                return bad;
            }
            next = end;
        }
        let mut index = self.shared.index.lock();
        // One that has lost a block meanwhile is no longer being verified.
        if index.verification(file, blocks) == Some(Verification::Running) {
            index.set_verification(file, Verification::Done);
        }
        Vec::new()
    }
}
