//! The heatmap of placements: for each one a matrix of the accesses from each node to the node that
//! served them.

use super::panels::{PanelGrid, ink_on, node_label_step, ramp};
use super::picture::{FAINT, GRID, INK, Plot};
use super::scene::{Anchor, Colour, Scene};
use crate::format;

/// The accesses from each node to each node that served them, for one or several placements.
#[derive(Clone, Debug)]
pub struct Heatmap {
    /// The title.
    pub title: String,
    /// The source of the data, in smaller letters.
    pub subtitle: String,
    /// One panel for each placement.
    pub panels: Vec<HeatmapPanel>,
}

/// The traffic of one placement.
#[derive(Clone, Debug)]
pub struct HeatmapPanel {
    /// The heading of the panel.
    pub label: String,
    /// A line below the heading.
    pub note: String,
    /// Accesses, by accessing node and then by the node that served them; a square.
    pub traffic: Vec<u64>,
}

impl HeatmapPanel {
    fn nodes(&self) -> usize {
        self.traffic.len().isqrt()
    }
}

/// The most nodes of a matrix whose cells show their share of the accesses as text.
const TEXT_NODES_MAX: usize = 8;
/// The most nodes of a matrix with gaps between its cells.
const GAP_NODES_MAX: usize = 32;

/// The colour of a cell without accesses.
const EMPTY: Colour = Colour(0xfa, 0xfa, 0xfa);

/// The logarithmic scale of colours. A node's own accesses outweigh all others by orders of
/// magnitude. The scale begins at one access, or at 10^-6 of the largest cell.
struct LogScale {
    lowest: f64,
    highest: f64,
}

impl LogScale {
    fn of(panels: &[HeatmapPanel]) -> LogScale {
        let all = || panels.iter().flat_map(|panel| &panel.traffic);
        let highest = all().max().copied().unwrap_or(0).max(10) as f64;
        let least = all().filter(|&&count| count > 0).min();
        let least = least.map_or(1.0, |&count| count as f64);
        let lowest = least.clamp(highest / 1e6, highest / 10.0);
        LogScale {
            lowest: 10f64.powf(lowest.log10().floor()),
            highest,
        }
    }

    fn part(&self, count: f64) -> f64 {
        (count.max(self.lowest) / self.lowest).log10() / (self.highest / self.lowest).log10()
    }
}

impl Plot for Heatmap {
    fn title(&self) -> &str {
        &self.title
    }

    fn scene(&self) -> Scene {
        let panels = PanelGrid::new(self.panels.len(), 1.0, 130.0, [&self.title, &self.subtitle]);
        let mut scene = panels.scene(&self.title, &self.subtitle);
        let scale = LogScale::of(&self.panels);
        for (index, matrix) in self.panels.iter().enumerate() {
            panels.heading(
                &mut scene,
                index,
                &matrix.label,
                std::slice::from_ref(&matrix.note),
            );
            draw(
                &mut scene,
                matrix,
                &scale,
                panels.corner(index),
                panels.size.0,
            );
        }
        legend(&mut scene, &scale, panels.legend());
        scene
    }
}

fn draw(
    scene: &mut Scene,
    matrix: &HeatmapPanel,
    scale: &LogScale,
    (left, top): (f64, f64),
    side: f64,
) {
    let nodes = matrix.nodes().max(1);
    let cell = side / nodes as f64;
    // Cells without gaps overlap a little: otherwise white seams show between them.
    let size = if nodes <= GAP_NODES_MAX {
        cell - 1.0
    } else {
        cell + 0.3
    };
    let all = matrix.traffic.iter().sum::<u64>().max(1) as f64;
    scene.rectangle((left, top), (side, side), EMPTY);
    for (at, &count) in matrix
        .traffic
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
    {
        let corner = (
            left + (at % nodes) as f64 * cell,
            top + (at / nodes) as f64 * cell,
        );
        let part = scale.part(count as f64);
        scene.rectangle(corner, (size, size), ramp(part));
        if nodes <= TEXT_NODES_MAX {
            let text = format::percent(count as f64 / all);
            let middle = (corner.0 + size / 2.0, corner.1 + size / 2.0 + 4.0);
            let letters = (cell / 5.0).clamp(8.0, 12.0);
            scene.text(
                middle.0,
                middle.1,
                letters,
                ink_on(part),
                Anchor::Middle,
                &text,
            );
        }
    }
    for (from, to) in [
        ((left, top), (left + side, top)),
        ((left + side, top), (left + side, top + side)),
        ((left + side, top + side), (left, top + side)),
        ((left, top + side), (left, top)),
    ] {
        scene.line(vec![from, to], 1.0, GRID);
    }
    let middle = |node: usize| (node as f64 + 0.5) * cell;
    for node in (0..nodes).step_by(node_label_step(cell, 20.0)) {
        let (x, label) = (left + middle(node), node.to_string());
        scene.text(x, top + side + 15.0, 11.0, INK, Anchor::Middle, &label);
    }
    for node in (0..nodes).step_by(node_label_step(cell, 13.0)) {
        let (y, label) = (top + middle(node) + 4.0, node.to_string());
        scene.text(left - 6.0, y, 11.0, INK, Anchor::End, &label);
    }
    let half = side / 2.0;
    scene.text(
        left + half,
        top + side + 33.0,
        12.0,
        INK,
        Anchor::Middle,
        "node that served",
    );
    scene.vertical_text(left - 34.0, top + half, 12.0, INK, "node that asked");
}

fn legend(scene: &mut Scene, scale: &LogScale, (left, top): (f64, f64)) {
    let (width, height) = (16.0, 200.0);
    scene.text(left, top - 10.0, 12.0, INK, Anchor::Start, "accesses");
    for step in 0..64 {
        let at = (left, top + height * f64::from(63 - step) / 64.0);
        scene.rectangle(
            at,
            (width, height / 64.0 + 0.4),
            ramp(f64::from(step) / 63.0),
        );
    }
    let place = |count: f64| top + height * (1.0 - scale.part(count));
    let mut labelled = vec![scale.highest];
    for power in 0.. {
        let count = scale.lowest * 10f64.powi(power);
        if count >= scale.highest {
            break;
        }
        labelled.push(count);
    }
    let mut last = f64::NEG_INFINITY;
    for (index, count) in labelled.into_iter().enumerate() {
        let y = place(count);
        // The highest value always has a label. Labels that would overlap it are left out.
        if index > 0 && (y - place(scale.highest)).abs() < 14.0 {
            continue;
        }
        if (y - last).abs() < 13.0 {
            continue;
        }
        last = y;
        scene.line(vec![(left + width, y), (left + width + 4.0, y)], 1.0, INK);
        let label = format::count(count as u64);
        scene.text(
            left + width + 8.0,
            y + 4.0,
            11.0,
            INK,
            Anchor::Start,
            &label,
        );
    }
    let y = top + height + 20.0;
    scene.rectangle((left, y - 10.0), (width, 12.0), EMPTY);
    scene.text(left + width + 8.0, y, 11.0, FAINT, Anchor::Start, "none");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heatmap(nodes: usize, panels: usize) -> Heatmap {
        let traffic = (0..nodes * nodes).map(|at| match at % (nodes + 1) {
            0 => 100_000,
            other => (other as u64).pow(2) % 97,
        });
        let matrix = HeatmapPanel {
            label: "post-office".to_owned(),
            note: "local 50.0 %".to_owned(),
            traffic: traffic.collect(),
        };
        Heatmap {
            title: "Who serves whom: <trace>".to_owned(),
            subtitle: "made up".to_owned(),
            panels: vec![matrix; panels],
        }
    }

    #[test]
    fn any_number_of_nodes_and_panels_is_drawn_within_the_picture() {
        for (nodes, panels) in [(1, 1), (2, 2), (25, 3), (70, 4), (25, 7)] {
            let picture = heatmap(nodes, panels);
            let svg = picture.svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf"));
            assert_eq!(svg.matches("node that served").count(), panels);
            let scene = picture.scene();
            for item in &scene.items {
                if let super::super::scene::Item::Fill { corners, .. } = item {
                    let inside = |&(x, y): &(f64, f64)| {
                        (0.0..=scene.width).contains(&x) && (0.0..=scene.height).contains(&y)
                    };
                    assert!(corners.iter().all(inside), "{nodes} nodes, {panels} panels");
                }
            }
            assert!(picture.png().is_ok());
        }
    }

    #[test]
    fn nothing_served_is_drawn_all_the_same() {
        let mut empty = heatmap(3, 1);
        empty.panels[0].traffic.fill(0);
        assert!(!empty.svg().contains("NaN"));
        empty.panels.clear();
        assert!(!empty.svg().contains("NaN"));
    }
}
