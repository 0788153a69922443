//! Names of call sites in tables: the frames of their stacks that tell one from the others.

use rustc_hash::FxHashMap;

use crate::schema::{Frame, SiteRow};

/// The most frames that a label shows.
const LABEL_FRAMES_MAX: usize = 4;

/// A unique label per site, innermost frame first: `read_row ← … ← load_table`.
///
/// It shows the frame that names the site, and of its callers those at which the sites with the
/// same frames so far part: what all of them share tells nothing. `…` stands for frames that are
/// left out. A site that no other shares its first frame with shows its caller. Where four frames
/// are not enough, the label ends with the start of the signature.
pub fn labels(sites: &[SiteRow]) -> Vec<String> {
    let stacks: Vec<Stack<'_>> = sites.iter().map(Stack::of).collect();
    let mut shown: Vec<Vec<usize>> = vec![vec![0]; sites.len()];
    let mut groups = parted((0..sites.len()).collect(), &stacks, 0);
    let mut depths = vec![1; groups.len()];
    while let (Some(group), Some(depth)) = (groups.pop(), depths.pop()) {
        let deepest = group.iter().map(|&site| stacks[site].depth()).max();
        if group.len() == 1 || deepest <= Some(depth) {
            continue;
        }
        let parts = parted(group, &stacks, depth);
        if parts.len() > 1 {
            let mut all = parts.iter().flatten();
            if all.any(|&site| shown[site].len() == LABEL_FRAMES_MAX) {
                continue;
            }
            for &site in parts.iter().flatten() {
                shown[site].extend((depth < stacks[site].depth()).then_some(depth));
            }
        }
        depths.resize(depths.len() + parts.len(), depth + 1);
        groups.extend(parts);
    }
    let label = |(shown, stack): (&Vec<usize>, &Stack<'_>)| {
        let callers = match (&shown[1..], stack.depth()) {
            ([], 2..) => &[1][..],
            (callers, _) => callers,
        };
        let mut label = stack.site.label();
        let mut before = 0;
        for &at in callers {
            let gap = if at > before + 1 { " ← …" } else { "" };
            label += &format!("{gap} ← {}", stack.label(at).unwrap_or_default());
            before = at;
        }
        label
    };
    let mut labels: Vec<String> = shown.iter().zip(&stacks).map(label).collect();
    let mut seen: FxHashMap<String, u32> = FxHashMap::default();
    for label in &labels {
        *seen.entry(label.clone()).or_default() += 1;
    }
    for (label, site) in labels.iter_mut().zip(sites) {
        if seen[label.as_str()] > 1 {
            *label += &format!(" #{:08x}", site.signature >> 32);
        }
    }
    labels
}

/// A group of sites, parted by the labels of their frames at a depth.
fn parted(group: Vec<usize>, stacks: &[Stack<'_>], depth: usize) -> Vec<Vec<usize>> {
    let mut parts: FxHashMap<Option<String>, Vec<usize>> = FxHashMap::default();
    for site in group {
        parts
            .entry(stacks[site].label(depth))
            .or_default()
            .push(site);
    }
    parts.into_values().collect()
}

/// A site and those of its callers that may tell it from others: not the runtime's.
struct Stack<'a> {
    site: &'a SiteRow,
    callers: Vec<&'a Frame>,
}

impl Stack<'_> {
    fn of(site: &SiteRow) -> Stack<'_> {
        let from = site.naming().unwrap_or(site.frames.len());
        let callers = site.frames.iter().skip(from + 1);
        let callers = callers.filter(|frame| !is_runtime(&frame.module));
        Stack {
            site,
            callers: callers.collect(),
        }
    }

    /// The site itself and its callers.
    fn depth(&self) -> usize {
        1 + self.callers.len()
    }

    /// The label of the site itself, at depth 0, or of a caller.
    fn label(&self, depth: usize) -> Option<String> {
        match depth {
            0 => Some(self.site.label()),
            _ => self.callers.get(depth - 1).map(|frame| frame.label()),
        }
    }
}

/// Whether a module is part of the runtime (the C and C++ libraries, the dynamic linker, this
/// recorder), whose functions never name a call site.
pub fn is_runtime(path: &str) -> bool {
    /// Sonames up to the version: `libc.so.6`, `libc-2.31.so`.
    const RUNTIME: &[&str] = &[
        "ld",
        "ld-linux",
        "ld-musl",
        "libc",
        "libdl",
        "libgcc_s",
        "libhither_preload",
        "libhither_preload_pages",
        "libhither_preload_record",
        "libpthread",
        "librt",
        "libstdc++",
    ];
    let name = path.rsplit('/').next().unwrap_or_default();
    RUNTIME.iter().any(|runtime| {
        name.strip_prefix(runtime)
            .is_some_and(|rest| rest.starts_with(".so") || is_versioned(rest))
    })
}

/// Whether `rest` is what follows a library's bare name in the old style: `-2.31.so`, or
/// `-x86-64.so.2`.
fn is_versioned(rest: &str) -> bool {
    rest.strip_prefix('-').is_some_and(|version| {
        version.starts_with(|c: char| c.is_ascii_digit())
            || version.starts_with("x86")
            || version.starts_with("aarch64")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(signature: u64, functions: &[&str]) -> SiteRow {
        let frame = |(at, function): (usize, &&str)| Frame {
            module: match function.strip_prefix("libc:") {
                Some(_) => "/lib/libc.so.6".to_owned(),
                None => "/bin/tool".to_owned(),
            },
            offset: at as u64,
            function: Some((*function).to_owned()),
            file: Some("a.c".to_owned()),
            line: Some(1),
            ..Frame::default()
        };
        SiteRow {
            signature: signature << 32,
            function: functions.first().map(|&function| function.to_owned()),
            module: Some("/bin/tool".to_owned()),
            frames: functions.iter().enumerate().map(frame).collect(),
            ..SiteRow::default()
        }
    }

    #[test]
    fn labels_show_the_frames_at_which_stacks_part() {
        let sites = [
            SiteRow::unknown(),
            site(1, &["read", "wrap", "buffer", "load", "main"]),
            site(2, &["read", "wrap", "buffer", "save", "main"]),
            site(3, &["read", "other"]),
            site(4, &["alone", "libc:qsort", "main"]),
            site(5, &["same", "main"]),
            site(6, &["same", "main"]),
        ];
        let labels: Vec<String> = labels(&sites)
            .iter()
            .map(|label| label.replace(" (a.c:1)", ""))
            .collect();
        assert_eq!(
            labels,
            [
                "unknown",
                "read ← wrap ← … ← load",
                "read ← wrap ← … ← save",
                "read ← other",
                "alone ← main",
                "same ← main #00000005",
                "same ← main #00000006",
            ]
        );
    }

    #[test]
    fn a_label_has_four_frames_at_most() {
        // The binary numbers of eight sites, a digit a frame.
        let digits = |n: u32| (0..6).map(move |at| if n >> at & 1 == 1 { "one" } else { "zero" });
        let sites: Vec<SiteRow> = (0..64)
            .map(|n| {
                let frames: Vec<&str> = std::iter::once("read").chain(digits(n)).collect();
                site(n.into(), &frames)
            })
            .collect();
        for label in labels(&sites) {
            assert_eq!(
                label.matches(" ← ").count(),
                LABEL_FRAMES_MAX - 1,
                "{label}"
            );
            assert!(label.contains(" #"), "{label}");
        }
    }

    #[test]
    fn the_runtime_is_told_by_its_names() {
        for name in [
            "libc.so.6",
            "libc-2.31.so",
            "ld-linux-x86-64.so.2",
            "libstdc++.so.6.0.33",
            "libgcc_s.so.1",
            "ld-2.31.so",
        ] {
            assert!(is_runtime(&format!("/lib/{name}")), "{name}");
        }
        for name in [
            "libcurl.so.4",
            "libcrypto.so.3",
            "libc-client.so",
            "grep",
            "libdlib.so",
            "libc",
        ] {
            assert!(!is_runtime(&format!("/lib/{name}")), "{name}");
        }
    }
}
