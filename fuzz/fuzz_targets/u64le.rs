//! Any bytes as a trace in the format `u64le`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hither_fuzz::read("u64le", bytes));
