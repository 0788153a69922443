//! What names a block: volume, file, version and index.
//!
//! A block of one key never changes: a file that is rewritten has another version, and so other
//! keys. That is why a copy can be served from anywhere without asking whether it is current.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::source::FileVersion;

/// A volume: the first 32 bits of a hash over its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeKey(pub u32);

impl VolumeKey {
    /// The key of the volume called `name`.
    pub fn new(name: &str) -> VolumeKey {
        VolumeKey((half_of(Sha256::new().chain_update(name)) >> FileKey::HASH_BITS) as u32)
    }
}

/// The first half of a hash.
fn half_of(hash: Sha256) -> u128 {
    let digest = hash.finalize();
    let mut half = [0; 16];
    half.copy_from_slice(&digest[..16]);
    u128::from_be_bytes(half)
}

/// One version of one file of one volume: the volume's key, and 96 bits of a hash over all that
/// names the version. Two keys are equal only if volume, path, version and length are, so whoever
/// has a key's bytes needs to know nothing else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey(pub u128);

impl FileKey {
    /// How many bits are of the hash.
    const HASH_BITS: u32 = 96;

    /// The volume that the file belongs to.
    pub fn volume(self) -> VolumeKey {
        VolumeKey((self.0 >> FileKey::HASH_BITS) as u32)
    }

    /// The key of `file` in the volume called `volume`, cut into blocks of `block_bytes`.
    pub fn new(volume: &str, block_bytes: u32, file: &FileVersion) -> FileKey {
        let mut hash = Sha256::new();
        // Each part is preceded by its length, so that no two lists of parts read the same.
        for part in [
            volume.as_bytes(),
            &block_bytes.to_le_bytes(),
            file.path.as_bytes(),
            file.version.as_bytes(),
            &file.bytes.to_le_bytes(),
        ] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let VolumeKey(volume) = VolumeKey::new(volume);
        let rest = half_of(hash) & ((1 << FileKey::HASH_BITS) - 1);
        FileKey(u128::from(volume) << FileKey::HASH_BITS | rest)
    }
}

impl fmt::Debug for FileKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

/// A block: the key of its file, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    /// The file and its version.
    pub file: FileKey,
    /// The block's position in the file, in blocks.
    pub index: u32,
}

impl BlockKey {
    /// The chunk that the block lies in, and its place there as a mask of one bit.
    pub fn in_chunk(self) -> (ChunkKey, u64) {
        let chunk = ChunkKey {
            file: self.file,
            number: self.index / CHUNK_BLOCKS,
        };
        (chunk, 1 << (self.index % CHUNK_BLOCKS))
    }
}

/// Blocks of a chunk: as many as a mask has bits.
pub const CHUNK_BLOCKS: u32 = u64::BITS;

/// 64 successive blocks of a file, aligned. All directory entries of a chunk lie on one node, so
/// that one message asks for many blocks; which of them is a mask, bit 0 for the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkKey {
    /// The file and its version.
    pub file: FileKey,
    /// The chunk's position in the file, in chunks.
    pub number: u32,
}

impl ChunkKey {
    /// The block at `bit` of the chunk.
    pub fn block(self, bit: u32) -> BlockKey {
        debug_assert!(bit < CHUNK_BLOCKS);
        BlockKey {
            file: self.file,
            index: self.number * CHUNK_BLOCKS + bit,
        }
    }

    /// The blocks of `mask`, in ascending order.
    pub fn blocks(self, mask: u64) -> impl Iterator<Item = BlockKey> {
        bits(mask).map(move |bit| self.block(bit))
    }
}

/// The positions of the bits that are set in `mask`, in ascending order.
pub fn bits(mut mask: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let bit = mask.trailing_zeros();
        mask &= mask - 1;
        Some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{SourcePath, Version};

    fn version(path: &str, version: &str, bytes: u64) -> FileVersion {
        FileVersion {
            path: SourcePath::new(path.as_bytes()).unwrap(),
            version: Version::new(version.as_bytes()),
            bytes,
        }
    }

    #[test]
    fn each_part_of_a_name_counts() {
        let keys = [
            FileKey::new("v", 4096, &version("a", "1", 1)),
            FileKey::new("w", 4096, &version("a", "1", 1)),
            FileKey::new("v", 8192, &version("a", "1", 1)),
            FileKey::new("v", 4096, &version("b", "1", 1)),
            FileKey::new("v", 4096, &version("a", "2", 1)),
            FileKey::new("v", 4096, &version("a", "1", 2)),
            FileKey::new("v", 4096, &version("a1", "", 1)),
        ];
        let mut distinct = keys.to_vec();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), keys.len());
        assert_eq!(keys[0], FileKey::new("v", 4096, &version("a", "1", 1)));
    }

    #[test]
    fn a_block_is_in_its_chunk() {
        let block = BlockKey {
            file: FileKey(7),
            index: 130,
        };
        let (chunk, mask) = block.in_chunk();
        assert_eq!((chunk.number, mask), (2, 0b100));
        assert_eq!(chunk.blocks(mask).collect::<Vec<_>>(), [block]);
        assert_eq!(bits(0b1011).collect::<Vec<_>>(), [0, 1, 3]);
        assert_eq!(bits(u64::MAX).count(), 64);
    }
}
