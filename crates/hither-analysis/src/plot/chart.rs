//! The chart of miss ratios by cache size: two axes for sizes, in blocks below and in bytes above.

use super::axis::{self, Axis, Tick};
use super::marks;
use super::picture::{FAINT, GRID, INK, Plot};
use super::scene::{Anchor, Font, Scene};

/// The size of the picture in points.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 600.0;

/// The plotted area in points. Its right edge depends on the width of the legend.
const TOP: f64 = 118.0;
const LEFT: f64 = 78.0;
const BOTTOM: f64 = HEIGHT - 66.0;

/// The number of marks on a line that spans the whole axis.
const MARKS_PER_LINE: usize = 9;

/// A chart of miss ratios by cache size.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// The source of the data, in smaller letters.
    pub subtitle: String,
    /// The size of a block, for the upper axis.
    pub block_bytes: u64,
    /// Whether the axis of sizes is logarithmic.
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

impl Plot for Chart {
    fn title(&self) -> &str {
        &self.title
    }

    fn scene(&self) -> Scene {
        let font = Font::new();
        let mut scene = Scene::new(WIDTH, HEIGHT);
        let labels = self.lines.iter().map(|line| font.width(&line.label, 13.0));
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
        // With many lines the rows of the legend shrink, so that all labels stay in the picture.
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
            let height = y.coordinate(at);
            scene.line(vec![(left, height), (right, height)], 1.0, GRID);
            scene.text(left - 9.0, height + 4.5, 12.0, INK, Anchor::End, &label);
        }
        for Tick { at, label } in x.count_ticks() {
            let place = x.coordinate(at);
            scene.line(vec![(place, TOP), (place, BOTTOM)], 1.0, GRID);
            scene.line(vec![(place, BOTTOM), (place, BOTTOM + 5.0)], 1.0, INK);
            scene.text(place, BOTTOM + 20.0, 12.0, INK, Anchor::Middle, &label);
        }
        for Tick { at, label } in x.byte_ticks(self.block_bytes) {
            let place = x.coordinate(at);
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
        scene.vertical_text(LEFT - 52.0, (TOP + BOTTOM) / 2.0, 13.0, INK, "miss ratio");
    }
}

/// Draws a line with its marks. Marks are spread evenly over the width of the picture. Those of
/// different lines are offset, so that none hides another where curves coincide.
fn draw(scene: &mut Scene, line: &ChartLine, index: usize, x: &Axis, y: &Axis) {
    let places: Vec<(f64, f64)> = line
        .points
        .iter()
        .map(|&(blocks, ratio)| (x.coordinate(blocks), y.coordinate(ratio)))
        .collect();
    scene.line(places.clone(), 2.0, marks::colour(index));
    let (left, right) = x.ends();
    let step = (right - left) / MARKS_PER_LINE as f64;
    let offset = step * (0.15 + 0.7 * (index as f64 * 0.382).fract());
    for mark in 0..MARKS_PER_LINE {
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
    // A curve of one or two points would otherwise have no mark.
    if let (true, Some(&last)) = (places.len() < 3, places.last()) {
        marks::draw(scene, index, last);
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::Item;
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
                Item::Text { at, text, .. } if text == "lru" => Some(at),
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
