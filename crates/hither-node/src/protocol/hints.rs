//! Whom a requester asks directly: who holds what of the chunks that it has read of, as their homes
//! have said. That saves the way over the home. It may be outdated: a member that is asked in vain
//! passes the request on to the home.
//!
//! The chunks that were learnt of first are forgotten first.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::message::{Blocks, COPIES_MAX, Copies};
use super::view::MemberId;
use crate::key::ChunkKey;

/// See the module.
#[derive(Debug)]
pub(super) struct Hints {
    /// The nearest members come first.
    chunks: FxHashMap<ChunkKey, Vec<Copies>>,
    /// All chunks, in the order in which they were learnt of.
    order: VecDeque<ChunkKey>,
    chunks_max: usize,
}

impl Hints {
    pub(super) fn new(chunks_max: usize) -> Hints {
        Hints {
            chunks: FxHashMap::default(),
            order: VecDeque::new(),
            chunks_max,
        }
    }

    /// The home of a chunk has said who may be asked. Nothing that was known before counts.
    pub(super) fn learn(&mut self, chunk: ChunkKey, copies: Vec<Copies>) {
        if let Some(known) = self.chunks.get_mut(&chunk) {
            *known = copies;
        } else if !copies.is_empty() {
            if self.order.len() >= self.chunks_max
                && let Some(oldest) = self.order.pop_front()
            {
                self.chunks.remove(&oldest);
            }
            self.order.push_back(chunk);
            self.chunks.insert(chunk, copies);
        }
    }

    /// Blocks of a chunk that is remembered go to a member.
    pub(super) fn add(&mut self, blocks: Blocks, member: MemberId) {
        let Some(copies) = self.chunks.get_mut(&blocks.chunk) else {
            return;
        };
        let mask = blocks.mask;
        match copies.iter().position(|it| it.member == member) {
            Some(at) => copies[at].mask |= mask,
            None if copies.len() < COPIES_MAX => copies.push(Copies { member, mask }),
            None => {}
        }
    }

    /// Nobody is to be asked directly for these blocks.
    pub(super) fn forget(&mut self, blocks: Blocks) {
        let copies = self.chunks.get_mut(&blocks.chunk);
        for copies in copies.into_iter().flatten() {
            copies.mask &= !blocks.mask;
        }
    }

    /// Whom to ask for which of `blocks`, among the members that `may` be asked: no block twice.
    pub(super) fn holders(
        &self,
        blocks: Blocks,
        may: impl Fn(MemberId) -> bool,
    ) -> impl Iterator<Item = (MemberId, u64)> {
        let copies = self
            .chunks
            .get(&blocks.chunk)
            .map_or(&[][..], Vec::as_slice);
        let mut rest = blocks.mask;
        copies.iter().filter_map(move |copies| {
            let mask = copies.mask & rest;
            let asked = mask != 0 && may(copies.member);
            rest &= if asked { !mask } else { u64::MAX };
            asked.then_some((copies.member, mask))
        })
    }

    /// Walks every invariant and panics on a broken one.
    pub(super) fn check(&self) {
        assert_eq!(self.order.len(), self.chunks.len());
        assert!(self.order.len() <= self.chunks_max.max(1));
        assert!(self.order.iter().all(|it| self.chunks.contains_key(it)));
        assert!(self.chunks.values().all(|it| it.len() <= COPIES_MAX));
    }
}
