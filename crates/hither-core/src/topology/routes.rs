//! Links and the routes over them, computed when one is first asked for: all routes of a mesh of
//! 256 nodes take 3 MiB.

use std::sync::OnceLock;

use super::link::Link;
use super::shape::Shape;

/// The links, by number, and all routes. A cache: it takes no part in comparing topologies.
#[derive(Clone, Debug, Default)]
pub(super) struct Routes(OnceLock<Table>);

impl PartialEq for Routes {
    fn eq(&self, _: &Routes) -> bool {
        true
    }
}

#[derive(Clone, Debug)]
pub(super) struct Table {
    /// Sorted.
    pub(super) links: Vec<Link>,
    /// By pair of nodes, by row: where its route begins in `steps`; then where the last one ends.
    starts: Vec<u32>,
    steps: Vec<u32>,
}

impl Routes {
    #[inline]
    pub(super) fn get(&self, shape: &Shape, nodes: usize) -> &Table {
        self.0.get_or_init(|| Table::new(shape, nodes))
    }
}

impl Table {
    fn new(shape: &Shape, nodes: usize) -> Table {
        let pairs = || (0..nodes * nodes).map(|pair| (pair / nodes, pair % nodes));
        // Routes of one or two hops use every link, except the upper links of a hierarchy, whose
        // routes are short anyway.
        let all = matches!(shape, Shape::Hierarchy { .. });
        let mut links = Vec::new();
        for (from, to) in pairs() {
            if all || shape.hops(from, to) <= 2 {
                shape.route(from, to, &mut |link| links.push(link));
            }
        }
        links.sort_unstable();
        links.dedup();
        let mut starts = Vec::with_capacity(nodes * nodes + 1);
        let mut steps = Vec::new();
        for (from, to) in pairs() {
            starts.push(steps.len() as u32);
            shape.route(from, to, &mut |link| {
                let number = links.binary_search(&link).expect("all links are known");
                steps.push(number as u32);
            });
        }
        starts.push(steps.len() as u32);
        Table {
            links,
            starts,
            steps,
        }
    }

    #[inline]
    pub(super) fn between(&self, pair: usize) -> &[u32] {
        &self.steps[self.starts[pair] as usize..self.starts[pair + 1] as usize]
    }
}
