//! `lab SCENARIO.toml`: runs programs in guests with several NUMA nodes and says where their memory accesses went.
#![forbid(unsafe_code)]

mod counts;
mod guest;
mod machine;
mod programs;

fn main() {}
