//! What a source is called where others may read it: in `/proc/mounts`, metrics, logs, messages.
//!
//! A URL may hold a password (`http://user:password@host/`) or a token (`?sig=...`). Both are left
//! out of all that names a source, and of all that a server or a library says.

use sha2::{Digest, Sha256};
use url::Url;

/// The name of a source without secrets. Sources whose data differ have different names.
pub fn public_name(source: &str) -> String {
    let Some((scheme, rest)) = source.split_once("://") else {
        return source.to_owned();
    };
    if scheme.eq_ignore_ascii_case("file") {
        return source.to_owned();
    }
    let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    let end = if is_web && Url::parse(source).is_err() {
        // Such as a password with a slash in it.
        rest.len()
    } else {
        rest.find(['/', '?', '#']).unwrap_or(rest.len())
    };
    let rest = rest[..end].rfind('@').map_or(rest, |at| &rest[at + 1..]);
    let cut = if is_web { &['?', '#'][..] } else { &['?'] };
    match rest.find(cut) {
        None => format!("{scheme}://{rest}"),
        Some(at) => {
            // A prefix of a bucket may have a `?` in it: two of them are two sources.
            let digest = Sha256::digest(&rest.as_bytes()[at..]);
            let digest: String = digest[..4].iter().map(|it| format!("{it:02x}")).collect();
            format!("{scheme}://{}?...{digest}", &rest[..at])
        }
    }
}

/// `text` with a public name in place of each URL in it.
pub(crate) fn without_secrets(text: &str) -> String {
    let ends = |it: char| it.is_whitespace() || matches!(it, '"' | '<' | '>' | '`');
    let mut plain = String::with_capacity(text.len());
    let mut left = text;
    while let Some(at) = left.find("://") {
        let is_scheme = |it: char| it.is_ascii_alphanumeric() || matches!(it, '+' | '-' | '.');
        let scheme = left[..at].trim_end_matches(is_scheme).len();
        let end = left[at..].find(ends).map_or(left.len(), |end| at + end);
        plain.push_str(&left[..scheme]);
        plain.push_str(&public_name(&left[scheme..end]));
        left = &left[end..];
    }
    plain + left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_no_part_of_a_name() {
        for (source, name) in [
            ("http://user:pw@host:80/d", "http://host:80/d"),
            ("https://user@host", "https://host"),
            ("HTTP://u:p%40w@host/a@b", "HTTP://host/a@b"),
            ("http://u:p@w@host/d", "http://host/d"),
            ("http://u:p/w@host/d", "http://host/d"),
            ("s3://KEY:SECRET@bucket/p", "s3://bucket/p"),
            ("s3://bucket/a@b/c#d", "s3://bucket/a@b/c#d"),
            ("/data/a?b@c", "/data/a?b@c"),
            ("file:///data/u:p@x?y", "file:///data/u:p@x?y"),
            ("relative", "relative"),
        ] {
            assert_eq!(public_name(source), name);
        }
        let signed = |sig: &str| public_name(&format!("az://box/p?sv=1&sig={sig}"));
        assert!(signed("s3cr3t").starts_with("az://box/p?..."));
        assert!(!signed("s3cr3t").contains("s3cr3t"));
        assert_ne!(signed("one"), signed("other"), "two sources");
        let signed = public_name("https://host/x?X-Amz-Signature=s3cr3t#t0k3n");
        assert!(!signed.contains("s3cr3t") && !signed.contains("t0k3n"));
    }

    #[test]
    fn what_others_say_is_stripped_too() {
        let said = "error for url (http://u:pw@host/d?sig=x) \"https://a:b@c/\" and s3://b/k";
        let plain = without_secrets(said);
        assert!(plain.starts_with("error for url (http://host/d?..."));
        assert!(!plain.contains("sig"));
        assert!(plain.ends_with(" \"https://c/\" and s3://b/k"));
        assert_eq!(without_secrets("://"), "://");
        assert_eq!(without_secrets("no URL: a@b?c"), "no URL: a@b?c");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_survived(text in "[a-z:/@?# é\"]{0,24}") {
            let _ = (public_name(&text), without_secrets(&text));
        }

        #[test]
        fn no_password_is_left(password in "[A-Z0-9:@/?#%&=+.-]{1,12}") {
            let url = format!("http://user:~{password}~@host.example/d");
            // With `@` and `/` in it, it may be the URL of another host, and no password.
            let host = Url::parse(&url).ok().and_then(|url| Some(url.host_str()?.to_owned()));
            proptest::prop_assume!(host.is_none_or(|host| host == "host.example"));
            proptest::prop_assert!(!public_name(&url).contains('~'), "{}", public_name(&url));
        }
    }
}
