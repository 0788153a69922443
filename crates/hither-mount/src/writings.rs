//! Which files are open for writing on this mount.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hither_node::source::SourcePath;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::writing::Writing;

/// How long a thread may take from being told to look a path up again to doing so.
const PROMISE_MAX: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Writings(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    open: FxHashMap<SourcePath, Arc<Writing>>,
    promises: Vec<Promise>,
}

/// A thread was told to look a path up again, upon which it finds what it needs: to write the file,
/// its inode for writing, and to read it, that of the finished version.
#[derive(Debug)]
struct Promise {
    path: SourcePath,
    thread: u32,
    /// `None`: the finished version.
    writing: Option<Arc<Writing>>,
    /// Its name is gone since: to this thread alone, it was opened before.
    is_removed: bool,
    since: Instant,
}

impl Promise {
    fn is_of(&self, writing: &Arc<Writing>) -> bool {
        self.writing
            .as_ref()
            .is_some_and(|it| Arc::ptr_eq(it, writing))
    }
}

impl Writings {
    /// The one at `path`, if there is one: open, or promised.
    pub(crate) fn find(&self, path: &SourcePath) -> Option<Arc<Writing>> {
        self.0.lock().find(path)
    }

    /// The one that `thread` finds when it looks `path` up.
    pub(crate) fn shown(&self, path: &SourcePath, thread: u32) -> Option<Arc<Writing>> {
        let table = self.0.lock();
        let mut promises = table.promises.iter();
        let promise = promises
            .find(|it| it.thread == thread && it.path == *path && it.since.elapsed() < PROMISE_MAX);
        match promise {
            Some(promise) => promise.writing.clone(),
            None => table.open.get(path).cloned(),
        }
    }

    /// The next look-up of `path` by `thread` is to find `writing`, or the one that is there
    /// already; without either, the finished version. What it is to find.
    pub(crate) fn promise(
        &self,
        path: SourcePath,
        thread: u32,
        writing: Option<Arc<Writing>>,
    ) -> Option<Arc<Writing>> {
        let mut table = self.0.lock();
        let writing = writing.map(|writing| table.find(&path).unwrap_or(writing));
        let promised = writing.clone();
        let promises = &mut table.promises;
        promises.retain(|it| {
            it.since.elapsed() < PROMISE_MAX && (it.thread != thread || it.path != path)
        });
        promises.push(Promise {
            path,
            thread,
            writing,
            is_removed: false,
            since: Instant::now(),
        });
        promised
    }

    /// `thread` has found what it was promised.
    pub(crate) fn keep_promise(&self, path: &SourcePath, thread: u32) {
        let promises = &mut self.0.lock().promises;
        promises.retain(|it| it.thread != thread || it.path != *path);
    }

    /// `thread` opens it, at `path`, unless it was removed. Whether it may: not if it is no longer
    /// what is written there, and nobody else has it open.
    pub(crate) fn open(
        &self,
        path: Option<&SourcePath>,
        thread: u32,
        writing: &Arc<Writing>,
    ) -> bool {
        let mut table = self.0.lock();
        let Some(path) = path else {
            // By a descriptor, such as of /proc/self/fd, or it was removed a moment ago.
            let promises = &mut table.promises;
            let before = promises.len();
            promises.retain(|it| it.thread != thread || !it.is_of(writing));
            let is_open = writing.handles.load(Ordering::Relaxed) > 0;
            let may = is_open || promises.len() < before;
            writing
                .handles
                .fetch_add(usize::from(may), Ordering::Relaxed);
            return may;
        };
        if !table.find(path).is_some_and(|it| Arc::ptr_eq(&it, writing)) {
            return false;
        }
        writing.handles.fetch_add(1, Ordering::Relaxed);
        table.open.insert(path.clone(), Arc::clone(writing));
        let promises = &mut table.promises;
        promises.retain(|it| it.thread != thread || it.path != *path);
        true
    }

    /// It was made at `path`, and is open.
    pub(crate) fn made(&self, path: &SourcePath, writing: &Arc<Writing>) {
        let mut table = self.0.lock();
        writing.handles.fetch_add(1, Ordering::Relaxed);
        table
            .promises
            .retain(|it| it.path != *path || it.writing.is_none() || it.is_removed);
        table.open.insert(path.clone(), Arc::clone(writing));
    }

    /// Somebody has closed it.
    pub(crate) fn close(&self, writing: &Arc<Writing>) {
        let mut table = self.0.lock();
        if writing.handles.fetch_sub(1, Ordering::Relaxed) == 1 {
            table.open.retain(|_, it| !Arc::ptr_eq(it, writing));
        }
    }

    /// It is no longer what is written at its path.
    pub(crate) fn forget(&self, writing: &Arc<Writing>) {
        let mut table = self.0.lock();
        table.open.retain(|_, it| !Arc::ptr_eq(it, writing));
        table.promises.retain(|it| !it.is_of(writing));
    }

    /// How many have it open, or are about to.
    pub(crate) fn users(&self, writing: &Arc<Writing>) -> usize {
        let table = self.0.lock();
        let promises = table.promises.iter().filter(|it| it.is_of(writing));
        writing.handles.load(Ordering::Relaxed) + promises.count()
    }

    /// Its name is gone. Who has it open keeps it, and who is about to open it finds it.
    pub(crate) fn remove(&self, writing: &Arc<Writing>) {
        let mut table = self.0.lock();
        table.open.retain(|_, it| !Arc::ptr_eq(it, writing));
        for promise in table.promises.iter_mut().filter(|it| it.is_of(writing)) {
            promise.is_removed = true;
        }
    }

    /// Those at `path` and below, open or promised, by number.
    pub(crate) fn below(&self, path: &SourcePath) -> BTreeMap<u64, (SourcePath, Arc<Writing>)> {
        let table = self.0.lock();
        let promised = table.promises.iter().filter(|it| !it.is_removed);
        let promised = promised.filter_map(|it| Some((&it.path, it.writing.as_ref()?)));
        let all = promised.chain(&table.open);
        all.filter(|(it, _)| it.is_at_or_below(path))
            .map(|(path, writing)| (writing.number, (path.clone(), Arc::clone(writing))))
            .collect()
    }

    /// It is at `path` from now on.
    pub(crate) fn moved(&self, writing: &Arc<Writing>, path: &SourcePath) {
        let mut table = self.0.lock();
        let is_open = table.open.len();
        table.open.retain(|_, it| !Arc::ptr_eq(it, writing));
        if table.open.len() < is_open {
            table.open.insert(path.clone(), Arc::clone(writing));
        }
        for it in table.promises.iter_mut().filter(|it| it.is_of(writing)) {
            it.path = path.clone();
        }
    }
}

impl Table {
    fn find(&self, path: &SourcePath) -> Option<Arc<Writing>> {
        if let Some(writing) = self.open.get(path) {
            return Some(Arc::clone(writing));
        }
        let mut promises = self.promises.iter();
        promises.find_map(|it| {
            let is_meant = it.path == *path && !it.is_removed && it.since.elapsed() < PROMISE_MAX;
            it.writing.clone().filter(|_| is_meant)
        })
    }
}

/// Where `path` is once `from`, which is above it or it, was moved to `to`.
pub(crate) fn moved_path(path: &SourcePath, from: &SourcePath, to: &SourcePath) -> SourcePath {
    let rest = &path.as_bytes()[from.as_bytes().len()..];
    let bytes = [to.as_bytes(), rest].concat();
    SourcePath::new(&bytes).expect("both parts are sound, and the rest starts with a slash")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_move_with_what_is_above_them() {
        let path = |path: &str| SourcePath::new(path.as_bytes()).unwrap();
        let moved = moved_path(&path("a/b/c"), &path("a"), &path("x/y"));
        assert_eq!(moved, path("x/y/b/c"));
        assert_eq!(moved_path(&path("a"), &path("a"), &path("b")), path("b"));
    }
}
