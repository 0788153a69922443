//! Descriptors on their way from programs to the agent, which takes a copy by `pidfd_getfd`.
//!
//! A program fills a free slot. Descriptor -1 says that it uses a userfaultfd itself, and is not to
//! be sampled. The agent frees the slot when it has its copy, or has given up, and the program then
//! closes its own. A program that ends, or runs another one, leaves its offer behind: the agent
//! finds no such descriptor and frees the slot.

use std::sync::atomic::{AtomicU64, Ordering};

use hither_ids::Pid;
use hither_kernel::page_sampling::UserfaultfdOffer;

/// Programs that can have an offer out at once: the agent looks every few milliseconds.
const SLOTS: usize = 64;

/// The slots.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Offers([Slot; SLOTS]);

#[repr(C)]
#[derive(Debug, Default)]
struct Slot {
    /// Process and descriptor; 0 while it is free, [`TAKEN`] while it is being filled.
    offer: AtomicU64,
    inode: AtomicU64,
}

/// No process has this number.
const TAKEN: u64 = u64::MAX;

impl Default for Offers {
    fn default() -> Offers {
        Offers(
            [const {
                Slot {
                    offer: AtomicU64::new(0),
                    inode: AtomicU64::new(0),
                }
            }; SLOTS],
        )
    }
}

/// An offer that was made: what to ask about it with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingOffer {
    slot: usize,
    offer: u64,
}

impl PendingOffer {
    /// For those who keep it in atomics.
    pub fn to_words(self) -> [u64; 2] {
        [self.slot as u64, self.offer]
    }

    /// From what [`PendingOffer::to_words`] gave.
    pub fn from_words([slot, offer]: [u64; 2]) -> PendingOffer {
        PendingOffer {
            slot: slot as usize,
            offer,
        }
    }

    /// Who made it.
    pub fn pid(self) -> Pid {
        Pid((self.offer >> 32) as u32)
    }

    /// The descriptor.
    pub fn fd(self) -> i32 {
        self.offer as u32 as i32
    }
}

fn pack(offer: &UserfaultfdOffer) -> u64 {
    u64::from(offer.pid.0) << 32 | u64::from(offer.fd as u32)
}

impl Offers {
    pub(crate) fn put(&self, offer: &UserfaultfdOffer) -> Option<PendingOffer> {
        for (number, slot) in self.0.iter().enumerate() {
            let free = slot.offer.load(Ordering::Relaxed) == 0
                && slot
                    .offer
                    .compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok();
            if free {
                slot.inode.store(offer.inode, Ordering::Relaxed);
                slot.offer.store(pack(offer), Ordering::Release);
                return Some(PendingOffer {
                    slot: number,
                    offer: pack(offer),
                });
            }
        }
        None
    }

    pub(crate) fn is_answered(&self, offered: &PendingOffer) -> bool {
        let slot = self.0.get(offered.slot);
        slot.is_none_or(|slot| slot.offer.load(Ordering::Acquire) != offered.offer)
    }

    /// Passes on each offer and frees its slot afterwards.
    pub(crate) fn take_all(&self, mut sink: impl FnMut(&UserfaultfdOffer)) {
        for slot in &self.0 {
            let packed = slot.offer.load(Ordering::Acquire);
            if packed == 0 || packed == TAKEN {
                continue;
            }
            sink(&UserfaultfdOffer {
                pid: Pid((packed >> 32) as u32),
                fd: packed as u32 as i32,
                inode: slot.inode.load(Ordering::Relaxed),
            });
            slot.offer.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(pid: Pid) -> UserfaultfdOffer {
        UserfaultfdOffer {
            pid,
            fd: 900,
            inode: u64::from(pid.0) + 7,
        }
    }

    fn taken(offers: &Offers) -> Vec<UserfaultfdOffer> {
        let mut taken = Vec::new();
        offers.take_all(|offer| taken.push(*offer));
        taken
    }

    #[test]
    fn offers_arrive_whole_and_are_answered() {
        let offers = Offers::default();
        let one = offers.put(&offer(Pid(1))).expect("room");
        assert_eq!((one.pid(), one.fd()), (Pid(1), 900));
        assert_eq!(PendingOffer::from_words(one.to_words()), one);
        assert_eq!(taken(&offers), [offer(Pid(1))]);
        assert!(offers.is_answered(&one));
        assert!(taken(&offers).is_empty());
        assert!(offers.put(&offer(Pid(3))).is_some());
        assert_eq!(taken(&offers), [offer(Pid(3))]);
    }

    #[test]
    fn there_is_room_for_so_many() {
        let offers = Offers::default();
        let many: Vec<_> = (1..=SLOTS as u32)
            .map(|pid| offers.put(&offer(Pid(pid))))
            .collect();
        assert!(many.iter().all(Option::is_some));
        assert_eq!(offers.put(&offer(Pid(99))), None);
        assert_eq!(taken(&offers).len(), SLOTS);
        assert!(offers.put(&offer(Pid(99))).is_some());
    }

    /// What a damaged segment may hold: nothing is believed but that it can be freed.
    #[test]
    fn garbage_does_no_harm() {
        let offers = Offers::default();
        offers.0[3].offer.store(TAKEN, Ordering::Relaxed);
        offers.0[5].offer.store(u64::MAX - 1, Ordering::Relaxed);
        assert_eq!(taken(&offers).len(), 1);
        let beyond = PendingOffer {
            slot: SLOTS,
            offer: 1,
        };
        assert!(offers.is_answered(&beyond));
    }
}
