//! Intrusive doubly linked lists whose links are `u32` indices in one `Vec`.
//!
//! Every list of this crate is one of these: over the slots of a cache (recency), over block
//! numbers (ghosts), over sites. Several lists share one [`Links`] if a node is in at most one of
//! them, so that moving a node between lists allocates nothing, and memory is eight bytes a node.

/// No node.
pub(crate) const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct ListLink {
    prev: u32,
    next: u32,
}

/// The links of the nodes `0..n`, shared by any number of [`List`]s.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links(Vec<ListLink>);

impl Links {
    /// Links for the nodes `0..nodes`; [`Links::cover`] adds more.
    pub(crate) fn new(nodes: usize) -> Self {
        Links(vec![
            ListLink {
                prev: NIL,
                next: NIL
            };
            nodes
        ])
    }

    /// Grows the links so that `node` has one.
    #[inline]
    pub(crate) fn cover(&mut self, node: u32) {
        if node as usize >= self.0.len() {
            self.make_room(node);
        }
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, node: u32) {
        let none = ListLink {
            prev: NIL,
            next: NIL,
        };
        self.0.resize(node as usize + 1, none);
    }
}

/// One list: its ends and its length. The front is the most recent end wherever a list is one of
/// recency.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for List {
    fn default() -> Self {
        List {
            head: NIL,
            tail: NIL,
            len: 0,
        }
    }
}

impl List {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    #[inline]
    pub(crate) fn back(&self) -> Option<u32> {
        (self.tail != NIL).then_some(self.tail)
    }

    /// Adds `node`, which is in no list of `links`, at the front.
    #[inline]
    pub(crate) fn push_front(&mut self, links: &mut Links, node: u32) {
        links.0[node as usize] = ListLink {
            prev: NIL,
            next: self.head,
        };
        match self.head {
            NIL => self.tail = node,
            head => links.0[head as usize].prev = node,
        }
        self.head = node;
        self.len += 1;
    }

    /// Adds `node`, which is in no list of `links`, at the back.
    #[inline]
    pub(crate) fn push_back(&mut self, links: &mut Links, node: u32) {
        links.0[node as usize] = ListLink {
            prev: self.tail,
            next: NIL,
        };
        match self.tail {
            NIL => self.head = node,
            tail => links.0[tail as usize].next = node,
        }
        self.tail = node;
        self.len += 1;
    }

    /// Adds `node`, which is in no list of `links`, behind `before` of this list.
    #[inline]
    pub(crate) fn insert_after(&mut self, links: &mut Links, before: u32, node: u32) {
        let next = std::mem::replace(&mut links.0[before as usize].next, node);
        links.0[node as usize] = ListLink { prev: before, next };
        match next {
            NIL => self.tail = node,
            next => links.0[next as usize].prev = node,
        }
        self.len += 1;
    }

    /// The node behind `node` of this list.
    #[inline]
    pub(crate) fn after(&self, links: &Links, node: u32) -> Option<u32> {
        let next = links.0[node as usize].next;
        (next != NIL).then_some(next)
    }

    /// The node in front of `node` of this list.
    #[inline]
    pub(crate) fn before(&self, links: &Links, node: u32) -> Option<u32> {
        let prev = links.0[node as usize].prev;
        (prev != NIL).then_some(prev)
    }

    /// Removes `node` from this list, which must hold it.
    #[inline]
    pub(crate) fn remove(&mut self, links: &mut Links, node: u32) {
        let ListLink { prev, next } = links.0[node as usize];
        match prev {
            NIL => self.head = next,
            prev => links.0[prev as usize].next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => links.0[next as usize].prev = prev,
        }
        self.len -= 1;
    }

    /// Moves `node` of this list to its front.
    #[inline]
    pub(crate) fn touch(&mut self, links: &mut Links, node: u32) {
        if self.head != node {
            self.remove(links, node);
            self.push_front(links, node);
        }
    }

    #[inline]
    pub(crate) fn pop_front(&mut self, links: &mut Links) -> Option<u32> {
        let node = self.front()?;
        self.remove(links, node);
        Some(node)
    }

    #[inline]
    pub(crate) fn pop_back(&mut self, links: &mut Links) -> Option<u32> {
        let node = self.back()?;
        self.remove(links, node);
        Some(node)
    }

    /// The nodes from front to back.
    pub(crate) fn iter<'a>(&self, links: &'a Links) -> impl Iterator<Item = u32> + 'a {
        let list = *self;
        std::iter::successors(self.front(), move |&node| list.after(links, node))
    }

    /// Walks the list and panics unless its links agree both ways and its length is right.
    pub(crate) fn check(&self, links: &Links) {
        let mut before = NIL;
        let mut count = 0;
        for node in self.iter(links) {
            assert_eq!(
                links.0[node as usize].prev, before,
                "node {node} points back wrongly"
            );
            before = node;
            count += 1;
            assert!(count <= self.len, "the list is longer than its length says");
        }
        assert_eq!(before, self.tail, "the last node is not the tail");
        assert_eq!(count, self.len, "the list is shorter than its length says");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_like_a_deque() {
        let mut links = Links::default();
        let mut list = List::default();
        let mut model = std::collections::VecDeque::new();
        let mut state = 7u64;
        for _ in 0..4000 {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let node = (state >> 33) as u32 % 16;
            match ((state >> 60) % 6, model.contains(&node)) {
                (0, false) => {
                    links.cover(node);
                    list.push_front(&mut links, node);
                    model.push_front(node);
                }
                (1, false) => {
                    links.cover(node);
                    list.push_back(&mut links, node);
                    model.push_back(node);
                }
                (2, true) => {
                    list.touch(&mut links, node);
                    model.retain(|&other| other != node);
                    model.push_front(node);
                }
                (3, true) => {
                    list.remove(&mut links, node);
                    model.retain(|&other| other != node);
                }
                (5, false) if !model.is_empty() => {
                    let at = (state >> 40) as usize % model.len();
                    links.cover(node);
                    list.insert_after(&mut links, model[at], node);
                    model.insert(at + 1, node);
                }
                (4, _) => assert_eq!(list.pop_back(&mut links), model.pop_back()),
                _ => assert_eq!(list.pop_front(&mut links), model.pop_front()),
            }
            list.check(&links);
            assert!(list.iter(&links).eq(model.iter().copied()));
        }
    }
}
