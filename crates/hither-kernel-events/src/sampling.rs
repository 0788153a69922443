//! Which pages are sampled: all references to a sampled page are seen, and none to the others.

use hither_kernel::file_id::mix;

use crate::event::File;

/// One page in so many, chosen by a hash of the file and the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    below: u32,
}

impl Sampling {
    /// All pages.
    pub const ALL: Sampling = Sampling { below: 0 };

    /// One page in `period`.
    pub fn one_in(period: u32) -> Sampling {
        match period {
            0 | 1 => Sampling::ALL,
            _ => Sampling {
                below: u32::try_from((1_u64 << 32) / u64::from(period)).unwrap_or(u32::MAX),
            },
        }
    }

    /// As the programs have it: a page is sampled if the upper half of its hash is less. 0: all
    /// are.
    pub(crate) fn below(self) -> u32 {
        self.below
    }

    /// Whether the page is sampled. An event has at least one such page, or more than 32 of which
    /// the kernel's side has not looked at all.
    pub fn has(self, file: File, page: u64) -> bool {
        if self == Sampling::ALL {
            return true;
        }
        // As `samples` in bpf/observer.h.
        let file = mix(file.inode ^ u64::from(file.device.0) << 32);
        (mix(file ^ page) >> 32) < u64::from(self.below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_in_so_many_is_sampled() {
        let sampling = Sampling::one_in(100);
        for inode in 1..20 {
            let file = File {
                inode,
                ..File::default()
            };
            let sampled = (0..100_000)
                .filter(|page| sampling.has(file, *page))
                .count();
            assert!((850..1150).contains(&sampled), "{sampled}");
            assert!((0..100).all(|page| Sampling::one_in(1).has(file, page)));
        }
    }
}
