//! Files that are pinned: held in memory until they are unpinned, or have another version. They are
//! known for as long as the process runs.

use std::sync::Arc;

use super::files::Volume;
use crate::holds::Hold;
use crate::source::{FileVersion, SourceError, SourcePath};

impl Volume {
    /// Keeps `hold`, one of this version of a file, until it is unpinned.
    pub fn pin(&self, file: &FileVersion, hold: Hold) {
        let before = self.pins.lock().insert(file.path.clone(), hold);
        drop(before);
    }

    /// Whether this version of a file is pinned.
    pub fn is_pinned(&self, file: &FileVersion) -> bool {
        let pins = self.pins.lock();
        let pin = pins.get(&file.path);
        pin.is_some_and(|pin| pin.file() == self.file_key(file))
    }

    /// Unpins the file at `path`, or all below it. Returns how many there were, and what they took.
    pub fn unpin(&self, path: &SourcePath) -> (u64, u64) {
        let mut pins = self.pins.lock();
        let unpinned: Vec<Hold> = pins
            .extract_if(.., |pinned, _| pinned.is_at_or_below(path))
            .map(|(_, hold)| hold)
            .collect();
        drop(pins);
        (
            unpinned.len() as u64,
            unpinned.iter().map(Hold::bytes).sum(),
        )
    }

    /// A file is opened: if another version of it is pinned, asks the source whether that one is
    /// still current, and unpins it if not.
    pub(super) fn check_pin(self: &Arc<Self>, file: &FileVersion) {
        let is_other = {
            let pins = self.pins.lock();
            let pin = pins.get(&file.path);
            pin.is_some_and(|pin| pin.file() != self.file_key(file))
        };
        if !is_other {
            return;
        }
        let (volume, path) = (Arc::clone(self), file.path.clone());
        self.node.runtime().spawn(async move {
            let current = match volume.source().stat(&path).await {
                Ok(entry) => entry.file(&path).map(|(file, _)| file),
                Err(SourceError::NotFound(_)) => None,
                // It is not known.
                Err(_) => return,
            };
            volume.unpin_unless(&path, current.as_ref());
        });
    }

    /// Unpins the file at `path` unless the pinned version is `current`.
    pub fn unpin_unless(&self, path: &SourcePath, current: Option<&FileVersion>) {
        let current = current.map(|file| self.file_key(file));
        let mut pins = self.pins.lock();
        let is_old = |pin: &Hold| current != Some(pin.file());
        let old = match pins.get(path).is_some_and(is_old) {
            true => pins.remove(path),
            false => None,
        };
        drop(pins);
        drop(old);
    }
}
