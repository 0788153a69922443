//! What is sent to other nodes: messages of the [state machine](crate::machine), blocks, and
//! announcements of changes.

use std::sync::OnceLock;

use bytes::{BufMut, Bytes};
use hither_net::frame::FrameHeader;
use hither_net::mesh::Mesh;
use hither_net::view::MemberId;

use crate::key::BlockKey;
use crate::machine::{Keep, Message, wire};

/// The kinds of frames.
pub(crate) const MESSAGE: u8 = 1;
pub(crate) const BLOCK: u8 = 2;
/// See [`questions`](crate::questions).
pub(crate) const ASK: u8 = 3;
pub(crate) const ANSWER: u8 = 4;
/// See [`announcements`](crate::announcements).
pub(crate) const CHANGE: u8 = 5;

/// What stands before a block's bytes: file, index, and whether to keep it.
pub(crate) const BLOCK_HEAD_BYTES: usize = 16 + 4 + 1;

/// See the module. Without a mesh there are no others.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    mesh: OnceLock<Mesh>,
}

impl Peers {
    pub(crate) fn mesh(&self) -> Option<&Mesh> {
        self.mesh.get()
    }

    /// The node has joined a mesh.
    pub(crate) fn join(&self, mesh: Mesh) {
        let first = self.mesh.set(mesh);
        debug_assert!(first.is_ok(), "a node joins once");
    }

    /// Sends a message. One that cannot be sent is lost, as on a network: the machine's deadlines
    /// are there for that.
    pub(crate) fn send(&self, to: MemberId, epoch: u64, message: &Message) {
        let mut body = Vec::with_capacity(64);
        wire::encode(message, &mut body);
        let header = FrameHeader {
            kind: MESSAGE,
            epoch,
            ..FrameHeader::default()
        };
        if let (Some(mesh), Ok(frame)) = (self.mesh(), header.encode(&body)) {
            let _ = mesh.send(to, frame);
        }
    }

    /// Sends a frame of little meaning to the cache. Whether it is on its way.
    pub(crate) fn send_small(&self, to: MemberId, header: FrameHeader, body: &[u8]) -> bool {
        match (self.mesh(), header.encode(body)) {
            (Some(mesh), Ok(frame)) => mesh.send(to, frame).is_ok(),
            _ => false,
        }
    }

    /// Sends a block. One that cannot be sent is lost too.
    pub(crate) fn send_block(&self, to: MemberId, key: BlockKey, data: Bytes, keep: Keep) {
        let mut head = Vec::with_capacity(BLOCK_HEAD_BYTES);
        head.put_u128_le(key.file.0);
        head.put_u32_le(key.index);
        head.put_u8(keep as u8);
        let header = FrameHeader {
            kind: BLOCK,
            ..FrameHeader::default()
        };
        if let (Some(mesh), Ok(frame)) = (self.mesh(), header.encode_parts(&head, data)) {
            let _ = mesh.send(to, frame);
        }
    }
}
