//! The inequalities of the paper (sections 3.1 and 3.2), each over the counters of one page.

use crate::ids::Node;

/// The prices of accesses to pages of one home.
pub(super) struct Prices<L> {
    /// `r_u(i, h)`: the uncontended latency from a node to the home; `l_u` from the home itself.
    pub(super) latency_ns: L,
    /// What each contending node adds to the latency of a remote access: 50 ns on the Origin2000.
    pub(super) contention_ns: u32,
}

/// How much a migration must save.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bar {
    /// The factor of `r_u(i, h) / l_u`: 1, or more in an area that was tuned to be more selective.
    pub(super) factor: f64,
    /// `ml`, the latency of a migration; 0 in the optimistic variant.
    pub(super) migration_ns: u64,
}

/// A migration that the competitive criterion allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Better {
    /// The node that gets the page.
    pub(super) to: Node,
    /// `ral_tot(i, h)` less the right side of equation 1: how much too much staying has cost.
    pub(super) gain_ns: f64,
}

impl<L: Fn(Node) -> u32> Prices<L> {
    /// `ral_tot(i, h)` of every node `i` with remote accesses, by number: their count times
    /// `r_c(i, h)` of equation 2, where `c(h)` is the number of nodes with more accesses than the
    /// home.
    pub(super) fn remote(&self, counts: &[u32], home: Node) -> impl Iterator<Item = (Node, u64)> {
        let local = counts[home.index()];
        let contenders = counts.iter().filter(|&&count| count > local).count() as u64;
        let contended_ns = u64::from(self.contention_ns) * contenders;
        let others = counts.iter().enumerate();
        others
            .filter(move |&(node, &count)| count > 0 && node != home.index())
            .map(move |(node, &count)| {
                let node = Node(node as u16);
                let latency_ns = u64::from((self.latency_ns)(node)) + contended_ns;
                (node, latency_ns * u64::from(count))
            })
    }

    /// Equation 1 for every node, `ral_tot(i, h) > (r_u(i, h) / l_u) * lal_tot + ml`. Of the nodes
    /// that satisfy it, returns the one with the highest `ral_tot(i, h) / lal_tot`, the lowest
    /// number among equals.
    ///
    /// `lal_tot` is `l_u` times the local accesses, so the right side is `r_u(i, h)` times the
    /// local accesses: what they would cost if the page were at `i`. `lal_tot` is the same for all
    /// nodes, so the highest ratio is the highest `ral_tot`, which is defined without local
    /// accesses, too.
    pub(super) fn competitive(&self, counts: &[u32], home: Node, bar: Bar) -> Option<Better> {
        let local = u64::from(counts[home.index()]);
        let mut best: Option<(u64, Better)> = None;
        for (to, remote_ns) in self.remote(counts, home) {
            if best.is_some_and(|(most_ns, _)| remote_ns <= most_ns) {
                continue;
            }
            let local_there_ns = u64::from((self.latency_ns)(to)) * local;
            let bar_ns = bar.factor * local_there_ns as f64 + bar.migration_ns as f64;
            let gain_ns = remote_ns as f64 - bar_ns;
            if gain_ns > 0.0 {
                best = Some((remote_ns, Better { to, gain_ns }));
            }
        }
        best.map(|(_, better)| better)
    }
}

/// Equation 3, `r_acc(i, t) > r_acc(i, t-1)` and `l_acc(t) < l_acc(t-1)`, for nodes that a thread
/// moved to. Of those that satisfy it, returns the one with the most accesses in iteration `t`, the
/// lowest number among equals.
pub(super) fn predictive(now: &[u32], before: &[u32], home: Node, to: &[bool]) -> Option<Node> {
    if now[home.index()] >= before[home.index()] {
        return None;
    }
    let mut best: Option<(u32, Node)> = None;
    for (node, (&now, &before)) in now.iter().zip(before).enumerate() {
        let fits = now > before && to[node] && node != home.index();
        if fits && best.is_none_or(|(most, _)| now > most) {
            best = Some((now, Node(node as u16)));
        }
    }
    best.map(|(_, node)| node)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: Bar = Bar {
        factor: 1.0,
        migration_ns: 1_100_000,
    };
    const OPTIMISTIC: Bar = Bar {
        migration_ns: 0,
        ..PAPER
    };

    /// The Origin2000 seen from home 0: `l_u` = 300 ns, `r_u` = 300 + 100 d ns, node `i` being
    /// `hops[i]` away.
    fn origin(hops: &'static [u32]) -> Prices<impl Fn(Node) -> u32> {
        Prices {
            latency_ns: |node: Node| 300 + 100 * hops[node.index()],
            contention_ns: 50,
        }
    }

    fn to(prices: &Prices<impl Fn(Node) -> u32>, counts: &[u32], bar: Bar) -> Option<u16> {
        let better = prices.competitive(counts, Node(0), bar);
        better.map(|better| better.to.0)
    }

    /// One remote node has more accesses than the home: `c` = 1, `r_c` = 400 + 50.
    #[test]
    fn contended_latency() {
        let remote = |counts: &[u32]| {
            origin(&[0, 1, 2])
                .remote(counts, Node(0))
                .collect::<Vec<_>>()
        };
        assert_eq!(remote(&[10, 20, 0]), [(Node(1), 20 * 450)]);
        assert_eq!(
            remote(&[10, 10, 5]),
            [(Node(1), 10 * 400), (Node(2), 5 * 500)],
            "equals do not contend"
        );
        assert_eq!(remote(&[0, 1, 1]), [(Node(1), 500), (Node(2), 600)]);
    }

    /// 450 r > 400 l + 1,100,000: with 1000 local accesses, 3333 remote ones are too few
    /// (1,499,850) and 3334 are enough (1,500,300).
    #[test]
    fn equation_one() {
        let prices = origin(&[0, 1]);
        assert_eq!(to(&prices, &[1000, 3333], PAPER), None);
        assert_eq!(to(&prices, &[1000, 3334], PAPER), Some(1));
        assert_eq!(
            prices.competitive(&[1000, 3334], Node(0), PAPER),
            Some(Better {
                to: Node(1),
                gain_ns: 300.0
            })
        );
    }

    /// Without local accesses, 450 r > 1,100,000: 2444 are too few (1,099,800), 2445 enough.
    #[test]
    fn no_local_accesses() {
        let prices = origin(&[0, 1]);
        assert_eq!(to(&prices, &[0, 2444], PAPER), None);
        assert_eq!(to(&prices, &[0, 2445], PAPER), Some(1));
        assert_eq!(to(&prices, &[0, 1], OPTIMISTIC), Some(1));
        assert_eq!(to(&prices, &[0, 0], OPTIMISTIC), None);
    }

    /// Without `ml`, a node with as many accesses as the home does not contend and does not get the
    /// page (400 * 100 = 400 * 100); one more is enough (101 * 450 > 400 * 100).
    #[test]
    fn optimistic() {
        let prices = origin(&[0, 1]);
        assert_eq!(to(&prices, &[100, 100], OPTIMISTIC), None);
        assert_eq!(to(&prices, &[100, 101], OPTIMISTIC), Some(1));
    }

    /// Node 1 is one hop away, node 2 four: 100 * 500 < 80 * 800, so that the ratio is higher for
    /// the far one although it has fewer accesses.
    #[test]
    fn highest_ratio_wins() {
        let prices = origin(&[0, 1, 4]);
        assert_eq!(to(&prices, &[10, 100, 80], OPTIMISTIC), Some(2));
        // 100 * 500 > 62 * 800.
        assert_eq!(to(&prices, &[10, 100, 62], OPTIMISTIC), Some(1));
        // A tie, 80 * 500 = 50 * 800, goes to the lower number.
        assert_eq!(to(&prices, &[10, 80, 50], OPTIMISTIC), Some(1));
    }

    /// The contention that node 1 causes lets node 2 pass with fewer accesses than the home: 95 *
    /// (700 + 50) > 700 * 100, and 71,250 beats node 1's 150 * 450 = 67,500. This is how a page
    /// comes to bounce.
    #[test]
    fn contention_of_others_counts() {
        assert_eq!(
            to(&origin(&[0, 1, 4]), &[100, 150, 95], OPTIMISTIC),
            Some(2)
        );
    }

    /// Tuned by 1.25: 450 r > 1.25 * 400 * 1000 = 500,000 from 1112 on.
    #[test]
    fn selective() {
        let bar = Bar {
            factor: 1.25,
            ..OPTIMISTIC
        };
        assert_eq!(to(&origin(&[0, 1]), &[1000, 1111], bar), None);
        assert_eq!(to(&origin(&[0, 1]), &[1000, 1112], bar), Some(1));
    }

    #[test]
    fn equation_three() {
        let all = [true; 4];
        let fits = |now, before, to: &[bool]| predictive(now, before, Node(0), to);
        assert_eq!(fits(&[5, 60, 0, 0], &[50, 10, 0, 0], &all), Some(Node(1)));
        assert_eq!(
            fits(&[50, 60, 0, 0], &[50, 10, 0, 0], &all),
            None,
            "local accesses as before"
        );
        assert_eq!(
            fits(&[5, 10, 0, 0], &[50, 10, 0, 0], &all),
            None,
            "remote accesses as before"
        );
        assert_eq!(
            fits(&[5, 20, 30, 30], &[50, 0, 29, 0], &all),
            Some(Node(2)),
            "most accesses, lowest number"
        );
        let moved_to_three = [false, false, false, true];
        assert_eq!(
            fits(&[5, 20, 30, 6], &[50, 0, 0, 0], &moved_to_three),
            Some(Node(3))
        );
        assert_eq!(fits(&[5, 20, 30, 0], &[50, 0, 0, 0], &moved_to_three), None);
    }
}
