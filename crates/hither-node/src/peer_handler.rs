//! What comes from other nodes, all of which are members. A block is taken only if the
//! protocol expects it of its sender, and if it has the length that its place in the file gives it.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use hither_net::frame::Frame;
use hither_net::mesh::Handler;
use hither_net::view::MemberId;
use parking_lot::Mutex;

use crate::key::{BlockKey, FileKey};
use crate::node::Node;
use crate::peers::{ANSWER, ASK, BLOCK, BLOCK_HEAD_BYTES, CHANGE, MESSAGE};
use crate::pending::{Landing, Origin, file_of};
use crate::protocol::{Blocks, Input, Keep, RequestId, Urgency, wire};
use crate::readers::Readers;

/// Passes what the mesh receives to the node.
pub(crate) struct PeerHandler {
    node: Weak<Node>,
    readers: Readers,
    complaints: Complaints,
}

impl PeerHandler {
    pub(crate) fn new(node: Weak<Node>, readers: Readers) -> PeerHandler {
        PeerHandler {
            node,
            readers,
            complaints: Complaints::default(),
        }
    }

    fn input(&self, input: Input) {
        if let Some(node) = self.node.upgrade() {
            node.input(input);
        }
    }
}

impl Handler for PeerHandler {
    fn on_frame(&self, from: MemberId, frame: Frame) {
        let Some(node) = self.node.upgrade() else {
            return;
        };
        match frame.header.kind {
            MESSAGE => match wire::decode(&frame.body) {
                Ok(message) => node.input(Input::Message {
                    from,
                    epoch: frame.header.epoch,
                    message,
                }),
                Err(error) => {
                    let what = format!("a message that makes no sense: {error}");
                    self.complaints.add(from, &what);
                }
            },
            BLOCK => {
                let request = RequestId(frame.header.request);
                if let Err(what) = on_block(&node, from, request, frame.body) {
                    self.complaints.add(from, &what);
                }
            }
            ASK => {
                let request = frame.header.request;
                if node.questions.may_answer() {
                    let runtime = node.runtime().clone();
                    runtime.spawn_blocking(move || {
                        node.questions.answer(&node.peers, from, request);
                    });
                }
            }
            ANSWER => {
                let request = frame.header.request;
                node.questions.on_answer(from, request, &frame.body);
            }
            CHANGE => {
                if let Err(what) = node
                    .listeners
                    .on_announcement(from, &frame.body, &self.readers)
                {
                    self.complaints.add(from, what);
                }
            }
            kind => {
                let what = format!("a frame of an unknown kind, {kind}");
                self.complaints.add(from, &what);
            }
        }
    }

    fn on_connected(&self, member: MemberId) {
        self.input(Input::PeerUp(member));
    }

    fn on_disconnected(&self, member: MemberId) {
        self.input(Input::PeerDown(member));
    }
}

/// Frames that make no sense. A member may send many of them, so few are logged.
#[derive(Default)]
struct Complaints(Mutex<Option<(Instant, u64)>>);

impl Complaints {
    /// The time between two lines.
    const INTERVAL: Duration = Duration::from_secs(10);

    fn add(&self, from: MemberId, what: &str) {
        let mut last = self.0.lock();
        match &mut *last {
            Some((at, more)) if at.elapsed() < Self::INTERVAL => *more += 1,
            _ => {
                let more = last.map_or(0, |(_, more)| more);
                tracing::warn!("member {from:?} sent {what}; {more} more since the last of this");
                *last = Some((Instant::now(), 0));
            }
        }
    }
}

/// A block came. One that is not expected of the sender is dropped: late ones are, too. One that is
/// to be kept here, without having been wanted, is kept if there is room.
fn on_block(
    node: &Arc<Node>,
    from: MemberId,
    request: RequestId,
    mut body: Bytes,
) -> Result<(), String> {
    if body.len() < BLOCK_HEAD_BYTES {
        return Err("a block without a name".to_owned());
    }
    let file = FileKey(body.get_u128_le());
    let index = body.get_u32_le();
    let keep = Keep::ALL.get(usize::from(body.get_u8()));
    let keep = *keep.ok_or("a block that is neither to be kept nor not")?;
    let key = BlockKey { file, index };
    let (chunk, mask) = key.in_chunk();
    let blocks = Blocks::new(chunk, mask);
    if !node.driver.expects(from, request, blocks) {
        tracing::debug!("member {from:?} sent block {key:?}, which is not expected of it");
        if keep != Keep::No {
            node.input(Input::Unexpected(blocks));
        }
        return Ok(());
    }
    let wanted_here = node.driver.wanted(&key);
    let wanted = wanted_here.is_some();
    let (expected, keeps) = match &wanted_here {
        Some((file, urgency)) => {
            let file = file_of(file);
            file.on_peer_block();
            // What nobody waits for yet would be sent in vain.
            let keeps = keep != Keep::No || *urgency == Urgency::Prefetch;
            (file.block_len(index), keeps)
        }
        // What it is to be is not known here, but whole blocks have one length.
        None => {
            let block_bytes = u64::from(node.settings().block_bytes);
            (block_bytes, keep != Keep::No)
        }
    };
    if (wanted || keeps) && body.len() as u64 != expected {
        return Err(format!("{} bytes as block {key:?}", body.len()));
    }
    if wanted_here.is_some_and(|(file, _)| file_of(&file).contradicts(index, &body)) {
        node.input(Input::Wrong {
            request,
            blocks,
            from,
        });
        return Err(format!(
            "block {key:?}, whose bytes are not those that the source names"
        ));
    }
    let filling = if keeps {
        node.store.fill(key, body.len(), !wanted)
    } else {
        None
    };
    // Who waited may have it from elsewhere. The protocol may still expect it: who wants it next
    // would wait for what has come already.
    let arrived = Input::Arrived {
        blocks,
        from,
        kept: filling.is_some(),
        wanted: wanted || keep == Keep::No,
    };
    let origin = Origin::Member(from);
    match filling {
        Some(mut filling) => {
            filling.write(&body);
            node.keep(filling, origin, keep, arrived);
        }
        None => _ = node.land(arrived, Landing::Block(&body, origin)),
    }
    Ok(())
}
