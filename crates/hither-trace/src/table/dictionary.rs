//! Columns of bytes that are stored as a dictionary are read as indices into it. So a name that a
//! million rows share is neither copied nor parsed a million times.
//!
//! The decoder of such a column is the one for 32-bit numbers: it gets a dictionary of the numbers
//! from 0 in place of the one of the names, and the same data pages.

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;

/// Whether all pages of a column chunk refer to its dictionary.
pub(super) fn is_dictionary(chunk: &ColumnChunkMetaData) -> bool {
    let encodings = chunk.page_encoding_stats_mask();
    chunk.dictionary_page_offset().is_some()
        && encodings.is_some_and(|encodings| {
            encodings.is_only(Encoding::RLE_DICTIONARY)
                || encodings.is_only(Encoding::PLAIN_DICTIONARY)
        })
}

/// The pages of a column chunk of bytes, as those of indices into its dictionary.
pub(super) struct IndexPages {
    dictionary: Option<Page>,
    pages: Box<dyn PageReader>,
}

impl IndexPages {
    /// Reads the dictionary. Returns its names too.
    pub(super) fn new(mut pages: Box<dyn PageReader>) -> Result<(IndexPages, Vec<Vec<u8>>)> {
        let Some(Page::DictionaryPage {
            buf,
            num_values,
            encoding: Encoding::PLAIN | Encoding::PLAIN_DICTIONARY,
            is_sorted,
        }) = pages.get_next_page()?
        else {
            return Err(damaged("no dictionary where one was announced"));
        };
        let names = names(&buf, num_values)?;
        let indices: Vec<u8> = (0..num_values).flat_map(u32::to_le_bytes).collect();
        let dictionary = Some(Page::DictionaryPage {
            buf: indices.into(),
            num_values,
            encoding: Encoding::PLAIN,
            is_sorted,
        });
        Ok((IndexPages { dictionary, pages }, names))
    }
}

/// The names of a dictionary: each has its length before it.
fn names(mut buf: &[u8], count: u32) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for _ in 0..count {
        let name = buf
            .split_first_chunk()
            .and_then(|(length, rest)| rest.split_at_checked(u32::from_le_bytes(*length) as usize));
        let (name, rest) = name.ok_or_else(|| damaged("a dictionary that is cut off"))?;
        names.push(name.to_owned());
        buf = rest;
    }
    Ok(names)
}

fn damaged(problem: &str) -> ParquetError {
    ParquetError::General(problem.to_owned())
}

impl Iterator for IndexPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

impl PageReader for IndexPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        if let Some(dictionary) = self.dictionary.take() {
            return Ok(Some(dictionary));
        }
        let page = self.pages.get_next_page()?;
        match page.as_ref().map(Page::encoding) {
            None | Some(Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY) => Ok(page),
            Some(_) => Err(damaged(
                "a page without dictionary where none was announced",
            )),
        }
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};

    use super::super::{Cells, Column, ColumnType, Table, TableWriter};

    const COLUMNS: [Column; 2] = [
        Column::required("name", ColumnType::Utf8),
        Column::nullable("bytes", ColumnType::Binary),
    ];

    #[derive(Debug, PartialEq)]
    struct Found {
        as_indices: bool,
        names: Vec<String>,
        numbers: Vec<u32>,
        bytes: Vec<Option<Vec<u8>>>,
    }

    /// Writes names and some of their bytes, and reads them.
    fn read(names: &[String], properties: WriterPropertiesBuilder) -> Found {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.parquet");
        let file = File::create_new(&path).unwrap();
        let mut writer = TableWriter::new(file, &COLUMNS, properties.build()).unwrap();
        let bytes = names.iter().map(|name| some_bytes(name));
        let cells = [
            Cells::texts(names.iter().cloned()),
            Cells::optional_bytes(bytes),
        ];
        writer.write(&cells).unwrap();
        writer.finish().unwrap();
        let mut table = Table::open(path, &COLUMNS).unwrap();
        let mut found = Found {
            as_indices: true,
            names: Vec::new(),
            numbers: Vec::new(),
            bytes: Vec::new(),
        };
        while let Some(batch) = table.next_batch().unwrap() {
            found.as_indices &= batch.has_indices("name");
            let text = |name: &[u8]| String::from_utf8(name.to_owned()).unwrap();
            let names = batch.bytes("name").unwrap();
            found.names.extend(names.into_iter().map(text));
            let numbers = batch.parsed("name", |name| name[1..].parse::<u32>().ok());
            found.numbers.extend(numbers.unwrap());
            let cells = batch.optional_bytes("bytes").unwrap().into_iter();
            let cells = cells.map(|cell| cell.map(<[u8]>::to_owned));
            found.bytes.extend(cells);
        }
        found
    }

    fn some_bytes(name: &str) -> Option<Vec<u8>> {
        (name.len() != 2).then(|| name.as_bytes().to_owned())
    }

    #[test]
    fn names_are_the_same_in_any_encoding() {
        let names: Vec<String> = (0..20_000).map(|row| format!("n{}", row % 1_500)).collect();
        let numbers: Vec<u32> = (0..20_000).map(|row| row % 1_500).collect();
        let properties = WriterProperties::builder;
        for (as_indices, properties) in [
            (true, properties()),
            (false, properties().set_dictionary_enabled(false)),
            // Later pages do without the dictionary, which is full.
            (false, properties().set_dictionary_page_size_limit(1_000)),
        ] {
            let expected = Found {
                as_indices,
                names: names.clone(),
                numbers: numbers.clone(),
                bytes: names.iter().map(|name| some_bytes(name)).collect(),
            };
            assert_eq!(read(&names, properties), expected);
        }
    }

    #[test]
    fn a_name_that_does_not_parse_is_an_error() {
        for enabled in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("table.parquet");
            let properties = WriterProperties::builder().set_dictionary_enabled(enabled);
            let file = File::create_new(&path).unwrap();
            let mut writer = TableWriter::new(file, &COLUMNS[..1], properties.build()).unwrap();
            writer.write(&[Cells::texts(["7", "seven"])]).unwrap();
            writer.finish().unwrap();
            let mut table = Table::open(path, &COLUMNS[..1]).unwrap();
            let batch = table.next_batch().unwrap().unwrap();
            let parsed = batch.parsed("name", |name| name.parse::<u32>().ok());
            let error = parsed.unwrap_err().to_string();
            assert!(
                error.contains("column name: unknown name \"seven\""),
                "{error}"
            );
        }
    }
}
