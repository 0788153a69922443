//! A program whose files' pages are placed reads what it reads without, and its memory policy is
//! its own whenever it looks.
//!
//! On a machine of one node all goes to that node: where pages lie is for the lab to show, and that
//! nothing is to be seen of it is shown here.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

mod support;

use hither_testing::skip::skip_on_this_machine;
use support::{figures, folder};

const NODE_0: &[&str] = &["--file-placement=single-node{node=0}"];

fn hither(folder: &Path) -> Command {
    let mut hither = support::hither(folder, NODE_0);
    hither.arg("./program");
    hither
}

/// What the program found: policies that it should not have, and wrong reads. None where the kernel
/// gives nobody a policy.
fn found(output: &Output) -> Option<(u64, u64)> {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(others)), Some(Ok(wrong))) => Some((others, wrong)),
        _ => {
            skip_on_this_machine(format_args!("set_mempolicy: {text}"));
            None
        }
    }
}

#[test]
fn a_program_meets_no_policy_but_its_own_and_the_test_would_notice() {
    let folder = folder("place_files/policy");
    let folder = folder.path();
    let run = |mut command: Command, mode: &str| {
        let output = command.args([".", mode]).current_dir(folder).output();
        output.expect("it runs")
    };
    let placed = run(hither(folder), "default");
    let Some((others, wrong)) = found(&placed) else {
        return;
    };
    assert_eq!((others, wrong), (0, 0));
    let placed = figures(&placed);
    assert!(placed["reads_placed"].as_u64() > Some(100), "{placed}");

    let own = run(hither(folder), "own");
    assert_eq!(found(&own), Some((0, 0)));
    let own = figures(&own);
    assert!(own["reads_left_alone"].as_u64() > Some(100), "{own}");

    let control = run(Command::new(folder.join("program")), "control");
    let (others, wrong) = found(&control).expect("numbers");
    assert!(others > 0, "a policy around reads is not noticed");
    assert_eq!(wrong, 0);
}

#[test]
fn random_operations_give_what_they_give_without() {
    let folder = folder("replicas/equal");
    let folder = folder.path();
    let inside = folder.join("files");
    let run = |mut command: Command, seed: u32| {
        fs::create_dir_all(&inside).expect("a folder");
        let words = ["files", &seed.to_string(), "1500"];
        let output = command.args(words).current_dir(folder).output();
        fs::remove_dir_all(&inside).expect("removed");
        let output = output.expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "seed {seed}: {said}");
        output
    };
    for seed in 1..=4 {
        let alone = run(Command::new(folder.join("program")), seed);
        let placed = run(hither(folder), seed);
        assert_eq!(alone.stdout, placed.stdout, "seed {seed}");
        println!("{}", figures(&placed));
    }
}
