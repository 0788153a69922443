//! Versions that are read on when their names are gone.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;

use super::super::write::Hold;
use super::super::{Entry, FileVersion, SourceError, SourcePath, Version};
use super::attributes::ask;
use super::caller::Caller;
use super::tree::{Tree, failure};

/// A file that is open for as long as this lives.
pub(super) struct HeldFile {
    caller: Caller,
    path: SourcePath,
    file: Arc<OwnedFd>,
    /// What it is since its name is gone.
    version: OnceLock<Version>,
}

impl std::fmt::Debug for HeldFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "HeldFile({})", self.path)
    }
}

/// Opens the file, if it is still of that version.
pub(super) async fn hold(caller: &Caller, file: &FileVersion) -> Result<HeldFile, SourceError> {
    let asked = file.clone();
    let open = move |tree: &Tree| {
        let failed = |error| failure(&asked.path, error);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = tree.root.open_beneath(asked.path.as_bytes(), flags);
        let opened = opened.map_err(failed)?;
        let stat = ask(&opened, c"").map_err(failed)?;
        if tree.attributes.version(&stat) == asked.version {
            Ok(opened)
        } else {
            Err(SourceError::Changed(asked.path.clone()))
        }
    };
    let opened = caller.call(&file.path, open).await?;
    Ok(HeldFile {
        caller: caller.clone(),
        path: file.path.clone(),
        file: Arc::new(opened),
        version: OnceLock::new(),
    })
}

#[async_trait]
impl Hold for HeldFile {
    async fn unname(&self) -> Result<Entry, SourceError> {
        let (path, file) = (self.path.clone(), Arc::clone(&self.file));
        let stat = move |tree: &Tree| {
            let stat = ask(&file, c"");
            let entry = stat.and_then(|stat| tree.attributes.entry(&file, c"", &stat));
            entry.map_err(|error| failure(&path, error))
        };
        let entry = self.caller.call(&self.path, stat).await?;
        if let Some(version) = entry.version() {
            let version = self.version.get_or_init(|| version.clone());
            let mut held = self.caller.tree.held.lock();
            held.insert(version.clone(), Arc::clone(&self.file));
        }
        Ok(entry)
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        if let Some(version) = self.version.get() {
            self.caller.tree.held.lock().remove(version);
        }
    }
}
