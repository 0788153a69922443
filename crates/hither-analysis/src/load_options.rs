//! What users write to say how a trace is read, on the command line and in the file of a sweep.

use hither_sim::Size;
use hither_trace::Sample;

/// The name of a format of traces, as the registry has it. Fails where there is none of that name.
pub fn format_name(text: &str) -> Result<String, String> {
    hither_trace::format::find(text)
        .map(|format| format.name.to_owned())
        .map_err(|error| error.to_string())
}

/// The size of a block in bytes, from `4096` or `64KiB`.
pub fn block_bytes(text: &str) -> Result<u32, String> {
    let bytes = match text.parse::<Size>().map_err(|error| error.to_string())? {
        Size::Bytes(bytes) | Size::Blocks(bytes) => bytes,
        Size::Percent(_) => return Err("a block has a size in bytes".to_owned()),
    };
    match u32::try_from(bytes) {
        Ok(bytes) if bytes > 0 => Ok(bytes),
        _ => Err(format!("a block is 1 to {} bytes large", u32::MAX)),
    }
}

/// A sample that has all of the blocks is no sample.
pub fn whole(sample: Sample) -> Sample {
    match sample {
        Sample::Rate(1.0) => Sample::All,
        sample => sample,
    }
}
