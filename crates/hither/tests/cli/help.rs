//! `--help` and `-h` of every command: how long, how wide, under which headings.

use crate::Lab;

const COMMANDS: &[&str] = &[
    "", "advise", "cluster", "evict", "export", "gen", "import", "mount", "node", "pin",
    "policies", "record", "recover", "report", "run", "sim", "stat", "sweep", "top", "topo",
    "unmount", "warm",
];

fn help(lab: &Lab, command: &str, option: &str, columns: u32) -> String {
    let ran = lab.run(&format!("COLUMNS={columns} hither {command} {option}"));
    assert_eq!((ran.code, &ran.stderr[..]), (0, ""), "{command}: {ran}");
    ran.stdout().to_owned()
}

#[test]
fn no_example_wraps_at_80_columns() {
    let lab = Lab::new();
    for command in COMMANDS {
        for option in ["-h", "--help"] {
            let help = |columns| {
                let help = help(&lab, command, option, columns);
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
    for command in COMMANDS {
        for line in help(&lab, command, "--help", 100).lines() {
            assert!(line.chars().count() <= 100, "{command}: {line}");
        }
    }
}

/// A screen and a half at most.
#[test]
fn the_short_help_is_short() {
    let lab = Lab::new();
    for command in COMMANDS {
        let short = help(&lab, command, "-h", 100).lines().count();
        assert!(short <= 50, "{command}: {short} lines");
    }
}

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
