//! Pictures that commands draw, by the ending of their name.

use std::path::PathBuf;

use hither_analysis::plot::Plot;

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
    Csv,
}

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
    picture_file(
        text,
        &[("svg", PictureFormat::Svg), ("png", PictureFormat::Png)],
    )
}

/// A picture, or a table as .csv.
pub(crate) fn picture_or_table(text: &str) -> Result<PictureFile, String> {
    picture_file(
        text,
        &[
            ("svg", PictureFormat::Svg),
            ("png", PictureFormat::Png),
            ("csv", PictureFormat::Csv),
        ],
    )
}

impl PictureFile {
    /// Draws `picture` into the file.
    pub(crate) fn save(&self, picture: &impl Plot, ui: &Ui) -> anyhow::Result<()> {
        let content = match self.format {
            PictureFormat::Png => picture.png()?,
            PictureFormat::Svg | PictureFormat::Csv => picture.svg().into_bytes(),
        };
        output::write_whole(&self.path, &content)?;
        ui.note(format_args!("wrote {}", self.path.display()));
        Ok(())
    }
}
