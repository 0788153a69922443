//! Whether a case met its expectations.

use crate::expect::Expect;
use crate::report::Row;

/// The expectations that `row` does not meet, one sentence each.
pub(crate) fn failures(expect: &Expect, row: &Row) -> Vec<String> {
    let mut failures = Vec::new();
    let misses = [
        ("misses", expect.misses, row.misses),
        ("misses of user code", expect.misses_user, row.misses_user),
    ];
    for (what, tolerance, misses) in misses {
        let Some(tolerance) = tolerance else { continue };
        match row.expected_misses {
            Some(expected) if (misses - expected as f64).abs() <= tolerance * expected as f64 => {}
            Some(expected) => failures.push(format!(
                "{misses:.0} {what}, {:+.2} % off the {expected} expected (tolerance {} %)",
                100.0 * (misses / expected as f64 - 1.0),
                100.0 * tolerance
            )),
            None => failures.push("the program did not say how many misses it expects".to_owned()),
        }
    }
    let shares = [
        ("local share", expect.local_share, row.local_share),
        (
            "user code's local share",
            expect.local_share_user,
            row.local_share_user,
        ),
    ];
    for (what, tolerance, share) in shares {
        let Some(tolerance) = tolerance else { continue };
        match row.expected_local_share {
            Some(expected) if (share - expected).abs() <= tolerance => {}
            Some(expected) => failures.push(format!(
                "{what} {:.1} %, expected {:.1} % (tolerance {} points)",
                100.0 * share,
                100.0 * expected,
                100.0 * tolerance
            )),
            None => failures.push(format!("{what}: arithmetic gives none to compare with")),
        }
    }
    if let Some(least) = expect.local_share_min
        && row.local_share < least
    {
        failures.push(format!(
            "local share {:.1} %, less than {:.1} %",
            100.0 * row.local_share,
            100.0 * least
        ));
    }
    if let Some(most) = expect.kernel_share_max
        && row.kernel_share > most
    {
        failures.push(format!(
            "kernel share {:.1} %, more than {:.1} %",
            100.0 * row.kernel_share,
            100.0 * most
        ));
    }
    if let Some(least) = expect.migrations_min
        && row.migrations < least as f64
    {
        failures.push(format!(
            "{:.0} pages migrated, fewer than {least}",
            row.migrations
        ));
    }
    if let Some(most) = expect.spread {
        for (what, spread) in [
            ("misses", row.spread.misses),
            ("modelled time", row.spread.modelled_time_ms),
        ] {
            if spread > most {
                failures.push(format!(
                    "{what} of the runs {:.2} % apart, more than {} %",
                    100.0 * spread,
                    100.0 * most
                ));
            }
        }
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            misses: 1009.0,
            misses_user: 1004.0,
            expected_misses: Some(1000),
            local_share: 0.515,
            local_share_user: 0.5,
            expected_local_share: Some(0.5),
            kernel_share: 0.1,
            migrations: 20.0,
            ..Row::default()
        }
    }

    #[test]
    fn what_holds_is_silent() {
        let expect = Expect {
            misses: Some(0.01),
            misses_user: Some(0.004),
            local_share: Some(0.02),
            local_share_user: Some(0.001),
            local_share_min: Some(0.5),
            kernel_share_max: Some(0.1),
            migrations_min: Some(20),
            spread: Some(0.0),
        };
        assert_eq!(failures(&expect, &row()), Vec::<String>::new());
        assert_eq!(
            failures(&Expect::default(), &Row::default()),
            Vec::<String>::new()
        );
    }

    #[test]
    fn what_does_not_is_named() {
        let expect = Expect {
            misses: Some(0.005),
            misses_user: Some(0.003),
            local_share: Some(0.01),
            local_share_user: Some(0.01),
            local_share_min: Some(0.6),
            kernel_share_max: Some(0.05),
            migrations_min: Some(21),
            spread: Some(0.02),
        };
        let mut row = row();
        row.spread.misses = 0.03;
        row.local_share_user = 0.4;
        assert_eq!(
            failures(&expect, &row),
            [
                "1009 misses, +0.90 % off the 1000 expected (tolerance 0.5 %)",
                "1004 misses of user code, +0.40 % off the 1000 expected (tolerance 0.3 %)",
                "local share 51.5 %, expected 50.0 % (tolerance 1 points)",
                "user code's local share 40.0 %, expected 50.0 % (tolerance 1 points)",
                "local share 51.5 %, less than 60.0 %",
                "kernel share 10.0 %, more than 5.0 %",
                "20 pages migrated, fewer than 21",
                "misses of the runs 3.00 % apart, more than 2 %",
            ]
        );
        row.expected_misses = None;
        assert!(failures(&expect, &row)[0].contains("did not say"));
    }
}
