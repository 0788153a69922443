//! Hints for mistakes on the command line whose intention is clear.

use std::borrow::Cow;
use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options that were renamed: the earlier and the current name.
const RENAMED_OPTIONS: &[(&str, &str)] = &[
    ("--apply", "--read-only-profile"),
    ("--pages", "--memory"),
    ("--place-files", "--file-placement"),
    ("--sites", "--profile"),
];

/// The switches of `hither run`, whose policy follows a `=`.
const SWITCHES: &[&str] = &["--file-placement", "--memory", "--page-cache", "--replicas"];

/// The commands that take only options before the program.
const COMMANDS_WITH_PROGRAM: &[&str] = &["record", "run"];

/// The commands that simulate caches of given sizes.
const COMMANDS_WITH_SIZES: &[&str] = &["advise", "place", "report", "sim", "sweep"];

/// What was moved to another command: all of `command`, or what an option of it did.
struct Moved {
    command: &'static str,
    /// Each of them by itself; none means that all of the command was moved.
    options: &'static [&'static str],
    now: &'static str,
    /// Options with another name there. An empty one is left out, its value is not.
    renamed: &'static [(&'static str, &'static str)],
}

const fn all_of(command: &'static str, now: &'static str) -> Moved {
    Moved {
        command,
        options: &[],
        now,
        renamed: &[],
    }
}

const fn part_of(
    command: &'static str,
    options: &'static [&'static str],
    now: &'static str,
    renamed: &'static [(&'static str, &'static str)],
) -> Moved {
    Moved {
        command,
        options,
        now,
        renamed,
    }
}

/// What was moved in the last version. The parser knows none of it, so nothing else is misread.
const MOVED: &[Moved] = &[
    all_of("evict", "cache evict"),
    all_of("pin", "cache pin"),
    all_of("warm", "cache warm"),
    part_of("cluster", &["--socket"], "cluster", &[("--socket", "")]),
    part_of("node", &["--config"], "node", &[("--config", "")]),
    part_of(
        "node",
        &["--init-ca"],
        "cluster ca",
        &[("--init-ca", "--out"), ("--cluster", "")],
    ),
    part_of("node", &["--issue"], "cluster issue", &[("--issue", "")]),
    part_of(
        "sim",
        &[
            "--nodes",
            "--placement",
            "--bind",
            "--warm-up",
            "--costs",
            "--heatmap",
            "--mesh",
            "--timeline",
            "--traffic",
        ],
        "place",
        &[],
    ),
    part_of(
        "sweep",
        &["--merge", "--so-far", "--list-traces"],
        "sweep",
        &[
            ("--merge", "--shard=merge"),
            ("--so-far", "--print=rows"),
            ("--list-traces", "--print=traces"),
            ("--restart", ""),
        ],
    ),
    part_of("topo", &["--svg"], "topo", &[("--svg", "--output")]),
    part_of(
        "topo",
        &["--live", "--calibrate"],
        "doctor",
        &[("--live", "")],
    ),
    part_of(
        "topo",
        &["--cluster"],
        "cluster status --distances",
        &[
            ("--cluster", ""),
            ("--output", "--draw"),
            ("-o", "--draw"),
            ("--svg", "--draw"),
        ],
    ),
];

/// Options that are gone, with what is to be done instead: the command, the option, and that.
const GONE: &[(&str, &str, &str)] = &[
    ("advise", "--frames", RECORD_FIRST),
    ("advise", "--ring-bytes", RECORD_FIRST),
    ("mount", "--placement", IN_THE_FILE),
    ("node", "--placement", IN_THE_FILE),
    (
        "place",
        "--sample",
        "placements need all blocks, so there is no estimate from a sample",
    ),
    (
        "sweep",
        "--restart",
        "to begin anew, remove the journal beside the output (OUT.journal or OUT.shard-I-of-N)",
    ),
];

const RECORD_FIRST: &str =
    "`hither record` has it: hither record -o DIR ... -- CMD, then hither advise DIR";
const IN_THE_FILE: &str = "the file says it: placement = \"NAME\"";

impl Moved {
    /// The command line as it is to be written now. `at` is where the command stands.
    fn line(&self, words: &[Cow<'_, str>], at: usize) -> String {
        let mut line = vec!["hither".to_owned()];
        line.extend(words[1..at].iter().map(|word| quoted(word).into_owned()));
        line.push(self.now.to_owned());
        for word in &words[at + 1..] {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (&**word, None),
            };
            let renamed = self.renamed.iter().find(|(earlier, _)| *earlier == name);
            let parts = match (renamed, value) {
                (None, _) => [&**word, ""],
                (Some((_, now)), value) => [*now, value.unwrap_or_default()],
            };
            let parts = parts.into_iter().filter(|part| !part.is_empty());
            line.extend(parts.map(|part| quoted(part).into_owned()));
        }
        line.join(" ")
    }
}

/// The command line in place of one with a command or an option that was moved.
fn moved(unexpected: &str, words: &[Cow<'_, str>]) -> Option<String> {
    MOVED.iter().find_map(|moved| {
        let at = words.iter().position(|word| *word == moved.command)?;
        let is_it = match moved.options {
            [] => unexpected == moved.command,
            options => options.contains(&unexpected),
        };
        is_it.then(|| moved.line(words, at))
    })
}

/// Replaces the hint of the parser, if there is a better one. `words` is the command line.
pub(crate) fn add_to(error: &mut clap::Error, words: &[OsString]) {
    let (unexpected, suggested) = match error.kind() {
        ErrorKind::UnknownArgument => (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        ErrorKind::InvalidSubcommand => (
            ContextKind::InvalidSubcommand,
            ContextKind::SuggestedSubcommand,
        ),
        _ => return,
    };
    let Some(ContextValue::String(unexpected)) = error.get(unexpected) else {
        return;
    };
    let words: Vec<Cow<'_, str>> = words.iter().map(|word| word.to_string_lossy()).collect();
    if let Some(hint) = hint(unexpected, &words) {
        error.remove(suggested);
        let hint = StyledStr::from(hint);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint]));
    }
}

fn hint(unexpected: &str, words: &[Cow<'_, str>]) -> Option<String> {
    if let Some(line) = moved(unexpected, words) {
        return Some(format!("it is now: {line}"));
    }
    let is_gone = |(command, option, _): &&(&str, &str, &str)| {
        *option == unexpected && words.iter().any(|word| word == command)
    };
    if let Some((_, _, instead)) = GONE.iter().find(is_gone) {
        return Some((*instead).to_owned());
    }
    let simulates = |word: &Cow<'_, str>| COMMANDS_WITH_SIZES.contains(&&**word);
    if unexpected == "--cache" && words.iter().any(simulates) {
        return Some(
            "--size names simulated caches: bytes (64MiB), blocks (512) or 10%".to_owned(),
        );
    }
    if let Some((_, now)) = RENAMED_OPTIONS.iter().find(|(name, _)| *name == unexpected) {
        let value = if SWITCHES.contains(now) {
            "[=POLICY]"
        } else {
            " FILE"
        };
        return Some(format!("it is now {now}{value}"));
    }
    let is_program = |word: &Cow<'_, str>| COMMANDS_WITH_PROGRAM.contains(&&**word);
    let command = words.iter().position(is_program)?;
    let after = words.iter().skip(command + 1);
    let at = command + 1 + after.clone().position(|word| word == unexpected)?;
    let before = &words[at - 1];
    if words.iter().any(|word| word == "--") {
        let takes_policy = SWITCHES.contains(&&**before);
        return takes_policy.then(|| format!("a policy follows `=`: {before}={unexpected}"));
    }
    let (options, program) = words[1..].split_at(at - 1);
    let quoted = |words: &[Cow<'_, str>]| {
        let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
        words.join(" ")
    };
    Some(format!(
        "put `--` before the program: hither {} -- {}",
        quoted(options),
        quoted(program)
    ))
}

/// A word quoted for a shell.
fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_alphanumeric() || "-_=./:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''")).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint_for(line: &[&str], unexpected: &str) -> Option<String> {
        let words: Vec<Cow<'_, str>> = line.iter().map(|&word| word.into()).collect();
        hint(unexpected, &words)
    }

    #[test]
    fn a_program_without_dashes_is_corrected() {
        let record = [
            "/bin/hither",
            "record",
            "-o",
            "a b",
            "grep",
            "-rc",
            "it's",
            ".",
        ];
        assert_eq!(
            hint_for(&record, "grep").as_deref(),
            Some(r"put `--` before the program: hither record -o 'a b' -- grep -rc 'it'\''s' .")
        );
        assert_eq!(hint_for(&["hither", "stat", "a", "b"], "b"), None);
    }

    #[test]
    fn simulated_caches_have_sizes() {
        let hint = hint_for(&["hither", "-q", "sim", "a", "--cache", "10"], "--cache");
        assert!(hint.is_some_and(|hint| hint.starts_with("--size names")));
        assert_eq!(
            hint_for(&["hither", "stat", "a", "--cache", "10"], "--cache"),
            None
        );
    }

    #[test]
    fn a_policy_without_an_equals_sign_is_corrected() {
        let run = ["hither", "run", "--memory", "upm", "--", "true"];
        assert_eq!(
            hint_for(&run, "upm").as_deref(),
            Some("a policy follows `=`: --memory=upm")
        );
        let other = ["hither", "run", "--json", "upm", "--", "true"];
        assert_eq!(hint_for(&other, "upm"), None);
    }

    #[test]
    fn what_was_moved_is_told_as_a_whole_line() {
        let line = |line: &str, unexpected| {
            let words: Vec<&str> = line.split(' ').collect();
            let hint = hint_for(&words, unexpected).unwrap();
            hint.strip_prefix("it is now: ").unwrap().to_owned()
        };
        assert_eq!(
            line("hither -q warm -j 3 a*b c", "warm"),
            "hither -q cache warm -j 3 'a*b' c"
        );
        assert_eq!(
            line("hither node --init-ca=ca --cluster lab", "--init-ca"),
            "hither cluster ca --out ca lab"
        );
        assert_eq!(
            line("hither node --issue a --ca ca --out nodes", "--issue"),
            "hither cluster issue a --ca ca --out nodes"
        );
        assert_eq!(
            line("hither node --config n.toml --check", "--config"),
            "hither node n.toml --check"
        );
        assert_eq!(
            line("hither topo --cluster -o who.svg", "--cluster"),
            "hither cluster status --distances --draw who.svg"
        );
        assert_eq!(
            line("hither cluster status --socket /run/1.sock", "--socket"),
            "hither cluster status /run/1.sock"
        );
        assert_eq!(
            line("hither sim a.hither --nodes 2 --json", "--nodes"),
            "hither place a.hither --nodes 2 --json"
        );
        assert_eq!(
            line("hither topo --live --calibrate --json", "--live"),
            "hither doctor --calibrate --json"
        );
        assert_eq!(
            line("hither sweep a.toml -o a.csv --merge --force", "--merge"),
            "hither sweep a.toml -o a.csv --shard=merge --force"
        );
        assert_eq!(
            line(
                "hither sweep a.toml --list-traces --shard 1/2",
                "--list-traces"
            ),
            "hither sweep a.toml --print=traces --shard 1/2"
        );
        assert_eq!(hint_for(&["hither", "stat", "warm", "b"], "b"), None);
    }

    #[test]
    fn what_to_do_instead_of_an_option_that_is_gone_is_told() {
        let restart = hint_for(&["hither", "sweep", "a.toml", "--restart"], "--restart");
        assert!(restart.is_some_and(|hint| hint.contains("OUT.journal")));
        assert_eq!(
            hint_for(&["hither", "sim", "a", "--restart"], "--restart"),
            None
        );
    }

    #[test]
    fn an_earlier_name_is_told() {
        let sites = hint_for(&["hither", "sim", "--sites", "a"], "--sites");
        assert_eq!(sites.as_deref(), Some("it is now --profile FILE"));
        let pages = hint_for(&["hither", "run", "--pages"], "--pages");
        assert_eq!(pages.as_deref(), Some("it is now --memory[=POLICY]"));
    }
}
