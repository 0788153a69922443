//! An open directory.
//!
//! Only one page of its entries is held, so a directory of a million files takes no more memory
//! than a small one. An entry's offset is its position in the directory; where each page starts is
//! remembered, so that a reader can go back to one.

use std::sync::Arc;
use std::time::Instant;

use hither_node::source::{Entry, ListCursor, SourceError, SourcePath};
use hither_node::volume::Volume;

/// See the module.
#[derive(Debug)]
pub(crate) struct Listing {
    path: SourcePath,
    /// Where the pages start that were seen so far.
    starts: Vec<(u64, Option<ListCursor>)>,
    /// The page that is held: its place in `starts`, and its entries.
    page: Option<(usize, Arc<Page>)>,
}

/// A page of a directory.
#[derive(Debug)]
pub(crate) struct Page {
    /// The position of its first entry.
    pub(crate) first: u64,
    /// When the source was asked for it.
    pub(crate) asked: Instant,
    pub(crate) entries: Vec<(Vec<u8>, Entry)>,
}

impl Listing {
    pub(crate) fn new(path: SourcePath) -> Listing {
        Listing {
            path,
            starts: vec![(0, None)],
            page: None,
        }
    }

    /// The path of the directory.
    pub(crate) fn path(&self) -> &SourcePath {
        &self.path
    }

    /// The page with the entry at `position`, or `None` behind the last one. The first page is
    /// asked for anew: a reader that starts again sees what is there now.
    pub(crate) async fn page(
        &mut self,
        volume: &Volume,
        position: u64,
    ) -> Result<Option<Arc<Page>>, SourceError> {
        if position == 0 {
            *self = Listing::new(self.path.clone());
        }
        loop {
            if let Some((_, page)) = &self.page {
                let end = page.first + page.entries.len() as u64;
                if (page.first..end).contains(&position) {
                    return Ok(Some(Arc::clone(page)));
                }
            }
            let at = self.starts.partition_point(|(start, _)| *start <= position) - 1;
            if let Some((held, page)) = &self.page
                && *held == at
                && position >= page.first + page.entries.len() as u64
            {
                // The page that would have it ends before it, and no other one follows.
                return Ok(None);
            }
            let (first, cursor) = self.starts[at].clone();
            let asked = Instant::now();
            let listing = volume.source().list(&self.path, cursor).await?;
            let end = first + listing.entries.len() as u64;
            // A page that is read again may have another length by now.
            self.starts.truncate(at + 1);
            if let Some(next) = listing.next {
                // An empty page moves the start of the next one to where it is itself.
                if end == first {
                    self.starts[at].1 = Some(next)
                } else {
                    self.starts.push((end, Some(next)))
                }
                if end == first {
                    continue;
                }
            }
            self.page = Some((
                at,
                Arc::new(Page {
                    first,
                    asked,
                    entries: listing.entries,
                }),
            ));
        }
    }
}
