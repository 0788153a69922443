//! The verdict of `hither advise`, a line each: whether it matters here, what to do, and how sure
//! that is. Then one line says how to apply it. The reasons are in the
//! [sentences](CacheAnalysis::sentences) of the analysis.

use hither_trace::Trace;

use crate::advice::{CacheAdvice, Recommendation};
use crate::cache_analysis::CacheAnalysis;
use crate::coverage::Coverage;
use crate::expected;
use crate::format::{bytes, duration_ns, percent, policy, printable};
use crate::placement::PlacementAnalysis;
use crate::relevance::Relevance;
use crate::run_plan::RunPlan;

/// A longer command line is not repeated.
const COMMAND_CHARS_MAX: usize = 100;

/// The end of a line that leaves out reasons.
const MORE: &str = "--explain says why.";

/// The verdict in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it matters, what to do, and how sure that is.
    pub lines: Vec<String>,
    /// How to apply it, if `hither run` or more memory can.
    pub apply: Option<String>,
}

impl Verdict {
    /// The verdict on the caches and placements of a trace of files or blocks.
    pub fn of(analysis: &CacheAnalysis, placed: &PlacementAnalysis, trace: &Trace) -> Verdict {
        let advice = &analysis.advice;
        if advice.change == Recommendation::Unknown {
            let seen = Coverage::of(trace).map(|coverage| coverage.sentence());
            return Verdict {
                lines: advice.sentences.iter().cloned().chain(seen).collect(),
                apply: None,
            };
        }
        let relevance = Relevance::of(trace);
        let matters = relevance.map_or_else(
            || Relevance::unknown(trace).to_owned(),
            |relevance| relevance.verdict(),
        );
        let mut lines = vec![matters, to_do(advice, trace)];
        lines.extend(confidence(advice, relevance, trace));
        lines.extend(placed.verdicts().cloned());
        let block_bytes = u64::from(trace.options().block_bytes);
        let plan = advice.plan(block_bytes);
        let cache_bytes = advice.cache_blocks.unwrap_or(0) * block_bytes;
        let apply = match plan.or_else(|| placed.plan()) {
            Some(plan) => Some(how_to_apply(&plan, cache_bytes, relevance, trace)),
            None if advice.change == Recommendation::Size && advice.obstacle.is_none() => {
                Some("Apply it: give the program that much memory for its files.".to_owned())
            }
            None => None,
        };
        Verdict { lines, apply }
    }

    /// The verdict on a trace of memory, whose pages are not cached.
    pub fn on_memory(placed: &PlacementAnalysis, trace: &Trace) -> Verdict {
        if placed.results.is_empty() {
            let unknown = "Nothing says on how many nodes: --nodes simulates where the pages \
                           should be.";
            return Verdict {
                lines: vec![unknown.to_owned()],
                apply: None,
            };
        }
        let mut lines: Vec<String> = placed.verdicts().cloned().collect();
        lines.push(format!(
            "How sure: the times are modelled, not measured; {MORE}"
        ));
        let plan = placed.plan();
        Verdict {
            lines,
            apply: plan.map(|plan| how_to_apply(&plan, 0, None, trace)),
        }
    }
}

/// What to do, in bytes and seconds.
fn to_do(advice: &CacheAdvice, trace: &Trace) -> String {
    if let Some(obstacle) = &advice.obstacle {
        return obstacle.clone();
    }
    if let Some(expected) = &advice.expected {
        let brief = expected::brief(expected);
        let saved = expected.saved_bytes();
        if !expected.gains() {
            return brief;
        }
        let seconds = match nanoseconds(saved, trace) {
            Some([saved_ns, ran_ns]) => format!(
                "some {} of the {} that it reads",
                duration_ns(saved_ns),
                duration_ns(ran_ns)
            ),
            None => "how many seconds that saves is not known".to_owned(),
        };
        return format!("{brief} That is {} less, {seconds}.", bytes(saved));
    }
    let block_bytes = f64::from(trace.options().block_bytes);
    let saved = advice.gain * trace.references_of_all() as f64 * block_bytes;
    // What a write misses is not read.
    let (reads, less) = if trace.counts().total.written_bytes > 0 {
        ("misses", "less")
    } else {
        ("reads", "less from storage")
    };
    let saved = format!(
        "{reads} {} ({} of the references) {less}",
        bytes(saved.round() as u64),
        percent(advice.gain)
    );
    let size = advice.cache_blocks.unwrap_or(0) * u64::from(trace.options().block_bytes);
    match (advice.change, &advice.policy) {
        (Recommendation::Policy, Some(spec)) => format!(
            "Another replacement policy: in a cache of {}, {} {saved} than LRU, which is \
             much like the kernel. How many seconds that saves is not known.",
            bytes(size),
            policy(spec)
        ),
        (Recommendation::Size, _) => {
            let from = advice.from_blocks.unwrap_or(0) * u64::from(trace.options().block_bytes);
            format!(
                "More memory: a cache of {} {saved} than one of {}. How many seconds that \
                 saves is not known.",
                bytes(size),
                bytes(from)
            )
        }
        _ => advice.sentences.first().cloned().unwrap_or_default(),
    }
}

/// The nanoseconds that so many bytes from storage may have taken in the recorded run, if all bytes
/// took as long and the program waited for nothing else, and those from its first reference to its
/// last.
fn nanoseconds(saved_bytes: u64, trace: &Trace) -> Option<[f64; 2]> {
    let read_bytes = trace.meta().seen?.storage_bytes.filter(|&read| read > 0)?;
    let times = trace.reference_times();
    let ran_ns = (times.last()?.time_ns - times.first()?.time_ns) as f64;
    let share = (saved_bytes as f64 / read_bytes as f64).min(1.0);
    Some([share * ran_ns, ran_ns])
}

/// How sure it is.
fn confidence(advice: &CacheAdvice, relevance: Option<Relevance>, trace: &Trace) -> Option<String> {
    if advice.expected.is_some_and(|expected| !expected.gains()) {
        let forecast = "Unsure: this is a forecast; `hither run` tells what it reads";
        return Some(format!("{forecast}; {MORE}"));
    }
    let stays = relevance.filter(|relevance| relevance.fit && advice.obstacle.is_some());
    if let Some(relevance) = stays {
        if !relevance.is_read_once() {
            let unknown = "Unsure: why so much was read again is not known";
            return Some(format!("{unknown}; {MORE}"));
        }
        let coverage = Coverage::of(trace)?;
        return Some(match coverage.doubt() {
            Some(doubt) => format!("Likely: {doubt}; {MORE}"),
            None => format!("Sure: seen was {}; {MORE}", coverage.words()),
        });
    }
    let brief = advice.confidence_in_brief()?;
    Some(format!("{brief}; {MORE}"))
}

/// The line that says how to apply a plan.
fn how_to_apply(
    plan: &RunPlan,
    cache_bytes: u64,
    relevance: Option<Relevance>,
    trace: &Trace,
) -> String {
    // A cache of less than is left would read more than the kernel alone.
    let is_of = |left: u64| cache_bytes >= left - left / 16;
    let here = relevance.is_some_and(|of| !of.fit && is_of(of.left_bytes));
    let where_it_helps = match &plan.page_cache {
        Some(_) if !here => " where memory is as short",
        None => " on a machine with several nodes",
        Some(_) => "",
    };
    let command = shown(command_of(trace));
    format!("Apply it{where_it_helps}: {}", command_line(plan, &command))
}

/// A command in a line: one that is long, or that a terminal does not print as it is, is `CMD`.
fn shown(command: Option<String>) -> String {
    command
        .filter(|command| command.chars().count() <= COMMAND_CHARS_MAX)
        .filter(|command| printable(command) == *command)
        .unwrap_or_else(|| "CMD".to_owned())
}

/// The command line that runs a command with a plan.
pub(crate) fn command_line(plan: &RunPlan, command: &str) -> String {
    let switches = [
        ("--page-cache=", &plan.page_cache),
        ("--cache ", &plan.cache),
        ("--replicas=", &plan.replicas),
        ("--file-placement=", &plan.file_placement),
        ("--memory=", &plan.memory),
    ];
    let given = switches.into_iter().filter_map(|(switch, value)| {
        let value = quoted(value.as_deref()?);
        Some(format!("{switch}{value} "))
    });
    format!("hither run {}-- {command}", given.collect::<String>())
}

/// The command of a trace, quoted for a shell. `None`: the trace has none.
pub(crate) fn command_of(trace: &Trace) -> Option<String> {
    let words = trace.meta().command.iter().map(|word| quoted(word));
    let command = words.collect::<Vec<String>>().join(" ");
    (!command.is_empty()).then_some(command)
}

/// A word quoted for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("/usr/bin/grep"), "/usr/bin/grep");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("pcc{sample=5}"), "'pcc{sample=5}'");
    }

    #[test]
    fn a_command_that_no_line_can_name_is_cmd() {
        let shown = |command: &str| shown(Some(command.to_owned()));
        assert_eq!(shown("sh -c 'echo \"é\"'"), "sh -c 'echo \"é\"'");
        for command in [
            "sh -c 'a\nb'",
            "cat '\u{1b}[2J'",
            "cat '\u{202e}'",
            &"a".repeat(101),
        ] {
            assert_eq!(shown(command), "CMD");
        }
        assert_eq!(super::shown(None), "CMD");
    }

    #[test]
    fn each_setting_of_a_plan_is_a_switch() {
        let plan = RunPlan {
            page_cache: Some("pcc{sample=5}".to_owned()),
            cache: Some("64MiB".to_owned()),
            ..RunPlan::default()
        };
        let line = command_line(&plan, "sh a.sh");
        let expected = "hither run --page-cache='pcc{sample=5}' --cache 64MiB -- sh a.sh";
        assert_eq!(line, expected);
        let plan = RunPlan {
            memory: Some("upm".to_owned()),
            replicas: Some("one-step".to_owned()),
            ..RunPlan::default()
        };
        let line = command_line(&plan, "CMD");
        assert_eq!(line, "hither run --replicas=one-step --memory=upm -- CMD");
    }
}
