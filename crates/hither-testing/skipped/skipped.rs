//! Prints which tests this run of cargo has skipped so far, and why. It runs as the last test of
//! `cargo test --workspace`.

use std::collections::BTreeMap;
use std::fs;

use hither_testing::skip::notes;

fn main() {
    let lists = std::env::args().any(|argument| argument == "--list");
    let Some(notes) = notes().filter(|_| !lists) else {
        return;
    };
    let lines = fs::read_to_string(&notes).unwrap_or_default();
    let _ = fs::remove_file(&notes);
    print!("{}", summary(&lines));
}

/// Reasons with their tests, the reason of most tests first.
fn summary(lines: &str) -> String {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (test, why) in lines.lines().filter_map(|line| line.split_once(": ")) {
        reasons.entry(why).or_default().push(test);
    }
    let all: usize = reasons.values().map(Vec::len).sum();
    let mut text = format!("\n{all} tests were skipped; CONTRIBUTING.md says what they need\n");
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, tests)| std::cmp::Reverse(tests.len()));
    for (why, mut tests) in reasons {
        tests.sort_unstable();
        text += &format!("  {why}: {}\n", tests.join(", "));
    }
    text
}
