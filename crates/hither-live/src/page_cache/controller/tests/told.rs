//! What the kernel tells of pages that others use, and that go.

use super::*;

/// Where there is no limit, too: also what the policy had kept.
#[test]
fn what_others_use_is_dropped_no_more() {
    let mut lab = Lab::new("lru", 2 * EXTENT_BLOCKS);
    lab.input(read(1, 0, EXTENT_BLOCKS));
    lab.input(Input::UsedByOthers {
        file: FileKey(1),
        offset: 0,
        length: EXTENT_BYTES / 2,
    });
    assert_eq!(lab.controller.summary().shared_bytes, EXTENT_BYTES / 2);
    for extent in 1..9 {
        lab.input(read(1, extent * EXTENT_BLOCKS, EXTENT_BLOCKS));
        lab.input(Input::Tick);
        lab.controller.check();
    }
    let all = (0..EXTENT_BLOCKS / 2).all(|block| lab.cached.contains(&(1, block)));
    assert!(all, "others' blocks stay");
    assert!(!lab.cached.contains(&(1, EXTENT_BLOCKS)), "the next go");
}

/// What the kernel has evicted is not kept, so that the policy has room for something else, and
/// what is left of the extent goes with it.
#[test]
fn what_the_kernel_evicts_is_not_kept() {
    let mut lab = Lab::new("fifo", 2 * EXTENT_BLOCKS);
    for extent in 0..4 {
        lab.input(read(1, extent * EXTENT_BLOCKS, EXTENT_BLOCKS));
        lab.input(Input::Tick);
    }
    let kept = |lab: &Lab, extent: u64| {
        let first = extent * EXTENT_BLOCKS;
        let mut blocks = first..first + EXTENT_BLOCKS;
        blocks.all(|block| lab.cached.contains(&(1, block)))
    };
    assert!(!kept(&lab, 1) && kept(&lab, 2) && kept(&lab, 3));
    // One page of each block of the extent that has come last.
    for block in 3 * EXTENT_BLOCKS..4 * EXTENT_BLOCKS {
        lab.input(Input::Evicted {
            file: FileKey(1),
            offset: block * BLOCK_BYTES,
            length: 4096,
        });
    }
    assert_eq!(lab.controller.summary().absent_bytes, EXTENT_BYTES);
    lab.controller.check();
    // There is room for another one beside the older one.
    lab.input(read(1, 4 * EXTENT_BLOCKS, EXTENT_BLOCKS));
    lab.input(Input::Tick);
    lab.controller.check();
    assert!(kept(&lab, 2) && kept(&lab, 4));
    assert!(!kept(&lab, 3), "what is left of it is dropped");
}
