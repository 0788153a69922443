//! Which members may have the blocks of which volume.
//!
//! Each node has a list of its own, and goes by it whenever another asks it for a block, directly
//! or through the block's home: who is not on the list of a volume is refused, and reads the source
//! with rights of its own. Lists that differ make a cache less useful, not less safe: a block
//! leaves a node only by that node's list.

use std::collections::{BTreeMap, BTreeSet};

use hither_net::view::MemberId;

use crate::key::{FileKey, VolumeKey};

/// The members that may have the blocks of the volumes with a list. Of others, all may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readers(BTreeMap<VolumeKey, BTreeSet<MemberId>>);

impl Readers {
    /// From the names of volumes and of their members.
    pub fn new(lists: &BTreeMap<String, Vec<String>>) -> Readers {
        let mut readers = Readers::default();
        for (volume, names) in lists {
            let members: BTreeSet<MemberId> = names.iter().map(|it| MemberId::of(it)).collect();
            // Should two volumes have one key, only who may have both may have either.
            readers
                .0
                .entry(VolumeKey::new(volume))
                .and_modify(|both| both.retain(|member| members.contains(member)))
                .or_insert(members);
        }
        readers
    }

    /// Whether `member` may have blocks of `file`.
    pub fn may_have(&self, member: MemberId, file: FileKey) -> bool {
        self.may_know(member, file.volume())
    }

    /// Whether `member` may have blocks of `volume`, and announce changes there.
    pub fn may_know(&self, member: MemberId, volume: VolumeKey) -> bool {
        let members = self.0.get(&volume);
        members.is_none_or(|members| members.contains(&member))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{FileVersion, SourcePath, Version};

    #[test]
    fn a_volume_with_a_list_is_for_those_on_it() {
        let lists = [("secret", vec!["a", "b"]), ("none", vec![])];
        let lists = lists.map(|(volume, names)| {
            let names = names.into_iter().map(str::to_owned).collect();
            (volume.to_owned(), names)
        });
        let readers = Readers::new(&BTreeMap::from(lists));
        let may = |member: &str, volume: &str| {
            let version = FileVersion {
                path: SourcePath::new(b"file").unwrap(),
                version: Version::new(b"1"),
                bytes: 5,
            };
            let file = FileKey::new(volume, 4096, &version);
            assert_eq!(file.volume(), VolumeKey::new(volume));
            readers.may_have(MemberId::of(member), file)
        };
        assert!(may("a", "secret") && may("b", "secret") && !may("c", "secret"));
        assert!(!may("a", "none"));
        assert!(may("c", "other"));
    }
}
