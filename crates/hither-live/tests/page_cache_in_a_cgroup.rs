//! A loop that is larger than its memory cgroup reads less from storage, by reads and through a
//! mapping. One test in a binary of its own: what is read is counted of all that this process
//! starts.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use hither_kernel::process::children_read_bytes;
use hither_live::page_cache::{Budget, PageCacheOptions, PageCacheReport};
use hither_live::{Beside, Mechanisms, RunOptions, SessionOptions};
use hither_testing::memory_group::MemoryGroup;
use hither_testing::skip::skip_on_this_machine;

const MIB: u64 = 1 << 20;

#[test]
fn a_loop_in_a_small_memory_cgroup_reads_less_from_storage() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let Some(group) = MemoryGroup::new(96) else {
        return;
    };
    let data = support::uncached(&folder.path().join("data"), 192);
    reads_less(&group, folder.path(), &data, support::LOOP, false);
    // From the first access on: programs report from then on.
    support::uncached(&data, 192);
    reads_less(&group, folder.path(), &data, support::LOOP, true);
    support::uncached(&data, 192);
    let files = reads_less(&group, folder.path(), &data, support::MAPPED_LOOP, false);
    let watched = files.summary.watched == 1;
    assert!(watched || files.why_mapped.is_some(), "{files:?}");
    let bytes = fs::read(&data).expect("read");
    let each = |sum: u64, byte: &u8| sum.wrapping_mul(31).wrapping_add(u64::from(*byte));
    let pass = |sum, _| bytes.iter().step_by(509).fold(sum, each);
    let printed = fs::read_to_string(folder.path().join("output")).expect("printed");
    assert_eq!(printed.trim(), (0..4).fold(0, pass).to_string());
}

/// Runs passes over the file in the group until less was read than without steering.
fn reads_less(
    group: &MemoryGroup,
    folder: &Path,
    data: &Path,
    source: &str,
    always: bool,
) -> PageCacheReport {
    let program = support::compile(folder, "loop", source, &["-O1"]);
    let passes = 4;
    // A pause after each 64 KiB: on a machine with much else to do the agent may be late by some of
    // them.
    let command = format!(
        "{}; exec {} {} {passes} 200 > {}",
        group.enter(),
        program.display(),
        data.display(),
        folder.join("output").display()
    );
    let options = RunOptions {
        command: ["sh", "-c", &command].map(Into::into).into(),
        preload: Some(support::preload()),
        dry_run: false,
        log: None,
        record: None,
        beside: Beside::No,
        session: SessionOptions::default(),
    };
    let page_cache = PageCacheOptions {
        policy: "mru".parse().expect("a policy"),
        budget: Budget::Available(56 * MIB),
        all_files: false,
        always,
        by_kernel: false,
        disable_readahead: true,
        sites: Vec::new(),
    };
    let mechanisms = Mechanisms {
        page_cache: Some(page_cache),
        ..Mechanisms::default()
    };
    // By the kernel's own eviction it is all of it, each time: 768 MiB, and through a mapping some
    // of it twice (876 MiB on 6.18: readahead around a fault). By the optimum for this budget it is
    // 600.
    let before = children_read_bytes();
    let alone = Command::new("sh").args(["-c", &command]).status();
    assert_eq!(alone.expect("it runs").code(), Some(7));
    let alone = (children_read_bytes() - before) / MIB;
    support::uncached(data, 192);
    let (mut read, mut last) = (Vec::new(), String::new());
    for _ in 0..3 {
        let ran = hither_live::run(&options, &mechanisms).expect("it runs");
        assert_eq!(ran.exit.code(), Some(7));
        let files = ran.page_cache.expect("it was asked for");
        if let Some(why) = files.why_mapped {
            skip_on_this_machine(why);
            return files;
        }
        assert!(files.dropped > 0, "{:?}", files);
        read.push(files.storage_bytes / MIB);
        last = format!("{files:?}");
        if read
            .iter()
            .any(|&mib| (192..alone * 95 / 100).contains(&mib))
        {
            return files;
        }
        support::uncached(data, 192);
    }
    panic!("{read:?} MiB of {alone}: {last}");
}
