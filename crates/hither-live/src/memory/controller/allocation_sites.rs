//! What is known of allocation sites: the tier of their regions, and the nodes that programs bind
//! them to when they allocate them.

use std::collections::BTreeMap;

use hither_core::placement::{RegionTier, SiteTier};

/// All sites, by signature.
#[derive(Debug, Default)]
pub(super) struct AllocationSites {
    sites: BTreeMap<u64, KnownSite>,
}

#[derive(Clone, Copy, Debug, Default)]
struct KnownSite {
    /// The tier of all its regions; `None` where they differ.
    tier: Option<RegionTier>,
    /// The nodes that programs bind its regions to when they allocate them.
    bound: Option<u64>,
    /// Its regions were of several tiers, or went to different nodes.
    differs: bool,
    /// How many regions of this run it has.
    regions: u64,
    /// In an earlier run, all pages of its regions were away.
    was_whole: bool,
    /// In this run, pages of its far regions have stayed near.
    kept_near: bool,
    /// An earlier run had found its tier.
    of_earlier_run: bool,
}

impl AllocationSites {
    /// Programs bind regions of sites that were wholly away to `far_nodes`, unless that is 0.
    pub(super) fn new(
        known: impl IntoIterator<Item = SiteTier>,
        far_nodes: u64,
    ) -> AllocationSites {
        let site = |site: SiteTier| {
            let known = KnownSite {
                tier: Some(site.tier),
                was_whole: site.whole,
                bound: Some(far_nodes).filter(|&nodes| site.whole && nodes != 0),
                of_earlier_run: true,
                ..KnownSite::default()
            };
            (site.signature, known)
        };
        AllocationSites {
            sites: known.into_iter().map(site).collect(),
        }
    }

    /// The expected tier of a site's next region. Nothing is expected of the unknown site, 0, since
    /// it is not a single one.
    pub(super) fn tier(&self, signature: u64) -> Option<RegionTier> {
        self.sites.get(&signature)?.tier
    }

    /// Whether an earlier run has sent all pages of the site's regions away, and this one too so
    /// far.
    pub(super) fn is_whole(&self, signature: u64) -> bool {
        let site = self.sites.get(&signature);
        site.is_some_and(|site| site.was_whole && !site.kept_near)
    }

    /// Pages of a far region of the site have stayed near.
    pub(super) fn kept_near(&mut self, signature: u64) {
        if let Some(site) = self.sites.get_mut(&signature) {
            site.kept_near = true;
        }
    }

    /// Whether an earlier run had found the tier of the site.
    pub(super) fn is_of_earlier_run(&self, signature: u64) -> bool {
        let site = self.sites.get(&signature);
        site.is_some_and(|site| site.of_earlier_run)
    }

    /// The nodes that programs bind a site's regions to when they allocate them.
    pub(super) fn bound(&self, signature: u64) -> Option<u64> {
        self.sites.get(&signature)?.bound
    }

    /// A region of the site was decided. `nodes`: where all of it goes, if that is the same for all
    /// its pages. Returns the nodes that programs are to bind the site's regions to from now on, if
    /// that has changed.
    pub(super) fn region_decided(
        &mut self,
        signature: u64,
        tier: RegionTier,
        nodes: Option<u64>,
    ) -> Option<Option<u64>> {
        if signature == 0 {
            return None;
        }
        let site = self.sites.entry(signature).or_default();
        let first = site.regions == 0;
        site.regions += 1;
        match site.tier {
            None if first => site.tier = Some(tier),
            known if known != Some(tier) => site.tier = None,
            _ => {}
        }
        let bound = if first {
            nodes
        } else {
            site.bound.filter(|_| site.bound == nodes)
        };
        // A site whose regions differed once is never bound again: that would be right by chance.
        site.differs |= !first && site.bound != nodes;
        let bound = bound.filter(|_| !site.differs && site.tier.is_some());
        (bound != std::mem::replace(&mut site.bound, bound)).then_some(bound)
    }

    /// What is known of each site whose regions are of one tier, by signature.
    pub(super) fn known(&self) -> impl Iterator<Item = SiteTier> + '_ {
        let known = |(&signature, site): (&u64, &KnownSite)| {
            let tier = site.tier?;
            let is_whole = match site.regions {
                0 => site.was_whole,
                _ => tier == RegionTier::Remote && !site.kept_near,
            };
            Some(SiteTier {
                signature,
                tier,
                whole: is_whole,
            })
        };
        self.sites.iter().filter_map(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(whole: bool) -> SiteTier {
        SiteTier {
            signature: 9,
            tier: RegionTier::Remote,
            whole,
        }
    }

    #[test]
    fn a_site_is_whole_while_nothing_of_it_stays_near() {
        let mut sites = AllocationSites::new([known(true)], 2);
        assert_eq!((sites.bound(9), sites.is_whole(9)), (Some(2), true));
        assert_eq!(sites.known().next(), Some(known(true)), "as it was");
        assert_eq!(sites.region_decided(9, RegionTier::Remote, Some(2)), None);
        sites.kept_near(9);
        assert!(!sites.is_whole(9));
        assert_eq!(sites.known().next(), Some(known(false)));

        let mut sites = AllocationSites::new([known(false)], 2);
        assert_eq!((sites.bound(9), sites.is_whole(9)), (None, false));
        assert_eq!(
            sites.region_decided(9, RegionTier::Remote, Some(2)),
            Some(Some(2))
        );
        assert!(!sites.is_whole(9), "no earlier run says so");
        assert_eq!(sites.known().next(), Some(known(true)));

        let sites = AllocationSites::new([known(true)], 0);
        assert_eq!(sites.bound(9), None, "no node is far from all");
    }

    #[test]
    fn a_site_is_known_while_its_regions_agree() {
        let mut sites = AllocationSites::new([known(false)], 2);
        assert_eq!(sites.tier(9), Some(RegionTier::Remote));
        assert_eq!(sites.bound(9), None, "no region has shown where");
        assert_eq!(
            sites.region_decided(9, RegionTier::Remote, Some(2)),
            Some(Some(2))
        );
        assert_eq!(sites.region_decided(9, RegionTier::Remote, Some(2)), None);
        // From the other node.
        assert_eq!(
            sites.region_decided(9, RegionTier::Remote, Some(1)),
            Some(None)
        );
        assert_eq!(
            sites.region_decided(9, RegionTier::Remote, Some(1)),
            None,
            "for good"
        );
        assert_eq!(sites.tier(9), Some(RegionTier::Remote));
        assert_eq!(sites.region_decided(9, RegionTier::Local, None), None);
        assert_eq!(sites.tier(9), None);
        assert_eq!(sites.region_decided(9, RegionTier::Remote, Some(2)), None);
        assert_eq!(sites.tier(9), None, "it was both");
        assert_eq!(sites.region_decided(0, RegionTier::Remote, Some(2)), None);
        assert_eq!(sites.tier(0), None);
        assert_eq!(sites.known().count(), 0);
    }
}
