//! The arguments of miss-ratio curves.

use clap::{Args, ValueEnum};
use hither_analysis::curve;
use hither_core::Spec;
use hither_sim::{Points, Spacing};
use hither_trace::Trace;

use super::picture::{PictureFile, PictureFormat, table_or_picture};
use crate::output;
use crate::ui::Ui;

/// The options about curves.
#[derive(Args, Debug)]
pub(crate) struct CurveArgs {
    /// Write the miss ratio at all cache sizes to FILE; may be given several times
    ///
    /// FILE is data (.csv, .json or .parquet) or a picture (.svg or .png). An existing file is
    /// replaced. With --size or --json the results at these sizes are printed, too.
    #[arg(
        long = "curve",
        value_name = "FILE",
        value_parser = table_or_picture,
        conflicts_with = "profile"
    )]
    files: Vec<PictureFile>,

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
        for file in &self.files {
            match file.format {
                PictureFormat::Rows(format) => file.write(&format.write(&rows)?, ui)?,
                PictureFormat::Svg | PictureFormat::Png => file.save(&chart, ui)?,
            }
        }
        Ok(())
    }
}
