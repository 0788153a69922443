//! Arrays in simulated memory. They hold real values, and each load and store goes through the
//! modelled caches.

use std::ops::{AddAssign, Range};

use super::cache::LINE_BYTES;
use super::team::{Team, share};

/// An array of a program. Its elements do not straddle lines and it begins on a page, so an access
/// touches one line.
#[derive(Debug)]
pub(super) struct Array<T> {
    values: Vec<T>,
    first_line: u32,
}

impl<T: Copy + Default> Array<T> {
    /// The array whose region begins at that line.
    fn new(length: usize, first_line: u32) -> Array<T> {
        const { assert!(LINE_BYTES.is_multiple_of(size_of::<T>())) }
        Array {
            values: vec![T::default(); length],
            first_line,
        }
    }

    #[inline(always)]
    fn line(&self, at: usize) -> u32 {
        self.first_line + (at * size_of::<T>() / LINE_BYTES) as u32
    }

    /// The working thread loads an element.
    #[inline(always)]
    pub(super) fn load(&self, team: &mut Team, at: usize) -> T {
        let value = self.values[at];
        team.load(self.line(at));
        value
    }

    /// The working thread stores an element.
    #[inline(always)]
    pub(super) fn store(&mut self, team: &mut Team, at: usize, value: T) {
        self.values[at] = value;
        team.store(self.line(at));
    }

    /// The working thread adds to an element: a load and a store.
    #[inline(always)]
    pub(super) fn add(&mut self, team: &mut Team, at: usize, value: T)
    where
        T: AddAssign,
    {
        self.values[at] += value;
        let line = self.line(at);
        team.load(line);
        team.store(line);
    }

    /// Loads successive elements: the state of a point.
    #[inline(always)]
    pub(super) fn load_all<const N: usize>(&self, team: &mut Team, at: usize) -> [T; N] {
        std::array::from_fn(|element| self.load(team, at + element))
    }

    /// Stores successive elements: the state of a point.
    #[inline(always)]
    pub(super) fn store_all<const N: usize>(&mut self, team: &mut Team, at: usize, values: [T; N]) {
        for (element, value) in values.into_iter().enumerate() {
            self.store(team, at + element, value);
        }
    }

    /// The number of elements.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// The values, without an access.
    #[cfg(test)]
    pub(super) fn values(&self) -> &[T] {
        &self.values
    }
}

impl Team {
    /// Lays out an array of zeros on pages of its own, which no thread has touched.
    pub(super) fn array<T: Copy + Default>(
        &mut self,
        name: &'static str,
        length: usize,
    ) -> Array<T> {
        let first_line = self.add_region(name, length * size_of::<T>());
        Array::new(length, first_line)
    }

    /// Like [`Team::chunks`], and returns the sum of what the bodies return. Each thread stores its
    /// sum in its element of `partial`, whose elements share lines, and thread 0 adds them up.
    pub(super) fn sum(
        &mut self,
        name: &'static str,
        partial: &mut Array<f64>,
        n: usize,
        chunk: usize,
        mut body: impl FnMut(&mut Team, Range<usize>) -> f64,
    ) -> f64 {
        let threads = self.size();
        let mut sums = vec![0.0; threads];
        self.work(
            name,
            |thread| 0..share(n, threads, thread).len().div_ceil(chunk) + 1,
            |team, unit| {
                let (thread, share) = (team.thread(), share(n, threads, team.thread()));
                let start = share.start + unit * chunk;
                if start < share.end {
                    sums[thread] += body(team, start..share.end.min(start + chunk));
                } else {
                    partial.store(team, thread, sums[thread]);
                }
            },
        );
        self.switch(0);
        let total = (0..threads).map(|thread| partial.load(self, thread)).sum();
        self.barrier();
        total
    }
}
