//! The HTML page: a template with style, scripts and data in one file.
//!
//! The page loads nothing from the network. Its content security policy allows only its own script
//! and style, by their SHA-256, and images that are data URLs. So no name in the data can run code,
//! even if it were taken for markup. It cannot be: the data is JSON without any `<`, and the
//! scripts set text, never markup.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

const TEMPLATE: &str = include_str!("page/page.html");

/// The styles, in the order in which they apply.
const STYLES: &[&str] = &[
    include_str!("page/uplot/uPlot.min.css"),
    include_str!("page/page.css"),
];

/// The chart library, which comes before our scripts. These share one scope.
const CHART_LIBRARY: &str = include_str!("page/uplot/uPlot.iife.min.js");
const SCRIPTS: &[&str] = &[
    include_str!("page/text.js"),
    include_str!("page/colours.js"),
    include_str!("page/charts.js"),
    include_str!("page/picture.js"),
    include_str!("page/table.js"),
    include_str!("page/flame.js"),
    include_str!("page/sections.js"),
    include_str!("page/compare.js"),
    include_str!("page/page.js"),
];

/// The page of a document.
pub(super) fn page(document: &str) -> String {
    let style = STYLES.concat();
    let script = format!(
        "{CHART_LIBRARY}\n(() => {{\n\"use strict\";\n{}\n}})();\n",
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
    // The template is split and not searched again, so the data cannot contain a placeholder.
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

/// JSON without any `<`, so that it contains neither the end of its script element nor a comment.
fn escaped(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// The content of a style or script element. The content security policy has its hash.
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
        // The end tag must not occur within a script or style.
        assert!(!SCRIPTS.concat().contains("</") && !CHART_LIBRARY.contains("</script"));
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
            ("uPlot.iife.min.js", CHART_LIBRARY),
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
