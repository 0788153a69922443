//! Recognition proves a format: a mutated sample is never taken for another format with other
//! numbers, and nothing panics.

mod common;

use common::samples::{lcs, samples, vscsi_2};
use hither_trace::format::{FORMATS, recognise};
use hither_trace::{Input, LoadOptions, Trace};

/// Mutated inputs of each sample.
const MUTANTS: usize = 200;

/// Random numbers, with a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below.max(1)
    }
}

/// What separates words of a text, and what a damaged tool or copy leaves behind.
const TOKENS: &[&[u8]] = &[
    b"\n",
    b" ",
    b",",
    b";",
    b"\t",
    b"0",
    b"7",
    b"-1",
    b"R",
    b"W",
    b"#",
    b"\"",
    b"*",
    b"\0",
    b"\xff",
    b"\r\n",
    b"4294967296",
    b"{}",
    b"=",
    b"(",
    b")",
];

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len());
    let end = at + random.below((bytes.len() - at).min(40));
    match random.below(8) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
        1 if !bytes.is_empty() => bytes[at] = random.below(256) as u8,
        2 => drop(bytes.drain(at..end)),
        3 => {
            let copied = bytes[at..end].to_vec();
            let to = random.below(bytes.len());
            drop(bytes.splice(to..to, copied));
        }
        4 => drop(bytes.splice(at..at, TOKENS[random.below(TOKENS.len())].iter().copied())),
        5 => drop(bytes.splice(at..end, TOKENS[random.below(TOKENS.len())].iter().copied())),
        6 => bytes.truncate(at),
        // Lines in another order, or the beginning lost.
        _ => bytes.rotate_left(at),
    }
}

/// What is wrong where a format is.
#[derive(Debug, PartialEq)]
struct Counts {
    references: usize,
    blocks: usize,
}

fn counts(bytes: &[u8], format: Option<&str>) -> Result<Counts, String> {
    let options = LoadOptions {
        block_bytes: 1 << 20,
        ..LoadOptions::default()
    };
    let input = Input::new("input", bytes).map_err(|error| error.to_string())?;
    let trace = Trace::read(input, format, &options).map_err(|error| error.to_string())?;
    assert!(trace.blocks() <= trace.references());
    Ok(Counts {
        references: trace.references(),
        blocks: trace.blocks(),
    })
}

#[test]
fn a_mutated_sample_is_never_another_format_with_other_numbers() {
    let mut random = Random(20261130);
    let mut all = samples();
    all.push(("vscsi", [vscsi_2(7), vscsi_2(9)].concat()));
    all.push(("lcs", lcs(8192, 3, &[7, 8, 7])));
    let mut wrong = Vec::new();
    for (name, sample) in all {
        for round in 0..MUTANTS {
            let mut bytes = sample.clone();
            for _ in 0..1 + round % 4 {
                mutate(&mut bytes, &mut random);
            }
            let own = counts(&bytes, Some(name));
            let takers: Vec<&str> = {
                let Ok(mut input) = Input::new("input", bytes.as_slice()) else {
                    continue;
                };
                let takers = FORMATS
                    .iter()
                    .filter(|format| format.recognises(&mut input).unwrap());
                let takers: Vec<&str> = takers.map(|format| format.name).collect();
                assert_eq!(recognise(&mut input).is_ok(), !takers.is_empty());
                takers
            };
            let shown = || String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
            // At most one, so that the order of the registry does not matter.
            if takers.len() > 1 {
                wrong.push(format!("{name}: {takers:?}: {:?}", shown()));
            }
            let told = counts(&bytes, None);
            let is_other = takers
                .iter()
                .any(|taker| *taker != name && !name.starts_with(taker));
            // Of a sample that was cut to a number or two nothing is left to know it by.
            let is_left = 2 * bytes.len() >= sample.len();
            if is_left && is_other && told.is_ok() && told != own {
                wrong.push(format!(
                    "{name} as {takers:?}: {own:?}, {told:?}: {:?}",
                    shown()
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
