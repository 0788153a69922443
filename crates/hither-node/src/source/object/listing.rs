//! Pages of a directory's listing, from pages of keys and common prefixes.
//!
//! Where there is both a key `a` and a key `a/b`, `a` is the file, and what lies below it is out
//! of reach: so a file costs one request to look up. Only an empty `a` is then a directory, since
//! some programs mark directories so. Keys are sorted, and there may be a page or more between `a`
//! and `a/` (`a-1`, `a.txt`). A file that may still turn out to be both is held back in the cursor.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use object_store::ListResult;
use object_store::list::{PaginatedListOptions, PaginatedListResult};
use object_store::path::Path;
use serde::{Deserialize, Serialize};

use super::super::{Entry, Kind, ListCursor, Listing, SourceError, SourcePath, Version};
use super::store::{Store, answered};

/// Keys of one page.
const PAGE_KEYS: usize = 1000;

/// What a cursor holds.
#[derive(Serialize, Deserialize)]
struct Cursor {
    token: String,
    held: Vec<Held>,
}

/// A file of an earlier page.
#[derive(Serialize, Deserialize)]
struct Held {
    name: String,
    version: Vec<u8>,
    settled: bool,
    bytes: u64,
    modified: Duration,
}

/// What the keys say of one name.
#[derive(Default)]
struct Name {
    file: Option<Entry>,
    is_prefix: bool,
}

/// The entry of a directory. Sources of objects know nothing of it but its name.
pub(super) fn directory() -> Entry {
    Entry {
        kind: Kind::Directory,
        bytes: 0,
        modified: UNIX_EPOCH,
        unix: None,
    }
}

impl Store {
    /// Whether any key begins with `key` and a slash, that slash alone included.
    pub(super) async fn has_below(
        &self,
        path: &SourcePath,
        key: &Path,
    ) -> Result<bool, SourceError> {
        let mut page_token = None;
        let mut max_keys = 1;
        loop {
            let options = PaginatedListOptions {
                max_keys: Some(max_keys),
                page_token,
                ..PaginatedListOptions::default()
            };
            let page = self.page(path, key, options).await?;
            if !page.result.objects.is_empty() || page.page_token.is_none() {
                return Ok(!page.result.objects.is_empty());
            }
            // The first keys have no path: look at more of them.
            page_token = page.page_token;
            max_keys = PAGE_KEYS;
        }
    }

    async fn page(
        &self,
        path: &SourcePath,
        key: &Path,
        options: PaginatedListOptions,
    ) -> Result<PaginatedListResult, SourceError> {
        let pages = self.pages.as_ref().expect("asked only of buckets");
        let prefix = (!key.as_ref().is_empty()).then(|| format!("{key}/"));
        let list = || pages.list_paginated(prefix.as_deref(), options.clone());
        self.request(path, list).await
    }

    /// A page of the directory `path` of a bucket.
    pub(super) async fn list_bucket(
        &self,
        path: &SourcePath,
        from: Option<ListCursor>,
    ) -> Result<Listing, SourceError> {
        let missing = || SourceError::NotFound(path.clone());
        let key = self.key(path).ok_or_else(missing)?;
        let is_first = from.is_none();
        let mut names: BTreeMap<String, Name> = BTreeMap::new();
        let mut page_token = None;
        if let Some(cursor) = from {
            let cursor: Cursor =
                serde_json::from_slice(&cursor.0).map_err(|error| SourceError::Failed {
                    path: path.clone(),
                    reason: format!("not a cursor of this listing: {error}"),
                })?;
            page_token = Some(cursor.token);
            for held in cursor.held {
                let name = held.name.clone();
                names.entry(name).or_default().file = Some(held.entry());
            }
        }
        let options = PaginatedListOptions {
            delimiter: Some("/".into()),
            max_keys: Some(PAGE_KEYS),
            page_token,
            ..PaginatedListOptions::default()
        };
        let page = self.page(path, &key, options).await?;
        let is_empty = page.result.objects.is_empty() && page.result.common_prefixes.is_empty();
        if is_empty && is_first && page.page_token.is_none() && !path.is_root() {
            return Err(missing());
        }
        self.gather(&key, &page.result, &mut names);
        let held = match page.page_token {
            Some(_) => self.hold_back(&mut names),
            None => Vec::new(),
        };
        Ok(Listing {
            entries: self.entries(names),
            next: page.page_token.map(|token| {
                let cursor = Cursor { token, held };
                ListCursor(serde_json::to_vec(&cursor).expect("strings and numbers"))
            }),
        })
    }

    /// The whole of the directory `path` of a web server. Its listing (PROPFIND) has no pages.
    pub(super) async fn list_server(&self, path: &SourcePath) -> Result<Listing, SourceError> {
        let missing = || SourceError::NotFound(path.clone());
        let key = self.key(path).ok_or_else(missing)?;
        let prefix = (!path.is_root() || !key.as_ref().is_empty()).then_some(&key);
        let list = || self.objects.list_with_delimiter(prefix);
        let listed = match self.request(path, list).await {
            // Not one that is too long.
            Err(SourceError::Failed { reason, .. }) if !reason.starts_with("413") => {
                Err(SourceError::Unsupported(
                    "the web server lists no directories (no WebDAV); files can be opened by name",
                ))
            }
            listed => listed,
        }?;
        if listed.objects.is_empty() && listed.common_prefixes.is_empty() && !path.is_root() {
            return Err(missing());
        }
        let mut names = BTreeMap::new();
        self.gather(&key, &listed, &mut names);
        Ok(Listing {
            entries: self.entries(names),
            next: None,
        })
    }

    fn gather(&self, key: &Path, listed: &ListResult, names: &mut BTreeMap<String, Name>) {
        let answered = answered(&listed.extensions);
        for meta in &listed.objects {
            match name_in(key, &meta.location) {
                Some(name) => match self.file(meta, answered) {
                    Some(entry) => names.entry(name).or_default().file = Some(entry),
                    None => self.counters.left_out.add(1),
                },
                // The mark of the directory itself. What it may contain has no path.
                None => self.counters.left_out.add(u64::from(meta.size > 0)),
            }
        }
        for prefix in &listed.common_prefixes {
            match name_in(key, prefix) {
                Some(name) => names.entry(name).or_default().is_prefix = true,
                None => self.counters.left_out.add(1),
            }
        }
    }

    /// Takes out the files of whose name a prefix may still follow: those that the last key begins
    /// with, since all keys between `a` and `a/` begin with `a`.
    fn hold_back(&self, names: &mut BTreeMap<String, Name>) -> Vec<Held> {
        let Some((last, _)) = names.last_key_value() else {
            return Vec::new();
        };
        let last = last.clone();
        names
            .extract_if(.., |name, seen| {
                last.starts_with(name.as_str()) && seen.file.is_some() && !seen.is_prefix
            })
            .filter_map(|(name, seen)| Held::new(name, seen.file?))
            .collect()
    }

    fn entries(&self, names: BTreeMap<String, Name>) -> Vec<(Vec<u8>, Entry)> {
        let one = |(name, seen): (String, Name)| {
            let entry = match (seen.file, seen.is_prefix) {
                (Some(file), true) if file.bytes > 0 => {
                    self.counters.left_out.add(1);
                    tracing::debug!("the file {name:?} hides the keys below it");
                    file
                }
                (Some(file), false) => file,
                (_, true) | (None, _) => directory(),
            };
            (name.into_bytes(), entry)
        };
        names.into_iter().map(one).collect()
    }
}

/// The name of `location` in the directory `key`. `None` if it is not directly in there.
fn name_in(key: &Path, location: &Path) -> Option<String> {
    let below = match key.as_ref() {
        "" => location.as_ref(),
        key => location.as_ref().strip_prefix(key)?.strip_prefix('/')?,
    };
    (!below.is_empty() && !below.contains('/')).then(|| below.to_owned())
}

impl Held {
    fn new(name: String, entry: Entry) -> Option<Held> {
        let Kind::File { version, settled } = entry.kind else {
            return None;
        };
        Some(Held {
            name,
            version: version.as_bytes().to_vec(),
            settled,
            bytes: entry.bytes,
            modified: entry
                .modified
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
        })
    }

    fn entry(self) -> Entry {
        Entry {
            kind: Kind::File {
                version: Version::new(&self.version),
                settled: self.settled,
            },
            bytes: self.bytes,
            modified: SystemTime::UNIX_EPOCH + self.modified,
            unix: None,
        }
    }
}
