//! Any bytes as a trace in the format `libcachesim-txt`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hither_fuzz::read("libcachesim-txt", bytes));
