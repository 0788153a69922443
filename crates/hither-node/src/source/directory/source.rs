//! A directory as a [`Source`].

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use tokio::sync::Semaphore;
use url::Url;

use super::super::counters::SourceCounters;
use super::super::opened::Opened;
use super::super::settings::{PIECE_BYTES, SourceSettings};
use super::super::write::{Acting, Changes, Hold, Replace, Upload, WritableSource};
use super::super::{
    Access, AccessList, ByteStream, Entry, FileVersion, ListCursor, Listing, OpenError, Source,
    SourceError, SourcePath, Space, Version, check_range, pieces,
};
use super::attributes::{same_contents, same_file};
use super::caller::Caller;
use super::held::hold;
use super::tree::Tree;
use super::writing::DirectoryUpload;

/// How long files and directories stay open unused.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// Pieces of one range that are read at the same time.
const PIECES_AHEAD: usize = 2;

/// A directory as a source.
struct DirectorySource(Caller);

/// Opens the source at `url`.
pub(in super::super) async fn open(
    url: &str,
    settings: &SourceSettings,
) -> Result<Opened, OpenError> {
    if let Some(key) = settings.options.keys().next() {
        return Err(OpenError::UnknownOption {
            key: key.clone(),
            known: "none".into(),
        });
    }
    let path = path_of(url)?;
    let failed = |error| match error {
        Errno::NOENT => OpenError::NotFound { url: url.into() },
        Errno::NOTDIR => OpenError::NotADirectory { url: url.into() },
        Errno::ACCESS | Errno::PERM => OpenError::Denied {
            url: url.into(),
            reason: error.to_string(),
        },
        error => OpenError::Unreachable {
            url: url.into(),
            reason: error.to_string(),
        },
    };
    let unreachable = |reason| OpenError::Unreachable {
        url: url.into(),
        reason,
    };
    let settling = settings.settling;
    let opened = tokio::task::spawn_blocking(move || Tree::open(&path, settling));
    let opened = tokio::time::timeout(settings.deadline, opened)
        .await
        .map_err(|_| unreachable("the file system does not answer".into()))?
        .map_err(|error| unreachable(error.to_string()))?;
    let tree = Arc::new(opened.map_err(failed)?);
    tokio::spawn(close_idle(Arc::downgrade(&tree)));
    Ok(Opened::ReadWrite(Arc::new(DirectorySource(Caller {
        tree,
        deadline: settings.deadline,
        threads: Arc::new(Semaphore::new(settings.requests_max.max(1))),
        acting: Arc::default(),
    }))))
}

/// The path in `file:///path`, in which `%XX` stands for a byte. A plain absolute path is taken as
/// it is.
fn path_of(url: &str) -> Result<PathBuf, OpenError> {
    if url.starts_with('/') {
        return Ok(url.into());
    }
    let not_a_url = |reason: &str| OpenError::NotAUrl {
        url: url.into(),
        reason: reason.into(),
    };
    let parsed = Url::parse(url).map_err(|error| not_a_url(&error.to_string()))?;
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err(not_a_url("in a path, write `?` as %3F and `#` as %23"));
    }
    parsed
        .to_file_path()
        .map_err(|()| not_a_url("write file:///path, with three slashes"))
}

/// Closes what is idle, for as long as the source lives.
async fn close_idle(tree: Weak<Tree>) {
    loop {
        tokio::time::sleep(IDLE_MAX / 2).await;
        let Some(tree) = tree.upgrade() else {
            return;
        };
        let swept = tokio::task::spawn_blocking(move || {
            tree.close_idle(IDLE_MAX);
        });
        if swept.await.is_err() {
            return;
        }
    }
}

#[async_trait]
impl Source for DirectorySource {
    async fn stat(&self, path: &SourcePath) -> Result<Entry, SourceError> {
        let asked = path.clone();
        self.0.call(path, move |tree| tree.stat(&asked)).await
    }

    async fn list(
        &self,
        path: &SourcePath,
        from: Option<ListCursor>,
    ) -> Result<Listing, SourceError> {
        let asked = path.clone();
        self.0.call(path, move |tree| tree.list(asked, from)).await
    }

    async fn read(&self, file: &FileVersion, range: Range<u64>) -> Result<ByteStream, SourceError> {
        check_range(file, &range)?;
        let pieces = pieces(range, PIECE_BYTES);
        let (caller, file) = (self.0.clone(), Arc::new(file.clone()));
        let reads = stream::iter(pieces).map(move |piece| {
            let (caller, file) = (caller.clone(), Arc::clone(&file));
            async move {
                let asked = Arc::clone(&file);
                caller
                    .call(&file.path, move |tree| tree.read(&asked, piece, false))
                    .await
            }
        });
        let mut reads = reads.buffered(PIECES_AHEAD).boxed();
        // The first piece now: an error there is the answer to the request itself.
        match reads.try_next().await? {
            Some(first) => Ok(stream::iter([Ok(first)]).chain(reads).boxed()),
            None => Ok(reads),
        }
    }

    async fn read_live(
        &self,
        file: &FileVersion,
        range: Range<u64>,
    ) -> Result<ByteStream, SourceError> {
        let (caller, file) = (self.0.clone(), Arc::new(file.clone()));
        let asked = Arc::clone(&file);
        let read = move |tree: &Tree| tree.read(&asked, range, true);
        let bytes = caller.call(&file.path, read).await?;
        Ok(stream::iter([Ok(bytes)]).boxed())
    }

    fn same_file(&self, one: &Version, other: &Version) -> bool {
        same_file(one, other)
    }

    async fn check_access(
        &self,
        path: &SourcePath,
        version: Option<&Version>,
        access: Access,
        acting: &Acting,
    ) -> Result<(), SourceError> {
        let caller = Caller {
            acting: Arc::new(acting.clone()),
            ..self.0.clone()
        };
        let (asked, version) = (path.clone(), version.cloned());
        let mut wanted = rustix::fs::Access::EXISTS;
        wanted.set(rustix::fs::Access::READ_OK, access.read);
        wanted.set(rustix::fs::Access::WRITE_OK, access.write);
        wanted.set(rustix::fs::Access::EXEC_OK, access.execute);
        let check = move |tree: &Tree| tree.check_access(&asked, version.as_ref(), wanted);
        caller.call_acting(path, check).await
    }

    async fn access_list(
        &self,
        path: &SourcePath,
        version: Option<&Version>,
        list: AccessList,
    ) -> Result<Option<Vec<u8>>, SourceError> {
        let (asked, version) = (path.clone(), version.cloned());
        let get = move |tree: &Tree| tree.access_list(&asked, version.as_ref(), list);
        self.0.call(path, get).await
    }

    async fn space(&self) -> Result<Option<Space>, SourceError> {
        let path = SourcePath::default();
        self.0.call(&path, |tree| tree.space().map(Some)).await
    }

    fn counters(&self) -> Option<&SourceCounters> {
        Some(&self.0.tree.counters)
    }
}

#[async_trait]
impl WritableSource for DirectorySource {
    async fn create(
        &self,
        path: &SourcePath,
        replace: Replace,
        mode: u32,
    ) -> Result<Box<dyn Upload>, SourceError> {
        let upload = DirectoryUpload::begin(self.0.clone(), path, replace, mode);
        Ok(Box::new(upload.await?))
    }

    fn acting(&self, acting: Acting) -> Option<Arc<dyn WritableSource>> {
        Some(Arc::new(DirectorySource(Caller {
            acting: Arc::new(acting),
            ..self.0.clone()
        })))
    }

    fn writes_anywhere(&self) -> bool {
        true
    }

    async fn hold(&self, file: &FileVersion) -> Result<Box<dyn Hold>, SourceError> {
        Ok(Box::new(hold(&self.0, file).await?))
    }

    fn same_contents(&self, one: &Version, other: &Version) -> bool {
        same_contents(one, other)
    }

    async fn rewrite(&self, file: &FileVersion) -> Result<Box<dyn Upload>, SourceError> {
        let upload = DirectoryUpload::copy(self.0.clone(), file);
        Ok(Box::new(upload.await?))
    }

    async fn empty(&self, file: &FileVersion) -> Result<Box<dyn Upload>, SourceError> {
        let upload = DirectoryUpload::empty(self.0.clone(), file);
        Ok(Box::new(upload.await?))
    }

    async fn make_file(&self, path: &SourcePath, mode: u32) -> Result<Entry, SourceError> {
        let asked = path.clone();
        let make = move |tree: &Tree| tree.make_file(&asked, mode);
        self.0.call_acting(path, make).await
    }

    async fn remove(&self, path: &SourcePath) -> Result<(), SourceError> {
        let asked = path.clone();
        let remove = move |tree: &Tree| tree.remove(&asked, AtFlags::empty());
        self.0.call_acting(path, remove).await
    }

    async fn rename(
        &self,
        from: &SourcePath,
        to: &SourcePath,
        replace: bool,
    ) -> Result<(), SourceError> {
        let (old, new) = (from.clone(), to.clone());
        let rename = move |tree: &Tree| tree.rename(&old, &new, replace);
        self.0.call_acting(from, rename).await
    }

    async fn make_dir(&self, path: &SourcePath, mode: u32) -> Result<(), SourceError> {
        let asked = path.clone();
        let make = move |tree: &Tree| tree.make_dir(&asked, mode);
        self.0.call_acting(path, make).await
    }

    async fn remove_dir(&self, path: &SourcePath) -> Result<(), SourceError> {
        let asked = path.clone();
        let remove = move |tree: &Tree| tree.remove_dir(&asked);
        self.0.call_acting(path, remove).await
    }

    async fn make_link(&self, path: &SourcePath, target: &[u8]) -> Result<(), SourceError> {
        let (asked, target) = (path.clone(), target.to_vec());
        let make = move |tree: &Tree| tree.make_link(&asked, &target);
        self.0.call_acting(path, make).await
    }

    async fn set_attributes(
        &self,
        path: &SourcePath,
        version: Option<&Version>,
        changes: Changes,
    ) -> Result<Entry, SourceError> {
        let (asked, version) = (path.clone(), version.cloned());
        let set = move |tree: &Tree| tree.set_attributes(&asked, version.as_ref(), &changes);
        self.0.call_acting(path, set).await
    }
}
