//! The tables of a trace beside the accesses, as columns: what their cells are, and the properties
//! of the Parquet files.

use std::path::Path;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

use crate::error::{Error, Result};
use crate::private_file::create_private;
use crate::schema::{Frame, OBJECTS_COLUMNS, ObjectRow, SiteRow};
use crate::table::{Cells, Column, TableWriter};

/// The column of row numbers of a table.
fn numbers<T>(rows: &[T]) -> Cells {
    Cells::u32s((0u32..).zip(rows).map(|(number, _)| number))
}

/// The cells in the order of [`OBJECTS_COLUMNS`].
pub(crate) fn objects_cells(objects: &[ObjectRow]) -> [Cells; OBJECTS_COLUMNS.len()] {
    let u64s = |get: fn(&ObjectRow) -> u64| Cells::u64s(objects.iter().map(get));
    let bytes_of = |row: &ObjectRow| {
        std::str::from_utf8(&row.path)
            .is_err()
            .then(|| row.path.clone())
    };
    [
        numbers(objects),
        Cells::names(objects.iter().map(|row| row.kind.name())),
        Cells::texts(objects.iter().map(ObjectRow::path_lossy)),
        Cells::optional_bytes(objects.iter().map(bytes_of)),
        u64s(|row| row.device),
        u64s(|row| row.inode),
        u64s(|row| row.size),
        u64s(|row| row.first_seen_ns),
        u64s(|row| row.last_seen_ns),
    ]
}

/// The cells of the leaves of [`SITES_COLUMNS`](crate::schema::SITES_COLUMNS), in their order.
pub(crate) fn sites_cells(sites: &[SiteRow]) -> Vec<Cells> {
    let texts = |get: fn(&SiteRow) -> &Option<String>| {
        Cells::optional_texts(sites.iter().map(|site| get(site).as_deref()))
    };
    let mut cells = vec![
        numbers(sites),
        Cells::u64s(sites.iter().map(|site| site.signature)),
        Cells::booleans(sites.iter().map(|site| site.truncated)),
        texts(|site| &site.function),
        texts(|site| &site.file),
        Cells::optional_u32s(sites.iter().map(|site| site.line)),
        texts(|site| &site.module),
    ];
    let frames: Vec<&Frame> = sites.iter().flat_map(|site| &site.frames).collect();
    let lengths = sites.iter().map(|site| site.frames.len());
    let in_lists = |field: Cells| field.in_lists(lengths.clone());
    cells.extend(frames_cells(&frames).map(in_lists));
    cells
}

/// The cells of the fields of frames, in the order of the fields of [`SITES_COLUMNS`].
fn frames_cells(frames: &[&Frame]) -> [Cells; 6] {
    let texts = |get: fn(&Frame) -> &Option<String>| {
        Cells::optional_texts(frames.iter().map(|frame| get(frame).as_deref()))
    };
    [
        Cells::texts(frames.iter().map(|frame| frame.module.as_str())),
        Cells::texts(frames.iter().map(|frame| frame.build_id.as_str())),
        Cells::u64s(frames.iter().map(|frame| frame.offset)),
        texts(|frame| &frame.function),
        texts(|frame| &frame.file),
        Cells::optional_u32s(frames.iter().map(|frame| frame.line)),
    ]
}

pub(crate) fn properties() -> WriterPropertiesBuilder {
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        // Row groups are small enough without an index of their pages.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    for column in ["tick", "time_ns"] {
        let column = ColumnPath::from(column);
        builder = builder
            .set_column_dictionary_enabled(column.clone(), false)
            .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
    }
    builder
}

pub(crate) fn write_table(path: &Path, columns: &[Column], cells: &[Cells]) -> Result<()> {
    let write = || {
        let file = create_private(path)?;
        let mut writer = TableWriter::new(file, columns, properties().build())?;
        writer.write(cells)?;
        writer.finish()?.sync_all()?;
        Ok(())
    };
    write().map_err(Error::parquet(path))
}
