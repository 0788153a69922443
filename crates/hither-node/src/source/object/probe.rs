//! The first request to a source of objects: shows whether what was said of it holds.

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use tokio::sync::Semaphore;

use super::super::counters::SourceCounters;
use super::super::name::public_name;
use super::super::opened::Opened;
use super::super::settings::SourceSettings;
use super::super::{OpenError, SourceError, SourcePath};
use super::conditions::Conditions;
use super::settling::{FILE_CLOCK_LAG_MAX, Settling};
use super::source::ObjectSource;
use super::spool::WriteSpace;
use super::store::Store;

/// How long it may take, all attempts together.
const OPENING_MAX: Duration = Duration::from_secs(10);

/// A client with what web servers offer, which stamp files by a clock that need not be their own.
pub(super) fn web_store(
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    settings: &SourceSettings,
    counters: Arc<SourceCounters>,
) -> Store {
    Store {
        objects,
        pages: None,
        uploads: None,
        conditions: Conditions::by_etag(),
        settling: Settling::new(settings.settling.max(FILE_CLOCK_LAG_MAX), settings.settling),
        space: Arc::new(WriteSpace::new(&settings.writes)),
        prefix,
        settings: settings.clone(),
        counters,
        in_flight: Semaphore::new(settings.requests_max.max(1)),
    }
}

/// A client of a bucket, which has one clock.
pub(super) fn bucket_store<Client>(
    client: Client,
    prefix: Path,
    settings: &SourceSettings,
    counters: Arc<SourceCounters>,
    conditions: Conditions,
) -> Store
where
    Client: ObjectStore + PaginatedListStore + MultipartStore,
{
    let client = Arc::new(client);
    Store {
        pages: Some(client.clone()),
        uploads: Some(client.clone()),
        conditions,
        settling: Settling::new(settings.settling, settings.settling),
        ..web_store(client, prefix, settings, counters)
    }
}

/// Lists one key below the prefix: shows at once whether the bucket is there, whether it may be
/// read, and whether the prefix exists.
pub(super) async fn open_bucket(
    url: &str,
    bucket: &str,
    no_credentials: Option<&str>,
    mut store: Store,
) -> Result<Opened, OpenError> {
    let url = public_name(url);
    let deadline = store.settings.deadline;
    store.settings.deadline = deadline.min(OPENING_MAX);
    let pages = Arc::clone(store.pages.as_ref().expect("it is a bucket"));
    let prefix = store.prefix.clone();
    let below = (!prefix.as_ref().is_empty()).then(|| format!("{prefix}/"));
    let list = || {
        let options = PaginatedListOptions {
            max_keys: Some(1),
            ..PaginatedListOptions::default()
        };
        pages.list_paginated(below.as_deref(), options)
    };
    let root = SourcePath::default();
    let listed = store.request(&root, list).await;
    let page = listed.map_err(|error| match (error, no_credentials) {
        (SourceError::NotFound(_), _) => OpenError::NoSuchBucket {
            url: url.clone(),
            bucket: bucket.into(),
        },
        (SourceError::Denied { reason, .. }, _) => OpenError::Denied {
            url: url.clone(),
            reason,
        },
        // The library asked the cloud's metadata service, which may be what failed.
        (SourceError::Failed { reason, .. }, Some(hint)) => OpenError::Credentials {
            url: url.clone(),
            reason: format!("{hint} ({reason})"),
        },
        (SourceError::Failed { reason, .. }, None) => OpenError::Unreachable {
            url: url.clone(),
            reason,
        },
        (error, _) => OpenError::Unreachable {
            url: url.clone(),
            reason: error.to_string(),
        },
    })?;
    let is_there = below.is_none() || !page.result.objects.is_empty() || page.page_token.is_some();
    if !is_there {
        return Err(match store.head(&root, &prefix).await {
            Ok(_) => OpenError::NotADirectory { url },
            Err(_) => OpenError::NotFound { url },
        });
    }
    store.settings.deadline = deadline;
    Ok(Opened::ReadWrite(Arc::new(ObjectSource(Arc::new(store)))))
}

/// Asks a web server for the directory.
pub(super) async fn open_server(url: &str, mut store: Store) -> Result<Opened, OpenError> {
    let deadline = store.settings.deadline;
    store.settings.deadline = deadline.min(OPENING_MAX);
    // A server that is there need not have a page for the directory, nor say how long it is.
    let root = SourcePath::default();
    if let Err(SourceError::Failed { reason, .. }) = store.head(&root, &store.prefix).await
        && store.list_server(&root).await.is_err()
    {
        return Err(OpenError::Unreachable {
            url: public_name(url),
            reason,
        });
    }
    store.settings.deadline = deadline;
    Ok(Opened::ReadOnly(Arc::new(ObjectSource(Arc::new(store)))))
}
