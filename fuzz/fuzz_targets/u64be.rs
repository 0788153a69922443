//! Any bytes as a trace in the format `u64be`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hither_fuzz::read("u64be", bytes));
