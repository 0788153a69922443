//! A seeded permutation: it assigns block numbers to ranks of popularity.

use hither_core::random::mix;

/// A seeded permutation of the numbers below a bound. Each value is computed, so it takes no
/// memory.
///
/// Rounds of odd multiplication and xor-shift are a bijection of the numbers below the next power
/// of two. Repeating them until the result is below the bound makes a bijection of the numbers
/// below the bound. This takes fewer than two repetitions on average.
#[derive(Clone, Debug)]
pub(crate) struct Permutation {
    bound: u64,
    mask: u64,
    shift: u32,
    rounds: [(u64, u64); 3],
}

impl Permutation {
    pub(crate) fn new(bound: u64, key: u64) -> Permutation {
        let bits = (u64::BITS - (bound - 1).leading_zeros()).max(1);
        let rounds = [1u64, 2, 3].map(|round| {
            let key = mix(key.wrapping_add(round.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            (key | 1, mix(key))
        });
        Permutation {
            bound,
            mask: u64::MAX >> (u64::BITS - bits),
            shift: bits.div_ceil(2),
            rounds,
        }
    }

    #[inline]
    pub(crate) fn apply(&self, mut number: u64) -> u64 {
        loop {
            for (factor, offset) in self.rounds {
                number = number.wrapping_mul(factor).wrapping_add(offset) & self.mask;
                number ^= number >> self.shift;
            }
            if number < self.bound {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_is_one_that_depends_on_its_key() {
        for bound in [1, 2, 3, 4, 5, 7, 8, 9, 100, 1000, 1024, 1025] {
            let mut seen = vec![false; bound as usize];
            for number in 0..bound {
                let place = Permutation::new(bound, bound).apply(number);
                assert!(
                    !std::mem::replace(&mut seen[place as usize], true),
                    "{bound}"
                );
            }
        }
        let (one, other) = (Permutation::new(1000, 1), Permutation::new(1000, 2));
        let same = (0..1000)
            .filter(|&n| one.apply(n) == other.apply(n))
            .count();
        let fixed = (0..1000).filter(|&n| one.apply(n) == n).count();
        // A random permutation has one such number on average.
        assert!(same < 20, "{same}");
        assert!(fixed < 20, "{fixed}");
        // Neighbours must not stay neighbours.
        let close = |n: u64| one.apply(n).abs_diff(one.apply(n + 1)) < 10;
        let close = (0..999).filter(|&n| close(n)).count();
        assert!(close < 60, "{close}");
    }
}
