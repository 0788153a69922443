//! `--help` and `-h` of every command: how long, how wide, under which headings, how many options.

use std::collections::BTreeSet;

use crate::Lab;

pub(crate) fn help(lab: &Lab, command: &str, option: &str, columns: u32) -> String {
    let ran = lab.run(&format!("COLUMNS={columns} hither {command} {option}"));
    assert_eq!((ran.code, &ran.stderr[..]), (0, ""), "{command}: {ran}");
    ran.stdout().to_owned()
}

/// The commands below `command` that its help lists.
fn below(help: &str) -> Vec<&str> {
    let listed = help
        .split_once("\nCommands:\n")
        .map_or("", |(_, rest)| rest);
    let lines = listed.lines().take_while(|line| !line.is_empty());
    let names = lines.filter(|line| !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").collect()
}

/// Every command, `hither` itself first, and those of commands such as `cache warm`.
pub(crate) fn commands(lab: &Lab) -> Vec<String> {
    let mut commands = vec![String::new()];
    let mut at = 0;
    while at < commands.len() {
        let command = commands[at].clone();
        for name in below(&help(lab, &command, "-h", 100)) {
            commands.push(format!("{command} {name}").trim_start().to_owned());
        }
        at += 1;
    }
    assert!(commands.len() > 25, "{commands:?}");
    commands
}

#[test]
fn no_example_wraps_at_80_columns() {
    let lab = Lab::new();
    for command in commands(&lab) {
        for option in ["-h", "--help"] {
            let help = |columns| {
                let help = help(&lab, &command, option, columns);
                let after = help.split_once("\nExamples");
                after
                    .unwrap_or_else(|| panic!("{command}: {help}"))
                    .1
                    .to_owned()
            };
            assert_eq!(help(80), help(1000), "{command} {option}");
        }
    }
}

#[test]
fn no_line_is_wider_than_100_columns() {
    let lab = Lab::new();
    for command in commands(&lab) {
        for line in help(&lab, &command, "--help", 100).lines() {
            assert!(line.chars().count() <= 100, "{command}: {line}");
        }
    }
}

/// It fits on a screen, a narrow one too.
#[test]
fn the_short_help_is_short() {
    let lab = Lab::new();
    for command in commands(&lab) {
        for columns in [80, 100] {
            let short = help(&lab, &command, "-h", columns).lines().count();
            assert!(short <= 40, "{command}: {short} lines of {columns} columns");
        }
    }
}

/// The options of a command, but for those that each has.
pub(crate) fn options(help: &str) -> BTreeSet<String> {
    let lines = help.lines().map(str::trim_start);
    let lines = lines.filter(|line| line.starts_with('-'));
    let long = lines.filter_map(|line| line.split(", ").last()?.split([' ', '[', '=']).next());
    let long = long.filter(|name| name.starts_with("--"));
    let of_all = ["--help", "--quiet", "--version"];
    let own = long.filter(|name| !of_all.contains(name));
    own.map(str::to_owned).collect()
}

/// Prints the number of options of each command. An option comes with a reason: one that makes
/// another command of the command is a command.
#[test]
fn options_by_command() {
    let lab = Lab::new();
    let (mut all, mut sum) = (BTreeSet::new(), 0);
    let commands = commands(&lab);
    for command in &commands[1..] {
        let own = options(&help(&lab, command, "--help", 100));
        println!("{command:<16} {:3}", own.len());
        sum += own.len();
        all.extend(own);
    }
    println!(
        "{} commands, {sum} options, {} names",
        commands.len() - 1,
        all.len()
    );
    assert!(all.contains("--page-cache") && sum > all.len(), "{all:?}");
    assert!(sum <= OPTIONS_MAX, "{sum} options");
}

/// How many options there are.
const OPTIONS_MAX: usize = 263;

#[test]
fn options_of_run_stand_under_headings() {
    let lab = Lab::new();
    let help = help(&lab, "run", "--help", 100);
    let headings: Vec<&str> = help
        .lines()
        .filter(|line| !line.starts_with(' ') && line.ends_with(':'))
        .collect();
    assert_eq!(
        headings,
        [
            "Arguments:",
            "Options:",
            "Page cache:",
            "Replicas:",
            "File placement:",
            "Memory:",
            "Plan and profile:",
            "Output:",
            "Examples:",
        ]
    );
    for (option, words) in [("-h", false), ("--help", true)] {
        let help = self::help(&lab, "run", option, 100);
        assert_eq!(help.contains("--counters"), words, "{option}");
        assert!(help.contains("--page-cache[=<POLICY>]"), "{option}: {help}");
    }
}
