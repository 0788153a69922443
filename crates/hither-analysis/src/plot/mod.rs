//! Pictures, as SVG and PNG: miss-ratio curves here, topologies in `network`, and what placements
//! do in `heatmap`, `moves` and `timeline`.
//!
//! A [`Plot`] is laid out once into a `scene::Scene` of lines, filled shapes and texts, which
//! `svg` writes down and `png` paints; so both show the same. Text is set in DejaVu Sans, which the
//! `dejavu` crate brings along (its licence, that of Bitstream Vera, allows that): a picture must
//! not depend on the fonts of the machine.
//!
//! It is drawn by hand since no chart library gives what each kind of picture needs:
//!
//! - the network, the moves and the heatmap: a topology laid out with its links, arrows between
//!   nodes, a matrix a placement with a figure in each cell. Chart libraries have axes and series,
//!   and nothing of this;
//! - the timeline: three kinds of plot on one axis of references, and a strip a node;
//! - the chart of miss ratios: two logarithmic axes over the same points, one in blocks by powers
//!   of ten and one in bytes by powers of two, and marks set off against each other.
//!
//! plotters 0.3 was tried on the last of them (2026-11; SVG and bitmap, DejaVu Sans through
//! `ab_glyph`). The ticks of a logarithmic axis are powers of ten, also in bytes (`10000.0`); the
//! legend lies on the curves and over its own text; letters stand on whole pixels, unevenly; and
//! all places are whole numbers, in SVG too (`points="79,85 79,539"`), so that a flat curve has
//! steps. Mending this takes an axis, a legend and marks of our own, which `axis` and `marks` are,
//! and the other pictures would still need the scene: plotters would come on top of it.
//!
//! Lines differ by mark as well as by colour (the colours of Okabe and Ito, which stay apart for
//! most who see colours differently), so that they can be told apart in grey.

mod axis;
mod heatmap;
mod marks;
mod moves;
mod network;
mod panels;
mod png;
mod scene;
mod svg;
mod timeline;

pub use heatmap::{Heatmap, HeatmapPanel};
pub use moves::{MoveArrow, MovesMap, MovesPanel};
pub use network::{Network, NodeLayout};
pub use timeline::{Timeline, TimelineRun, TimelineStep};

use crate::Result;
use axis::{Axis, Tick};
use scene::{Anchor, Colour, Face, Scene};

/// Size of a picture in points; a PNG has two pixels a point.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 600.0;

const TOP: f64 = 118.0;
const LEFT: f64 = 78.0;
const BOTTOM: f64 = HEIGHT - 66.0;

const INK: Colour = Colour(0x22, 0x22, 0x22);
const FAINT: Colour = Colour(0x5a, 0x5a, 0x5a);
const GRID: Colour = Colour(0xe2, 0xe2, 0xe2);

/// About so many marks on a line.
const MARKS: usize = 9;

/// A chart of miss ratios by cache size.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it is of.
    pub title: String,
    /// Where it comes from, in smaller letters.
    pub subtitle: String,
    /// The size of a block, for the upper axis.
    pub block_bytes: u64,
    /// Whether sizes go by factors rather than by steps.
    pub log: bool,
    /// The curves, in the order of the legend.
    pub lines: Vec<ChartLine>,
}

/// The curve of one policy.
#[derive(Clone, Debug)]
pub struct ChartLine {
    /// The name in the legend.
    pub label: String,
    /// Cache size in blocks, and miss ratio; ascending.
    pub points: Vec<(f64, f64)>,
}

/// What can be drawn.
pub trait Plot {
    /// What it is of.
    fn title(&self) -> &str;

    /// What is where.
    fn scene(&self) -> Scene;

    /// The picture as SVG.
    fn svg(&self) -> String {
        svg::write(&self.scene(), self.title())
    }

    /// The picture as PNG, with two pixels a point.
    fn png(&self) -> Result<Vec<u8>> {
        png::paint(&self.scene())
    }
}

impl Plot for Chart {
    fn title(&self) -> &str {
        &self.title
    }

    fn scene(&self) -> Scene {
        let face = Face::new();
        let mut scene = Scene::new(WIDTH, HEIGHT);
        let labels = self.lines.iter().map(|line| face.width(&line.label, 13.0));
        let legend = labels.fold(60.0, f64::max) + 62.0;
        let right = WIDTH - legend;

        let points = || self.lines.iter().flat_map(|line| &line.points);
        let blocks = points().map(|point| point.0).fold(1.0, f64::max);
        let highest = points().map(|point| point.1).fold(0.0, f64::max);
        let x = Axis::new((1.0, blocks), (LEFT, right), self.log);
        let y = Axis::new((0.0, axis::ceiling(highest)), (BOTTOM, TOP), false);

        scene.text(LEFT, 34.0, 19.0, INK, Anchor::Start, &self.title);
        scene.text(LEFT, 55.0, 12.0, FAINT, Anchor::Start, &self.subtitle);
        self.axes(&mut scene, &x, &y);
        // As many lines as there are policies still have their labels within the picture.
        let row = ((BOTTOM - TOP) / self.lines.len().max(1) as f64).min(24.0);
        let size = (0.8 * row).min(13.0);
        for (index, line) in self.lines.iter().enumerate() {
            draw(&mut scene, line, index, &x, &y);
            let height = TOP + row / 2.0 + row * index as f64;
            let (from, to) = (right + 18.0, right + 46.0);
            scene.line(
                vec![(from, height), (to, height)],
                2.0,
                marks::colour(index),
            );
            marks::draw(&mut scene, index, ((from + to) / 2.0, height));
            scene.text(
                to + 8.0,
                height + 4.5 * size / 13.0,
                size,
                INK,
                Anchor::Start,
                &line.label,
            );
        }
        scene
    }
}

impl Chart {
    fn axes(&self, scene: &mut Scene, x: &Axis, y: &Axis) {
        let (left, right) = x.ends();
        for Tick { at, label } in y.decimal_ticks() {
            let height = y.place(at);
            scene.line(vec![(left, height), (right, height)], 1.0, GRID);
            scene.text(left - 9.0, height + 4.5, 12.0, INK, Anchor::End, &label);
        }
        for Tick { at, label } in x.count_ticks() {
            let place = x.place(at);
            scene.line(vec![(place, TOP), (place, BOTTOM)], 1.0, GRID);
            scene.line(vec![(place, BOTTOM), (place, BOTTOM + 5.0)], 1.0, INK);
            scene.text(place, BOTTOM + 20.0, 12.0, INK, Anchor::Middle, &label);
        }
        for Tick { at, label } in x.byte_ticks(self.block_bytes) {
            let place = x.place(at);
            scene.line(vec![(place, TOP - 5.0), (place, TOP)], 1.0, INK);
            scene.text(place, TOP - 11.0, 12.0, INK, Anchor::Middle, &label);
        }
        for height in [TOP, BOTTOM] {
            scene.line(vec![(left, height), (right, height)], 1.0, INK);
        }
        for place in [left, right] {
            scene.line(vec![(place, TOP), (place, BOTTOM)], 1.0, INK);
        }
        let middle = (left + right) / 2.0;
        let below = BOTTOM + 46.0;
        scene.text(
            middle,
            below,
            13.0,
            INK,
            Anchor::Middle,
            "cache size in blocks",
        );
        scene.text(
            middle,
            TOP - 31.0,
            13.0,
            INK,
            Anchor::Middle,
            "cache size in bytes",
        );
        scene.upright(LEFT - 52.0, (TOP + BOTTOM) / 2.0, 13.0, INK, "miss ratio");
    }
}

/// A line with its marks. These are spread evenly over the picture, and those of different lines
/// are set off against each other, so that none hides another where curves coincide.
fn draw(scene: &mut Scene, line: &ChartLine, index: usize, x: &Axis, y: &Axis) {
    let places: Vec<(f64, f64)> = line
        .points
        .iter()
        .map(|&(blocks, ratio)| (x.place(blocks), y.place(ratio)))
        .collect();
    scene.line(places.clone(), 2.0, marks::colour(index));
    let (left, right) = x.ends();
    let step = (right - left) / MARKS as f64;
    let offset = step * (0.15 + 0.7 * (index as f64 * 0.382).fract());
    for mark in 0..MARKS {
        let at = left + offset + step * mark as f64;
        let after = places.partition_point(|place| place.0 < at);
        if let Some(&[from, to]) = after
            .checked_sub(1)
            .and_then(|from| places.get(from..=after))
        {
            let part = (at - from.0) / (to.0 - from.0);
            marks::draw(scene, index, (at, from.1 + part * (to.1 - from.1)));
        }
    }
    // A curve of a point or two would otherwise have none.
    if let (true, Some(&last)) = (places.len() < 3, places.last()) {
        marks::draw(scene, index, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(log: bool, blocks: f64) -> Chart {
        let line = |label: &str, power: f64| ChartLine {
            label: label.to_owned(),
            points: (0..=50)
                .map(|step| blocks.powf(f64::from(step) / 50.0))
                .map(|size| (size, (1.0 - size / blocks).powf(power)))
                .collect(),
        };
        Chart {
            title: "<trace> & \"more\"".to_owned(),
            subtitle: "made up".to_owned(),
            block_bytes: 4096,
            log,
            lines: vec![line("lru", 1.0), line("opt", 3.0)],
        }
    }

    #[test]
    fn both_pictures_are_the_same_in_every_run() {
        for (log, blocks) in [(true, 1e6), (false, 5000.0), (true, 2.0), (false, 1.0)] {
            let chart = chart(log, blocks);
            let svg = chart.svg();
            assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
            assert!(
                svg.contains("&lt;trace&gt; &amp; &quot;more&quot;"),
                "{svg}"
            );
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert_eq!(svg, chart.svg());
            let png = chart.png().unwrap();
            assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
            assert_eq!(png, chart.png().unwrap());
        }
    }

    #[test]
    fn every_line_has_its_label_in_the_picture() {
        let mut many = chart(true, 1e6);
        many.lines = vec![many.lines[0].clone(); 40];
        let places = many
            .scene()
            .items
            .into_iter()
            .filter_map(|item| match item {
                scene::Item::Text { at, text, .. } if text == "lru" => Some(at),
                _ => None,
            });
        let places: Vec<(f64, f64)> = places.collect();
        assert_eq!(places.len(), 40);
        assert!(places.iter().all(|at| at.1 < BOTTOM), "{places:?}");
    }

    #[test]
    fn a_chart_of_nothing_is_drawn_all_the_same() {
        let mut empty = chart(true, 10.0);
        empty.lines.clear();
        assert!(!empty.svg().contains("NaN"));
        empty.lines.push(ChartLine {
            label: "lru".to_owned(),
            points: vec![(1.0, 1.0)],
        });
        assert!(!empty.svg().contains("NaN"));
        assert!(empty.png().is_ok());
    }
}
