//! Call stacks in lines, folded for the tools that draw flame graphs.

use std::fmt::Write;

use hither_trace::Trace;
use hither_trace::schema::{Frame, SiteRow};

use crate::format::printable;

/// A line a call site, outermost frame first, with its count: `main;load;read 120`. `counts` has
/// numbers of call sites; those that count nothing are left out.
pub fn folded(trace: &Trace, counts: impl IntoIterator<Item = (u32, u64)>) -> String {
    let mut text = String::new();
    for (site, count) in counts.into_iter().filter(|&(_, count)| count > 0) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} {count}", stack(&trace.sites()[site as usize]));
    }
    text
}

fn stack(site: &SiteRow) -> String {
    if site.frames.is_empty() {
        return "unknown".to_owned();
    }
    let frames: Vec<String> = site.frames.iter().rev().map(name).collect();
    frames.join(";")
}

/// The function, without what other tools would take for an end of the frame or the line.
fn name(frame: &Frame) -> String {
    let name = match &frame.function {
        Some(function) => function.clone(),
        None => frame.label(),
    };
    printable(&name.replace([';', '\n'], ":")).into_owned()
}
