//! The formats of traces that can be read. To add one, write a file here and put its line into [`FORMATS`]: help,
//! recognition and errors come from the slice.

mod hither;
mod lirs;

use std::path::Path;

use crate::error::{Error, Result};
use crate::load::Builder;
use crate::source::Head;

/// A format of traces.
#[derive(Debug)]
pub struct Format {
    /// Its name, for `--format`.
    pub name: &'static str,
    /// What it is, in a line.
    pub doc: &'static str,
    /// Whether content that begins so is of this format.
    matches: fn(&Head) -> bool,
    /// Reads a trace into the builder, and returns the SHA-256 of what it read.
    pub(crate) read: fn(&Path, &mut Builder) -> Result<String>,
}

/// The formats, sorted by name.
pub const FORMATS: &[Format] = &[hither::FORMAT, lirs::FORMAT];

/// The format of that name.
pub fn find(name: &str) -> Result<&'static Format> {
    let found = FORMATS.iter().find(|format| format.name == name);
    found.ok_or_else(|| Error::UnknownFormat {
        name: name.to_owned(),
        known: known(),
    })
}

/// The format that the content of `path` tells: the first in [`FORMATS`] that takes it. A file's name decides
/// nothing.
pub fn recognise(path: &Path) -> Result<&'static Format> {
    let head = Head::read(path)?;
    let found = FORMATS.iter().find(|format| (format.matches)(&head));
    found.ok_or_else(|| Error::Unrecognised {
        path: path.to_owned(),
        known: known(),
    })
}

fn known() -> String {
    FORMATS
        .iter()
        .map(|format| format.name)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_this_folder_is_registered() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/format");
        let files = std::fs::read_dir(folder).unwrap();
        let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut files: Vec<String> = files.filter(|name| name != "mod.rs").collect();
        files.sort();
        let names: Vec<String> = FORMATS
            .iter()
            .map(|format| format!("{}.rs", format.name))
            .collect();
        assert_eq!(files, names);
    }

    #[test]
    fn the_registry_is_sorted_unique_and_documented() {
        assert!(FORMATS.is_sorted_by(|a, b| a.name < b.name));
        for format in FORMATS {
            assert!(!format.doc.is_empty(), "{}", format.name);
            assert_eq!(find(format.name).unwrap().name, format.name);
        }
        assert!(
            find("nonsense")
                .unwrap_err()
                .to_string()
                .contains("known: hither, lirs")
        );
    }
}
