//! The 1-median: the best node for a block, given how often each node uses it. It is asked for
//! every 50 accesses of a block, so nothing here allocates, and all shapes but the matrix take time
//! linear in the nodes (times axes or levels).

use super::shape::{AXES_MAX, AXIS_MAX, Shape};

/// The node with the least sum of weight times hops, the lowest among equals. Weights count
/// accesses: their sum times the diameter is below 2^64.
pub(super) fn of_shape(weights: &[u32], shape: &Shape) -> usize {
    match shape {
        Shape::Uniform | Shape::Matrix => heaviest(weights),
        Shape::Grid { axes, wraps, .. } => of_grid(weights, axes, *wraps),
        Shape::Routers { dimensions, each } => of_routers(weights, *dimensions, *each),
        Shape::Hierarchy { fan, rings } => of_hierarchy(weights, fan, *rings),
    }
}

/// Like [`of_shape`], with a cost for each pair of an accessing and a holding node.
pub(super) fn of_matrix(weights: &[u32], costs: &[u32]) -> usize {
    let nodes = weights.len();
    let cost = |node: &usize| -> u64 {
        let weighted = weights
            .iter()
            .enumerate()
            .filter(|(_, weight)| **weight > 0);
        weighted
            .map(|(from, &weight)| u64::from(weight) * u64::from(costs[from * nodes + node]))
            .sum()
    };
    (0..nodes).min_by_key(cost).unwrap_or(0)
}

fn sum(weights: &[u32]) -> u64 {
    weights.iter().copied().map(u64::from).sum()
}

fn heaviest(weights: &[u32]) -> usize {
    let lowest = |node: &usize| std::cmp::Reverse(weights[*node]);
    (0..weights.len()).min_by_key(lowest).unwrap_or(0)
}

/// Distances on a grid add up by axis, so each axis has its own median, over the sums of the
/// weights across it.
fn of_grid(weights: &[u32], axes: &[usize], wraps: bool) -> usize {
    let (mut node, mut stride) = (0, 1);
    let mut sums = [0; AXIS_MAX];
    for &length in axes.iter().rev() {
        let sums = &mut sums[..length];
        sums.fill(0);
        // Runs of `stride` nodes have the same position on this axis.
        for (run, weights) in weights.chunks_exact(stride).enumerate() {
            sums[run % length] += sum(weights);
        }
        let place = if wraps { around(sums) } else { along(sums) };
        node += place * stride;
        stride *= length;
    }
    node
}

/// The weighted median of a line: the first position such that it and those before it have half of
/// the weight.
fn along(sums: &[u64]) -> usize {
    let all: u64 = sums.iter().sum();
    let mut before = 0;
    let half = |&sum: &u64| {
        before += sum;
        2 * before >= all
    };
    sums.iter().position(half).unwrap_or(0)
}

/// The 1-median of a circle. From one position to the next, those of the half circle ahead come
/// nearer by one, and those of the half circle behind, with the old position itself, recede by one.
/// The opposite one, where the length is odd, does neither.
fn around(sums: &[u64]) -> usize {
    let length = sums.len();
    let half = length / 2;
    let distance = |place: usize| place.min(length - place) as u64;
    let mut cost: u64 = (0..length).map(|place| sums[place] * distance(place)).sum();
    let mut ahead: u64 = sums.iter().skip(1).take(half).sum();
    // For position 0: itself and the `half - 1` positions before it.
    let mut behind: u64 = (0..half).map(|back| sums[(length - back) % length]).sum();
    let (mut best, mut least) = (0, cost);
    for place in 0..length - 1 {
        cost = cost + behind - ahead;
        if cost < least {
            (best, least) = (place + 1, cost);
        }
        ahead = ahead + sums[(place + 1 + half) % length] - sums[(place + 1) % length];
        behind = behind + sums[(place + 1) % length] - sums[(place + 1 + length - half) % length];
    }
    best
}

/// Between routers each dimension costs the weight on its other side. Within a router each node but
/// the accessing one costs 1.
fn of_routers(weights: &[u32], dimensions: usize, each: usize) -> usize {
    let mut ones = [0; AXES_MAX];
    for (router, weights) in weights.chunks_exact(each).enumerate() {
        let weight = sum(weights);
        for (dimension, ones) in ones[..dimensions].iter_mut().enumerate() {
            *ones += weight * (router >> dimension & 1) as u64;
        }
    }
    let all = sum(weights);
    let cost = |node: &usize| -> u64 {
        let router = node / each;
        let sides = ones[..dimensions].iter().enumerate();
        let across = sides.map(|(dimension, ones)| match router >> dimension & 1 {
            0 => *ones,
            _ => all - ones,
        });
        across.sum::<u64>() + all - u64::from(weights[*node])
    };
    (0..weights.len()).min_by_key(cost).unwrap_or(0)
}

/// A leaf saves two hops for the weight of each part that it is in, the smallest being the leaf
/// itself. Between rings it saves one hop less for its own weight, which takes no ring.
fn of_hierarchy(weights: &[u32], fan: &[usize], rings: bool) -> usize {
    let mut within = [0; AXES_MAX];
    let (mut best, mut most) = (0, None);
    for (leaf, &weight) in weights.iter().enumerate() {
        let mut leaves = 1;
        for (within, parts) in within.iter_mut().zip(fan.iter().rev()) {
            if leaf % leaves == 0 {
                *within = sum(&weights[leaf..leaf + leaves]);
            }
            leaves *= parts;
        }
        let own = if rings { u64::from(weight) } else { 0 };
        let saved = 2 * within[..fan.len()].iter().sum::<u64>() - own;
        if most.is_none_or(|most| saved > most) {
            (best, most) = (leaf, Some(saved));
        }
    }
    best
}
