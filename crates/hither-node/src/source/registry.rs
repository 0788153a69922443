//! The kinds of sources, by the scheme of their URLs. A new kind is one file and one line here.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::name::public_name;
use super::opened::Opened;
use super::settings::SourceSettings;
use super::write::WritableSource;
use super::{OpenError, Source, directory, object};

/// One scheme of URLs.
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    /// What stands before `://`.
    pub name: &'static str,
    /// What URLs look like.
    pub form: &'static str,
    /// What is behind them.
    pub about: &'static str,
    open: Opener,
}

type Opener = for<'a> fn(&'a str, &'a SourceSettings) -> BoxFuture<'a, Result<Opened, OpenError>>;

/// All schemes, sorted by name.
pub const SCHEMES: &[Scheme] = &[
    Scheme {
        name: "az",
        form: "az://CONTAINER/PREFIX",
        about: "Azure Blob Storage",
        open: |url, settings| Box::pin(object::open_azure(url, settings)),
    },
    Scheme {
        name: "file",
        form: "file:///PATH",
        about: "a directory: NFS, Lustre, a local disk",
        open: |url, settings| Box::pin(directory::open(url, settings)),
    },
    Scheme {
        name: "gs",
        form: "gs://BUCKET/PREFIX",
        about: "Google Cloud Storage",
        open: |url, settings| Box::pin(object::open_google(url, settings)),
    },
    Scheme {
        name: "http",
        form: "http://HOST/PATH",
        about: "a web server; listings need WebDAV",
        open: |url, settings| Box::pin(object::open_http(url, settings)),
    },
    Scheme {
        name: "https",
        form: "https://HOST/PATH",
        about: "a web server over TLS; listings need WebDAV",
        open: |url, settings| Box::pin(object::open_http(url, settings)),
    },
    Scheme {
        name: "s3",
        form: "s3://BUCKET/PREFIX",
        about: "Amazon S3, and what speaks its protocol",
        open: |url, settings| Box::pin(object::open_s3(url, settings)),
    },
];

/// Opens the source at `url`, and asks it once whether it is there. An absolute path is the
/// directory of that name. Runs on a tokio runtime with timers, which the source then uses.
pub async fn open(url: &str, settings: &SourceSettings) -> Result<Arc<dyn Source>, OpenError> {
    Ok(match open_any(url, settings).await? {
        Opened::ReadOnly(source) => source,
        Opened::ReadWrite(source) => source,
    })
}

/// As [`open`], for writing. Whether the source allows it shows with the first write.
pub async fn open_writable(
    url: &str,
    settings: &SourceSettings,
) -> Result<Arc<dyn WritableSource>, OpenError> {
    match open_any(url, settings).await? {
        Opened::ReadOnly(_) => Err(OpenError::ReadOnly {
            url: public_name(url),
        }),
        Opened::ReadWrite(source) => Ok(source),
    }
}

async fn open_any(url: &str, settings: &SourceSettings) -> Result<Opened, OpenError> {
    let name = match url.split_once("://") {
        Some((name, _)) => name,
        None if url.starts_with('/') => "file",
        None => {
            return Err(OpenError::NotAUrl {
                url: public_name(url),
                reason: format!("write one of {}", list(|scheme| scheme.form)),
            });
        }
    };
    let scheme = SCHEMES
        .iter()
        .find(|scheme| scheme.name.eq_ignore_ascii_case(name))
        .ok_or_else(|| OpenError::UnknownScheme {
            scheme: name.into(),
            known: list(|scheme| scheme.name),
        })?;
    (scheme.open)(url, settings).await
}

fn list(what: impl Fn(&Scheme) -> &'static str) -> String {
    SCHEMES.iter().map(what).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_sorted_and_described() {
        assert!(SCHEMES.is_sorted_by(|a, b| a.name < b.name));
        for scheme in SCHEMES {
            assert!(scheme.form.starts_with(&format!("{}://", scheme.name)));
            assert!(!scheme.about.is_empty());
        }
    }
}
