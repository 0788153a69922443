//! A run over time: how much was served locally, how many blocks moved, and how the copies lie on
//! the nodes.

use super::axis::{Axis, Tick};
use super::panels::{node_step, ramp};
use super::scene::{Anchor, Face, Scene};
use super::{FAINT, GRID, INK, Plot, marks};
use crate::format;

/// The runs of one or several placements, one above the other on one axis of references.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// What it is of.
    pub title: String,
    /// Where it comes from, in smaller letters.
    pub subtitle: String,
    /// What is counted on each node: `pages`, or `copies of blocks`.
    pub what: &'static str,
    /// References before the figures count.
    pub warm_up: u64,
    /// One run a placement.
    pub runs: Vec<TimelineRun>,
}

/// The run of one placement.
#[derive(Clone, Debug)]
pub struct TimelineRun {
    /// The heading of the run.
    pub label: String,
    /// The parts of the run, in order.
    pub steps: Vec<TimelineStep>,
}

/// A part of a run.
#[derive(Clone, Debug)]
pub struct TimelineStep {
    /// References before its end.
    pub end: u64,
    /// The part of the accesses in it that the accessing node served.
    pub local: f64,
    /// Blocks that moved or were replicated in it.
    pub moved: u64,
    /// Copies on each node at its end.
    pub used: Vec<u32>,
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 92.0;
const TOP: f64 = 84.0;
/// Height of a plot of lines, and of one of nodes.
const LINES: f64 = 150.0;
const NODES: f64 = 110.0;
const GAP: f64 = 40.0;
/// Up to so many nodes are stacked; more are drawn as a strip each.
const STACKED_MAX: usize = 8;

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
        let face = Face::new();
        let labels = self.runs.iter().map(|run| face.width(&run.label, 13.0));
        let right = WIDTH - labels.fold(70.0, f64::max) - 66.0;
        let height = TOP + 2.0 * (LINES + GAP) + self.runs.len() as f64 * (NODES + GAP) + 30.0;
        let width = WIDTH.max(LEFT + face.width(&self.subtitle, 12.0) + 24.0);
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
        top += LINES + GAP;
        let moved = "blocks moved";
        self.lines(&mut scene, &x, top, moved, None, |step| step.moved as f64);
        top += LINES + GAP;
        for run in &self.runs {
            scene.text(LEFT, top - 8.0, 12.0, INK, Anchor::Start, &run.label);
            let nodes = run.steps.first().map_or(0, |step| step.used.len());
            match nodes <= STACKED_MAX {
                true => self.stacked(&mut scene, &x, top, run),
                false => self.strips(&mut scene, &x, top, run, nodes),
            }
            self.frame(&mut scene, &x, top, NODES);
            top += NODES + GAP;
        }
        let below = top - GAP;
        for Tick { at, label } in x.count_ticks() {
            scene.text(x.place(at), below + 18.0, 12.0, INK, Anchor::Middle, &label);
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
    /// The edge of a plot, its ticks of references, and where the warm-up ends.
    fn frame(&self, scene: &mut Scene, x: &Axis, top: f64, height: f64) {
        let ((left, right), bottom) = (x.ends(), top + height);
        for Tick { at, .. } in x.count_ticks() {
            let place = x.place(at);
            scene.line(vec![(place, bottom), (place, bottom + 4.0)], 1.0, INK);
        }
        if self.warm_up > 0 && self.warm_up < self.end() {
            let place = x.place(self.warm_up as f64);
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

    /// A plot with a line a run: steps, since a figure holds for the whole of an interval.
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
        let y = Axis::new((0.0, highest), (top + LINES, top), false);
        let ticks = match ceiling {
            Some(_) => y.decimal_ticks(),
            None => y.count_ticks_apart(26.0),
        };
        for Tick { at, label } in ticks {
            let (left, right) = x.ends();
            let height = y.place(at);
            scene.line(vec![(left, height), (right, height)], 1.0, GRID);
            scene.text(left - 9.0, height + 4.5, 12.0, INK, Anchor::End, &label);
        }
        for (index, run) in self.runs.iter().enumerate() {
            let mut points = Vec::with_capacity(2 * run.steps.len());
            let mut from = 0;
            for step in &run.steps {
                let height = y.place(of(step).min(highest));
                points.push((x.place(from as f64), height));
                points.push((x.place(step.end as f64), height));
                from = step.end;
            }
            scene.line(points, 1.8, marks::colour(index));
        }
        self.frame(scene, x, top, LINES);
        scene.upright(LEFT - 66.0, top + LINES / 2.0, 13.0, INK, name);
    }

    /// Few nodes: areas on top of each other, so that the sum shows as well.
    fn stacked(&self, scene: &mut Scene, x: &Axis, top: f64, run: &TimelineRun) {
        let sum = |step: &TimelineStep| step.used.iter().map(|&used| f64::from(used)).sum::<f64>();
        let highest = run.steps.iter().map(sum).fold(1.0, f64::max);
        let y = Axis::new((0.0, highest), (top + NODES, top), false);
        for Tick { at, label } in y.count_ticks_apart(24.0) {
            let height = y.place(at) + 4.5;
            scene.text(LEFT - 9.0, height, 12.0, INK, Anchor::End, &label);
        }
        let nodes = run.steps.first().map_or(0, |step| step.used.len());
        let below = |step: &TimelineStep, node: usize| {
            y.place(step.used[..node].iter().map(|&used| f64::from(used)).sum())
        };
        let (_, right) = x.ends();
        for node in 0..nodes {
            let upper = run
                .steps
                .iter()
                .map(|step| (x.place(step.end as f64), below(step, node + 1)));
            let lower = run
                .steps
                .iter()
                .rev()
                .map(|step| (x.place(step.end as f64), below(step, node)));
            let start = [(x.place(0.0), y.place(0.0))];
            let colour = ramp(0.2 + 0.65 * node as f64 / (nodes - 1).max(1) as f64);
            scene.fill(
                start.into_iter().chain(upper).chain(lower).collect(),
                colour,
            );
            let row = top + NODES - 7.0 - (NODES - 4.0) / nodes as f64 * node as f64;
            scene.rectangle((right + 16.0, row - 5.0), (11.0, 11.0), colour);
            let label = format!("node {node}");
            scene.text(right + 34.0, row + 4.5, 11.0, INK, Anchor::Start, &label);
        }
        scene.upright(LEFT - 66.0, top + NODES / 2.0, 12.0, INK, self.what);
    }

    /// Many nodes: a strip a node, coloured by how much it holds.
    fn strips(&self, scene: &mut Scene, x: &Axis, top: f64, run: &TimelineRun, nodes: usize) {
        let used = || run.steps.iter().flat_map(|step| &step.used);
        let most = f64::from(used().copied().max().unwrap_or(0).max(1));
        let strip = NODES / nodes as f64;
        for node in 0..nodes {
            let mut from = x.place(0.0);
            let row = top + strip * node as f64;
            let mut steps = run.steps.iter().peekable();
            while let Some(step) = steps.next() {
                let colour = ramp(f64::from(step.used[node]) / most);
                // Neighbours of the same colour are one rectangle.
                let next = steps
                    .peek()
                    .map(|next| ramp(f64::from(next.used[node]) / most));
                if next == Some(colour) {
                    continue;
                }
                let to = x.place(step.end as f64);
                scene.rectangle((from, row), (to - from + 0.3, strip + 0.3), colour);
                from = to;
            }
        }
        for node in (0..nodes).step_by(node_step(strip, 14.0)) {
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
        scene.upright(LEFT - 66.0, top + NODES / 2.0, 12.0, INK, "node");
        let (_, right) = x.ends();
        let bar = |part: f64| top + NODES * (1.0 - part);
        for step in 0..64 {
            let at = (right + 16.0, bar(f64::from(step + 1) / 64.0));
            scene.rectangle(at, (12.0, NODES / 64.0 + 0.4), ramp(f64::from(step) / 63.0));
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
            self.what,
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
            what: "pages",
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
