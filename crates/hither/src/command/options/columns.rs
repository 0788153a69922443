//! The options that name the columns of a trace of delimited text.

use clap::Args;
use hither_trace::Error;
use hither_trace::format::NamedColumns;

/// Which columns of a trace are what.
#[derive(Args, Debug)]
pub(crate) struct ColumnsArgs {
    /// Read delimited text of these columns, as key=3,size=4,time=1,op=2
    ///
    /// A column is counted from 1, or has the name that the first line gives it. The key is any
    /// text, or with `key=3:hex` a hexadecimal number; `count` says how many references a line is.
    /// Sizes and times must be numbers. An op is a read (r, read, get, 28) or a write (w, write,
    /// set, delete, 2a); without one, all are reads. Fields may be in quotation marks, as in CSV.
    #[arg(long, value_name = "key=N[,...]", value_parser = columns, hide_short_help = true)]
    columns: Option<String>,

    /// The first line is a record, and not the names of the columns
    #[arg(long, requires = "columns", hide_short_help = true)]
    no_header: bool,

    /// What separates columns: tab, comma, bar, semicolon, space, or a character
    ///
    /// By default it is what the first line has of `,`, `;`, `|` and tab, or white space if it has
    /// none of them.
    #[arg(
        long,
        value_name = "C",
        requires = "columns",
        value_parser = delimiter,
        hide_short_help = true
    )]
    delimiter: Option<String>,
}

impl ColumnsArgs {
    /// The format of a trace: by its columns, or the one that is named otherwise.
    pub(crate) fn format_or(&self, named: Option<&str>) -> Option<String> {
        let columns = self
            .columns
            .as_deref()
            .map(|columns| NamedColumns::text(columns, !self.no_header, self.delimiter.as_deref()));
        columns.or_else(|| named.map(str::to_owned))
    }
}

fn columns(text: &str) -> Result<String, String> {
    checked(text, None).map(|()| text.to_owned())
}

fn delimiter(text: &str) -> Result<String, String> {
    checked("key=1", Some(text)).map(|()| text.to_owned())
}

/// Says what is wrong with an option alone.
fn checked(columns: &str, delimiter: Option<&str>) -> Result<(), String> {
    match NamedColumns::parse(&NamedColumns::text(columns, true, delimiter)) {
        Some(Ok(_)) => Ok(()),
        Some(Err(Error::Columns { problem, .. })) => Err(problem),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("no columns".to_owned()),
    }
}
