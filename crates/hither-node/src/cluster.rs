//! A node among others.

use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hither_net::frame::FrameHeader;
use hither_net::membership::{Membership, Standing, State};
use hither_net::mesh::{Mesh, MeshConfig, MeshError};
use hither_net::view::{MemberId, View};

use crate::config::Placing;
use crate::distances::Distances;
use crate::key::VolumeKey;
use crate::node::Node;
use crate::peer_handler::PeerHandler;
use crate::peers::CHANGE;
use crate::protocol::{self, Input, Settings};
use crate::questions::AskError;
use crate::readers::Readers;

impl Node {
    /// Joins the members that `membership` names, by a mesh of its own, gives them the blocks that
    /// `readers` says, and keeps blocks where `placement` says. Before the first read: what is in
    /// flight then would be forgotten.
    ///
    /// # Errors
    /// The mesh cannot be started: the port is in use, the certificate is not this node's.
    pub async fn join(
        self: &Arc<Self>,
        config: MeshConfig,
        mut membership: Membership,
        readers: Readers,
        placement: Placing,
    ) -> Result<(), MeshError> {
        let handler = PeerHandler::new(Arc::downgrade(self), readers.clone());
        let mesh = Mesh::start(config, Arc::new(handler)).await?;
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let settings = Settings {
            // Restarts are more than a millisecond apart, and 49 days are longer than anything
            // that a member remembers of another.
            incarnation: since.as_millis() as u32,
            secret: hither_net::tls::secret()?,
            readers: readers.clone(),
            placement: placement.policy,
            distances: placement.distances,
            logs_placement: self.driver.logs_placement(),
            ..Settings::default()
        };
        self.driver.join(mesh.me(), settings);
        self.peers.join(mesh, readers);
        // A node joins once.
        let _ = self.membership.set(membership.clone());
        let state = membership.borrow_and_update().clone();
        self.on_membership(&state, None);
        self.report_disk();
        self.report_usage();
        self.runtime()
            .spawn(follow(Arc::downgrade(self), membership, state));
        Ok(())
    }

    /// Has `log` take what the placement is told and answers, a line each, without its end, as
    /// [`replay`](hither_core::placement::replay) reads it. Before [`join`](Self::join). `log` does
    /// not wait, since the node does.
    pub fn log_placement(&self, log: impl Fn(String) + Send + Sync + 'static) {
        self.driver.log_placement(Box::new(log));
    }

    /// The mesh that this node belongs to, if it has joined one.
    pub fn mesh(&self) -> Option<&Mesh> {
        self.peers.mesh()
    }

    /// What this node answers when another member asks about it. The first one given holds.
    pub fn answer_with(&self, answer: impl Fn() -> Vec<u8> + Send + Sync + 'static) {
        self.questions.answer_with(answer);
    }

    /// Asks a member about itself.
    ///
    /// # Errors
    /// It is not connected, or does not answer within a second.
    pub async fn ask(&self, member: MemberId) -> Result<Bytes, AskError> {
        self.questions.ask(&self.peers, member).await
    }

    /// Sends the body of an announcement to all members that are connected and may know of it.
    pub(crate) fn announce(&self, volume: VolumeKey, body: &[u8]) {
        let header = FrameHeader {
            kind: CHANGE,
            ..FrameHeader::default()
        };
        let state = self.membership();
        for member in state.iter().flat_map(|state| state.view.ids()) {
            // This node itself is none that the mesh knows.
            if self.peers.may_know(*member, volume) {
                self.peers.send_small(*member, header, body);
            }
        }
    }

    fn on_membership(self: &Arc<Self>, state: &State, before: Option<&State>) {
        let is_isolated = |state: &State| matches!(state.standing, Standing::Isolated(_));
        let was_isolated = before.is_some_and(is_isolated);
        if let Standing::Isolated(reason) = &state.standing {
            if !was_isolated {
                tracing::warn!("this node has left the cluster: {reason}");
                self.input(Input::Isolated);
            }
            return;
        }
        if was_isolated {
            tracing::info!("this node belongs to the cluster again");
            self.input(Input::Rejoined);
        }
        log_changes(before.map(|before| &before.view), &state.view);
        log_unplaced(
            before.map(|before| &before.view),
            &state.view,
            &self.driver.topology().distances,
        );
        if before.is_none_or(|before| was_isolated || before.view != state.view) {
            // The protocol first: it drops what comes of a member that it does not know, and a
            // newcomer is heard once the mesh knows it.
            let view = protocol::View::new(state.view.epoch(), state.view.ids().to_vec());
            self.input(Input::ViewChanged(view));
            if let Some(mesh) = self.peers.mesh() {
                mesh.set_view(&state.view);
            }
        }
        let reachable = before.is_none_or(|before| before.source_reachable);
        if reachable != state.source_reachable {
            if state.source_reachable {
                tracing::info!("the membership can be asked again")
            } else {
                tracing::warn!(
                    "the membership cannot be asked: going on with {} members",
                    state.view.members().len()
                )
            }
        }
    }
}

/// Logs who has joined and who has left.
fn log_changes(before: Option<&View>, now: &View) {
    let Some(before) = before else {
        let names: Vec<&str> = now.members().iter().map(|it| &it.name[..]).collect();
        return tracing::info!("the members are {}", names.join(", "));
    };
    for member in now.members() {
        if before.member(member.id()).is_none() {
            tracing::info!("member {} at {} has joined", member.name, member.address);
        }
    }
    for member in before.members() {
        if now.member(member.id()).is_none() {
            tracing::info!("member {} has left", member.name);
        }
    }
}

/// Logs new members whose distances are not configured although those of others are.
fn log_unplaced(before: Option<&View>, now: &View, distances: &Distances) {
    let is_new = |id| before.is_none_or(|before| before.member(id).is_none());
    let members = now.members().iter();
    let unplaced = members.filter(|it| is_new(it.id()) && !distances.covers(it.id()));
    let names: Vec<&str> = unplaced.map(|it| &it.name[..]).collect();
    if !names.is_empty() {
        tracing::warn!(
            "[topology] does not name {}: it counts as far from all",
            names.join(", ")
        );
    }
}

/// Tells the node of each change, until one of both is gone.
async fn follow(node: Weak<Node>, mut membership: Membership, mut before: State) {
    while membership.changed().await.is_ok() {
        let Some(node) = node.upgrade() else {
            return;
        };
        let state = membership.borrow_and_update().clone();
        node.on_membership(&state, Some(&before));
        before = state;
    }
}
