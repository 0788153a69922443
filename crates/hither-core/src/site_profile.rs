//! What was learnt about call sites in one run of a program, in a form that holds for the next run:
//! by signature.
//!
//! PCC's classes depend on the program's code, so the second run can start where the first one
//! ended (PCC paper, section 4.3, last paragraph). Within a trace sites are dense numbers; the
//! caller knows the signature of each number, and stores the profile.

use crate::classify::{SiteCounters, SiteRecord};
use crate::ids::Site;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The counters of one call site, by its signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteProfile {
    /// The signature: the same in every run of the same binaries.
    #[serde(with = "crate::signature")]
    pub signature: u64,
    /// Its counters.
    #[serde(flatten)]
    pub counters: SiteCounters,
}

/// What to keep of `records` for the next run, ordered by signature. Site 0, the unknown one, is
/// left out: it is not one place in a program.
pub fn export(records: &[SiteRecord], signature: impl Fn(Site) -> u64) -> Vec<SiteProfile> {
    let mut knowledge: Vec<SiteProfile> = records
        .iter()
        .filter(|record| record.site != Site(0))
        .map(|record| SiteProfile {
            signature: signature(record.site),
            counters: record.counters,
        })
        .collect();
    knowledge.sort_by_key(|site| site.signature);
    knowledge
}

/// What a profile says about the sites of another run, given as pairs of number and signature, in
/// their order.
pub fn import(
    knowledge: &[SiteProfile],
    sites: impl IntoIterator<Item = (Site, u64)>,
) -> Vec<SiteRecord> {
    let known: BTreeMap<u64, &SiteProfile> = knowledge
        .iter()
        .map(|site| (site.signature, site))
        .collect();
    sites
        .into_iter()
        .filter(|&(site, _)| site != Site(0))
        .filter_map(|(site, signature)| {
            known.get(&signature).map(|known| SiteRecord {
                site,
                counters: known.counters,
                // A profile has no such times.
                steady_period: 0,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::ReplacementSettings;
    use crate::{Access, Block, Residency, Spec};

    fn three_rounds(site: Site) -> impl Iterator<Item = Access> {
        (0..300).map(move |tick| Access {
            site,
            ..Access::bare(tick, Block((tick % 100) as u32))
        })
    }

    #[test]
    fn the_second_run_starts_trained() {
        let spec: Spec = "pcc{threshold=10,sample=1}".parse().expect("valid");
        let run = |sites: &[SiteRecord], site| {
            let mut policy = spec.build(&ReplacementSettings {
                sites,
                ..ReplacementSettings::new(50)
            });
            let mut cache = Residency::new(50, 100);
            let batch: Vec<Access> = three_rounds(site).collect();
            policy.drive(&mut cache, &batch);
            (
                policy.class_counts().expect("pcc classifies"),
                policy.sites().expect("pcc learns"),
            )
        };
        let (fresh, records) = run(&[], Site(7));
        let knowledge = export(&records, |site| u64::from(site.0) + 1000);
        assert_eq!(knowledge.len(), 1);
        assert_eq!(knowledge[0].signature, 1007);
        assert_eq!(knowledge[0].counters.period, 100);
        // The other run numbers the same site differently, and has one that nobody knows.
        let records = import(&knowledge, [(Site(0), 1007), (Site(1), 5), (Site(3), 1007)]);
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].site, Site(3));
        let (trained, _) = run(&records, Site(3));
        assert!(fresh.looping < trained.looping, "{fresh:?} {trained:?}");
        assert!(
            export(
                &[SiteRecord {
                    site: Site(0),
                    ..records[0]
                }],
                |_| 1
            )
            .is_empty()
        );
    }
}
