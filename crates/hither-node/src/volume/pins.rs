//! Files that are pinned: held in memory, on the disk, or both, until they are unpinned, or have
//! another version. They are known for as long as the process runs.

use std::sync::Arc;

use super::files::Volume;
use super::place::{Pin, Place};
use crate::holds::HoldKind;
use crate::source::{FileVersion, SourceError, SourcePath};

impl Volume {
    /// Makes room for a version of a file in memory, and on the disk if it is to be there: then
    /// memory is left out where it has no room. `None`: there is no room.
    pub fn make_pin(&self, file: &FileVersion, on_disk: bool) -> Option<Pin> {
        let key = self.file_key(file);
        let disk = if on_disk {
            Some(self.node.hold_on_disk(key, file.bytes)?)
        } else {
            None
        };
        let memory = self.hold(file, HoldKind::Pinned);
        Some(Pin {
            file: key,
            bytes: file.bytes,
            place: match (&memory, &disk) {
                (Some(_), Some(_)) => Place::Both,
                (Some(_), None) => Place::Memory,
                (None, Some(_)) => Place::Disk,
                (None, None) => return None,
            },
            _memory: memory,
            _disk: disk,
        })
    }

    /// Keeps `pin`, one of this version of a file, until it is unpinned.
    pub fn pin(&self, file: &FileVersion, pin: Pin) {
        let before = self.pins.lock().insert(file.path.clone(), pin);
        drop(before);
    }

    /// Where this version of a file is pinned, if it is.
    pub fn pinned_place(&self, file: &FileVersion) -> Option<Place> {
        let pins = self.pins.lock();
        let pin = pins.get(&file.path);
        let pin = pin.filter(|pin| pin.file == self.file_key(file))?;
        Some(pin.place)
    }

    /// Unpins the file at `path`, or all below it. Returns the pins, which hold until they are
    /// dropped.
    pub fn unpin(&self, path: &SourcePath) -> Vec<Pin> {
        let mut pins = self.pins.lock();
        let unpinned = pins.extract_if(.., |pinned, _| pinned.is_at_or_below(path));
        unpinned.map(|(_, pin)| pin).collect()
    }

    /// A file is opened: if another version of it is pinned, asks the source whether that one is
    /// still current, and unpins it if not.
    pub(super) fn check_pin(self: &Arc<Self>, file: &FileVersion) {
        let is_other = {
            let pins = self.pins.lock();
            let pin = pins.get(&file.path);
            pin.is_some_and(|pin| pin.file != self.file_key(file))
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
        let is_old = |pin: &Pin| current != Some(pin.file);
        let old = if pins.get(path).is_some_and(is_old) {
            pins.remove(path)
        } else {
            None
        };
        drop(pins);
        drop(old);
    }
}
