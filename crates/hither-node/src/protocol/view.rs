//! The members of the cluster as of one epoch, and rendezvous hashing over them.
//!
//! Rendezvous hashing ("highest random weight"; Thaler and Ravishankar, "Using name-based mappings
//! to increase hit rates", IEEE/ACM Transactions on Networking 6(1), 1998): each pair of member and
//! chunk has a weight, and the chunk's home is the member with the highest one. When a member
//! leaves, only the chunks that it was home of move.

use hither_core::random::mix;
pub use hither_net::view::MemberId;

use crate::key::ChunkKey;

/// The members as of one epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Revision of the membership: a later view has a higher one.
    pub epoch: u64,
    /// The members in ascending order, each once.
    pub members: Vec<MemberId>,
    /// Their hashes.
    hashes: Vec<u64>,
}

impl View {
    /// The view of `epoch` with `members` in any order.
    pub fn new(epoch: u64, mut members: Vec<MemberId>) -> View {
        members.sort_unstable();
        members.dedup();
        let hashes = members.iter().map(|member| mix(member.0)).collect();
        View {
            epoch,
            members,
            hashes,
        }
    }

    /// Whether `member` belongs to the cluster.
    pub fn contains(&self, member: MemberId) -> bool {
        self.members.binary_search(&member).is_ok()
    }

    /// The members with their weights for `chunk`. The weights are distinct.
    pub fn weights(&self, chunk: ChunkKey) -> impl Iterator<Item = (MemberId, u64)> {
        let chunk = hash(chunk);
        let members = self.members.iter().zip(&self.hashes);
        // `mix` is a bijection, so distinct members have distinct weights.
        members.map(move |(&member, &hash)| (member, mix(hash ^ chunk)))
    }

    /// The home of `chunk`: its heaviest member among those that `avoid` does not exclude.
    pub fn home(&self, chunk: ChunkKey, avoid: impl Fn(MemberId) -> bool) -> Option<MemberId> {
        let weights = self.weights(chunk).filter(|&(member, _)| !avoid(member));
        let heaviest = weights.max_by_key(|&(_, weight)| weight);
        heaviest.map(|(member, _)| member)
    }
}

fn hash(chunk: ChunkKey) -> u64 {
    let (low, high) = (chunk.file.0 as u64, (chunk.file.0 >> 64) as u64);
    mix(mix(mix(low) ^ high).wrapping_add(u64::from(chunk.number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::FileKey;

    fn chunks() -> impl Iterator<Item = ChunkKey> {
        (0..3000).map(|number| ChunkKey {
            file: FileKey(u128::from(number % 7)),
            number: number / 7,
        })
    }

    #[test]
    fn homes_are_spread_evenly() {
        let view = View::new(1, (0..6).map(MemberId).collect());
        let mut count = [0; 6];
        for chunk in chunks() {
            count[view.home(chunk, |_| false).unwrap().0 as usize] += 1;
        }
        assert!(
            count.iter().all(|count| (400..600).contains(count)),
            "{count:?}"
        );
    }

    #[test]
    fn only_the_chunks_of_a_lost_member_move() {
        let view = View::new(1, (0..6).map(MemberId).collect());
        let without = View::new(2, (0..5).map(MemberId).collect());
        for chunk in chunks() {
            let (before, after) = (view.home(chunk, |_| false), without.home(chunk, |_| false));
            assert!(before == after || before == Some(MemberId(5)));
            assert_eq!(after, view.home(chunk, |member| member == MemberId(5)));
        }
    }

    #[test]
    fn nobody_is_home_where_all_are_avoided() {
        let chunk = chunks().next().unwrap();
        assert_eq!(View::default().home(chunk, |_| false), None);
        let view = View::new(1, vec![MemberId(3), MemberId(3)]);
        assert_eq!(view.members, [MemberId(3)]);
        assert_eq!(view.home(chunk, |_| true), None);
    }
}
