//! Tables of what a feature knows of descriptors: one row for each, by number.
//!
//! A table is mapped when its feature starts; only rows that were touched take memory. All threads
//! share it. Whatever closes or replaces a descriptor clears its row in every table (`lifecycle`).

use std::sync::atomic::{AtomicPtr, Ordering};

use hither_kernel::syscalls;

/// Descriptors beyond this have no rows.
const DESCRIPTORS_MAX: usize = 1 << 16;

/// What a table knows of one descriptor.
///
/// # Safety
/// All bytes zero are a value: that of a descriptor of which nothing is known.
pub(crate) unsafe trait Row: Sync + 'static {
    /// Whether there is nothing to clear, checked without writing.
    fn is_blank(&self) -> bool;

    /// Clears what is known.
    fn forget(&self);
}

pub(crate) struct Table<R> {
    rows: AtomicPtr<R>,
}

impl<R: Row> Table<R> {
    /// A table that has no rows yet.
    pub(crate) const fn new() -> Table<R> {
        Table {
            rows: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Maps the rows; returns whether there was memory for them. To be called once.
    pub(crate) fn open(&self) -> bool {
        let rows = syscalls::map(DESCRIPTORS_MAX * size_of::<R>(), None);
        if let Ok(rows) = rows {
            self.rows.store(rows.cast(), Ordering::Release);
        }
        rows.is_ok()
    }

    /// Whether it has rows.
    pub(crate) fn is_open(&self) -> bool {
        !self.rows.load(Ordering::Relaxed).is_null()
    }

    /// Takes the rows away, except from threads that have found one already.
    pub(crate) fn close(&self) {
        self.rows.store(std::ptr::null_mut(), Ordering::Release);
    }

    /// Takes the rows away, and unmaps them.
    ///
    /// # Safety
    /// Nobody has a row.
    #[cfg(feature = "interpose")]
    pub(crate) unsafe fn unmap(&self) {
        let rows = self.rows.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !rows.is_null() {
            // SAFETY: `open` mapped so much there, and as the caller says.
            unsafe { syscalls::unmap(rows.cast(), DESCRIPTORS_MAX * size_of::<R>()) };
        }
    }

    /// The row of `fd`, if there is one.
    #[inline]
    pub(crate) fn row(&self, fd: i32) -> Option<&'static R> {
        let rows = self.rows.load(Ordering::Acquire);
        let index = usize::try_from(fd)
            .ok()
            .filter(|&index| index < DESCRIPTORS_MAX && !rows.is_null())?;
        // SAFETY: the rows are a mapping of DESCRIPTORS_MAX of these, zeroed, which is a value, and
        // never unmapped; the index is in range.
        Some(unsafe { &*rows.wrapping_add(index) })
    }

    /// Forgets what is known of `fd`.
    pub(crate) fn forget(&self, fd: i32) {
        if let Some(row) = self.row(fd) {
            row.forget();
        }
    }

    /// Forgets what is known of every descriptor from `first` to `last`.
    pub(crate) fn forget_range(&self, first: u32, last: u32) {
        let rows =
            (first..=last.min(DESCRIPTORS_MAX as u32 - 1)).map_while(|fd| self.row(fd as i32));
        // Check first: most of the table was never touched and has no memory behind it yet.
        rows.filter(|row| !row.is_blank()).for_each(Row::forget);
    }
}
