//! The agent is killed at any moment, by SIGKILL, while pages of a busy program are armed: the
//! program does not notice.
//!
//! A run is dry, so that it does the same on a machine of one node: pages are armed all the same.
//! The kernel closes the agent's userfaultfd and takes all marks off; nothing else of it is in the
//! program.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Two threads write all pages of a region some thousand times, and allocate on and on: hooks are
/// called while nobody listens any more.
const PROGRAM: &str = "\
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#define PAGES 1024L
#define ROUNDS 1000
static char *region;
static void *work(void *argument) {
    long half = (long)argument;
    unsigned long sum = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (long page = 0; page < PAGES / 2; page++)
            region[(half * PAGES / 2 + page) * 4096] += round + page;
        char *more = malloc(2 << 20);
        more[round % 512 * 4096] = round;
        sum += more[round % 512 * 4096];
        free(more);
        for (volatile int spin = 0; spin < 1000000; spin++);
    }
    return (void *)sum;
}
int main(void) {
    region = calloc(PAGES, 4096);
    pthread_t other;
    pthread_create(&other, NULL, work, (void *)1);
    unsigned long sum = (unsigned long)work((void *)0);
    void *rest;
    pthread_join(other, &rest);
    sum += (unsigned long)rest;
    for (long page = 0; page < PAGES; page++) sum = sum * 31 + region[page * 4096];
    printf(\"%lu\\n\", sum);
    return 0;
}
";

fn compile(folder: &Path) {
    fs::write(folder.join("program.c"), PROGRAM).expect("written");
    let gcc = Command::new("gcc")
        .args(["-O1", "-pthread", "-o", "program", "program.c"])
        .current_dir(folder)
        .status();
    assert!(gcc.expect("gcc starts").success());
}

/// Starts the program, which leaves its output and then its exit code behind.
fn start(folder: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_hither"))
        .args([
            "run",
            "--dry-run",
            "--memory=upm",
            "--json",
            "--",
            "sh",
            "-c",
        ])
        .arg("./program > output; echo $? > code.partial; mv code.partial code")
        .current_dir(folder)
        .env("XDG_RUNTIME_DIR", folder)
        .env("XDG_CACHE_HOME", folder)
        .stderr(Stdio::piped())
        .spawn()
        .expect("hither starts")
}

/// What the program left, once it has.
fn left(folder: &Path) -> (String, String) {
    let begun = Instant::now();
    while !folder.join("code").exists() {
        assert!(begun.elapsed() < Duration::from_secs(120), "it hangs");
        thread::sleep(Duration::from_millis(5));
    }
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("left");
    let both = (read("output"), read("code"));
    fs::remove_file(folder.join("code")).expect("removed");
    both
}

#[test]
fn a_program_whose_agent_is_killed_ends_as_it_would() {
    let scratch = tempfile::tempdir().expect("a folder");
    let folder = scratch.path();
    compile(folder);
    let alone = Command::new(folder.join("program")).output();
    let alone = alone.expect("it runs").stdout;
    let expected = (
        String::from_utf8(alone).expect("a number"),
        "0\n".to_owned(),
    );

    // As long as it takes if nobody is killed; and pages are armed, where they can be.
    let begun = Instant::now();
    let whole = start(folder).wait_with_output().expect("it ran");
    let took = begun.elapsed();
    assert_eq!(left(folder), expected);
    fs::remove_file(folder.join("output")).expect("removed");
    let said = String::from_utf8_lossy(&whole.stderr);
    let figures = said.lines().last().unwrap_or_default();
    let figures: serde_json::Value = serde_json::from_str(figures).expect("figures");
    if figures["counters"].is_null() || !figures["unwatched"].is_null() {
        println!("nothing is armed here: {figures}")
    } else {
        assert!(
            figures["sampled"]["samples"].as_u64() > Some(0),
            "{figures}"
        )
    }

    let mut random = 20_261_121_u64;
    for round in 0..20 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let after = took.mul_f64((random >> 40) as f64 / f64::from(1 << 24));
        let mut agent = start(folder);
        thread::sleep(after);
        agent.kill().expect("killed, or gone already");
        agent.wait().expect("waited for");
        // Killed before it started the program, it started none.
        let begun = Instant::now();
        let started = || folder.join("output").exists();
        while !started() && begun.elapsed() < Duration::from_secs(1) {
            thread::sleep(Duration::from_millis(5));
        }
        if started() {
            assert_eq!(left(folder), expected, "round {round}, after {after:?}");
            fs::remove_file(folder.join("output")).expect("removed");
        }
    }
}
