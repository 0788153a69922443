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
            let file = head.as_ref().map(|it| store.file(&it.meta, it.answered));
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
            Ok(it) if it.meta.size == 0 && store.has_below(path, &key).await? => Ok(directory()),
            Ok(it) => store.file(&it.meta, it.answered).ok_or_else(missing),
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

    fn md5(&self, file: &FileVersion) -> Option<[u8; 16]> {
        md5_of(file.version.as_bytes())
    }
}

/// The MD5 that the name of a version may be: S3 and its like give it as etag to objects that were
/// put in one piece. A weak etag is none.
fn md5_of(version: &[u8]) -> Option<[u8; 16]> {
    let digits = version.strip_prefix(b"etag:\"")?.strip_suffix(b"\"")?;
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    if digits.len() != 32 || !digits.iter().all(is_digit) {
        return None;
    }
    let digits = std::str::from_utf8(digits).ok()?;
    let number = u128::from_str_radix(digits, 16).ok()?;
    Some(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::md5_of;

    #[test]
    fn an_etag_of_32_digits_may_be_an_md5() {
        let of = |etag: &str| md5_of(format!("etag:{etag}").as_bytes());
        let digits = "d41d8cd98f00b204e9800998ecf8427e";
        let md5 = of(&format!("\"{digits}\"")).expect("an MD5");
        assert_eq!((md5[0], md5[15]), (0xd4, 0x7e));
        for other in [
            format!("W/\"{digits}\""),
            format!("\"{digits}-2\""),
            format!("\"{}\"", digits.to_uppercase()),
            format!("\"{}\"", &digits[1..]),
            digits.to_owned(),
        ] {
            assert_eq!(of(&other), None, "{other}");
        }
    }
}
