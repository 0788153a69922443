//! What `experiments/cluster/run.py` starts beside the nodes of a cluster cache.
//!
//! ```text
//! mesh fabric TOPOLOGY HOP_US SOURCE_HOPS      the network
//! mesh source ADDRESS LATENCY_MS NAME:BYTES... the storage
//! mesh read PLAN                               the programs
//! mesh noop INTERVAL_MS ADDRESS...             round trips
//! ```
//!
//! Each says on stdout in a line of JSON that it is ready, and takes commands by lines of stdin;
//! where that ends, it ends. See the modules.
#![forbid(unsafe_code)]

mod content;
mod fabric;
mod memcached;
mod noop;
mod read;
mod source;
mod values;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::values::number;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<()> {
    match arguments {
        ["fabric", topology, hop_us, source_hops] => {
            fabric::run(topology, number(hop_us)?, number(source_hops)?)
        }
        ["source", address, latency_ms, files @ ..] => {
            source::run(address, number(latency_ms)?, files)
        }
        ["noop", interval_ms, addresses @ ..] => noop::run(number(interval_ms)?, addresses),
        ["read", plan] => read::run(plan.as_ref()),
        _ => bail!("see the first lines of this program"),
    }
}
