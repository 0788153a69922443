//! Who waits for blocks, and what they are blocks of: known to the runtime alone. The protocol
//! keeps what it is given with the blocks, and hands it back with what becomes of them.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Something of the runtime's that the protocol does not look into.
#[derive(Clone)]
pub struct Token(Arc<dyn Any + Send + Sync>);

impl Token {
    /// A token for `it`.
    pub fn new<T: Any + Send + Sync>(it: T) -> Token {
        Token(Arc::new(it))
    }

    /// What it stands for.
    ///
    /// # Panics
    /// If that is of another type: each kind of token has one.
    pub fn get<T: Any>(&self) -> &T {
        self.0.downcast_ref().expect("a token of this kind")
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Whether both are one.
impl PartialEq for Token {
    fn eq(&self, other: &Token) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Token {}

/// Who waits for which blocks of a chunk, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiters(Vec<(Token, u64)>);

impl Waiters {
    /// `waiter` waits for the blocks of `mask`.
    pub fn add(&mut self, waiter: Token, mask: u64) {
        self.0.push((waiter, mask));
    }

    /// Takes out who waits for blocks of `mask`, as far as they wait for these.
    pub(super) fn take(&mut self, mask: u64) -> Waiters {
        let mut taken = Waiters::default();
        self.0.retain_mut(|(waiter, waits_for)| {
            if *waits_for & mask != 0 {
                taken.add(waiter.clone(), *waits_for & mask);
                *waits_for &= !mask;
            }
            *waits_for != 0
        });
        taken
    }

    /// The blocks that somebody waits for.
    pub fn mask(&self) -> u64 {
        self.0.iter().fold(0, |mask, (_, of)| mask | of)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&Token, u64)> {
        self.0.iter().map(|(waiter, mask)| (waiter, *mask))
    }
}
