//! Where a request goes, by its path and query.

use hyper::Request;
use hyper::body::Incoming;

/// Where a request goes.
pub(super) struct Target {
    pub(super) bucket: String,
    pub(super) key: String,
    pub(super) query: Vec<(String, String)>,
}

impl Target {
    pub(super) fn of(request: &Request<Incoming>) -> Target {
        let path = request.uri().path().trim_start_matches('/');
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        let pairs = request.uri().query().unwrap_or_default().split('&');
        let query = pairs.filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(&value.replace('+', " ")))
        });
        Target {
            bucket: decode(bucket),
            key: decode(key),
            query: query.collect(),
        }
    }

    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let pair = self.query.iter().find(|(given, _)| given == name)?;
        Some(&pair.1)
    }
}

pub(super) fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = (first == b'%' && after.len() >= 2)
            .then(|| std::str::from_utf8(&after[..2]).ok())
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() {
            &after[2..]
        } else {
            after
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
