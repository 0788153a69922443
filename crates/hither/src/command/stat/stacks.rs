//! The whole call stacks of call sites, in lines.

use std::fmt::Write;

use hither_analysis::format::{percent, printable};
use hither_trace::{Stats, Trace};

/// The stacks of the sites with the most references, innermost frame first.
pub(super) fn lines(trace: &Trace, stats: &Stats, top: usize) -> String {
    let mut text = String::new();
    for row in stats.by_site.iter().take(top) {
        let site = &trace.sites()[row.number as usize];
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "\n{} of the references: {}",
            percent(row.share),
            printable(&row.name)
        );
        for (number, frame) in site.frames.iter().enumerate() {
            let module = if frame.function.is_some() && frame.file.is_some() {
                format!(" in {}", frame.module)
            } else {
                String::new()
            };
            let place = frame.label() + &module;
            let _ = writeln!(text, "  {number:>2}  {}", printable(&place));
        }
        if site.frames.is_empty() {
            text += "  unknown\n";
        } else if site.truncated {
            text += "      the stack could not be followed further\n";
        }
    }
    text
}
