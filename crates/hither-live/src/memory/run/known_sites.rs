//! Call sites whose regions an earlier run has sent away as wholes. The program binds them itself
//! when it allocates them: a request of the agent would come after the first touches, since a
//! program often fills an allocation before it makes its next hooked call.

use hither_core::placement::{PageTouch, Region, RegionTier};
use hither_core::{Block, Node, Object, Process, Thread};

use super::super::config::MemoryConfig;
use crate::error::Result;
use crate::numa::host::NodeConfig;

/// The node that the policy sends far pages to, from whichever node has CPUs, as a mask. 0 where no
/// site is known to need it, or the node depends on where a thread runs, which nobody knows before
/// the program allocates. `used`: the frames in use on each node, if that is known.
pub(super) fn far_nodes(
    config: &MemoryConfig,
    used: impl FnOnce() -> Option<Vec<u32>>,
) -> Result<u64> {
    if !config.sites.iter().any(|known| known.whole) {
        return Ok(0);
    }
    let (mut host, _) = config.hosts()?;
    if let Some(used) = used() {
        host.set_used_frames(&used);
    }
    let object = Object(0);
    host.region_allocated(&Region {
        object,
        owner: Process(0),
        // As large as any policy asks.
        bytes: u64::MAX,
        expected_tier: Some(RegionTier::Remote),
        whole: true,
    });
    host.grow(1);
    let mut far = None;
    let with_cpus = |(_, node): &(u16, &NodeConfig)| !node.cpus.is_empty();
    for (node, _) in (0..).zip(&config.nodes).filter(with_cpus) {
        let at = host.place(PageTouch {
            block: Block(0),
            object,
            index: 0,
            process: Process(0),
            thread: Thread(0),
            node: Node(node),
        });
        host.remove(Block(0));
        let at = at.filter(|&at| at != Node(node));
        if at.is_none() || far.is_some_and(|far| Some(far) != at) {
            return Ok(0);
        }
        far = at;
    }
    Ok(far.map_or(0, |far| host.node_mask(far)))
}

#[cfg(test)]
mod tests {
    use hither_core::placement::SiteTier;
    use hither_ids::KernelNode;

    use super::*;

    /// Nodes with these CPUs. The last one is as far from all as can be.
    fn config(cpus: [&[u32]; 3], policy: &str, whole: bool) -> MemoryConfig {
        let distances = [[10, 20, 30], [20, 10, 30], [30, 30, 10]];
        let nodes = (0..).zip(cpus).zip(distances);
        let nodes = nodes.map(|((node, cpus), distances)| NodeConfig {
            node: KernelNode(node),
            cpus: cpus.to_vec(),
            frames: 1000,
            distances: distances.to_vec(),
        });
        let mut config = MemoryConfig::new(policy.parse().expect("a policy"), 4096, &[], None);
        config.nodes = nodes.collect();
        config.sites.push(SiteTier {
            signature: 5,
            tier: RegionTier::Remote,
            whole,
        });
        config
    }

    fn far(cpus: [&[u32]; 3], policy: &str, whole: bool) -> u64 {
        far_nodes(&config(cpus, policy, whole), || None).expect("a policy")
    }

    #[test]
    fn programs_bind_at_once_what_is_far_from_everywhere() {
        let tiers: [&[u32]; 3] = [&[0, 1], &[2], &[]];
        assert_eq!(far(tiers, "cache-aware", true), 1 << 2);
        assert_eq!(far(tiers, "cache-aware,majority", true), 1 << 2);
        assert_eq!(far(tiers, "cache-aware", false), 0, "a part stayed near");
        assert_eq!(far(tiers, "majority", true), 0, "nothing is far");
        assert_eq!(
            far([&[0], &[], &[1]], "cache-aware", true),
            0,
            "that depends"
        );
        let full = || Some(vec![0, 0, 900]);
        let full = far_nodes(&config(tiers, "cache-aware", true), full);
        assert_eq!(full.expect("a policy"), 0);
    }
}
