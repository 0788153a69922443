//! Arrays whose every load and store goes through the machine: the values are real, and so is what
//! they cost.

use std::ops::AddAssign;

use super::cache::LINE_BYTES;
use super::team::Team;

/// An array of a program, in the simulated memory. Elements divide a line, and an array begins on a
/// page, so that an access touches one line.
#[derive(Debug)]
pub(super) struct Array<T> {
    values: Vec<T>,
    first_line: u32,
}

impl<T: Copy + Default> Array<T> {
    /// The array that the team laid out there.
    pub(super) fn new(length: usize, first_line: u32) -> Array<T> {
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

    /// Successive elements: the state of a point.
    #[inline(always)]
    pub(super) fn load_all<const N: usize>(&self, team: &mut Team, at: usize) -> [T; N] {
        std::array::from_fn(|element| self.load(team, at + element))
    }

    /// Successive elements: the state of a point.
    #[inline(always)]
    pub(super) fn store_all<const N: usize>(&mut self, team: &mut Team, at: usize, values: [T; N]) {
        for (element, value) in values.into_iter().enumerate() {
            self.store(team, at + element, value);
        }
    }

    /// How many elements it has.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// The values, for who looks on from outside.
    #[cfg(test)]
    pub(super) fn values(&self) -> &[T] {
        &self.values
    }
}
