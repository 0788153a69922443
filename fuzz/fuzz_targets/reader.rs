//! Reads arbitrary bytes as a trace in the format that `HITHER_FUZZ_FORMAT` names.
#![no_main]

libfuzzer_sys::fuzz_target!(init: hither_fuzz::start(), |bytes: &[u8]| hither_fuzz::read(bytes));
