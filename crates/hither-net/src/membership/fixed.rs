//! A membership that never changes: the members are listed in each node's configuration.

use tokio::sync::watch;

use super::{Membership, Standing, State};
use crate::view::{Member, View, ViewError};

/// The epoch of a fixed view.
const EPOCH: u64 = 1;

/// Why a list is no membership of this node.
#[derive(Debug, thiserror::Error)]
pub enum FixedError {
    /// The list is no view.
    #[error(transparent)]
    View(#[from] ViewError),
    /// This node is not in the list.
    #[error("this node, {0:?}, is not in the list of members")]
    NotListed(String),
}

/// The membership of the node called `me` in a cluster of `members`, of which it is one.
pub fn members(me: &str, members: Vec<Member>) -> Result<Membership, FixedError> {
    let view = View::new(EPOCH, members)?;
    if !view.members().iter().any(|member| member.name == me) {
        return Err(FixedError::NotListed(me.to_owned()));
    }
    let state = State {
        view,
        standing: Standing::Member,
        source_reachable: true,
    };
    // Nothing is ever sent. A receiver whose sender is gone keeps the last value; that `changed`
    // then fails is how a watcher learns that nothing will change.
    Ok(watch::channel(state).1)
}

/// The membership of a node that is alone.
pub fn alone(me: Member) -> Result<Membership, FixedError> {
    let name = me.name.clone();
    members(&name, vec![me])
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
    fn a_node_must_be_in_its_own_list() {
        let membership = members("b", vec![member("b"), member("a")]).unwrap();
        let state = membership.borrow();
        assert_eq!(state.view.members(), [member("a"), member("b")]);
        assert_eq!(
            (&state.standing, state.view.epoch()),
            (&Standing::Member, 1)
        );
        let error = members("c", vec![member("a")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "this node, \"c\", is not in the list of members"
        );
        assert!(members("a", vec![member("a"), member("a")]).is_err());
        assert_eq!(alone(member("a")).unwrap().borrow().view.members().len(), 1);
    }
}
