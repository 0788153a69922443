//! `hither run --page-cache` under a filter of system calls that kills for two that hither uses.

mod support;

use std::fs::File;
use std::io::Write;
use std::process::Command;

#[test]
fn an_agent_that_would_be_killed_for_asking_what_is_cached_does_without() {
    let folder = support::folder("confined/program");
    let folder = folder.path();
    // More than the agent gets through before it first asks what is cached.
    let data: Vec<u8> = (0..40_u32 << 20).map(|at| (at / 4096) as u8).collect();
    let mut file = File::create(folder.join("data")).expect("a file");
    file.write_all(&data).expect("written");
    file.sync_all().expect("on the disk");
    // So that the program reads from the disk: what is cached already is left alone.
    let dropped = Command::new("dd")
        .args(["if=data", "iflag=nocache", "count=0", "status=none"])
        .current_dir(folder)
        .status();
    assert!(dropped.expect("dd starts").success());
    let run = support::hither(folder, &["--page-cache", "--cache", "8MiB"]);
    let ran = Command::new(folder.join("program"))
        .arg(run.get_program())
        .args(run.get_args())
        .args(["cat", "data", "data"])
        .envs(
            run.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(folder)
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{}: {said}", ran.status);
    assert!(ran.stdout == [&data[..], &data].concat(), "other bytes");
    assert!(support::figures(&ran).is_object());
}
