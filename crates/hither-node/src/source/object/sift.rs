//! Takes out of a listing what no path can name, before the client library reads it.
//!
//! The library refuses a whole page for one such key (`a//b`, `..`, control characters), and reads
//! `/a` as `a`. Keys that end in one `/` stay: they mark directories.

use object_store::path::Path;

/// The elements of a listing that have a name, and the element inside that holds it: S3 and GCS,
/// then Azure.
const NAMED: &[(&str, &str)] = &[
    ("Contents", "Key"),
    ("CommonPrefixes", "Prefix"),
    ("Blob", "Name"),
    ("BlobPrefix", "Name"),
];

/// `page` without what has no path, and the names of what was taken out.
pub(super) fn sift(page: &str) -> (String, Vec<String>) {
    let mut sifted = String::with_capacity(page.len());
    let mut left_out = Vec::new();
    let mut rest = page;
    while let Some((at, element, inner)) = next_element(rest) {
        let (open, close) = (format!("<{element}>"), format!("</{element}>"));
        sifted.push_str(&rest[..at]);
        let Some(length) = rest[at..].find(&close) else {
            rest = &rest[at..];
            break; // Cut short: the library says so.
        };
        let whole = &rest[at..at + length + close.len()];
        let name = text_of(&whole[open.len()..], inner);
        match name.filter(|name| !has_path(name)) {
            Some(name) => left_out.push(name),
            None => sifted.push_str(whole),
        }
        rest = &rest[at + whole.len()..];
    }
    sifted.push_str(rest);
    (sifted, left_out)
}

/// Whether `key` is a path, apart from one `/` at its end.
fn has_path(key: &str) -> bool {
    let key = key.strip_suffix('/').unwrap_or(key);
    Path::parse(key).is_ok_and(|path| path.as_ref() == key && !key.is_empty())
}

fn next_element(text: &str) -> Option<(usize, &'static str, &'static str)> {
    let mut from = 0;
    while let Some(at) = text[from..].find('<') {
        let at = from + at;
        for &(element, inner) in NAMED {
            let tag = text[at + 1..].strip_prefix(element);
            if tag.is_some_and(|after| after.starts_with('>')) {
                return Some((at, element, inner));
            }
        }
        from = at + 1;
    }
    None
}

/// The text of the first element `name` in `xml`, with its entities resolved.
pub(super) fn text_of(xml: &str, name: &str) -> Option<String> {
    let start = xml.find(&format!("<{name}>"))? + name.len() + 2;
    let length = xml[start..].find(&format!("</{name}>"))?;
    Some(unescape(&xml[start..start + length]))
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        let resolved = rest.find(';').and_then(|end| {
            let character = resolve(&rest[1..end])?;
            Some((character, end + 1))
        });
        let (character, length) = resolved.unwrap_or(('&', 1));
        plain.push(character);
        rest = &rest[length..];
    }
    plain.push_str(rest);
    plain
}

fn resolve(entity: &str) -> Option<char> {
    match entity {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = entity.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_no_path_is_taken_out() {
        let keep = ["a", "a b&amp;c", "d/", "x/..y", "%2F", "&#233;", "~[]{}"];
        let drop = [
            "a//b", "/a", "..", "x/./y", "&#1;", "/", "//", "a//", "x/../y",
        ];
        let contents = |key: &str| format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>");
        let prefixes =
            |key: &str| format!("<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>");
        for element in [&contents as &dyn Fn(&str) -> String, &prefixes] {
            let page = |keys: &[&str]| {
                let all: String = keys.iter().map(|key| element(key)).collect();
                format!("<R><Prefix>a//</Prefix>{all}<Token>x</Token></R>")
            };
            let mixed: Vec<&str> = keep.iter().zip(drop).flat_map(|(&k, d)| [d, k]).collect();
            let (sifted, left_out) = sift(&page(&mixed));
            assert_eq!(sifted, page(&keep));
            assert_eq!(left_out.len(), keep.len());
            assert_eq!(sift(&page(&drop)).0, page(&[]));
        }
        let azure = "<Blobs><Blob><Name>a//b</Name></Blob><BlobPrefix><Name>c/</Name></BlobPrefix>";
        let (sifted, left_out) = sift(azure);
        assert_eq!(sifted, "<Blobs><BlobPrefix><Name>c/</Name></BlobPrefix>");
        assert_eq!(left_out, ["a//b"]);
    }

    #[test]
    fn any_text_is_survived() {
        for text in [
            "",
            "<",
            "<Contents>",
            "<Contents><Key>",
            "&;&#;&#x;&",
            "<Key></Key>",
        ] {
            assert_eq!(sift(text), (text.into(), vec![]));
        }
        assert_eq!(unescape("&bad;&amp&#xD800;&lt;"), "&bad;&amp&#xD800;<");
    }
    proptest::proptest! {
        /// What stays is in its order, and sifting it again takes nothing more out.
        #[test]
        fn pages_of_any_keys_are_sifted_once(
            keys in proptest::collection::vec("[a./&;<#x0-9]{0,6}", 0..8),
        ) {
            let element = |key: &String| format!("<Contents><Key>{key}</Key></Contents>");
            let page: String = keys.iter().map(element).collect();
            let (sifted, left_out) = sift(&page);
            proptest::prop_assert_eq!(sift(&sifted), (sifted.clone(), vec![]));
            if keys.iter().all(|key| !key.contains(['<', '&'])) {
                let stays: String = keys.iter().filter(|key| has_path(key)).map(element).collect();
                proptest::prop_assert_eq!(sifted, stays);
                let gone = keys.iter().filter(|key| !has_path(key)).count();
                proptest::prop_assert_eq!(left_out.len(), gone);
            }
        }
    }
}
