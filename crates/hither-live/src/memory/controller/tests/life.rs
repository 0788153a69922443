//! Regions and processes that come and go.

use hither_ids::{Address, Pid};

use super::*;

#[test]
fn addresses_are_used_again() {
    let mut world = World::two_nodes();
    for round in 0..3 {
        world.region(7, Address(1000).0, 100, 0);
        world.touches(7, 0, 1000..1005);
        assert_eq!(
            world.decided(),
            [
                "Remote pid 7 page 1000 after 5, 50 away on 10",
                "bind pid 7 1004+50 to 10"
            ],
            "round {round}"
        );
        world.ends(7, Address(1000).0, 100);
        assert_eq!((world.used(0), world.used(1)), (0, 0));
    }
    assert_eq!(
        world.controller.page_numbers.end(),
        100,
        "and so are numbers"
    );
    // A region whose end was not reported.
    world.region(7, Address(1000).0, 100, 0);
    world.region(7, Address(1050).0, 100, 0);
    world.touches(7, 0, 1050..1055);
    assert_eq!(
        world.decided()[0],
        "Remote pid 7 page 1050 after 5, 96 away on 10"
    );
    // A late report of the end of an earlier one.
    world.controller.step(
        &TimedInput {
            time_ns: 5,
            input: Input::RegionEnd {
                pid: Pid(7),
                start: Address(1050 * PAGE),
                length: 100 * PAGE,
            },
        },
        &mut Vec::new(),
    );
    assert_eq!(world.used(1), 96);
}

#[test]
fn a_part_that_was_unmapped_is_not_placed() {
    let mut world = World::two_nodes();
    world.region(7, Address(1000).0, 200, 1);
    world.region(7, Address(9000).0, 1000, 2);
    world.ends(7, Address(1010).0, 20);
    world.touches(7, 0, 1000..1005);
    assert_eq!(
        world.decided(),
        [
            "site 1 to 10",
            "Remote pid 7 page 1000 after 5, 176 away on 10",
            "bind pid 7 1004+6 to 10",
            "bind pid 7 1030+170 to 10"
        ]
    );
    world.ends(7, Address(1000).0, 10);
    assert_eq!((world.used(0), world.used(1)), (0, 170));
    world.ends(7, Address(1030).0, 170);
    assert_eq!((world.used(0), world.used(1)), (0, 0));
}

#[test]
fn two_processes_with_the_same_addresses() {
    let mut world = World::two_nodes();
    world.region(7, Address(1000).0, 100, 1);
    world.region(8, Address(1000).0, 100, 2);
    world.touches(7, 0, [1000, 1001]);
    world.touches(8, 0, [1002, 1003, 1004]);
    world.touches(7, 0, [1002, 1003]);
    assert_eq!(world.decided(), [""; 0]);
    world.touches(8, 0, [1005, 1006]);
    assert_eq!(
        world.decided()[0],
        "Remote pid 8 page 1000 after 5, 50 away on 10"
    );
    world.input(Input::Ended { pid: Pid(8) });
    assert_eq!((world.used(0), world.used(1)), (4, 0));
}

#[test]
fn processes_that_come_and_go_leave_nothing() {
    for policy in ["upm", "cache-aware{region=4096}"] {
        let mut config = two_nodes();
        config.policy = policy.parse().expect("a policy");
        let mut world = World::new(&config);
        world.region(7, Address(1000).0, 100, 1);
        for pid in 100..400 {
            world.region(pid, Address(1000).0, 100, 1);
            world.touches(pid, 0, 1000..1005);
            world.input(Input::Ended { pid: Pid(pid) });
        }
        assert_eq!(world.controller.processes.len(), 1);
        assert_eq!(world.controller.unused_processes.len(), 1, "one at a time");
        assert_eq!(world.controller.tracked.len(), 2);
    }
}

#[test]
fn a_forked_child_s_copies_are_not_followed_and_an_exec_ends_all() {
    let mut world = World::two_nodes();
    world.region(7, Address(1000).0, 100, 1);
    world.touches(7, 0, 1000..1003);
    world.input(Input::Started { pid: Pid(8) });
    world.touches(8, 0, 1000..1050);
    world.ends(8, Address(1000).0, 100);
    assert_eq!(world.decided(), [""; 0]);
    assert_eq!(world.used(0), 3);
    world.touches(7, 0, 1003..1005);
    assert_eq!(
        world.decided()[0],
        "Remote pid 7 page 1000 after 5, 50 away on 10"
    );
    world.input(Input::Started { pid: Pid(7) });
    assert_eq!((world.used(0), world.used(1)), (0, 0));
    world.decided();
    world.after(500 * MS);
    assert_eq!(world.decided(), [""; 0], "nothing waits for what is gone");
}

#[test]
fn a_reservation_larger_than_the_machine_is_left_alone() {
    let mut world = World::two_nodes();
    world.region(7, Address(1000).0, 200_001, 1);
    assert_eq!(world.decided(), ["unfollowed pid 7"]);
    world.touches(7, 0, 1000..1010);
    world.ends(7, Address(1000).0, 200_001);
    assert_eq!(world.decided(), [""; 0]);
}
