//! Miss-ratio curves of a trace, written as data and as pictures.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, ValueEnum};
use hither_core::Spec;
use hither_sim::{MissRatioCurve, Options, Points, Spacing};
use hither_trace::Trace;

use crate::exit::Usage;
use crate::format::{bytes, counted, policy, shortened};
use crate::output;
use crate::plot::{Chart, Line, Picture};
use crate::rows::{self, Row, Source};
use crate::simulate;
use crate::ui::Ui;

/// Which curves go where.
#[derive(Args, Debug)]
pub(crate) struct Curves {
    /// Write the miss ratio at all cache sizes to FILE, which is replaced if it is there: data as
    /// .csv, .json or .parquet, a picture as .svg or .png; may be given several times
    #[arg(
        long = "curve",
        value_name = "FILE",
        conflicts_with_all = ["sizes", "profile", "json"]
    )]
    files: Vec<CurveFile>,

    /// Cache sizes at which a curve is worked out, at most. lru and opt are exact at any size and
    /// have 1000
    #[arg(long, value_name = "N", default_value_t = 64, requires = "files",
        value_parser = clap::value_parser!(u16).range(2..=4096))]
    points: u16,

    /// How these sizes are spread, and the axis of a picture: by equal factors or by equal steps
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Scale::Log, requires = "files")]
    scale: Scale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scale {
    /// Equal factors
    Log,
    /// Equal steps
    Linear,
}

/// A file to write, and as what.
#[derive(Clone, Debug)]
struct CurveFile {
    path: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data(rows::Format),
    Svg,
    Png,
}

impl FromStr for CurveFile {
    type Err = String;

    fn from_str(text: &str) -> Result<CurveFile, String> {
        let path = PathBuf::from(text);
        let ending = path.extension().and_then(|ending| ending.to_str());
        let kind = match ending {
            Some("svg") => Kind::Svg,
            Some("png") => Kind::Png,
            other => other
                .and_then(|name| name.parse().ok())
                .map(Kind::Data)
                .ok_or("the name ends in none of .csv, .json, .parquet, .svg, .png")?,
        };
        Ok(CurveFile { path, kind })
    }
}

impl Curves {
    pub(crate) fn wanted(&self) -> bool {
        !self.files.is_empty()
    }

    /// Fails where a file could not be written.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        self.files
            .iter()
            .try_for_each(|file| output::check_folder(&file.path))
    }
}

/// Works out the curves of the policies and writes them.
pub(crate) fn write(
    trace: &Trace,
    policies: &[Spec],
    wanted: &Curves,
    ui: &Ui,
) -> anyhow::Result<()> {
    if trace.references() == 0 {
        let path = trace.path().display();
        return Err(Usage(format!("{path} has no references: there is no curve")).into());
    }
    let points = Points {
        simulated: wanted.points.into(),
        spacing: match wanted.scale {
            Scale::Log => Spacing::Log,
            Scale::Linear => Spacing::Linear,
        },
        ..Points::default()
    };
    let bar = ui.bar("simulating", trace.references() as u64);
    let progress = |done| bar.set_position(done);
    let options = Options {
        progress: Some(&progress),
        ..Options::default()
    };
    let curves = hither_sim::curves(trace, policies, points, &options).map_err(simulate::failed)?;
    bar.finish_and_clear();

    let source = Source::of(trace, trace.path());
    let rows: Vec<Row<'_>> = curves
        .iter()
        .flat_map(|curve| rows(curve, &source))
        .collect();
    let chart = chart(&curves, &source, wanted.scale == Scale::Log);
    for CurveFile { path, kind } in &wanted.files {
        let content = match kind {
            Kind::Data(format) => format.write(&rows)?,
            Kind::Svg => chart.svg().into_bytes(),
            Kind::Png => chart.png()?,
        };
        output::write_whole(path, &content)?;
        ui.note(format_args!("wrote {}", path.display()));
    }
    Ok(())
}

fn rows<'a>(curve: &'a MissRatioCurve, source: &'a Source) -> impl Iterator<Item = Row<'a>> {
    curve.outcomes.iter().map(move |outcome| Row {
        source,
        policy: Some(curve.spec),
        size: outcome.cache_blocks.to_string(),
        cache_blocks: outcome.cache_blocks.into(),
        hits: outcome.hits,
        misses: outcome.misses,
        standard_error: outcome
            .estimate
            .and_then(|estimate| estimate.standard_error),
        placed: None,
    })
}

fn chart(curves: &[MissRatioCurve], source: &Source, log: bool) -> Chart {
    let name = Path::new(&source.trace).file_name();
    let name = name.map_or_else(
        || source.trace.clone(),
        |name| name.to_string_lossy().into(),
    );
    Chart {
        title: format!("Miss ratio by cache size: {}", shortened(&name, 60)),
        subtitle: format!(
            "{} to {} of {}  ·  trace {}  ·  hither {}",
            counted(source.references, "reference"),
            counted(source.distinct, "distinct block"),
            bytes(source.block_bytes).replace(".00", ""),
            source.sha256.get(..12).unwrap_or("made up"),
            env!("CARGO_PKG_VERSION")
        ),
        block_bytes: source.block_bytes,
        log,
        lines: curves
            .iter()
            .map(|curve| Line {
                label: shortened(&policy(&curve.spec), 32),
                points: curve
                    .outcomes
                    .iter()
                    .map(|outcome| (outcome.cache_blocks.into(), 1.0 - outcome.hit_ratio))
                    .collect(),
            })
            .collect(),
    }
}
