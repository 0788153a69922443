//! Any bytes as a trace in the format `hither`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: hither_fuzz::let_decoder_panics_pass(), |bytes: &[u8]| hither_fuzz::read("hither", bytes));
