//! `s3://`, `gs://`, `az://` and `http(s)://`: objects as files.
//!
//! A version is an object's etag, and each request for bytes names it, so that the source itself
//! refuses to mix two. Without an etag (some web servers) time of modification and size stand for
//! it. Neither need change with a rewrite of the same size within a second: see `settling`.
//!
//! Of a bucket, paths are keys. Keys that are no path (`a//b`, `..`, control characters) are left
//! out of listings and counted. A key that ends in `/` marks a directory.

mod attempts;
mod commit;
mod conditions;
mod listing;
#[cfg(test)]
mod model;
mod moving;
mod opening;
mod probe;
mod profile;
mod reading;
mod requests;
mod settling;
mod sift;
mod source;
mod spool;
mod store;
mod transport;
mod upload;
mod versions;
mod writing;

pub(super) use self::opening::{open_azure, open_google, open_http, open_s3};
