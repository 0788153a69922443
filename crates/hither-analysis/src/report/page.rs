//! The page: a template, its style and its scripts, and the data, put together into one file that
//! needs no other.
//!
//! Nothing on the page comes from the network, and nothing may: its content security policy allows
//! the one script and the one style that are in it, by their SHA-256, and images that are data. So
//! a name that found a way to be taken for markup would still run nothing. It has no such way: the
//! data is JSON in which no `<` is left, and the scripts set text, never markup.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

const TEMPLATE: &str = include_str!("page/page.html");

/// In this order: what is defined in one is used in those after it.
const STYLES: &[&str] = &[
    include_str!("page/uplot/uPlot.min.css"),
    include_str!("page/page.css"),
];

/// The library first; the rest shares one scope.
const LIBRARY: &str = include_str!("page/uplot/uPlot.iife.min.js");
const SCRIPTS: &[&str] = &[
    include_str!("page/text.js"),
    include_str!("page/colours.js"),
    include_str!("page/charts.js"),
    include_str!("page/picture.js"),
    include_str!("page/table.js"),
    include_str!("page/sections.js"),
    include_str!("page/compare.js"),
    include_str!("page/page.js"),
];

/// The page of a document.
pub(super) fn page(document: &str) -> String {
    let style = STYLES.concat();
    let script = format!(
        "{LIBRARY}\n(() => {{\n\"use strict\";\n{}\n}})();\n",
        SCRIPTS.concat()
    );
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; img-src data:; \
         base-uri 'none'; form-action 'none'",
        hash(&style_or_script(&script)),
        hash(&style_or_script(&style))
    );
    let parts = [
        ("{{policy}}", policy),
        ("{{style}}", style_or_script(&style)),
        ("{{data}}", escaped(document)),
        ("{{script}}", style_or_script(&script)),
    ];
    // Split and not replaced, so that nothing in the data can be taken for a part of the template.
    let mut page =
        String::with_capacity(document.len() + style.len() + script.len() + TEMPLATE.len());
    let mut rest = TEMPLATE;
    for (name, part) in parts {
        let (before, after) = rest
            .split_once(name)
            .expect("the template has all its parts");
        page.push_str(before);
        page.push_str(&part);
        rest = after;
    }
    page.push_str(rest);
    page
}

/// JSON without any `<`: neither an end of the script that it is in nor a comment can begin.
fn escaped(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// What stands between the tags, which is what is hashed.
fn style_or_script(text: &str) -> String {
    format!("\n{text}\n")
}

fn hash(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_stays_data() {
        let page = page(r#"{"a":"</script><script>alert(1)</script>","b":"{{script}}<!--"}"#);
        assert!(page.contains(r#"{"a":"\u003c/script>\u003cscript>alert(1)"#));
        assert_eq!(page.matches("<script").count(), 2);
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(page.contains(r#""b":"{{script}}\u003c!--""#));
    }

    #[test]
    fn our_own_scripts_set_no_markup_and_fetch_nothing() {
        for script in SCRIPTS {
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "fetch(",
                "XMLHttp",
                "import(",
            ] {
                assert!(!script.contains(word), "{word}");
            }
        }
        // An end of the element in a script or style would end it there.
        assert!(!SCRIPTS.concat().contains("</") && !LIBRARY.contains("</script"));
        assert!(!STYLES.concat().contains("</") && !STYLES.concat().contains("url("));
    }

    #[test]
    fn the_library_is_the_one_that_was_released() {
        let source: toml::Table = include_str!("page/uplot/SOURCE.toml").parse().unwrap();
        let hex = |text: &str| -> String {
            Sha256::digest(text)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect()
        };
        let files = [
            ("uPlot.iife.min.js", LIBRARY),
            ("uPlot.min.css", STYLES[0]),
            ("LICENSE", include_str!("page/uplot/LICENSE")),
        ];
        for (name, text) in files {
            assert_eq!(
                source["sha256"][name].as_str(),
                Some(hex(text).as_str()),
                "{name}"
            );
        }
    }
}
