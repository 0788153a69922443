//! The connections between nodes: packets arrive in order, or are lost with all that follow until
//! the connection is made anew. With reordering, each packet has its own fate.

use hither_node::protocol::{Blocks, Input, Keep, MemberId, Message, Protocol, RequestId, wire};

use crate::scenario::MS;
use crate::world::{Event, Sabotage, World};

/// What one node sends to another.
#[derive(Clone, Debug)]
pub(crate) enum Packet {
    /// A message as bytes.
    Message { epoch: u64, bytes: Vec<u8> },
    /// Blocks with their contents.
    Data {
        blocks: Blocks,
        contents: Vec<u64>,
        keep: Keep,
        /// The request upon which they are sent.
        request: Option<RequestId>,
    },
}

/// A connection between two nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    /// Changes when the connection breaks.
    pub(crate) connection: u64,
    /// Packets from the lower to the higher node, and back, do not get through.
    pub(crate) blocked: [bool; 2],
    /// A packet was lost that way.
    pub(crate) lost: bool,
    /// When the last packet arrives, by direction.
    pub(crate) last: [u64; 2],
}

impl World {
    pub(crate) fn is_reordering(&self) -> bool {
        self.scenario.faults.is_some_and(|faults| faults.reordering)
    }

    pub(crate) fn link(&mut self, one: usize, other: usize) -> &mut Link {
        let pair = (one.min(other), one.max(other));
        self.links.entry(pair).or_default()
    }

    pub(crate) fn number_of(&self, member: MemberId) -> usize {
        let mut nodes = self.nodes.iter();
        nodes.position(|node| node.member == member).unwrap()
    }

    /// Sends a packet, unless it is lost at once.
    pub(crate) fn send(&mut self, from: usize, to: usize, packet: Packet) {
        let mut latency = self.between(self.scenario.latency_ns);
        let pair = (from.min(to), from.max(to));
        latency += self.extra_ns.get(&pair).copied().unwrap_or_default();
        let direction = usize::from(from > to);
        let lossy = self.disturbed && self.is_reordering();
        if lossy && self.percent(10) {
            latency *= 20;
        }
        let times = match self.random.below(100) {
            0..3 if lossy => 0,
            3..6 if lossy => 2,
            _ => 1,
        };
        let (now, reordering) = (self.now, self.is_reordering());
        let link = self.link(from, to);
        if link.blocked[direction] {
            link.lost = true;
            return;
        }
        let mut at = now + latency;
        if !reordering {
            at = at.max(link.last[direction]);
            link.last[direction] = at;
        }
        let connection = link.connection;
        for _ in 0..times {
            let packet = packet.clone();
            let event = Event::Packet {
                from,
                connection,
                packet,
            };
            self.schedule(at - now, to, event);
        }
    }

    /// A connection breaks: what is on its way is lost, and both ends see it.
    pub(crate) fn break_link(&mut self, one: usize, other: usize) {
        let link = self.link(one, other);
        link.connection += 1;
        link.lost = false;
        link.last = [0; 2];
        for (node, peer) in [(one, other), (other, one)] {
            let peer = self.nodes[peer].member;
            let down = self.random.below(5 * MS);
            let up = down + 1 + self.random.below(50 * MS);
            self.schedule(down, node, Event::Input(Input::PeerDown(peer)));
            self.schedule(up, node, Event::Input(Input::PeerUp(peer)));
        }
    }

    /// Whether a node's mesh lets nobody in from there: it does so only with members of the node's
    /// view. The sender sees its connection end, and comes back when it is let in.
    fn refuses(&mut self, from: usize, to: usize) -> bool {
        let (sender, protocol) = (self.nodes[from].member, &self.nodes[to].protocol);
        let is_member = |protocol: &Protocol| protocol.view().contains(sender);
        if protocol.as_ref().is_some_and(is_member) {
            return false;
        }
        if self.refused.insert((from, to)) {
            let peer = self.nodes[to].member;
            let after = self.random.below(5 * MS);
            self.schedule(after, from, Event::Input(Input::PeerDown(peer)));
        }
        true
    }

    /// A node has another view: it lets in who was refused before.
    pub(crate) fn let_in(&mut self, to: usize) {
        let peer = self.nodes[to].member;
        for from in 0..self.nodes.len() {
            let (sender, protocol) = (self.nodes[from].member, &self.nodes[to].protocol);
            let is_member = |protocol: &Protocol| protocol.view().contains(sender);
            if protocol.as_ref().is_some_and(is_member) && self.refused.remove(&(from, to)) {
                let after = 5 * MS + self.random.below(50 * MS);
                self.schedule(after, from, Event::Input(Input::PeerDown(peer)));
                self.schedule(after + 1, from, Event::Input(Input::PeerUp(peer)));
            }
        }
    }

    /// Whether a node takes a block that has come to it.
    fn takes(&mut self, from: usize, to: usize, request: Option<RequestId>, block: Blocks) -> bool {
        let sender = self.nodes[from].member;
        let Some(protocol) = &mut self.nodes[to].protocol else {
            return false;
        };
        let id = request.unwrap_or(RequestId(0));
        protocol.expects(sender, id, block) || self.sabotage == Some(Sabotage::TakesAnything)
    }

    /// A packet has arrived.
    pub(crate) fn arrive(&mut self, from: usize, to: usize, packet: Packet) {
        let sender = self.nodes[from].member;
        // Who lies may have found a way past the mesh: the protocol must not hear it either.
        if !self.nodes[from].lies && self.refuses(from, to) {
            return;
        }
        if self.nodes[to].lies {
            self.overhear(to, &packet);
        }
        match packet {
            Packet::Message { epoch, bytes } => {
                let message: Message = wire::decode(&bytes).unwrap();
                let input = Input::Message {
                    from: sender,
                    epoch,
                    message,
                };
                self.step(to, input);
            }
            Packet::Data {
                blocks,
                contents,
                keep,
                request,
            } => {
                for (block, content) in blocks.chunk.blocks(blocks.mask).zip(contents) {
                    let (chunk, mask) = block.in_chunk();
                    let one = Blocks::new(chunk, mask);
                    if self.is_asked_for(from, block, content) {
                        continue;
                    }
                    if !self.takes(from, to, request, one) {
                        if keep != Keep::No {
                            self.step(to, Input::Unexpected(one));
                        }
                        continue;
                    }
                    let node = &mut self.nodes[to];
                    let wanted = node.wanted.contains(&block) || node.cancelled.contains(&block);
                    let mut dropped = None;
                    if wanted {
                        node.buffers.insert(block, content);
                    }
                    // Who did not ask for a block may have no room for it.
                    let kept = keep != Keep::No && (wanted || self.random.below(8) > 0);
                    if kept {
                        dropped = node.store.insert(block, content, &mut self.random);
                    }
                    let input = Input::Arrived {
                        blocks: one,
                        from: sender,
                        kept,
                        wanted: wanted || keep == Keep::No,
                    };
                    self.step(to, input);
                    match keep {
                        Keep::Moved => self.give_up(to, dropped, Some(sender)),
                        Keep::Copy | Keep::No => self.let_go(to, dropped),
                    }
                }
            }
        }
    }
}
