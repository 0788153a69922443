//! Files with pictures or tables that commands write, in the format that their name ends in.

use std::path::PathBuf;

use hither_analysis::plot::Plot;
use hither_analysis::result_rows::RowFormat;

use crate::output;
use crate::ui::Ui;

/// A file to write, with its format.
#[derive(Clone, Debug)]
pub(crate) struct PictureFile {
    pub(crate) path: PathBuf,
    pub(crate) format: PictureFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PictureFormat {
    Svg,
    Png,
    /// A table with what the picture shows.
    Rows(RowFormat),
}

const PICTURES: [(&str, PictureFormat); 2] =
    [("svg", PictureFormat::Svg), ("png", PictureFormat::Png)];

fn picture_file(text: &str, allowed: &[(&str, PictureFormat)]) -> Result<PictureFile, String> {
    let path = PathBuf::from(text);
    let ending = path.extension().and_then(|ending| ending.to_str());
    let found = allowed.iter().find(|(name, _)| Some(*name) == ending);
    let format = found.map(|&(_, kind)| kind).ok_or_else(|| {
        let names: Vec<String> = allowed.iter().map(|(name, _)| format!(".{name}")).collect();
        format!("the name ends in none of {}", names.join(", "))
    })?;
    Ok(PictureFile { path, format })
}

/// A picture, as .svg or .png.
pub(crate) fn picture(text: &str) -> Result<PictureFile, String> {
    picture_file(text, &PICTURES)
}

/// A picture, or a table as .csv.
pub(crate) fn picture_or_csv(text: &str) -> Result<PictureFile, String> {
    let table = ("csv", PictureFormat::Rows(RowFormat::Csv));
    picture_file(text, &[&PICTURES[..], &[table]].concat())
}

/// A table in any format, or a picture.
pub(crate) fn table_or_picture(text: &str) -> Result<PictureFile, String> {
    let tables = RowFormat::ALL.map(|(name, format)| (name, PictureFormat::Rows(format)));
    picture_file(text, &[&tables[..], &PICTURES].concat())
}

impl PictureFile {
    /// Draws `picture` into the file.
    pub(crate) fn save(&self, picture: &impl Plot, ui: &Ui) -> anyhow::Result<()> {
        let content = match self.format {
            PictureFormat::Png => picture.png()?,
            PictureFormat::Svg | PictureFormat::Rows(_) => picture.svg().into_bytes(),
        };
        self.write(&content, ui)
    }

    /// Writes its content, which the caller has in its format.
    pub(crate) fn write(&self, content: &[u8], ui: &Ui) -> anyhow::Result<()> {
        output::write_whole(&self.path, content)?;
        ui.note(format_args!("wrote {}", self.path.display()));
        Ok(())
    }
}
