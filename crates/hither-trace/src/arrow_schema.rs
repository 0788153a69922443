//! The Arrow schema that `accesses.parquet` carries, so that pandas reads `op` as a category.
//!
//! Parquet has no type for a dictionary. What writes Arrow data keeps the Arrow schema beside the
//! Parquet one, as a key of the file's metadata, and pyarrow goes by it: without it `op` is a
//! string a row, which takes pandas ten times the memory. The schema is a flatbuffer; it is a
//! constant here because it never varies, and a library for it would cost more than the column is
//! worth. `tests/python.rs` reads it back.
//!
//! The other tables do without: their Parquet types say all that there is.

/// The key of the file's metadata.
pub(crate) const METADATA_KEY: &str = "ARROW:schema";

/// The columns of `accesses.parquet` as an encapsulated Arrow IPC message in base64. All are as in
/// [`ACCESSES_COLUMNS`](crate::schema::ACCESSES_COLUMNS), and `op` is
/// `dictionary<values=string, indices=int32>`. pyarrow makes the like of it with
/// `base64.b64encode(schema.serialize())`.
pub(crate) const ACCESSES_SCHEMA: &str = concat!(
    "/////8QCAAAQAAAAAAAKAAwACgAJAAQACgAAAAgAAAAAAQQA7P7//wQAAAAMAAAAaAIAACgCAADoAQAAuAEAAIgB",
    "AABYAQAAKAEAANQAAACUAAAAZAAAADQAAAAEAAAAFP7//xAAAAAUAAAAAAAAAhAAAADG/f//IAAAAAAAAAAFAAAA",
    "Y291bnQAAABA/v//EAAAABQAAAAAAAACEAAAAPL9//9AAAAAAAAAAAYAAABsZW5ndGgAAGz+//8QAAAAFAAAAAAA",
    "AAIQAAAAHv7//0AAAAAAAAAABgAAAG9mZnNldAAAmP7//xQAAAAMAAAAAAAABgwAAAAAAAAAnP///wkAAABpbl9r",
    "ZXJuZWwAAAAQABgAFAAAAA8ABAAQAAgAEAAAAEAAAAA0AAAAAAAABRAAAAA0AAAACAAIAAAABAAIAAAADAAAAAgA",
    "DAAEAAsACAAAACAAAAAAAAABAAAAAAQABAAEAAAAAgAAAG9wAAAk////EAAAABQAAAAAAAACEAAAANb+//8gAAAA",
    "AAAAAAYAAABvYmplY3QAAFD///8QAAAAFAAAAAAAAAIQAAAAAv///yAAAAAAAAAABAAAAHNpdGUAAAAAfP///xAA",
    "AAAUAAAAAAAAAhAAAAAu////IAAAAAAAAAAEAAAAbm9kZQAAAACo////EAAAABQAAAAAAAACEAAAAFr///8gAAAA",
    "AAAAAAYAAAB0aHJlYWQAANT///8QAAAAFAAAAAAAAAIQAAAAhv///yAAAAAAAAAABwAAAHByb2Nlc3MAEAAUABAA",
    "AAAPAAQAAAAIABAAAAAQAAAAFAAAAAAAAAIQAAAAwv///0AAAAAAAAAABwAAAHRpbWVfbnMAEAAWABAAAAAPAAQA",
    "AAAIABAAAAAYAAAAHAAAAAAAAAIYAAAAAAAGAAgABAAGAAAAQAAAAAAAAAAEAAAAdGljawAAAAA=",
);
