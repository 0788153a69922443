//! The call stacks of a page's call sites, and what each of them misses in the caches that the page
//! is about: for the flame graph, and for the frames of a chosen call site.

use hither_sim::CacheConfiguration;
use hither_trace::Trace;
use hither_trace::schema::Frame;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::room::take_room;
use crate::Result;
use crate::advice::Recommendation;
use crate::cache_analysis::CacheAnalysis;
use crate::format::policy;
use crate::progress::Progress;
use crate::simulate::misses_by_site;

/// The call stacks.
#[derive(Debug, Default, Serialize)]
pub(super) struct CallStacks {
    /// The frames of all stacks, each once.
    frames: Vec<StackFrame>,
    /// The stack of each call site of the page, in their order.
    stacks: Vec<CallStack>,
    /// The number of call sites of the page whose stacks have no room on it.
    left_out: u64,
    /// The misses of the caches that the page is about.
    misses: Vec<SiteMisses>,
}

/// A frame: the return address, as an offset in its module, and what is known of it.
#[derive(Debug, Serialize)]
struct StackFrame {
    module: String,
    offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

/// A stack as positions in the list of frames, innermost first. It is empty if it is not known, or
/// has no room.
#[derive(Debug, Default, Serialize)]
struct CallStack {
    frames: Vec<u32>,
    /// Whether it could not be followed further.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

/// The misses of a cache.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct SiteMisses {
    policy: String,
    cache_blocks: u32,
    /// All of them, as in `sim --json`.
    all: u64,
    /// Those of each call site of the page, in their order.
    by_site: Vec<u64>,
}

impl CallStacks {
    /// The stacks of these call sites, as many as fit into `room_bytes` of JSON.
    pub(super) fn of(
        trace: &Trace,
        sites: &[u32],
        misses: Vec<SiteMisses>,
        room_bytes: usize,
    ) -> CallStacks {
        let mut made = CallStacks {
            misses,
            ..CallStacks::default()
        };
        let mut positions: FxHashMap<(&str, u64), u32> = FxHashMap::default();
        let mut left = room_bytes;
        for &site in sites {
            let site = &trace.sites()[site as usize];
            let known = made.frames.len();
            let frames = site.frames.iter().map(|frame| {
                let key = (frame.module.as_str(), frame.offset);
                *positions.entry(key).or_insert_with(|| {
                    made.frames.push(StackFrame::of(frame));
                    made.frames.len() as u32 - 1
                })
            });
            let stack = CallStack {
                frames: frames.collect(),
                truncated: site.truncated && !site.frames.is_empty(),
            };
            let new = &made.frames[known..];
            if take_room(&(&stack, new), &mut left) {
                made.stacks.push(stack);
                continue;
            }
            made.frames.truncate(known);
            positions.retain(|_, position| (*position as usize) < known);
            made.stacks.push(CallStack::default());
            made.left_out += 1;
        }
        made
    }
}

impl StackFrame {
    fn of(frame: &Frame) -> StackFrame {
        StackFrame {
            module: frame.module.clone(),
            offset: frame.offset,
            function: frame.function.clone(),
            file: frame.file.clone(),
            line: frame.line,
        }
    }
}

/// The caches that a page is about: LRU, or the first policy where LRU is not simulated, and the
/// policy that is advised, at the size of the advice; without one, at the middle one of the sizes.
pub(super) fn caches_in_question(analysis: &CacheAnalysis) -> Vec<CacheConfiguration> {
    let (caches, advice) = (&analysis.caches, &analysis.advice);
    let mut policies = caches.policies();
    let mut sizes: Vec<u32> = caches.sizes().iter().map(|size| size.blocks).collect();
    sizes.sort_unstable();
    let (Some(first), Some(&middle)) = (policies.next(), sizes.get(sizes.len() / 2)) else {
        return Vec::new();
    };
    let advised = match (advice.change, advice.cache_blocks) {
        (Recommendation::Policy, Some(blocks)) => u32::try_from(blocks).ok(),
        _ => None,
    };
    let cache_blocks = advised.unwrap_or(middle);
    let lru = caches.row_of("lru").map(|row| row.policy);
    let other = caches
        .policies()
        .find(|spec| advised.is_some() && advice.policy == Some(*spec));
    let mut specs = vec![lru.unwrap_or(first)];
    specs.extend(other.filter(|other| *other != specs[0]));
    let caches = specs.into_iter();
    caches
        .map(|spec| CacheConfiguration { spec, cache_blocks })
        .collect()
}

/// Simulates these caches and counts their misses by call site, of `sites` one by one.
pub(super) fn misses(
    trace: &Trace,
    caches: &[CacheConfiguration],
    sites: &[u32],
    progress: &dyn Progress,
) -> Result<Vec<SiteMisses>> {
    let each = caches.iter().map(|&cache| {
        let all = misses_by_site(trace, cache, None, progress)?;
        let of = |&site: &u32| all.get(site as usize).copied().unwrap_or(0);
        Ok(SiteMisses {
            policy: policy(&cache.spec),
            cache_blocks: cache.cache_blocks,
            all: all.iter().sum(),
            by_site: sites.iter().map(of).collect(),
        })
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use hither_trace::schema::{Meta, SiteRow};
    use hither_trace::{LoadOptions, TraceBuilder};

    use super::*;

    /// A trace of call sites with these offsets in their stacks, innermost first.
    fn trace(stacks: &[&[u64]]) -> Trace {
        let frame = |&offset: &u64| Frame {
            module: "/bin/tool".to_owned(),
            offset,
            ..Frame::default()
        };
        let site = |offsets: &&[u64]| SiteRow {
            frames: offsets.iter().map(frame).collect(),
            ..SiteRow::default()
        };
        let mut builder = TraceBuilder::new("made up", &LoadOptions::default()).unwrap();
        let sites = stacks.iter().map(site).collect();
        builder.describe(Vec::new(), sites, Meta::default());
        builder.finish().unwrap()
    }

    fn offsets(made: &CallStacks, stack: usize) -> Vec<u64> {
        let frames = made.stacks[stack].frames.iter();
        frames.map(|&at| made.frames[at as usize].offset).collect()
    }

    #[test]
    fn stacks_share_their_frames() {
        let trace = trace(&[&[1, 2, 3], &[4, 2, 3], &[]]);
        let made = CallStacks::of(&trace, &[0, 1, 2], Vec::new(), 1 << 20);
        assert_eq!((made.frames.len(), made.left_out), (4, 0));
        let all = [0, 1, 2].map(|stack| offsets(&made, stack));
        assert_eq!(all, [vec![1, 2, 3], vec![4, 2, 3], vec![]]);
    }

    /// What has no room leaves nothing behind, and what comes after it may have room.
    #[test]
    fn what_has_no_room_is_counted() {
        let long: Vec<u64> = (100..132).collect();
        let trace = trace(&[&[1, 2, 3], &long, &[4, 2, 3]]);
        let made = CallStacks::of(&trace, &[0, 1, 2], Vec::new(), 400);
        assert_eq!((made.frames.len(), made.left_out), (4, 1));
        let all = [0, 1, 2].map(|stack| offsets(&made, stack));
        assert_eq!(all, [vec![1, 2, 3], vec![], vec![4, 2, 3]]);
    }
}
