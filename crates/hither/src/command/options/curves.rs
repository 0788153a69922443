//! The arguments of miss-ratio curves.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use hither_analysis::curve;
use hither_analysis::plot::Plot;
use hither_analysis::result_rows;
use hither_core::Spec;
use hither_sim::{Points, Spacing};
use hither_trace::Trace;

use crate::output;
use crate::ui::Ui;

/// The options about curves.
#[derive(Args, Debug)]
pub(crate) struct CurveArgs {
    /// Write the miss ratio at all cache sizes to FILE; may be given several times
    ///
    /// FILE is data (.csv, .json or .parquet) or a picture (.svg or .png). An existing file is
    /// replaced. With --size or --json the results at these sizes are printed, too.
    #[arg(long = "curve", value_name = "FILE", conflicts_with = "profile")]
    files: Vec<CurveFile>,

    /// The most cache sizes of a curve
    ///
    /// lru and opt take one pass for all sizes and have 1000.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 64,
        requires = "files",
        value_parser = clap::value_parser!(u16).range(2..=4096),
        hide_short_help = true
    )]
    points: u16,

    /// The scale of cache sizes
    #[arg(
        long,
        value_name = "HOW",
        value_enum,
        default_value_t = Scale::Log,
        requires = "files",
        hide_short_help = true
    )]
    scale: Scale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scale {
    /// Equal factors
    Log,
    /// Equal steps
    Linear,
}

/// A file to write, with its format.
#[derive(Clone, Debug)]
struct CurveFile {
    path: PathBuf,
    format: CurveFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CurveFormat {
    Data(result_rows::RowFormat),
    Svg,
    Png,
}

impl FromStr for CurveFile {
    type Err = String;

    fn from_str(text: &str) -> Result<CurveFile, String> {
        let path = PathBuf::from(text);
        let ending = path.extension().and_then(|ending| ending.to_str());
        let format = match ending {
            Some("svg") => CurveFormat::Svg,
            Some("png") => CurveFormat::Png,
            other => other
                .and_then(|name| name.parse().ok())
                .map(CurveFormat::Data)
                .ok_or("the name ends in none of .csv, .json, .parquet, .svg, .png")?,
        };
        Ok(CurveFile { path, format })
    }
}

impl CurveArgs {
    pub(crate) fn wanted(&self) -> bool {
        !self.files.is_empty()
    }

    /// Fails where a file could not be written.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.files
            .iter()
            .try_for_each(|file| output::check_folder(&file.path))
    }

    /// Works out the curves of the policies and writes them.
    pub(crate) fn write(&self, trace: &Trace, policies: &[Spec], ui: &Ui) -> anyhow::Result<()> {
        let points = Points {
            simulated: self.points.into(),
            spacing: match self.scale {
                Scale::Log => Spacing::Log,
                Scale::Linear => Spacing::Linear,
            },
            ..Points::default()
        };
        let curves = curve::Curves::of(trace, policies, points, ui)?;
        let rows = curves.rows();
        let chart = curves.chart(self.scale == Scale::Log);
        for CurveFile { path, format } in &self.files {
            let content = match format {
                CurveFormat::Data(rows_format) => rows_format.write(&rows)?,
                CurveFormat::Svg => chart.svg().into_bytes(),
                CurveFormat::Png => chart.png()?,
            };
            output::write_whole(path, &content)?;
            ui.note(format_args!("wrote {}", path.display()));
        }
        Ok(())
    }
}
