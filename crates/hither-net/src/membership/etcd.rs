//! A membership kept in etcd, 3.4 or later: each member's key lives as long as its lease.
//!
//! The keys are `/hither/CLUSTER/members/NAME`. A key is only ever created, never overwritten, so
//! of two nodes with one name the second one finds it held. A node that has crashed and is started
//! again finds its own key held too, until the lease of its predecessor ends: it waits for that, at
//! most the lease's time to live. A lease that is renewed meanwhile belongs to another node.
//!
//! The view's epoch is etcd's revision of the last change of a member's key, so it is the same on
//! all nodes. (A node whose watch was interrupted for so long that etcd has compacted the history
//! may have a later number until the next change.)
//!
//! When is a node [`Isolated`](Standing::Isolated)? When etcd *says* that its lease is gone or that
//! its key is another node's: then the others have seen it leave, and it serves nobody until it has
//! joined again, which it tries by itself. When etcd does not answer at all, nobody has seen
//! anybody leave: the cluster goes on with the members that it knows, and `source_reachable` is
//! false. A node that alone is cut off from etcd cannot tell the two apart: it goes on as well,
//! while the others see it leave when its lease ends. That is sound here since members keep copies
//! of data that never change: it can serve a copy, but nobody asks it.

mod api;
mod client;
mod error;
mod session;

use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::{Membership, Standing, State};
use crate::tls::ServiceFiles;
use crate::view::{Member, View};
use api::Api;
use client::Client;
pub use error::EtcdError;
use session::Session;

/// The shortest lease that etcd grants.
const TTL_S_MIN: u64 = 2;

/// How to reach etcd, and as whom to join.
#[derive(Clone, Debug)]
pub struct EtcdConfig {
    /// etcd's servers: `http://HOST:PORT` or `https://HOST:PORT`.
    pub endpoints: Vec<String>,
    /// For https: whom to trust, and what to show.
    pub tls: Option<ServiceFiles>,
    /// The name and password of a user of etcd.
    pub user: Option<(String, String)>,
    /// The cluster's name.
    pub cluster: String,
    /// This node.
    pub me: Member,
    /// How long the others wait for a node that has died: whole seconds, 2 or more.
    pub ttl: Duration,
}

/// This node's place in a cluster. Dropped without [`leave`](Joined::leave), it ends the renewing
/// of the lease, so the others see the node leave when the lease ends.
#[derive(Debug)]
pub struct Joined {
    membership: Membership,
    leave: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Joined {
    /// What the node knows of its cluster.
    pub fn membership(&self) -> Membership {
        self.membership.clone()
    }

    /// Gives the lease back, so that the others see the node leave at once.
    pub async fn leave(mut self) {
        if let Some(leave) = self.leave.take() {
            let _ = leave.send(());
        }
        let _ = (&mut self.task).await;
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Joins a cluster. Resolves once this node is a member; then its key and lease are kept by a task.
pub async fn join(config: EtcdConfig) -> Result<Joined, EtcdError> {
    // As a view of its own, the member's name and address are checked.
    View::new(0, vec![config.me.clone()])?;
    let ttl_s = config.ttl.as_secs().max(TTL_S_MIN);
    let timeout = Duration::from_secs(ttl_s) / 2;
    let client = Client::new(&config.endpoints, config.tls.as_ref(), config.user, timeout)?;
    let api = Api::new(client, &config.cluster);
    let (sender, membership) = watch::channel(State {
        view: View::default(),
        standing: Standing::Isolated("it has not joined yet".to_owned()),
        source_reachable: false,
    });
    let session = Session::new(api, config.me, ttl_s, sender);
    let joined = session.join().await?;
    let (leave, left) = oneshot::channel();
    let task = tokio::spawn(session.run(joined, left));
    Ok(Joined {
        membership,
        leave: Some(leave),
        task,
    })
}
