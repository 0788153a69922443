//! Options of reading a trace, as users write them on the command line and in the file of a sweep.

use hither_sim::Size;
use hither_trace::Sample;

/// The name of a trace format in the registry, or `columns{...}` with its settings in one order.
/// Fails if there is no such format.
pub fn format_name(text: &str) -> Result<String, String> {
    hither_trace::format::Choice::parse(text)
        .map(|format| format.name())
        .map_err(|error| error.to_string())
}

/// The size of a block in bytes, from `4096` or `64KiB`.
pub fn block_bytes(text: &str) -> Result<u32, String> {
    let bytes = match text.parse::<Size>().map_err(|error| error.to_string())? {
        Size::Bytes(bytes) | Size::Blocks(bytes) => bytes,
        Size::Percent(_) => {
            return Err("a block has a size in bytes".to_owned());
        }
    };
    match u32::try_from(bytes) {
        Ok(bytes) if bytes > 0 => Ok(bytes),
        _ => Err(format!("a block is 1 to {} bytes large", u32::MAX)),
    }
}

/// Replaces a sample of 100 % by no sampling.
pub fn normalized(sample: Sample) -> Sample {
    match sample {
        Sample::Rate(1.0) => Sample::All,
        sample => sample,
    }
}
