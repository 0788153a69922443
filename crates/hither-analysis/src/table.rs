//! Tables as text: columns two spaces apart and no lines, for easy grep and paste.

use comfy_table::{Cell, CellAlignment, ContentArrangement, presets};

use crate::format::printable;

/// How the cells of a column are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// A table of plain text.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Align>,
    table: comfy_table::Table,
}

impl Table {
    /// A table with these column heads.
    pub fn new(columns: impl IntoIterator<Item = (impl Into<String>, Align)>) -> Self {
        let (heads, columns): (Vec<String>, Vec<Align>) = columns
            .into_iter()
            .map(|(head, align)| (head.into(), align))
            .unzip();
        let mut table = comfy_table::Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled);
        let mut table = Table { columns, table };
        table.row(heads);
        table
    }

    /// Adds a row, one cell a column. What is not printed is [escaped](printable): a cell is a part
    /// of a line, whatever it names.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<Cell> = cells
            .into_iter()
            .zip(&self.columns)
            .map(|(cell, align)| Cell::new(printable(&cell)).set_alignment(align.cell()))
            .collect();
        assert_eq!(
            cells.len(),
            self.columns.len(),
            "a row has one cell a column"
        );
        self.table.add_row(cells);
    }

    /// The table as text, each line indented by two spaces and ended by a line feed.
    pub fn render(mut self) -> String {
        for column in self.table.column_iter_mut() {
            column.set_padding((2, 0));
        }
        let lines = self.table.lines();
        lines
            .map(|line| line.trim_end().to_owned() + "\n")
            .collect()
    }
}

impl Align {
    fn cell(self) -> CellAlignment {
        match self {
            Align::Left => CellAlignment::Left,
            Align::Right => CellAlignment::Right,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_aligns_words_left_and_numbers_right() {
        let mut table = Table::new([("policy", Align::Left), ("hits", Align::Right)]);
        table.row(["lru".to_owned(), "7".to_owned()]);
        table.row(["pcc".to_owned(), "1,234".to_owned()]);
        assert_eq!(
            table.render(),
            "  policy   hits\n  lru         7\n  pcc     1,234\n"
        );
    }
}
