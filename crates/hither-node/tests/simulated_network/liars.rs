//! Members that lie, and one that is no member any more. Beside what an honest node would do, they
//! say what is not so: blocks with other bytes or of other files, upon requests that they have
//! overheard or nobody has made; grants, orders and reports about anything; epochs of their own.
//!
//! Two files are of volumes with a list: liars are not on it, so they may lie there in all they do.
//! The third file is for all. There a liar is trusted with what it is asked for, as home or holder,
//! as in any cluster: it lies about what it is *not* asked for.

use std::collections::{BTreeMap, BTreeSet};

use hither_core::Random;
use hither_node::key::{BlockKey, ChunkKey, FileKey, VolumeKey};
use hither_node::protocol::{
    Blocks, Copies, Keep, Message, ReportEntry, Request, RequestId, Urgency, wire,
};
use hither_node::readers::Readers;

use crate::network::Packet;
use crate::node::{Node, content, name};
use crate::scenario::{MS, Scenario};
use crate::world::{Event, Sabotage, World};

/// Requests that a liar remembers.
const OVERHEARD_MAX: usize = 32;

/// Who is who in a world with liars: the honest nodes come first.
pub(crate) struct Cast {
    pub(crate) honest: usize,
    /// The last node: it was a member once.
    pub(crate) retired: usize,
    /// The nodes that may have each file.
    pub(crate) lists: Vec<BTreeSet<usize>>,
    /// Honest nodes whose own file has no list.
    without_lists: BTreeSet<usize>,
    /// Blocks of the file for all that honest nodes have asked a liar for.
    asked: BTreeSet<(usize, BlockKey)>,
    pub(crate) lies: u64,
}

impl Cast {
    /// Deals the roles, and makes the scenario one for them: shorter, and with deadlines, since who
    /// lies need not answer.
    pub(crate) fn deal(random: &mut Random, scenario: &mut Scenario) -> Cast {
        let honest = 2 + random.below(3) as usize;
        let liars = 1 + random.below(2) as usize;
        let retired = honest + liars;
        scenario.nodes = retired + 1;
        scenario.chunks = scenario.chunks.max(3);
        scenario.disturbed_ns = (300 + random.below(700)) * MS;
        scenario.read_ns = scenario.read_ns.min(30 * MS);
        scenario.reliable = false;
        let settings = &mut scenario.settings;
        settings.pending_ns = settings.pending_ns.min(800 * MS);
        settings.patience_ns = settings.patience_ns.min(2_000 * MS);
        settings.grant_ns = settings.grant_ns.min(1_500 * MS);
        // One honest node may be on no list. Its own file need not say that there are any.
        let without_lists: BTreeSet<usize> = if honest > 2 && random.below(2) == 0 {
            BTreeSet::from([honest - 1])
        } else {
            BTreeSet::new()
        };
        let listed: BTreeSet<usize> = (0..honest)
            .filter(|it| !without_lists.contains(it))
            .collect();
        let fewer = listed.iter().copied().take(1 + random.below(2) as usize);
        Cast {
            honest,
            retired,
            lists: vec![listed.clone(), fewer.collect(), (0..retired).collect()],
            without_lists,
            asked: BTreeSet::new(),
            lies: 0,
        }
    }

    fn volume(file: usize) -> String {
        format!("v{file}")
    }

    /// The key of a file, which is the only one of its volume.
    pub(crate) fn file(number: usize) -> FileKey {
        let VolumeKey(volume) = VolumeKey::new(&Cast::volume(number));
        FileKey(u128::from(volume) << 96 | number as u128)
    }

    /// Gives the nodes their roles.
    pub(crate) fn assign(&self, nodes: &mut [Node], sabotage: Option<Sabotage>) {
        let lists = self.lists[..2].iter().enumerate();
        let lists: BTreeMap<String, Vec<String>> = lists
            .map(|(file, list)| {
                (
                    Cast::volume(file),
                    list.iter().map(|&it| name(it)).collect(),
                )
            })
            .collect();
        for (number, node) in nodes.iter_mut().enumerate() {
            node.lies = number >= self.honest;
            if number < self.honest
                && !self.without_lists.contains(&number)
                && sabotage != Some(Sabotage::NoLists)
            {
                node.readers = Readers::new(&lists);
            }
        }
    }
}

impl World {
    fn file_number(&self, file: FileKey) -> usize {
        self.files.iter().position(|it| *it == file).unwrap()
    }

    /// Whether a node may have the blocks of a chunk.
    pub(crate) fn may_have(&self, node: usize, chunk: ChunkKey) -> bool {
        let cast = self.cast.as_ref();
        cast.is_none_or(|cast| cast.lists[self.file_number(chunk.file)].contains(&node))
    }

    /// Whether blocks that an honest node sends are none: it may not have them itself and knows of
    /// no list, so a liar that is their home can have it keep, and send, what it likes.
    pub(crate) fn is_fooled(&self, from: usize, blocks: Blocks, contents: &[u64]) -> bool {
        let cast = self.cast.as_ref();
        let keys = blocks.chunk.blocks(blocks.mask);
        cast.is_some_and(|cast| cast.without_lists.contains(&from))
            && !self.may_have(from, blocks.chunk)
            && keys
                .zip(contents)
                .all(|(block, bytes)| content(block) != *bytes)
    }

    /// Whether a node is no member any more, and has no protocol.
    pub(crate) fn is_retired(&self, node: usize) -> bool {
        let retired = self.cast.as_ref().is_some_and(|cast| cast.retired == node);
        retired && self.sabotage != Some(Sabotage::HearsStrangers)
    }

    fn is_for_all(&self, chunk: ChunkKey) -> bool {
        self.file_number(chunk.file) == 2
    }

    /// Takes note of whom a message asks for blocks, or announces as their sender.
    pub(crate) fn note_asked(&mut self, message: &Message, to: usize) {
        if self.cast.is_none() {
            return;
        }
        let (member, blocks) = match message {
            Message::Deliver { blocks, .. }
            | Message::Send { blocks, .. }
            | Message::Grant { blocks, .. } => (self.nodes[to].member, blocks),
            Message::At { blocks, holder, .. } => (*holder, blocks),
            Message::Expect { blocks, from } => (*from, blocks),
            _ => return,
        };
        let member = self.number_of(member);
        if let Some(cast) = &mut self.cast
            && member >= cast.honest
        {
            let blocks = blocks.chunk.blocks(blocks.mask);
            cast.asked.extend(blocks.map(|block| (member, block)));
        }
    }

    /// Whether a member is trusted with a block of the file for all, since it was asked for it:
    /// other bytes than the right ones are not looked at then.
    pub(crate) fn is_asked_for(&self, from: usize, block: BlockKey, bytes: u64) -> bool {
        let asked = |cast: &Cast| cast.asked.contains(&(from, block));
        bytes != content(block)
            && self.cast.as_ref().is_some_and(asked)
            && self.is_for_all(block.in_chunk().0)
    }

    /// A liar takes note of requests.
    pub(crate) fn overhear(&mut self, node: usize, packet: &Packet) {
        let Packet::Message { bytes, .. } = packet else {
            return;
        };
        let heard = match wire::decode(bytes).unwrap() {
            Message::Want { id, blocks, .. } => (id, blocks.chunk),
            Message::Deliver {
                request, blocks, ..
            } => (request.id, blocks.chunk),
            _ => return,
        };
        let overheard = &mut self.nodes[node].overheard;
        if overheard.len() == OVERHEARD_MAX {
            overheard.remove(0);
        }
        overheard.push(heard);
    }

    /// A liar lies, and plans its next lie.
    pub(crate) fn lie(&mut self, liar: usize) {
        if self.now >= self.scenario.disturbed_ns {
            return;
        }
        let next = self.around(8 * MS);
        self.schedule(next, liar, Event::Lie);
        let Some(cast) = &mut self.cast else {
            return;
        };
        cast.lies += 1;
        let (honest, retired) = (cast.honest, cast.retired);
        let to = self.random.below(honest as u64) as usize;
        let chunk = self.any_chunk();
        let blocks = Blocks::new(chunk, self.random.bits() | 1 << self.random.below(64));
        // Where it is trusted with what it is asked for, it only says what it is not asked for.
        let is_trusted = self.is_for_all(chunk) && liar != retired;
        let id = self.some_request(liar, chunk, is_trusted);
        let lie = if is_trusted {
            self.data_lie(blocks, id)
        } else {
            match self.random.below(3) {
                0 => self.data_lie(blocks, id),
                1 => {
                    // As if it had been announced by the home.
                    let from = self.nodes[liar].member;
                    self.tell(liar, to, &Message::Expect { blocks, from });
                    self.data_lie(blocks, id)
                }
                _ => {
                    let message = self.message_lie(liar, blocks, id);
                    return self.tell(liar, to, &message);
                }
            }
        };
        self.send(liar, to, lie);
    }

    /// A request that the liar has heard of, or could guess.
    fn some_request(&mut self, liar: usize, chunk: ChunkKey, of_others: bool) -> RequestId {
        let heard = self.nodes[liar].overheard.iter();
        let heard = heard.filter(|(_, it)| !of_others || *it != chunk);
        let heard: Vec<RequestId> = heard.map(|it| it.0).collect();
        match heard.get(self.random.below(heard.len() as u64 + 1) as usize) {
            Some(id) if self.percent(80) => *id,
            Some(id) => RequestId(id.0 + 1),
            None => RequestId(self.random.below(1_000)),
        }
    }

    /// Data with the bytes of other blocks, of this volume or another one, or with any bytes.
    fn data_lie(&mut self, blocks: Blocks, id: RequestId) -> Packet {
        let other = self.any_chunk();
        let any = self.random.bits();
        let kind = self.random.below(3);
        let forged = blocks.chunk.blocks(blocks.mask).map(|block| match kind {
            0 => any,
            1 => content(block) ^ 1,
            _ => content(BlockKey {
                file: other.file,
                index: block.index + 1,
            }),
        });
        Packet::Data {
            blocks,
            contents: forged.collect(),
            keep: Keep::ALL[self.random.below(3) as usize],
            request: Some(id).filter(|_| self.random.below(4) > 0),
        }
    }

    fn message_lie(&mut self, liar: usize, blocks: Blocks, id: RequestId) -> Message {
        let member = self.nodes[liar].member;
        let any = self.random.below(self.nodes.len() as u64) as usize;
        let any = self.nodes[any].member;
        let urgency = Urgency::Demand;
        let keep = Keep::ALL[self.random.below(3) as usize];
        let request = |member| Request {
            member,
            id,
            urgency,
        };
        let copies = Copies {
            member,
            mask: u64::MAX,
        };
        match self.random.below(17) {
            0 => Message::Grant {
                id,
                blocks,
                keeper: member,
            },
            1 => Message::Grant {
                id,
                blocks,
                keeper: any,
            },
            2 => Message::At {
                id,
                blocks,
                holder: member,
                copies: vec![copies],
            },
            3 => Message::At {
                id,
                blocks,
                holder: any,
                copies: vec![copies],
            },
            4 => Message::Report {
                incarnation: self.random.below(2),
                entries: vec![ReportEntry {
                    chunk: blocks.chunk,
                    held: u64::MAX,
                    dropped: 0,
                }],
            },
            5 => Message::Want {
                id,
                blocks,
                urgency,
                rank: u8::MAX,
                avoid: Some(any),
            },
            6 => Message::Deliver {
                request: request(member),
                blocks,
                keep,
            },
            7 => Message::Deliver {
                request: request(any),
                blocks,
                keep,
            },
            8 => Message::Send {
                blocks,
                to: member,
                keep,
            },
            9 => Message::Gone {
                request: request(member),
                blocks,
            },
            10 => Message::Victims {
                blocks,
                from: Some(any),
            },
            11 => Message::Drop(blocks),
            12 => Message::Fetching { blocks, urgency },
            13 => Message::NotFetched {
                blocks,
                tried: true,
            },
            14 => Message::Pending { id, blocks },
            15 => Message::AskHome { id, blocks },
            _ => Message::Refused { id, blocks },
        }
    }

    /// Says something, with an epoch of its own.
    fn tell(&mut self, liar: usize, to: usize, message: &Message) {
        let epoch = match self.random.below(4) {
            0 => u64::MAX,
            1 => self.random.below(10),
            _ => self.view.epoch,
        };
        let mut bytes = Vec::new();
        wire::encode(message, &mut bytes);
        self.send(liar, to, Packet::Message { epoch, bytes });
    }
}
