//! What is sent to other nodes: messages of the [protocol](crate::protocol), blocks, and
//! announcements of changes.

use std::sync::OnceLock;

use bytes::{BufMut, Bytes};
use hither_net::frame::FrameHeader;
use hither_net::mesh::Mesh;
use hither_net::view::MemberId;

use crate::key::{BlockKey, VolumeKey};
use crate::protocol::{Keep, Message, RequestId, wire};
use crate::readers::Readers;

/// The kinds of frames.
pub(crate) const MESSAGE: u8 = 1;
pub(crate) const BLOCK: u8 = 2;
/// See [`questions`](crate::questions).
pub(crate) const ASK: u8 = 3;
pub(crate) const ANSWER: u8 = 4;
/// See [`announcements`](crate::announcements).
pub(crate) const CHANGE: u8 = 5;

/// What stands before a block's bytes: file, index, and whether to keep it. The frame's header
/// names the request.
pub(crate) const BLOCK_HEAD_BYTES: usize = 16 + 4 + 1;

/// See the module. Without a mesh there are no others.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    mesh: OnceLock<(Mesh, Readers)>,
}

impl Peers {
    pub(crate) fn mesh(&self) -> Option<&Mesh> {
        self.mesh.get().map(|(mesh, _)| mesh)
    }

    /// The node has joined a mesh, whose members may have the blocks that `readers` says.
    pub(crate) fn join(&self, mesh: Mesh, readers: Readers) {
        let first = self.mesh.set((mesh, readers));
        debug_assert!(first.is_ok(), "a node joins once");
    }

    /// Whether a member may know what happens in a volume.
    pub(crate) fn may_know(&self, member: MemberId, volume: VolumeKey) -> bool {
        let joined = self.mesh.get();
        joined.is_some_and(|(_, readers)| readers.may_know(member, volume))
    }

    /// Sends a message. One that cannot be sent is lost, as on a network: the protocol's deadlines
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

    /// Sends a block, upon a request if there is one. One that cannot be sent is lost too.
    ///
    /// Each block that leaves this node goes through here, and none goes to a member that may not
    /// have it, whatever has led to its being sent.
    pub(crate) fn send_block(
        &self,
        to: MemberId,
        request: Option<RequestId>,
        key: BlockKey,
        data: Bytes,
        keep: Keep,
    ) {
        let Some((mesh, readers)) = self.mesh.get() else {
            return;
        };
        if !readers.may_have(to, key.file) {
            tracing::error!("a block was to be sent to {to:?}, which may not have it");
            return;
        }
        let mut head = Vec::with_capacity(BLOCK_HEAD_BYTES);
        head.put_u128_le(key.file.0);
        head.put_u32_le(key.index);
        head.put_u8(keep as u8);
        let header = FrameHeader {
            kind: BLOCK,
            request: request.map_or(0, |request| request.0),
            ..FrameHeader::default()
        };
        if let Ok(frame) = header.encode_parts(&head, data) {
            let _ = mesh.send(to, frame);
        }
    }
}
