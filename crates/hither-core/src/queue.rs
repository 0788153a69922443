//! First-in-first-out queues of dense numbers (slots, block numbers) that any member can leave at any time.
//!
//! A queue is an array in order of arrival; who leaves before its turn leaves a gap, and gaps are closed when they are
//! the larger half. Policies that never move a block on a hit (SIEVE, S3-FIFO, CLOCK, the ghosts of 2Q) need no more
//! order than this, and pay half of what a linked list costs: arriving and leaving in turn walk through memory in
//! sequence, where the links of a list lie scattered.
//!
//! Where a number stands is kept by number in [`Places`]. Several queues share one where a number is in at most one of
//! them; a place is only believed if the queue has that number there, so nobody clears it on leaving.

use crate::list::NIL;
use std::collections::VecDeque;

/// Where each number stands in its queue, shared by any number of [`Queue`]s.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Vec<u32>);

impl Places {
    /// Places for the numbers `0..numbers`; more come with [`Places::cover`].
    pub(crate) fn new(numbers: usize) -> Self {
        Places(vec![0; numbers])
    }

    /// Makes sure that `number` has a place.
    #[inline]
    pub(crate) fn cover(&mut self, number: u32) {
        if number as usize >= self.0.len() {
            self.0.resize(number as usize + 1, 0);
        }
    }
}

/// One queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    /// Oldest first; [`NIL`] is a gap. Neither the first nor the last is one.
    entries: VecDeque<u32>,
    /// The place of the first entry; places count arrivals and wrap around.
    start: u32,
    len: u32,
}

impl Queue {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Members and gaps.
    #[inline]
    pub(crate) fn span(&self) -> usize {
        self.entries.len()
    }

    /// The member at `offset` from the oldest, gaps counted; none if it is a gap.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> Option<u32> {
        Some(self.entries[offset]).filter(|&number| number != NIL)
    }

    /// How far `number`, a member, stands behind the oldest, gaps counted.
    #[inline]
    pub(crate) fn offset(&self, places: &Places, number: u32) -> usize {
        places.0[number as usize].wrapping_sub(self.start) as usize
    }

    #[inline]
    pub(crate) fn contains(&self, places: &Places, number: u32) -> bool {
        places.0.get(number as usize).is_some_and(|place| {
            self.entries.get(place.wrapping_sub(self.start) as usize) == Some(&number)
        })
    }

    /// Adds `number`, which is in no queue of `places`, as the newest.
    #[inline]
    pub(crate) fn push(&mut self, places: &mut Places, number: u32) {
        if self.entries.len() > 2 * self.len as usize + 64 {
            self.close_gaps(places);
        }
        places.0[number as usize] = self.start.wrapping_add(self.entries.len() as u32);
        self.entries.push_back(number);
        self.len += 1;
    }

    /// Takes out the oldest.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let number = self.entries.pop_front()?;
        self.start = self.start.wrapping_add(1);
        self.len -= 1;
        self.trim_front();
        Some(number)
    }

    /// Takes out `number`, which must be in this queue.
    #[inline]
    pub(crate) fn remove(&mut self, places: &Places, number: u32) {
        let offset = self.offset(places, number);
        assert_eq!(
            std::mem::replace(&mut self.entries[offset], NIL),
            number,
            "it is not in this queue"
        );
        self.len -= 1;
        self.trim_front();
        while self.entries.back() == Some(&NIL) {
            self.entries.pop_back();
        }
    }

    /// The member next younger than `number`, a member.
    #[inline]
    pub(crate) fn after(&self, places: &Places, number: u32) -> Option<u32> {
        let next = self.offset(places, number) + 1;
        (next..self.entries.len()).find_map(|offset| self.at(offset))
    }

    /// The members, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.entries.iter().copied().filter(|&number| number != NIL)
    }

    #[inline]
    fn trim_front(&mut self) {
        while self.entries.front() == Some(&NIL) {
            self.entries.pop_front();
            self.start = self.start.wrapping_add(1);
        }
    }

    #[cold]
    fn close_gaps(&mut self, places: &mut Places) {
        self.entries.retain(|&number| number != NIL);
        for (offset, &number) in self.entries.iter().enumerate() {
            places.0[number as usize] = self.start.wrapping_add(offset as u32);
        }
    }

    /// Panics unless every member knows its place, the count is right and both ends are members.
    pub(crate) fn check(&self, places: &Places) {
        assert!(self.iter().all(|number| self.contains(places, number)));
        assert_eq!(self.iter().count(), self.len());
        assert_ne!(self.entries.front(), Some(&NIL));
        assert_ne!(self.entries.back(), Some(&NIL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Starts just before places wrap around.
    #[test]
    fn behaves_like_a_deque() {
        let mut random = Random::new(5);
        let mut places = Places::default();
        let mut queue = Queue {
            start: u32::MAX - 300,
            ..Queue::default()
        };
        let mut model = VecDeque::new();
        let mut spans = 0;
        for round in 0..20_000 {
            let number = random.below(if round / 2000 % 2 == 0 { 500 } else { 8 }) as u32;
            assert_eq!(queue.contains(&places, number), model.contains(&number));
            match (
                random.below(8),
                model.iter().position(|&other| other == number),
            ) {
                (0, _) => assert_eq!(queue.pop(), model.pop_front()),
                (1..4, Some(at)) => {
                    assert_eq!(queue.after(&places, number), model.get(at + 1).copied());
                    queue.remove(&places, number);
                    model.remove(at);
                }
                (4.., None) => {
                    places.cover(number);
                    queue.push(&mut places, number);
                    model.push_back(number);
                }
                _ => {}
            }
            queue.check(&places);
            assert!(queue.iter().eq(model.iter().copied()));
            assert_eq!(queue.len(), model.len());
            spans = spans.max(queue.span() - queue.len());
        }
        assert!(spans > 64, "gaps were never closed");
    }
}
