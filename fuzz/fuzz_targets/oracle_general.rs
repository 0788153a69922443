//! Any bytes as a trace in the format `oracle-general`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hither_fuzz::read("oracle-general", bytes));
