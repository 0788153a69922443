//! A class stays what it is unless the round trip really changes.

use super::*;

/// Gives an estimate whole windows of one value, and returns its class.
fn after(estimate: &mut Estimate, windows: usize, round_trip_ns: u64) -> u8 {
    for _ in 0..windows * WINDOW {
        estimate.add(round_trip_ns);
    }
    estimate.class.unwrap()
}

/// Round trips over the whole range, 1 % apart.
fn round_trips() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(10_000), |ns| Some(ns * 101 / 100)).take_while(|ns| *ns < 1 << 32)
}

#[test]
fn classes_are_ordered_and_contain_their_middle() {
    for class in 0..=CLASS_MAX {
        assert_eq!(class_of(class_ns(class)), class);
        assert_eq!(class_of(border_ns(class) - 1), class);
        assert!(class_ns(class) < border_ns(class));
        assert!(class == 0 || border_ns(class - 1) < class_ns(class));
    }
    assert_eq!((class_of(0), class_of(u64::MAX)), (0, CLASS_MAX));
    assert!(u32::try_from(class_ns(CLASS_MAX)).is_ok());
}

#[test]
fn a_third_more_or_less_changes_nothing() {
    for round_trip_ns in round_trips() {
        for other_ns in [round_trip_ns * 4 / 3, round_trip_ns * 3 / 4] {
            let mut estimate = Estimate::default();
            let class = after(&mut estimate, 1, round_trip_ns);
            assert_eq!(after(&mut estimate, 10, other_ns), class, "{round_trip_ns}");
        }
    }
}

#[test]
fn twice_or_half_shows_after_some_windows() {
    for round_trip_ns in round_trips().filter(|ns| (2 * BASE_NS..1 << 30).contains(ns)) {
        for other_ns in [round_trip_ns * 2, round_trip_ns / 2] {
            let mut estimate = Estimate::default();
            let class = after(&mut estimate, 1, round_trip_ns);
            assert_eq!(after(&mut estimate, WINDOWS - 1, other_ns), class);
            assert_eq!(after(&mut estimate, 1, other_ns), class_of(other_ns));
        }
    }
}

#[test]
fn the_nearest_of_the_estimates_beyond_a_border_counts() {
    let mut estimate = Estimate::default();
    assert_eq!(after(&mut estimate, 1, 1_000_000), class_of(1_000_000));
    after(&mut estimate, 1, 9_000_000);
    after(&mut estimate, 1, 4_000_000);
    let class = after(&mut estimate, 1, 8_000_000);
    assert_eq!(class, class_of(4_000_000));
    // Those of both sides are not taken together.
    after(&mut estimate, 2, 1_000_000);
    after(&mut estimate, 1, 16_000_000);
    assert_eq!(after(&mut estimate, 2, 1_000_000), class);
}

#[test]
fn load_and_single_short_samples_do_not_count() {
    let mut estimate = Estimate::default();
    let class = after(&mut estimate, 1, 1_000_000);
    for number in 0..20 * WINDOW {
        let sample_ns = match number % WINDOW {
            0 => 1,
            1..3 => 1_000_000,
            busy => 1_000_000 * busy as u64,
        };
        estimate.add(sample_ns);
    }
    assert_eq!(estimate.class, Some(class));
}

#[test]
fn the_larger_of_two_classes_counts() {
    let [a, b, c] = [1, 2, 3].map(MemberId);
    let mut round_trips = RoundTrips::new(a);
    assert_eq!(round_trips.own(&[b, c]), []);
    for _ in 0..WINDOW {
        round_trips.add(b, class_ns(4));
    }
    let row = |member: MemberId, class: u8| [RoundTrip { member, class }];
    assert!(round_trips.set(b, &row(a, 5)));
    assert!(!round_trips.set(b, &row(a, 5)));
    assert!(round_trips.set(c, &row(a, 3)));
    assert_eq!(round_trips.own(&[b, c]), row(b, 4));
    let expected = [
        None,
        Some(5),
        Some(3),
        Some(5),
        None,
        None,
        Some(3),
        None,
        None,
    ];
    assert_eq!(round_trips.classes(&[a, b, c]), (expected.to_vec(), 3));
    round_trips.forget(b);
    assert_eq!(round_trips.classes(&[a, b]), (vec![None; 4], 0));
}
