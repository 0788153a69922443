//! Advice on made-up traces for which the right advice is known.

use hither_core::{Access, Block, Object, Site};
use hither_sim::references::InMemory;
use hither_sim::{CacheOptions, CacheSize, References, Row, Size, Spacing, curve};

use super::confidence::ConfidenceLevel;
use super::*;

/// Accesses to blocks of one file from one call site.
fn trace(blocks: impl Iterator<Item = u32>) -> InMemory {
    let access = |(tick, block): (usize, u32)| Access {
        object: Object(0),
        index: block,
        site: Site(0),
        ..Access::bare(tick as u64, Block(block))
    };
    let knows = Needs::ALL;
    InMemory::new(blocks.enumerate().map(access).collect(), knows)
}

/// Advice on references that belong to no file, so that no cache of them can be steered.
fn advised(policies: &str, sizes: &[u32], references: &InMemory) -> CacheAdvice {
    advised_on(policies, sizes, references, false, true)
}

/// Advice with both passes, as in `CacheAnalysis`.
fn advised_on(
    policies: &str,
    sizes: &[u32],
    references: &InMemory,
    steerable: bool,
    asked_sizes: bool,
) -> CacheAdvice {
    advised_here(policies, sizes, references, steerable, asked_sizes, None)
}

/// As [`advised_on`], of a program that had so many blocks of memory.
fn advised_here(
    policies: &str,
    sizes: &[u32],
    references: &InMemory,
    steerable: bool,
    asked_sizes: bool,
    here: Option<u64>,
) -> CacheAdvice {
    let policies = <Spec>::parse_list(policies).expect("policies");
    let options = CacheOptions {
        segments: SEGMENTS,
        ..CacheOptions::default()
    };
    let simulate =
        |rows: &[Row<u32>]| Row::run(rows, references, &options).expect("nothing is lacking");
    let caches = grid(&policies, sizes, simulate);
    let input = AdviceInput {
        references: references.references(),
        blocks: references.blocks().into(),
        block_bytes: 4096,
        caches: &caches,
        steerable,
        asked_sizes,
        here,
        expected: None,
        doubts: Vec::new(),
    };
    let variants = input.candidate().map(|candidate| candidate.variants());
    let variants = variants.unwrap_or_default();
    let mut lru_by_size = curve::sizes(references.blocks(), 1000, Spacing::Linear);
    lru_by_size.extend(
        sizes
            .iter()
            .chain(variants.iter().map(|one| &one.cache_blocks)),
    );
    lru_by_size.sort_unstable();
    lru_by_size.dedup();
    let lru = "lru".parse().expect("lru");
    let rows = SecondPass::rows(lru, lru_by_size, &variants);
    input.advice(&SecondPass::of(simulate(&rows)))
}

/// The grid of these policies and sizes.
fn grid(policies: &[Spec], sizes: &[u32], simulate: impl Fn(&[Row<u32>]) -> Vec<Row>) -> Grid {
    let row = |&policy: &Spec| Row {
        policy,
        cells: sizes.to_vec(),
    };
    let rows: Vec<Row<u32>> = policies.iter().map(row).collect();
    let size = |&blocks: &u32| CacheSize {
        written: Size::Blocks(blocks.into()),
        blocks,
    };
    Grid::new(sizes.iter().map(size).collect(), simulate(&rows))
}

const ALL: &str = "lru,arc,dear,ubm,pcc,opt";

fn level(advice: &CacheAdvice) -> ConfidenceLevel {
    advice.confidence.as_ref().expect("simulated").level
}

/// Numbers without a pattern.
fn random() -> impl FnMut(u32) -> u32 {
    let mut state = 88_172_645_463_325_252_u64;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 33) % u64::from(below)) as u32
    }
}

#[test]
fn a_loop_larger_than_the_cache_calls_for_another_policy() {
    let advice = advised(ALL, &[500], &trace((0..20_000).map(|tick| tick % 1000)));
    assert_eq!(advice.change, Recommendation::Policy);
    // ubm and pcc gain as much; dear is the first of them, and needs no call sites.
    assert_eq!(
        (advice.policy.as_ref().map(policy), advice.cache_blocks),
        (Some("dear".to_owned()), Some(500))
    );
    assert!(advice.gain > 0.4 && advice.gain >= NEAR_BEST_SHARE * advice.gain_max);
    assert_eq!(
        level(&advice),
        ConfidenceLevel::Sure,
        "{:?}",
        advice.sentences
    );
    let room = advice.alternatives.last().expect("a larger cache");
    assert_eq!(room.policy, None);
    assert!(
        room.gain >= advice.gain && room.cache_blocks >= 990,
        "{room:?}"
    );
    assert!(
        advice
            .sentences
            .iter()
            .any(|said| said.contains("nearly all")),
        "{:?}",
        advice.sentences
    );
}

#[test]
fn a_loop_that_is_gone_through_twice_is_no_certainty() {
    let advice = advised(ALL, &[500], &trace((0..2000).map(|tick| tick % 1000)));
    assert_eq!(advice.change, Recommendation::Policy);
    assert!(
        level(&advice) < ConfidenceLevel::Sure,
        "{:?}",
        advice.sentences
    );
    assert!(
        advice
            .sentences
            .last()
            .is_some_and(|said| said.contains("2.0 times"))
    );
}

#[test]
fn where_large_sizes_are_used_alike_room_helps() {
    let mut random = random();
    let any = std::iter::repeat_with(|| random(1000)).take(40_000);
    let advice = advised(ALL, &[300, 100], &trace(any));
    assert_eq!(
        advice.change,
        Recommendation::Size,
        "{:?}",
        advice.sentences
    );
    // All blocks are equally likely, so nine tenths of the gain need nine tenths of the size.
    let enough = advice.cache_blocks.expect("a size");
    assert!((890..=930).contains(&enough), "{enough}");
    assert_eq!(
        level(&advice),
        ConfidenceLevel::Sure,
        "{:?}",
        advice.sentences
    );
    let twice = &advice.alternatives[0];
    assert_eq!((twice.from_blocks, twice.cache_blocks), (100, 200));
    assert!((twice.gain - 0.1).abs() < 0.02, "{twice:?}");
}

#[test]
fn a_sequential_scan_calls_for_nothing() {
    let advice = advised(ALL, &[500], &trace(0..20_000));
    assert_eq!(advice.change, Recommendation::Nothing);
    assert!(
        advice.sentences[0].starts_with("Nothing to do: 100.0 % of the references are first uses")
    );
    assert_eq!(
        level(&advice),
        ConfidenceLevel::Sure,
        "{:?}",
        advice.sentences
    );
}

#[test]
fn a_working_set_that_fits_calls_for_nothing() {
    let advice = advised(ALL, &[150], &trace((0..20_000).map(|tick| tick * 7 % 100)));
    assert_eq!(
        advice.change,
        Recommendation::Nothing,
        "{:?}",
        advice.sentences
    );
    assert_eq!(
        level(&advice),
        ConfidenceLevel::Sure,
        "{:?}",
        advice.sentences
    );
}

#[test]
fn a_gain_of_a_single_phase_is_unsure() {
    // A working set that fits, and one phase with a loop that does not.
    let block = |tick: u32| match tick {
        16_000..24_000 => 400 + tick % 1000,
        _ => tick % 400,
    };
    let advice = advised(ALL, &[500], &trace((0..40_000).map(block)));
    assert_eq!(
        advice.change,
        Recommendation::Policy,
        "{:?}",
        advice.sentences
    );
    assert!(advice.gain > 0.05, "{}", advice.gain);
    assert_eq!(
        level(&advice),
        ConfidenceLevel::Unsure,
        "{:?}",
        advice.sentences
    );
}

#[test]
fn a_gain_that_hangs_on_the_size_is_no_certainty() {
    // The loop is slightly larger than the cache. With a quarter more cache it fits under LRU.
    let advice = advised(
        "lru,mru,opt",
        &[950],
        &trace((0..50_000).map(|tick| tick % 1000)),
    );
    assert_eq!(
        advice.change,
        Recommendation::Policy,
        "{:?}",
        advice.sentences
    );
    let larger = advice.variants.iter().find(|one| one.cache_blocks > 950);
    assert!(
        larger.is_some_and(|one| one.gain < 0.01),
        "{:?}",
        advice.variants
    );
    assert_eq!(
        level(&advice),
        ConfidenceLevel::Likely,
        "{:?}",
        advice.sentences
    );
}

#[test]
fn what_the_trace_lacks_weakens_the_advice() {
    let references = trace((0..20_000).map(|tick| tick % 1000));
    let policies = <Spec>::parse_list("lru,ubm,opt").expect("policies");
    let options = CacheOptions {
        segments: SEGMENTS,
        ..CacheOptions::default()
    };
    let caches = grid(&policies, &[500], |rows| {
        Row::run(rows, &references, &options).expect("nothing is lacking")
    });
    let input = AdviceInput {
        references: 20_000,
        blocks: 1000,
        block_bytes: 4096,
        caches: &caches,
        steerable: true,
        asked_sizes: true,
        here: None,
        expected: None,
        doubts: vec![Doubt::unbounded("3 accesses were lost".to_owned())],
    };
    let advice = input.advice(&SecondPass::default());
    assert_eq!(level(&advice), ConfidenceLevel::Likely);
    let said = advice.sentences.join(" ");
    assert!(said.contains("; 3 accesses were lost."), "{said}");
    assert!(
        said.contains("`hither run` cannot steer a cache this small"),
        "{said}"
    );
}

/// A loop over 4 MiB fits into every cache that can be steered. A policy for a smaller cache is of
/// use only to a user who named that size.
#[test]
fn caches_too_small_to_steer_are_mentioned_but_not_advised() {
    let small = trace((0..20_000).map(|tick| tick % 1000));
    let advice = advised_on(ALL, &[500, 750], &small, true, false);
    assert_eq!(
        advice.change,
        Recommendation::Nothing,
        "{:?}",
        advice.sentences
    );
    assert_eq!((&advice.policy, advice.cache_blocks), (&None, None));
    assert_eq!(
        level(&advice),
        ConfidenceLevel::Sure,
        "{:?}",
        advice.sentences
    );
    let [mentioned] = &advice.alternatives[..] else {
        panic!("{:?}", advice.alternatives);
    };
    assert!(
        mentioned.cache_blocks == 750 && mentioned.gain > 0.5,
        "{mentioned:?}"
    );
    let said = advice.sentences.join(" ");
    assert!(
        said.contains("a cache of 3.91 MiB already serves 95.0 %"),
        "{said}"
    );
    assert!(
        said.contains("`hither run` steers caches of 8.00 MiB and more"),
        "{said}"
    );

    let asked = advised_on(ALL, &[500, 750], &small, true, true);
    assert_eq!(
        (asked.change, asked.cache_blocks),
        (Recommendation::Policy, Some(750))
    );

    // A cache that can be steered is advised, even if smaller ones gain more.
    let large = trace((0..60_000).map(|tick| tick % 5000));
    let advice = advised_on(ALL, &[1500, 2500], &large, true, false);
    assert_eq!(
        (advice.change, advice.cache_blocks),
        (Recommendation::Policy, Some(2500))
    );

    // Half of the references loop over 4 MiB, the others are random over 16 MiB: above 8 MiB a
    // larger cache helps and no policy.
    let mut random = random();
    let both = (0..80_000).map(|tick| match tick % 2 {
        0 => tick / 2 % 1000,
        _ => 1000 + random(4000),
    });
    let advice = advised_on(ALL, &[250, 500], &trace(both), true, false);
    assert_eq!(
        advice.change,
        Recommendation::Size,
        "{:?}",
        advice.sentences
    );
    let said = advice.sentences.join(" ");
    assert!(said.contains("where 8.0"), "{said}");
    assert!(
        said.contains("`hither run` steers caches of 8.00 MiB and more"),
        "{said}"
    );
}

#[test]
fn nothing_referenced_is_said_so() {
    let advice = advised(ALL, &[], &trace(std::iter::empty()));
    assert!(advice.sentences[0].contains("no block"));
    assert_eq!(advice.confidence, None);
    let advice = advised("arc,opt", &[10], &trace((0..100).map(|tick| tick % 20)));
    assert!(advice.sentences[0].contains("it takes lru and opt"));
}

#[test]
fn the_memory_that_the_program_had_is_what_the_advice_is_about() {
    let references = trace((0..20).flat_map(|_| 0..10_000));
    let sizes = [2500, 5000, 7500];
    let best = advised_on("lru,mru,opt", &sizes, &references, true, false);
    assert_eq!(best.cache_blocks, Some(7500), "a loop gains most there");
    let here = advised_here("lru,mru,opt", &sizes, &references, true, false, Some(5000));
    assert_eq!(here.change, Recommendation::Policy);
    assert_eq!(here.cache_blocks, Some(5000));
    let said = here.sentences.join(" ");
    let why = "is the memory that the recorded program had; --size names others.";
    assert!(said.contains(why), "{said}");
}
