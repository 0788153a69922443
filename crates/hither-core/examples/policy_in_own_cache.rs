//! A policy of hither-core in a cache of one's own: the cache has keys and values, the policy ranks
//! slots. `policy_in_own_cache POLICY...` compares policies; without one, LRU and W-TinyLFU.

use std::collections::BTreeMap;

use hither_core::registry::ReplacementSettings;
use hither_core::{Access, AccessResult, Block, ReplacementPolicy, Residency, Spec, SpecError};

/// Pages by address. Policies know keys by number, so each gets one, and keeps it once it has left.
struct PageCache {
    numbers: BTreeMap<String, Block>,
    pages: Vec<String>,
    residency: Residency,
    policy: Box<dyn ReplacementPolicy>,
}

impl PageCache {
    fn new(policy: &str, pages: u32) -> Result<PageCache, SpecError> {
        Ok(PageCache {
            numbers: BTreeMap::new(),
            pages: vec![String::new(); pages as usize],
            residency: Residency::new(pages, 0),
            policy: policy
                .parse::<Spec>()?
                .build(&ReplacementSettings::new(pages)),
        })
    }

    fn get(&mut self, address: String, load: impl FnOnce(&str) -> String) -> &str {
        let unused = Block(self.numbers.len() as u32);
        let block = *self.numbers.entry(address.clone()).or_insert(unused);
        let tick = self.residency.hits() + self.residency.misses();
        let access = Access::bare(tick, block);
        let result = self.residency.access(self.policy.as_mut(), &access);
        let slot = self
            .residency
            .slot(block)
            .expect("it is in the cache now")
            .index();
        if let AccessResult::Miss { .. } = result {
            self.pages[slot] = load(&address);
        }
        &self.pages[slot]
    }
}

/// Ten pages are asked for again and again; between them come 50 that nobody asks for twice.
fn hits(policy: &str) -> Result<u64, SpecError> {
    let mut cache = PageCache::new(policy, 40)?;
    for round in 0..1000 {
        let popular = (0..10).map(|page| format!("/popular/{page}"));
        let once = (0..50).map(|page| format!("/once/{round}/{page}"));
        for address in popular.chain(once) {
            let page = cache.get(address.clone(), |address| format!("the page {address}"));
            assert_eq!(
                page,
                format!("the page {address}"),
                "a page of another address"
            );
        }
    }
    Ok(cache.residency.hits())
}

fn main() -> Result<(), SpecError> {
    let mut policies: Vec<String> = std::env::args().skip(1).collect();
    if policies.is_empty() {
        policies = ["lru", "w-tinylfu"].map(String::from).to_vec();
    }
    for policy in policies {
        println!(
            "{policy}: {} of 60000 pages were in the cache",
            hits(&policy)?
        );
    }
    Ok(())
}

#[test]
fn frequency_finds_what_is_popular_and_recency_does_not() {
    assert_eq!(hits("lru"), Ok(0));
    // Of 10 in each of 1000 rounds; the first rounds teach it.
    assert!(hits("w-tinylfu").expect("it is there") > 9900);
}
