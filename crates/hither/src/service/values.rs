//! Values that stand in options and in files alike.

use hither_sim::Size;

/// A size in bytes, such as `64MiB`.
pub(crate) fn size_bytes(text: &str) -> Result<u64, String> {
    match text.parse::<Size>().map_err(|error| error.to_string())? {
        Size::Bytes(bytes) | Size::Blocks(bytes) => Ok(bytes),
        Size::Percent(_) => Err("a size in bytes is expected, such as 64MiB".to_owned()),
    }
}

/// The length of a block.
pub(crate) fn block_bytes(text: &str) -> Result<u32, String> {
    let bytes = u32::try_from(size_bytes(text)?).ok();
    let bytes = bytes.filter(|bytes| bytes.is_power_of_two());
    bytes
        .filter(|bytes| (4 << 10..=8 << 20).contains(bytes))
        .ok_or_else(|| "a power of two from 4KiB to 8MiB is expected".to_owned())
}

/// `KEY=VALUE`.
pub(crate) fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("KEY=VALUE is expected")?;
    Ok((key.to_owned(), value.to_owned()))
}
