//! `hither completions`: the scripts load, and complete every command.

use std::process::Command;

use hither_testing::skip::skip;

use crate::Lab;
use crate::help::{commands, help, options};

/// Whether the shell is installed.
fn has(shell: &str) -> bool {
    let ran = Command::new(shell).arg("--version").output();
    ran.is_ok_and(|ran| ran.status.success())
}

/// What bash offers for the last word of a line, in order.
fn offered_by_bash(lab: &Lab, line: &str) -> Vec<String> {
    let words = line.split(' ').count();
    let word = line.split(' ').next_back().unwrap();
    let script = format!(
        "source <(hither completions bash); COMP_WORDS=({line} {empty}); COMP_CWORD={}; \
         _hither hither '{word}' ''; printf '%s\\n' \"${{COMPREPLY[@]}}\" | sort -u",
        words - 1,
        empty = if word.is_empty() { "''" } else { "" },
    );
    let ran = lab.command("bash").args(["-c", &script]).output().unwrap();
    let (stdout, stderr) = (ran.stdout, String::from_utf8_lossy(&ran.stderr));
    assert!(
        stderr.is_empty() && ran.status.success(),
        "{line}: {stderr}"
    );
    let stdout = String::from_utf8(stdout).unwrap();
    stdout.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_every_command_and_every_option() {
    if !has("bash") {
        return skip("bash");
    }
    let lab = Lab::new();
    let all = commands(&lab);
    for command in &all {
        let line = format!("hither {command}");
        let below = offered_by_bash(&lab, &format!("{} ", line.trim_end()));
        for other in all.iter().filter(|other| !other.is_empty()) {
            let (above, name) = other.rsplit_once(' ').unwrap_or(("", other));
            let is_below = above == command.as_str();
            assert!(!is_below || below.iter().any(|one| one == name), "{other}");
        }
        let offered = offered_by_bash(&lab, &format!("{} --", line.trim_end()));
        for option in options(&help(&lab, command, "--help", 100)) {
            assert!(offered.contains(&option), "{command}: {option}");
        }
    }
    assert_eq!(offered_by_bash(&lab, "hither doct"), ["doctor"]);
    assert_eq!(offered_by_bash(&lab, "hither sim --jso"), ["--json"]);
}

/// zsh's script is loaded by `compinit`, as from a folder of `$fpath`.
#[test]
fn zsh_and_fish_load_theirs() {
    let lab = Lab::new();
    for (shell, script) in [
        (
            "zsh",
            "mkdir fpath; hither completions zsh > fpath/_hither; fpath=($PWD/fpath $fpath); \
             autoload -Uz compinit && compinit -u -d dump && print $_comps[hither]",
        ),
        (
            "fish",
            "hither completions fish | source; complete -C 'hither doct' | string split -f1 \\t",
        ),
    ] {
        if !has(shell) {
            skip(shell);
            continue;
        }
        let home = lab.path("");
        let mut command = lab.command(shell);
        let ran = command.args(["-c", script]).env("HOME", home).output();
        let ran = ran.unwrap();
        let stderr = String::from_utf8_lossy(&ran.stderr);
        assert!(
            ran.status.success() && stderr.is_empty(),
            "{shell}: {stderr}"
        );
        let expected = if shell == "zsh" { "_hither" } else { "doctor" };
        assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), expected);
    }
}

#[test]
fn a_shell_that_there_is_no_script_for_is_refused() {
    let ran = Lab::new().run("hither completions csh");
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("bash, elvish, fish, powershell, zsh"),
        "{ran}"
    );
}
