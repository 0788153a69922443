//! Hints for mistakes on the command line whose intention is clear.

use std::borrow::Cow;
use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options that were renamed: the earlier and the current name.
const RENAMED_OPTIONS: &[(&str, &str)] = &[
    ("--apply", "--read-only-profile"),
    ("--files", "--page-cache"),
    ("--pages", "--memory"),
    ("--place-files", "--file-placement"),
    ("--sites", "--profile"),
];

/// The switches of `hither run`, whose policy follows a `=`.
const SWITCHES: &[&str] = &["--file-placement", "--memory", "--page-cache", "--replicas"];

/// The commands that take only options before the program.
const COMMANDS_WITH_PROGRAM: &[&str] = &["record", "run"];

/// The commands that simulate caches of given sizes.
const COMMANDS_WITH_SIZES: &[&str] = &["advise", "report", "sim", "sweep"];

/// Replaces the hint of the parser, if there is a better one. `words` is the command line.
pub(crate) fn add_to(error: &mut clap::Error, words: &[OsString]) {
    if error.kind() != ErrorKind::UnknownArgument {
        return;
    }
    let Some(ContextValue::String(unexpected)) = error.get(ContextKind::InvalidArg) else {
        return;
    };
    let words: Vec<Cow<'_, str>> = words.iter().map(|word| word.to_string_lossy()).collect();
    if let Some(hint) = hint(unexpected, &words) {
        error.remove(ContextKind::SuggestedArg);
        let hint = StyledStr::from(hint);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint]));
    }
}

fn hint(unexpected: &str, words: &[Cow<'_, str>]) -> Option<String> {
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
    fn an_earlier_name_is_told() {
        let sites = hint_for(&["hither", "sim", "--sites", "a"], "--sites");
        assert_eq!(sites.as_deref(), Some("it is now --profile FILE"));
        let files = hint_for(&["hither", "run", "--files"], "--files");
        assert_eq!(files.as_deref(), Some("it is now --page-cache[=POLICY]"));
    }
}
