//! Miss-ratio curves of a trace: `miss_ratio_curve [TRACE]` prints, for caches of several sizes,
//! which share of the references misses, with LRU, ARC and the optimum. Without a trace, of a loop
//! over 1,000 blocks.

use std::error::Error;

use hither_core::{Spec, SpecError};
use hither_sim::{CacheOptions, MissRatioCurve, Points, curves};
use hither_trace::{LoadOptions, Trace, TraceBuilder};

fn a_loop() -> hither_trace::Result<Trace> {
    let mut builder = TraceBuilder::new("a loop", &LoadOptions::default())?;
    for reference in 0..10_000 {
        builder.block(reference % 1000)?;
    }
    builder.finish()
}

fn simulate(trace: &Trace) -> Result<Vec<MissRatioCurve>, Box<dyn Error>> {
    let policies = ["lru", "arc", "opt"].into_iter().map(str::parse);
    let policies = policies.collect::<Result<Vec<Spec>, SpecError>>()?;
    let points = Points {
        simulated: 8,
        exact: 8,
        ..Points::default()
    };
    Ok(curves(trace, &policies, points, &CacheOptions::default())?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let trace = match std::env::args_os().nth(1) {
        Some(path) => Trace::load(path, None, &LoadOptions::default())?,
        None => a_loop()?,
    };
    for curve in simulate(&trace)? {
        println!("{}", curve.policy);
        for cache in &curve.cells {
            let missing = 100.0 * (1.0 - cache.hit_ratio);
            println!("{:8} blocks: {missing:5.1} % miss", cache.cache_blocks);
        }
    }
    Ok(())
}

#[test]
fn the_optimum_keeps_a_part_of_a_loop_and_lru_none_of_it() {
    let curves = simulate(&a_loop().unwrap()).unwrap();
    let hits = |curve: &MissRatioCurve, blocks: u32| {
        let mut cells = curve.cells.iter();
        let cell = cells.find(|cell| cell.cache_blocks >= blocks && cell.cache_blocks < 1000);
        cell.expect("a size between them").hits
    };
    assert_eq!(hits(&curves[0], 300), 0);
    assert!(hits(&curves[2], 300) > 2000);
}
