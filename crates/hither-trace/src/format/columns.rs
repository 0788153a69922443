//! Delimited text whose columns the user names: `columns{key=3,size=4,time=1,op=2}`. A column is
//! counted from 1, or it has the name that the first line gives it. Each line is one reference to
//! its key, or as many as a column of counts says. Times and times to live (`ttl`) are in seconds;
//! `cost` is what an object costs to get.
//!
//! It is chosen by what it is to be read as, so there is nothing to recognise, and it is no format
//! of the registry. But a first line that was skipped as names and is a record would be lost
//! without a word, so it is refused where a number stands in it.

use std::fmt;

use crate::delimited::{Columns, SEPARATORS, WHITE_SPACE, for_each_field};
use crate::error::{Error, Result};
use crate::sink::Sink;
use crate::source::Input;
use crate::text::{Line, Lines, fractional};

/// What the text of such a format begins with.
const BEGIN: &str = "columns{";

/// The names of separators, which could not be written in the text of a format.
const NAMED_SEPARATORS: &[(&str, u8)] = &[
    ("bar", b'|'),
    ("comma", b','),
    ("semicolon", b';'),
    ("space", WHITE_SPACE),
    ("tab", b'\t'),
];

/// Which columns of delimited text are what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedColumns {
    key: Column,
    hexadecimal: bool,
    size: Option<Column>,
    ttl: Option<Column>,
    cost: Option<Column>,
    time: Option<Column>,
    op: Option<Column>,
    count: Option<Column>,
    /// Whether the first line has the names of the columns.
    header: bool,
    /// `None`: the first line shows it.
    delimiter: Option<u8>,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Column {
    /// By its number, from 0.
    At(usize),
    /// By its name.
    Named(String),
}

impl NamedColumns {
    /// Parses the text of such a format. `None` if it is the name of another one.
    pub fn parse(text: &str) -> Option<Result<NamedColumns>> {
        let inner = text.strip_prefix(BEGIN)?.strip_suffix('}');
        let parsed = inner.ok_or_else(|| "ends without `}`".to_owned());
        Some(
            parsed
                .and_then(NamedColumns::of)
                .map_err(|problem| Error::Columns {
                    text: text.to_owned(),
                    problem,
                }),
        )
    }

    /// The format with these settings, as options of a command have them.
    pub fn text(columns: &str, header: bool, delimiter: Option<&str>) -> String {
        let header = if header { "" } else { ",header=no" };
        let delimiter = delimiter.map(|delimiter| format!(",delimiter={}", name_of(delimiter)));
        format!(
            "{BEGIN}{columns}{header}{}}}",
            delimiter.unwrap_or_default()
        )
    }

    fn of(inner: &str) -> std::result::Result<NamedColumns, String> {
        let [
            mut key,
            mut size,
            mut ttl,
            mut cost,
            mut time,
            mut op,
            mut count,
        ] = [const { None }; 7];
        let (mut hexadecimal, mut header, mut delimiter) = (false, None, None);
        for setting in inner.split(',') {
            let (name, value) = setting
                .split_once('=')
                .ok_or_else(|| format!("{setting:?} is not `NAME=COLUMN`"))?;
            let (name, value) = (name.trim(), value.trim());
            let place = match name {
                "key" => &mut key,
                "size" => &mut size,
                "ttl" => &mut ttl,
                "cost" => &mut cost,
                "time" => &mut time,
                "op" => &mut op,
                "count" => &mut count,
                "header" if header.is_none() => {
                    header = Some(yes_or_no(value)?);
                    continue;
                }
                "delimiter" if delimiter.is_none() => {
                    delimiter = Some(separator(value)?);
                    continue;
                }
                "header" | "delimiter" => return Err(format!("{name} is named twice")),
                _ => {
                    return Err(format!(
                        "{name:?} is none of key, size, ttl, cost, time, op, count, header and \
                         delimiter"
                    ));
                }
            };
            let column = match value.strip_suffix(":hex") {
                Some(column) if name == "key" => {
                    hexadecimal = true;
                    column
                }
                _ => value,
            };
            if place.replace(Column::of(column)?).is_some() {
                return Err(format!("{name} is named twice"));
            }
        }
        let columns = NamedColumns {
            key: key.ok_or("no key is named")?,
            hexadecimal,
            size,
            ttl,
            cost,
            time,
            op,
            count,
            header: header.unwrap_or(true),
            delimiter,
        };
        columns.check()?;
        Ok(columns)
    }

    fn check(&self) -> std::result::Result<(), String> {
        let all: Vec<&Column> = self.roles().map(|(_, column)| column).collect();
        for (at, column) in all.iter().enumerate() {
            if all[..at].contains(column) {
                return Err(format!("column {column} is named twice"));
            }
            if let Column::Named(name) = column
                && !self.header
            {
                return Err(format!(
                    "column {name:?} has a name, and there is no header"
                ));
            }
        }
        Ok(())
    }

    /// The columns with what they are.
    fn roles(&self) -> impl Iterator<Item = (&'static str, &Column)> {
        let others = [
            ("size", &self.size),
            ("ttl", &self.ttl),
            ("cost", &self.cost),
            ("time", &self.time),
            ("op", &self.op),
            ("count", &self.count),
        ];
        let others = others.into_iter();
        let others = others.filter_map(|(role, column)| Some((role, column.as_ref()?)));
        std::iter::once(("key", &self.key)).chain(others)
    }

    /// Reads a trace into `sink`.
    pub(super) fn read(&self, input: &mut Input<'_>, sink: &mut dyn Sink) -> Result<()> {
        let mut lines = Lines::of(input);
        let columns = loop {
            let Some(line) = lines.next()? else {
                return Ok(());
            };
            if line.bytes.is_empty() {
                sink.separator();
                continue;
            }
            let columns = self.found_in(line)?;
            if self.header {
                sink.separator();
            } else {
                columns.line(line, sink)?;
            }
            break columns;
        };
        columns.read(lines, sink)
    }

    /// The places of the columns, by the first line.
    fn found_in(&self, line: Line<'_>) -> Result<Columns> {
        let separator = match self.delimiter {
            Some(delimiter) => delimiter,
            None => separator_of(line)?,
        };
        let mut fields: Vec<Vec<u8>> = Vec::new();
        for_each_field(line, separator, |field| {
            fields.push(field.to_owned());
            Ok(())
        })
        .map_err(line.wrong())?;
        if self.header
            && let Some(first) = fields.first_mut()
        {
            // As in `# time, object`.
            let name = first.trim_ascii_start();
            *first = name
                .strip_prefix(b"#")
                .unwrap_or(name)
                .trim_ascii()
                .to_owned();
        }
        let place = |column: &Column| self.place(column, &fields, line);
        let place_of = |column: &Option<Column>| column.as_ref().map(place).transpose();
        let columns = Columns {
            separator,
            count: fields.len(),
            object: place(&self.key)?,
            hexadecimal: self.hexadecimal,
            time: place_of(&self.time)?,
            size: place_of(&self.size)?,
            ttl: place_of(&self.ttl)?,
            cost: place_of(&self.cost)?,
            op: place_of(&self.op)?,
            repeats: place_of(&self.count)?,
        };
        Ok(columns)
    }

    /// The place of a column among the fields of the first line.
    fn place(&self, column: &Column, fields: &[Vec<u8>], line: Line<'_>) -> Result<usize> {
        let place = match column {
            Column::At(place) if *place < fields.len() => *place,
            Column::At(_) => {
                let problem = format!("column {column} of {}", fields.len());
                return Err(line.error(problem));
            }
            Column::Named(name) => {
                let is_it = |field: &Vec<u8>| field.eq_ignore_ascii_case(name.as_bytes());
                let place = fields.iter().position(is_it);
                let place = place.ok_or_else(|| line.error(format!("no column {name:?}")))?;
                if fields[place + 1..].iter().any(is_it) {
                    return Err(line.error(format!("two columns {name:?}")));
                }
                place
            }
        };
        if self.header && fractional(&fields[place]).is_ok() {
            return Err(line.error("numbers in place of the names of columns: --no-header"));
        }
        Ok(place)
    }
}

/// The settings with their defaults, in one order.
impl fmt::Display for NamedColumns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(BEGIN)?;
        for (at, (role, column)) in self.roles().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{role}={column}")?;
            if role == "key" && self.hexadecimal {
                f.write_str(":hex")?;
            }
        }
        if !self.header {
            f.write_str(",header=no")?;
        }
        if let Some(delimiter) = self.delimiter {
            let delimiter = char::from(delimiter).to_string();
            write!(f, ",delimiter={}", name_of(&delimiter))?;
        }
        f.write_str("}")
    }
}

impl Column {
    fn of(text: &str) -> std::result::Result<Column, String> {
        match text.parse::<usize>() {
            Ok(0) => Err("columns are counted from 1".to_owned()),
            Ok(number) => Ok(Column::At(number - 1)),
            Err(_) if text.is_empty() => Err("a column is missing".to_owned()),
            Err(_) => Ok(Column::Named(text.to_owned())),
        }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Column::At(place) => write!(f, "{}", place + 1),
            Column::Named(name) => f.write_str(name),
        }
    }
}

fn yes_or_no(text: &str) -> std::result::Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("header is yes or no, not {text:?}")),
    }
}

/// A separator by its name, or itself.
fn separator(text: &str) -> std::result::Result<u8, String> {
    if let Some((_, byte)) = NAMED_SEPARATORS.iter().find(|(name, _)| *name == text) {
        return Ok(*byte);
    }
    match text.as_bytes() {
        &[byte] if byte.is_ascii_punctuation() && !b"\"{},=".contains(&byte) => Ok(byte),
        _ => {
            let names: Vec<&str> = NAMED_SEPARATORS.iter().map(|(name, _)| *name).collect();
            let names = names.join(", ");
            Err(format!(
                "a delimiter is one of {names}, or a character of punctuation, not {text:?}"
            ))
        }
    }
}

/// The name of a separator, if it has one, since a comma would end the setting.
fn name_of(separator: &str) -> &str {
    let separator = if separator == "\\t" { "\t" } else { separator };
    let named = NAMED_SEPARATORS
        .iter()
        .find(|(_, byte)| separator.as_bytes() == [*byte]);
    named.map_or(separator, |(name, _)| name)
}

/// The only separator that the first line has, or white space if it has none.
fn separator_of(line: Line<'_>) -> Result<u8> {
    let mut found = SEPARATORS.iter().filter(|byte| line.bytes.contains(byte));
    match (found.next(), found.next()) {
        (None, _) => Ok(WHITE_SPACE),
        (Some(&only), None) => Ok(only),
        (Some(_), Some(_)) => Err(line.error("several separators: --delimiter names one")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<NamedColumns> {
        NamedColumns::parse(text).expect("the name of another format")
    }

    #[test]
    fn settings_are_written_as_they_are_read() {
        for text in [
            "columns{key=3}",
            "columns{key=3:hex,size=4,time=1,op=2,count=9,header=no,delimiter=tab}",
            "columns{key=cacheKey,time=ts,delimiter=comma}",
            "columns{key=1,delimiter=:}",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        assert_eq!(
            parse("columns{op=2, key=3,header=yes}")
                .unwrap()
                .to_string(),
            "columns{key=3,op=2}"
        );
        assert_eq!(
            NamedColumns::text("key=1", false, Some(",")),
            "columns{key=1,header=no,delimiter=comma}"
        );
        assert!(NamedColumns::parse("msr").is_none());
    }

    #[test]
    fn wrong_settings_are_named() {
        for (text, problem) in [
            ("columns{key=3", "ends without `}`"),
            ("columns{}", "\"\" is not `NAME=COLUMN`"),
            ("columns{size=3}", "no key is named"),
            ("columns{key=0}", "columns are counted from 1"),
            ("columns{key=1,key=2}", "key is named twice"),
            ("columns{key=1,size=1}", "column 1 is named twice"),
            ("columns{key=1,id=2}", "\"id\" is none of"),
            ("columns{key=,size=1}", "a column is missing"),
            (
                "columns{key=a,header=no}",
                "column \"a\" has a name, and there",
            ),
            ("columns{key=1,header=maybe}", "header is yes or no"),
            (
                "columns{key=1,delimiter=ab}",
                "a delimiter is one of bar, comma",
            ),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
