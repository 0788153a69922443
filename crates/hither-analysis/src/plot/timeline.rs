//! A run over time: the local hit ratio, the blocks that moved, and the contents of each node.

use super::axis::{Axis, Tick};
use super::marks;
use super::panels::{node_label_step, ramp};
use super::picture::{FAINT, GRID, INK, Plot};
use super::scene::{Anchor, Font, Scene};
use crate::format;

/// The runs of one or several placements, one above the other on one axis of references.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The title.
    pub title: String,
    /// The source of the data, in smaller letters.
    pub subtitle: String,
    /// What is counted on each node: `pages` or `cached blocks`.
    pub unit: &'static str,
    /// The number of references in the warm-up.
    pub warm_up: u64,
    /// One run for each placement.
    pub runs: Vec<TimelineRun>,
}

/// The run of one placement.
#[derive(Clone, Debug)]
pub struct TimelineRun {
    /// The heading of the run.
    pub label: String,
    /// The intervals of the run, in order.
    pub steps: Vec<TimelineStep>,
}

/// An interval of a run.
#[derive(Clone, Debug)]
pub struct TimelineStep {
    /// The number of references before its end.
    pub end: u64,
    /// The share of its accesses that the accessing node served.
    pub local: f64,
    /// The number of blocks that migrated or were replicated in it.
    pub moved: u64,
    /// The number of blocks on each node at its end.
    pub used: Vec<u32>,
}

/// The layout in points: the width of the picture, the left edge and the top of the first plot.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 92.0;
const TOP: f64 = 84.0;
/// The heights in points of a plot of lines and of a plot of nodes, and the gap below each.
const LINE_PLOT_HEIGHT: f64 = 150.0;
const NODE_PLOT_HEIGHT: f64 = 110.0;
const PLOT_GAP: f64 = 40.0;
/// The most nodes that are drawn as stacked areas. More nodes are drawn as a strip each.
const STACKED_NODES_MAX: usize = 8;

impl Timeline {
    fn end(&self) -> u64 {
        let ends = self.runs.iter().filter_map(|run| run.steps.last());
        ends.map(|step| step.end).max().unwrap_or(0)
    }
}

impl Plot for Timeline {
    fn title(&self) -> &str {
        &self.title
    }

    fn scene(&self) -> Scene {
        let font = Font::new();
        let labels = self.runs.iter().map(|run| font.width(&run.label, 13.0));
        let right = WIDTH - labels.fold(70.0, f64::max) - 66.0;
        let height = TOP
            + 2.0 * (LINE_PLOT_HEIGHT + PLOT_GAP)
            + self.runs.len() as f64 * (NODE_PLOT_HEIGHT + PLOT_GAP)
            + 30.0;
        let width = WIDTH.max(LEFT + font.width(&self.subtitle, 12.0) + 24.0);
        let mut scene = Scene::new(width.ceil(), height);
        scene.text(LEFT, 34.0, 19.0, INK, Anchor::Start, &self.title);
        scene.text(LEFT, 55.0, 12.0, FAINT, Anchor::Start, &self.subtitle);
        let x = Axis::new((0.0, self.end().max(1) as f64), (LEFT, right), false);

        let mut top = TOP;
        self.lines(&mut scene, &x, top, "local hit ratio", Some(1.0), |step| {
            step.local
        });
        for (index, run) in self.runs.iter().enumerate() {
            let row = top + 12.0 + 22.0 * index as f64;
            let (from, to) = (right + 16.0, right + 42.0);
            scene.line(vec![(from, row), (to, row)], 2.0, marks::colour(index));
            scene.text(to + 8.0, row + 4.5, 13.0, INK, Anchor::Start, &run.label);
        }
        top += LINE_PLOT_HEIGHT + PLOT_GAP;
        let moved = "blocks moved";
        self.lines(&mut scene, &x, top, moved, None, |step| step.moved as f64);
        top += LINE_PLOT_HEIGHT + PLOT_GAP;
        for run in &self.runs {
            scene.text(LEFT, top - 8.0, 12.0, INK, Anchor::Start, &run.label);
            let nodes = run.steps.first().map_or(0, |step| step.used.len());
            if nodes <= STACKED_NODES_MAX {
                self.stacked(&mut scene, &x, top, run)
            } else {
                self.strips(&mut scene, &x, top, run, nodes)
            }
            self.frame(&mut scene, &x, top, NODE_PLOT_HEIGHT);
            top += NODE_PLOT_HEIGHT + PLOT_GAP;
        }
        let below = top - PLOT_GAP;
        for Tick { at, label } in x.count_ticks() {
            scene.text(
                x.coordinate(at),
                below + 18.0,
                12.0,
                INK,
                Anchor::Middle,
                &label,
            );
        }
        let middle = (LEFT + right) / 2.0;
        scene.text(
            middle,
            below + 38.0,
            13.0,
            INK,
            Anchor::Middle,
            "references",
        );
        scene
    }
}

impl Timeline {
    /// Draws the edge of a plot, its ticks of references, and the end of the warm-up.
    fn frame(&self, scene: &mut Scene, x: &Axis, top: f64, height: f64) {
        let ((left, right), bottom) = (x.ends(), top + height);
        for Tick { at, .. } in x.count_ticks() {
            let place = x.coordinate(at);
            scene.line(vec![(place, bottom), (place, bottom + 4.0)], 1.0, INK);
        }
        if self.warm_up > 0 && self.warm_up < self.end() {
            let place = x.coordinate(self.warm_up as f64);
            scene.line(vec![(place, top), (place, bottom)], 1.5, FAINT);
            if top == TOP {
                scene.text(
                    place + 4.0,
                    top - 5.0,
                    10.0,
                    FAINT,
                    Anchor::Start,
                    "warmed up",
                );
            }
        }
        let corners = [
            (left, top),
            (right, top),
            (right, bottom),
            (left, bottom),
            (left, top),
        ];
        scene.line(corners.to_vec(), 1.0, INK);
    }

    /// Draws a plot with a line for each run. Lines have steps, since a value holds for a whole
    /// interval.
    fn lines(
        &self,
        scene: &mut Scene,
        x: &Axis,
        top: f64,
        name: &str,
        ceiling: Option<f64>,
        of: impl Fn(&TimelineStep) -> f64,
    ) {
        let values = self.runs.iter().flat_map(|run| &run.steps).map(&of);
        let highest = ceiling.unwrap_or_else(|| values.fold(0.0, f64::max).max(1.0));
        let y = Axis::new((0.0, highest), (top + LINE_PLOT_HEIGHT, top), false);
        let ticks = match ceiling {
            Some(_) => y.decimal_ticks(),
            None => y.count_ticks_apart(26.0),
        };
        for Tick { at, label } in ticks {
            let (left, right) = x.ends();
            let height = y.coordinate(at);
            scene.line(vec![(left, height), (right, height)], 1.0, GRID);
            scene.text(left - 9.0, height + 4.5, 12.0, INK, Anchor::End, &label);
        }
        for (index, run) in self.runs.iter().enumerate() {
            let mut points = Vec::with_capacity(2 * run.steps.len());
            let mut from = 0;
            for step in &run.steps {
                let height = y.coordinate(of(step).min(highest));
                points.push((x.coordinate(from as f64), height));
                points.push((x.coordinate(step.end as f64), height));
                from = step.end;
            }
            scene.line(points, 1.8, marks::colour(index));
        }
        self.frame(scene, x, top, LINE_PLOT_HEIGHT);
        scene.vertical_text(LEFT - 66.0, top + LINE_PLOT_HEIGHT / 2.0, 13.0, INK, name);
    }

    /// Draws a few nodes as stacked areas, so that their sum is visible too.
    fn stacked(&self, scene: &mut Scene, x: &Axis, top: f64, run: &TimelineRun) {
        let sum = |step: &TimelineStep| step.used.iter().map(|&used| f64::from(used)).sum::<f64>();
        let highest = run.steps.iter().map(sum).fold(1.0, f64::max);
        let y = Axis::new((0.0, highest), (top + NODE_PLOT_HEIGHT, top), false);
        for Tick { at, label } in y.count_ticks_apart(24.0) {
            let height = y.coordinate(at) + 4.5;
            scene.text(LEFT - 9.0, height, 12.0, INK, Anchor::End, &label);
        }
        let nodes = run.steps.first().map_or(0, |step| step.used.len());
        let below = |step: &TimelineStep, node: usize| {
            y.coordinate(step.used[..node].iter().map(|&used| f64::from(used)).sum())
        };
        let (_, right) = x.ends();
        for node in 0..nodes {
            let upper = run
                .steps
                .iter()
                .map(|step| (x.coordinate(step.end as f64), below(step, node + 1)));
            let lower = run
                .steps
                .iter()
                .rev()
                .map(|step| (x.coordinate(step.end as f64), below(step, node)));
            let start = [(x.coordinate(0.0), y.coordinate(0.0))];
            let colour = ramp(0.2 + 0.65 * node as f64 / (nodes - 1).max(1) as f64);
            scene.fill(
                start.into_iter().chain(upper).chain(lower).collect(),
                colour,
            );
            let row = top + NODE_PLOT_HEIGHT
                - 7.0
                - (NODE_PLOT_HEIGHT - 4.0) / nodes as f64 * node as f64;
            scene.rectangle((right + 16.0, row - 5.0), (11.0, 11.0), colour);
            let label = format!("node {node}");
            scene.text(right + 34.0, row + 4.5, 11.0, INK, Anchor::Start, &label);
        }
        scene.vertical_text(
            LEFT - 66.0,
            top + NODE_PLOT_HEIGHT / 2.0,
            12.0,
            INK,
            self.unit,
        );
    }

    /// Draws many nodes as strips, coloured by their contents.
    fn strips(&self, scene: &mut Scene, x: &Axis, top: f64, run: &TimelineRun, nodes: usize) {
        let used = || run.steps.iter().flat_map(|step| &step.used);
        let most = f64::from(used().copied().max().unwrap_or(0).max(1));
        let strip = NODE_PLOT_HEIGHT / nodes as f64;
        for node in 0..nodes {
            let mut from = x.coordinate(0.0);
            let row = top + strip * node as f64;
            let mut steps = run.steps.iter().peekable();
            while let Some(step) = steps.next() {
                let colour = ramp(f64::from(step.used[node]) / most);
                // Adjacent intervals of the same colour are one rectangle.
                let next = steps
                    .peek()
                    .map(|next| ramp(f64::from(next.used[node]) / most));
                if next == Some(colour) {
                    continue;
                }
                let to = x.coordinate(step.end as f64);
                scene.rectangle((from, row), (to - from + 0.3, strip + 0.3), colour);
                from = to;
            }
        }
        for node in (0..nodes).step_by(node_label_step(strip, 14.0)) {
            let middle = top + strip * (node as f64 + 0.5) + 4.0;
            scene.text(
                LEFT - 9.0,
                middle,
                11.0,
                INK,
                Anchor::End,
                &node.to_string(),
            );
        }
        scene.vertical_text(LEFT - 66.0, top + NODE_PLOT_HEIGHT / 2.0, 12.0, INK, "node");
        let (_, right) = x.ends();
        let bar = |part: f64| top + NODE_PLOT_HEIGHT * (1.0 - part);
        for step in 0..64 {
            let at = (right + 16.0, bar(f64::from(step + 1) / 64.0));
            scene.rectangle(
                at,
                (12.0, NODE_PLOT_HEIGHT / 64.0 + 0.4),
                ramp(f64::from(step) / 63.0),
            );
        }
        for (part, anchor) in [(1.0, 10.0), (0.0, 0.0)] {
            let label = format::count((part * most) as u64);
            scene.text(
                right + 34.0,
                bar(part) + anchor,
                11.0,
                INK,
                Anchor::Start,
                &label,
            );
        }
        scene.text(
            right + 34.0,
            bar(0.5) + 4.0,
            11.0,
            FAINT,
            Anchor::Start,
            self.unit,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(nodes: u32, runs: usize, steps: u64) -> Timeline {
        let step = |at: u64| TimelineStep {
            end: (at + 1) * 1000,
            local: (at as f64 / 20.0).min(0.9),
            moved: 5000 / (at + 1),
            used: (0..nodes)
                .map(|node| (at as u32 * (node + 3)) % 400)
                .collect(),
        };
        let run = TimelineRun {
            label: "upm".to_owned(),
            steps: (0..steps).map(step).collect(),
        };
        Timeline {
            title: "Over time".to_owned(),
            subtitle: "made up".to_owned(),
            unit: "pages",
            warm_up: 2500,
            runs: vec![run; runs],
        }
    }

    #[test]
    fn few_nodes_are_stacked_and_many_are_strips() {
        for (nodes, runs, steps) in [(1, 1, 1), (2, 2, 40), (8, 1, 100), (25, 3, 50)] {
            let picture = timeline(nodes, runs, steps);
            let svg = picture.svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf"));
            let stacked = svg.matches(">node 0<").count();
            assert_eq!(stacked, if nodes <= 8 { runs } else { 0 });
            assert_eq!(svg, picture.svg());
            assert!(picture.png().is_ok());
        }
    }

    #[test]
    fn a_run_of_nothing_is_drawn_all_the_same() {
        let mut empty = timeline(2, 1, 0);
        assert!(!empty.svg().contains("NaN"));
        empty.runs.clear();
        assert!(!empty.svg().contains("NaN"));
    }
}
