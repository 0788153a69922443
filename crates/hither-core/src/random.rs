//! Pseudo-random numbers from a seed: the same numbers for the same seed on every machine and in
//! every version, which the usual generators of the ecosystem do not promise.
//!
//! xoshiro256++ (Blackman, Vigna, "Scrambled linear pseudorandom number generators", ACM TOMS
//! 47(4), 2021), its state filled by SplitMix64 as its authors advise. Not for secrets.

/// The 64-bit finaliser of SplitMix64: a bijection in which every bit of the input affects every
/// bit of the result.
#[inline]
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A source of pseudo-random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random([u64; 4]);

impl Random {
    /// A generator with this seed. Generators with different seeds, neighbouring ones too, are
    /// unrelated.
    pub fn new(seed: u64) -> Random {
        let steps = [1u64, 2, 3, 4].map(|step| step.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Random(steps.map(|step| mix(seed.wrapping_add(step))))
    }

    /// The next 64 bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `bound`, all with the same probability (Lemire, "Fast random integer
    /// generation in an interval", ACM TOMACS 29(1), 2019).
    ///
    /// # Panics
    /// If `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing is below 0");
        let mut product = u128::from(self.bits()) * u128::from(bound);
        if (product as u64) < bound {
            // The numbers that are too many among 2^64 to be shared out evenly.
            let excess = bound.wrapping_neg() % bound;
            while (product as u64) < excess {
                product = u128::from(self.bits()) * u128::from(bound);
            }
        }
        (product >> 64) as u64
    }

    /// A number from 0 up to, but not including, 1: a multiple of 2^-53.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_published_algorithms() {
        // SplitMix64's first outputs for seed 0, and xoshiro256++'s for the state that they fill.
        let random = Random::new(0);
        assert_eq!(
            random.0,
            [
                0xe220_a839_7b1d_cdaf,
                0x6e78_9e6a_a1b9_65f4,
                0x06c4_5d18_8009_454f,
                0xf88b_b8a8_724c_81ec
            ]
        );
        let mut known = Random([1, 2, 3, 4]);
        let first: Vec<u64> = (0..5).map(|_| known.bits()).collect();
        assert_eq!(
            first,
            [
                41943041,
                58720359,
                3588806011781223,
                3591011842654386,
                9228616714210784205
            ]
        );
    }

    #[test]
    fn below_is_even_and_unit_stays_below_one() {
        let mut random = Random::new(7);
        for bound in [1, 2, 3, 10, 1000] {
            let mut seen = vec![0u32; bound as usize];
            for _ in 0..bound * 1000 {
                seen[random.below(bound) as usize] += 1;
            }
            // Each count is binomial around 1000 with a deviation of at most 32.
            assert!(
                seen.iter().all(|count| (840..1160).contains(count)),
                "{bound}"
            );
        }
        let mean = (0..10_000)
            .map(|_| {
                let value = random.unit();
                assert!((0.0..1.0).contains(&value));
                value
            })
            .sum::<f64>()
            / 10_000.0;
        assert!((0.49..0.51).contains(&mean), "{mean}");
    }
}
