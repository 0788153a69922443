//! A store of objects as a [`Source`].

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use super::super::counters::SourceCounters;
use super::super::{
    ByteStream, Entry, FileVersion, ListCursor, Listing, Source, SourceError, SourcePath,
};
use super::listing::directory;
use super::reading;
use super::store::Store;

/// Objects as files.
pub(super) struct ObjectSource(pub Arc<Store>);

#[async_trait]
impl Source for ObjectSource {
    async fn stat(&self, path: &SourcePath) -> Result<Entry, SourceError> {
        let store = &self.0;
        let missing = || SourceError::NotFound(path.clone());
        if path.is_root() {
            return Ok(directory());
        }
        let key = store.key(path).ok_or_else(missing)?;
        let head = store.head(path, &key).await;
        if store.pages.is_none() {
            let file = head.as_ref().map(|meta| store.file(meta));
            return match file {
                Ok(Some(file)) => Ok(file),
                // No file: a directory, or the page that shows one.
                Ok(None) | Err(SourceError::NotFound(_)) => match store.list_server(path).await {
                    Ok(_) => Ok(directory()),
                    Err(SourceError::Unsupported(_)) if head.is_ok() => Err(SourceError::Failed {
                        path: path.clone(),
                        reason: "the server gives neither ETag nor Last-Modified: versions of the \
                                 file cannot be told apart"
                            .into(),
                    }),
                    Err(SourceError::Unsupported(_)) => Err(missing()),
                    Err(error) => Err(error),
                },
                // WebDAV servers do not say how long the page of a directory is.
                Err(error) => match store.list_server(path).await {
                    Ok(_) => Ok(directory()),
                    Err(_) => Err(error.clone()),
                },
            };
        }
        match head {
            // An empty object may be the mark of a directory.
            Ok(meta) if meta.size == 0 && store.has_below(path, &key).await? => Ok(directory()),
            Ok(meta) => store.file(&meta).ok_or_else(missing),
            Err(SourceError::NotFound(_)) if store.has_below(path, &key).await? => Ok(directory()),
            Err(error) => Err(error),
        }
    }

    async fn list(
        &self,
        path: &SourcePath,
        from: Option<ListCursor>,
    ) -> Result<Listing, SourceError> {
        match self.0.pages {
            Some(_) => self.0.list_bucket(path, from).await,
            None => self.0.list_server(path).await,
        }
    }

    async fn read(&self, file: &FileVersion, range: Range<u64>) -> Result<ByteStream, SourceError> {
        reading::read(&self.0, file, range).await
    }

    fn counters(&self) -> Option<&SourceCounters> {
        Some(&self.0.counters)
    }
}
