//! What comes from other nodes. A block is taken only if it is on its way here, and has the length
//! that its place in the file gives it.

use std::sync::{Arc, Weak};

use bytes::{Buf, Bytes};
use hither_net::frame::Frame;
use hither_net::mesh::Handler;
use hither_net::view::MemberId;

use crate::key::{BlockKey, FileKey};
use crate::machine::{Blocks, Input, wire};
use crate::node::Node;
use crate::peers::{BLOCK, BLOCK_HEAD_BYTES, MESSAGE};

/// Passes what the mesh receives to the node.
pub(crate) struct PeerHandler(pub(crate) Weak<Node>);

impl PeerHandler {
    fn input(&self, input: Input) {
        if let Some(node) = self.0.upgrade() {
            node.input(input);
        }
    }
}

impl Handler for PeerHandler {
    fn on_frame(&self, from: MemberId, frame: Frame) {
        let Some(node) = self.0.upgrade() else {
            return;
        };
        match frame.header.kind {
            MESSAGE => match wire::decode(&frame.body) {
                Ok(message) => node.input(Input::Message {
                    from,
                    epoch: frame.header.epoch,
                    message,
                }),
                Err(error) => tracing::warn!("a message that makes no sense: {error}"),
            },
            BLOCK => on_block(&node, from, frame.body),
            kind => tracing::warn!("a frame of an unknown kind: {kind}"),
        }
    }

    fn on_connected(&self, member: MemberId) {
        self.input(Input::PeerUp(member));
    }

    fn on_disconnected(&self, member: MemberId) {
        self.input(Input::PeerDown(member));
    }
}

/// A block came. Those that nobody waits for any more are late, and dropped.
fn on_block(node: &Arc<Node>, from: MemberId, mut body: Bytes) {
    if body.len() < BLOCK_HEAD_BYTES {
        return tracing::warn!("a block without a name");
    }
    let file = FileKey(body.get_u128_le());
    let index = body.get_u32_le();
    let keep = body.get_u8() != 0;
    let key = BlockKey { file, index };
    let Some(file) = node.flights.file(std::iter::once(key)) else {
        return;
    };
    if body.len() as u64 != file.block_len(index) {
        return tracing::warn!("block {key:?} has {} bytes", body.len());
    }
    file.on_peer_block();
    let is_copy = keep;
    // What nobody waits for yet would be sent in vain.
    let keep = keep || !node.flights.is_urgent(&key);
    let filling = match keep {
        true => node.store.fill(key, body.len(), false),
        false => None,
    };
    let kept = filling.is_some();
    match filling {
        Some(mut filling) => {
            filling.write(&body);
            node.keep(filling, is_copy);
        }
        None => {
            node.flights.give(&key, &body);
        }
    }
    let (chunk, mask) = key.in_chunk();
    let blocks = Blocks::new(chunk, mask);
    node.input(Input::Arrived { blocks, from, kept });
}
