//! Arguments of the commands about cached volumes.

use hither_sim::Size;

/// A size in bytes, such as `64MiB`.
pub(crate) fn size_bytes(text: &str) -> Result<u64, String> {
    match text.parse::<Size>().map_err(|error| error.to_string())? {
        Size::Bytes(bytes) | Size::Blocks(bytes) => Ok(bytes),
        Size::Percent(_) => Err("a size in bytes is expected, such as 64MiB".to_owned()),
    }
}

/// `KEY=VALUE`.
pub(crate) fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("KEY=VALUE is expected")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// The name that the blocks of a source have on all nodes: its URL without what does not change
/// the data.
pub(crate) fn volume_name(source: &str) -> String {
    let name = source.strip_prefix("file://").unwrap_or(source);
    name.trim_end_matches('/').to_owned()
}
