//! Who is in the cluster, and which member a key belongs to.
//!
//! A [`View`] is one state of the membership, with a number that grows with each change. Every node
//! with the same view finds the same home for a key, without asking anyone: rendezvous hashing,
//! also called highest random weight (Thaler and Ravishankar, "Using name-based mappings to
//! increase hit rates", 1998). When a member leaves, only the keys that it was home to move.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use twox_hash::XxHash3_64;

/// The longest name of a member.
pub const NAME_BYTES_MAX: usize = 200;

/// A member, by the hash of its name. It stays the same over restarts and changes of address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

impl MemberId {
    /// The id of the member called `name`.
    pub fn of(name: &str) -> MemberId {
        MemberId(XxHash3_64::oneshot(name.as_bytes()))
    }
}

impl fmt::Debug for MemberId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// The name, unique in the cluster: see [`check_name`].
    pub name: String,
    /// Where the member listens: `host:port`.
    pub address: String,
}

impl Member {
    /// The member's id.
    pub fn id(&self) -> MemberId {
        MemberId::of(&self.name)
    }
}

/// Why a list of members is no view.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// A name cannot stand in a certificate.
    #[error("{0:?} cannot be a member's name: that is a DNS name in lower case, as node-1")]
    Name(String),
    /// A name is there twice.
    #[error("two members are called {0:?}")]
    NameTaken(String),
    /// Two names have the same hash.
    #[error("the names {0:?} and {1:?} have the same hash: rename one of them")]
    Collision(String, String),
    /// An address is not of the form `host:port`.
    #[error("{address:?}, the address of member {name:?}, is not of the form HOST:PORT")]
    Address {
        /// The member's name.
        name: String,
        /// The address as it was given.
        address: String,
    },
}

/// Checks that `name` can be a member's name: it is a DNS name in lower case, since it
/// stands as such in the member's certificate.
pub fn check_name(name: &str) -> Result<(), ViewError> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(allowed)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() <= NAME_BYTES_MAX && name.split('.').all(label) {
        Ok(())
    } else {
        Err(ViewError::Name(name.to_owned()))
    }
}

/// Checks that `address` has the form `host:port`.
fn check_address(member: &Member) -> Result<(), ViewError> {
    let sound = member
        .address
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if sound {
        Ok(())
    } else {
        Err(ViewError::Address {
            name: member.name.clone(),
            address: member.address.clone(),
        })
    }
}

/// One state of the membership.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    epoch: u64,
    members: Vec<Member>,
    /// The members' ids, in the members' order.
    ids: Vec<MemberId>,
}

impl View {
    /// A view of `members`, in any order. An error if one of them may not be in it.
    pub fn new(epoch: u64, members: Vec<Member>) -> Result<View, ViewError> {
        let (view, errors) = View::of_sound(epoch, members);
        match errors.into_iter().next() {
            None => Ok(view),
            Some(error) => Err(error),
        }
    }

    /// The view of those of `members` that may be in one, in any order, and what is wrong with the
    /// others. Of two that cannot both be in it, the one whose name comes first is.
    pub fn of_sound(epoch: u64, mut members: Vec<Member>) -> (View, Vec<ViewError>) {
        members.sort();
        let mut view = View {
            epoch,
            ..View::default()
        };
        let mut errors = Vec::new();
        let mut names = BTreeMap::new();
        for member in members {
            let sound = check_name(&member.name).and_then(|()| check_address(&member));
            let sound = sound.and_then(|()| match names.entry(member.id()) {
                Entry::Vacant(vacant) => {
                    vacant.insert(member.name.clone());
                    Ok(())
                }
                Entry::Occupied(first) if *first.get() == member.name => {
                    Err(ViewError::NameTaken(member.name.clone()))
                }
                Entry::Occupied(first) => Err(ViewError::Collision(
                    first.get().clone(),
                    member.name.clone(),
                )),
            });
            match sound {
                Ok(()) => {
                    view.ids.push(member.id());
                    view.members.push(member);
                }
                Err(error) => errors.push(error),
            }
        }
        (view, errors)
    }

    /// The number of the view. It grows with each change of the membership.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The members, sorted by name.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The members' ids, in the order of [`members`](View::members).
    pub fn ids(&self) -> &[MemberId] {
        &self.ids
    }

    /// The member with `id`.
    pub fn member(&self, id: MemberId) -> Option<&Member> {
        let at = self.ids.iter().position(|&other| other == id)?;
        Some(&self.members[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str) -> Member {
        Member {
            name: name.to_owned(),
            address: "127.0.0.1:7000".to_owned(),
        }
    }

    #[test]
    fn the_order_of_members_does_not_matter() {
        let [a, b] = [member("a"), member("b")];
        let one = View::new(1, vec![a.clone(), b.clone()]).unwrap();
        assert_eq!(one, View::new(1, vec![b.clone(), a]).unwrap());
        assert_eq!(one.member(MemberId::of("b")), Some(&b));
        assert_eq!(one.member(MemberId::of("c")), None);
    }

    #[test]
    fn a_bad_member_keeps_no_other_one_out() {
        let nowhere = Member {
            address: "nowhere".to_owned(),
            ..member("b")
        };
        let members = vec![
            member("c"),
            nowhere,
            member("Node 1"),
            member("a"),
            member("a"),
        ];
        let (view, errors) = View::of_sound(7, members);
        assert_eq!(view, View::new(7, vec![member("a"), member("c")]).unwrap());
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors.len(), 3, "{errors:?}");
        assert!(errors[0].contains("Node 1"), "{errors:?}");
        assert_eq!(errors[1], "two members are called \"a\"");
        assert!(errors[2].contains("nowhere"), "{errors:?}");
    }

    #[test]
    fn bad_members_are_named() {
        let error = |members: &[Member]| View::new(1, members.to_vec()).unwrap_err().to_string();
        assert_eq!(
            error(&[member("a"), member("b"), member("a")]),
            "two members are called \"a\""
        );
        assert!(error(&[member("Node 1")]).contains("cannot be a member's name"));
        for name in [
            "",
            "-a",
            "a-",
            "a..b",
            "a.",
            &"a".repeat(64),
            &"a.".repeat(101),
        ] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        for address in ["", "host", ":1", "host:", "host:70000"] {
            let bad = Member {
                address: address.to_owned(),
                ..member("a")
            };
            assert!(error(&[bad]).contains("HOST:PORT"), "{address:?}");
        }
    }
}
