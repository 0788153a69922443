//! ListObjectsV2.

use std::fmt::Write;
use std::ops::Bound;

use hyper::StatusCode;

use super::answers::{Answer, refuse};
use super::objects::{Buckets, Object, calendar};
use super::target::Target;

pub(super) fn list(buckets: &Buckets, target: &Target) -> Answer {
    let Some(objects) = buckets.objects(&target.bucket) else {
        return refuse(StatusCode::NOT_FOUND, "NoSuchBucket", "");
    };
    let prefix = target.parameter("prefix").unwrap_or_default();
    let delimiter = target.parameter("delimiter").filter(|it| !it.is_empty());
    let max = target
        .parameter("max-keys")
        .and_then(|max| max.parse().ok());
    let max: usize = max.unwrap_or(1000).min(1000);
    let mut from = match target.parameter("continuation-token") {
        Some(token) => Bound::Included(from_token(token)),
        None => match target.parameter("start-after") {
            Some(after) => Bound::Excluded(after.to_owned()),
            None => Bound::Included(prefix.to_owned()),
        },
    };
    let (mut listed, mut count, mut next) = (String::new(), 0, None);
    while let Some((key, object)) = objects.range((from.clone(), Bound::Unbounded)).next() {
        let Some(rest) = key.strip_prefix(prefix) else {
            if key.as_str() < prefix {
                from = Bound::Included(prefix.to_owned());
                continue;
            }
            break;
        };
        if count == max {
            next = Some(to_token(key));
            break;
        }
        count += 1;
        let cut = delimiter.and_then(|delimiter| rest.split_once(delimiter));
        if let (Some((name, _)), Some(delimiter)) = (cut, delimiter) {
            let common = format!("{prefix}{name}{delimiter}");
            let shown = escape(&common);
            let _ = write!(
                listed,
                "<CommonPrefixes><Prefix>{shown}</Prefix></CommonPrefixes>"
            );
            // Past all that begins with it.
            from = Bound::Included(common + "\u{10ffff}");
        } else {
            contents(&mut listed, key, object);
            from = Bound::Excluded(key.clone());
        }
    }
    let more = next.is_some();
    let token = next.map(|token| format!("<NextContinuationToken>{token}</NextContinuationToken>"));
    Answer::xml(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult><Name>{}</Name>\
         <Prefix>{}</Prefix><KeyCount>{count}</KeyCount><MaxKeys>{max}</MaxKeys>\
         <IsTruncated>{more}</IsTruncated>{}{listed}</ListBucketResult>",
        target.bucket,
        escape(prefix),
        token.unwrap_or_default(),
    ))
}

fn contents(listed: &mut String, key: &str, object: &Object) {
    let [year, month, day, hour, minute, second, _] = calendar(object.modified);
    let _ = write!(
        listed,
        "<Contents><Key>{}</Key><LastModified>{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:\
         {second:02}.000Z</LastModified><ETag>{}</ETag><Size>{}</Size>\
         <StorageClass>STANDARD</StorageClass></Contents>",
        escape(key),
        escape(&object.etag),
        object.bytes.len(),
    );
}

fn to_token(key: &str) -> String {
    key.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn from_token(token: &str) -> String {
    let digits = token.as_bytes().chunks(2);
    let bytes = digits.filter_map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
    String::from_utf8(bytes.collect()).unwrap_or_default()
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            control if control.is_control() => {
                let _ = write!(escaped, "&#{};", u32::from(control));
            }
            plain => escaped.push(plain),
        }
    }
    escaped
}
