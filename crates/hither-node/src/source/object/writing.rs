//! Writes to a bucket.
//!
//! A bucket has no directories, links or attributes of its own.

use async_trait::async_trait;
use object_store::path::Path;

use super::super::write::{Changes, Replace, Upload, WritableSource};
use super::super::{Entry, SourceError, SourcePath};
use super::commit::{allow, in_the_way};
use super::moving::Moving;
use super::source::ObjectSource;
use super::store::Store;
use super::upload::ObjectUpload;
use super::versions::Head;

/// The largest object that a bucket copies in one request.
const COPY_BYTES_MAX: u64 = 5 << 30;

impl Store {
    fn writable_key(&self, path: &SourcePath) -> Result<Path, SourceError> {
        let key = self.key(path).filter(|key| !key.as_ref().is_empty());
        key.ok_or(SourceError::Unsupported(
            "names in a bucket are UTF-8 without control characters",
        ))
    }

    /// An object at a key that others begin with would hide them.
    async fn refuse_directory(&self, path: &SourcePath, key: &Path) -> Result<(), SourceError> {
        if self.has_below(path, key).await? {
            Err(in_the_way(path, "it is a directory"))
        } else {
            Ok(())
        }
    }

    async fn file_at(&self, path: &SourcePath, key: &Path) -> Result<Head, SourceError> {
        match self.head(path, key).await {
            Err(SourceError::NotFound(_)) if self.has_below(path, key).await? => {
                Err(in_the_way(path, "it is a directory"))
            }
            found => found,
        }
    }
}

#[async_trait]
impl WritableSource for ObjectSource {
    async fn create(
        &self,
        path: &SourcePath,
        replace: Replace,
        _mode: u32,
    ) -> Result<Box<dyn Upload>, SourceError> {
        let key = self.0.writable_key(path)?;
        if replace != Replace::Any {
            let there = self.0.head_if_there(path, &key).await?;
            allow(path, &replace, there.as_ref())?;
        }
        self.0.refuse_directory(path, &key).await?;
        Ok(Box::new(ObjectUpload::new(&self.0, path, key, replace)))
    }

    async fn remove(&self, path: &SourcePath) -> Result<(), SourceError> {
        let key = self.0.writable_key(path)?;
        // A bucket removes what is not there without a word.
        let there = self.0.file_at(path, &key).await?;
        // Another version that has come meanwhile came after it.
        self.0.remove_version(path, &key, &there).await.map(drop)
    }

    async fn rename(
        &self,
        from: &SourcePath,
        to: &SourcePath,
        replace: bool,
    ) -> Result<(), SourceError> {
        let store = &self.0;
        let (old, new) = (store.writable_key(from)?, store.writable_key(to)?);
        let file = match store.file_at(from, &old).await {
            Err(SourceError::InTheWay { .. }) => Err(SourceError::Unsupported(
                "a bucket renames no directories, which it does not have",
            )),
            found => found,
        }?;
        if file.meta.size > COPY_BYTES_MAX {
            return Err(SourceError::Unsupported(
                "a bucket renames no objects above 5 GiB",
            ));
        }
        if old == new {
            return Ok(());
        }
        store.refuse_directory(to, &new).await?;
        let moving = Moving {
            store,
            from: (from, &old),
            to: (to, &new),
            file: &file,
            replace,
        };
        moving.run().await
    }

    async fn make_dir(&self, _path: &SourcePath, _mode: u32) -> Result<(), SourceError> {
        Err(SourceError::Unsupported(
            "a bucket has no directories: files can be written at any path",
        ))
    }

    async fn remove_dir(&self, path: &SourcePath) -> Result<(), SourceError> {
        let key = self.0.writable_key(path)?;
        if self.0.has_below(path, &key).await? {
            Err(in_the_way(path, "it is not empty"))
        } else {
            Err(SourceError::NotFound(path.clone()))
        }
    }

    async fn make_link(&self, _path: &SourcePath, _target: &[u8]) -> Result<(), SourceError> {
        Err(SourceError::Unsupported("a bucket has no links"))
    }

    async fn set_attributes(
        &self,
        _path: &SourcePath,
        _version: Option<&super::super::Version>,
        _changes: Changes,
    ) -> Result<Entry, SourceError> {
        Err(SourceError::Unsupported("a bucket keeps no attributes"))
    }
}
