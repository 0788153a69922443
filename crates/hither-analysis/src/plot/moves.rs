//! The moves of placements on their topology: an arrow for each pair of nodes, as wide as the
//! number of blocks that moved.

use super::network::NodeLayout;
use super::panels::{self, PanelGrid};
use super::picture::{FAINT, GRID, INK, Plot, WHITE};
use super::scene::{Anchor, Colour, Scene};
use crate::format;

/// Topologies with moves on them, for one or several placements.
#[derive(Clone, Debug)]
pub struct MovesMap {
    /// The title.
    pub title: String,
    /// The source of the data, in smaller letters.
    pub subtitle: String,
    /// One panel for each placement that moves something.
    pub panels: Vec<MovesPanel>,
    /// The placements under which nothing moved, as a line says instead of empty panels.
    pub still: Vec<String>,
}

/// The most placements without moves that are named.
const STILL_NAMED_MAX: usize = 4;

/// The moves of one placement.
#[derive(Clone, Debug)]
pub struct MovesPanel {
    /// The heading of the panel.
    pub label: String,
    /// A line below the heading.
    pub note: String,
    /// The coordinates of nodes and links.
    pub layout: NodeLayout,
    /// The share of the accesses that each node served.
    pub served: Vec<f64>,
    /// The moves between pairs of nodes.
    pub arrows: Vec<MoveArrow>,
}

/// The number of blocks that went from one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveArrow {
    /// The node that a block left.
    pub from: usize,
    /// The node that it went to.
    pub to: usize,
    /// Whether replicas were made. Otherwise blocks migrated.
    pub replica: bool,
    /// The number of blocks.
    pub blocks: u64,
}

/// The most arrows of a panel, since more hide each other. The busiest are drawn, and the panel
/// says which share of the moves they are.
const ARROWS_MAX: usize = 60;

const MIGRATED: Colour = Colour(0xd5, 0x5e, 0x00);
const REPLICATED: Colour = Colour(0x00, 0x72, 0xb2);
const IDLE: Colour = Colour(0xf4, 0xf4, 0xf4);
const BUSY: Colour = Colour(0x60, 0x60, 0x60);

impl MovesPanel {
    /// Height divided by width of the nodes. A line of nodes has room for bent arrows.
    fn aspect(&self) -> f64 {
        let (_, (width, height)) = extent(&self.layout);
        if width > 0.0 {
            (height / width).clamp(0.35, 1.2)
        } else {
            1.2
        }
    }

    /// The busiest arrows, the busiest last so that it is drawn on top, and their share of all
    /// moves.
    fn busiest_arrows(&self) -> (Vec<MoveArrow>, f64) {
        let mut arrows = self.arrows.clone();
        arrows.sort_by_key(|arrow| (std::cmp::Reverse(arrow.blocks), arrow.from, arrow.to));
        let all: u64 = arrows.iter().map(|arrow| arrow.blocks).sum();
        arrows.truncate(ARROWS_MAX);
        let drawn: u64 = arrows.iter().map(|arrow| arrow.blocks).sum();
        arrows.reverse();
        (arrows, drawn as f64 / all.max(1) as f64)
    }
}

/// The upper left corner of nodes and links, and their width and height.
fn extent(layout: &NodeLayout) -> ((f64, f64), (f64, f64)) {
    let points = || layout.nodes.iter().chain(layout.lines.iter().flatten());
    let low = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(f64::INFINITY, f64::min);
    let high = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(f64::NEG_INFINITY, f64::max);
    let (left, top) = (low(|at| at.0), low(|at| at.1));
    let (right, bottom) = (high(|at| at.0), high(|at| at.1));
    (
        (left, top),
        ((right - left).max(0.0), (bottom - top).max(0.0)),
    )
}

impl MovesMap {
    /// Where nothing moved, in words.
    fn nothing_moved(&self) -> Option<String> {
        match &self.still[..] {
            [] => None,
            _ if self.panels.is_empty() => Some("nothing moved".to_owned()),
            few if few.len() <= STILL_NAMED_MAX => {
                Some(format!("nothing moved under {}", few.join(", ")))
            }
            many => Some(format!("nothing moved under {} others", many.len())),
        }
    }
}

impl Plot for MovesMap {
    fn title(&self) -> &str {
        &self.title
    }

    fn scene(&self) -> Scene {
        let subtitle = [self.nothing_moved(), Some(self.subtitle.clone())];
        let subtitle = subtitle
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("  ·  ");
        let texts = [self.title.as_str(), &subtitle];
        if self.panels.is_empty() {
            return panels::heading_alone(texts);
        }
        let aspect = self
            .panels
            .iter()
            .map(MovesPanel::aspect)
            .fold(0.35, f64::max);
        let panels = PanelGrid::new(self.panels.len(), aspect, 190.0, texts);
        let mut scene = panels.scene(&self.title, &subtitle);
        let most = |of: fn(&MovesPanel) -> f64| self.panels.iter().map(of).fold(0.0, f64::max);
        let busiest = most(|panel| panel.served.iter().copied().fold(0.0, f64::max));
        let widest = most(|panel| {
            panel
                .arrows
                .iter()
                .map(|arrow| arrow.blocks)
                .max()
                .unwrap_or(0) as f64
        });
        for (index, moves) in self.panels.iter().enumerate() {
            let (arrows, part) = moves.busiest_arrows();
            let mut notes = vec![moves.note.clone()];
            if part < 0.999 && !arrows.is_empty() {
                let pairs = arrows.len();
                let part = format::percent(part);
                notes.push(format!(
                    "drawn: the {pairs} busiest pairs, {part} of the moves"
                ));
            }
            panels.heading(&mut scene, index, &moves.label, &notes);
            draw(
                &mut scene,
                moves,
                &arrows,
                panels.corner(index),
                panels.size,
                (busiest, widest),
            );
        }
        let occurs = |replica: bool| {
            let mut arrows = self.panels.iter().flat_map(|panel| &panel.arrows);
            arrows.any(|arrow| arrow.replica == replica)
        };
        let kinds = [(false, "blocks migrated"), (true, "replicas made")];
        let kinds = kinds.into_iter().filter(|&(replica, _)| occurs(replica));
        legend(&mut scene, panels.legend(), kinds, (busiest, widest));
        scene
    }
}

/// The width of an arrow for its share of the busiest arrow's blocks. Its area is proportional to
/// the blocks.
fn arrow_width(part: f64) -> f64 {
    0.9 + 4.6 * part.sqrt()
}

/// The colour of an arrow: the fewer blocks, the paler.
fn arrow_colour(replica: bool, part: f64) -> Colour {
    let full = if replica { REPLICATED } else { MIGRATED };
    WHITE.towards(full, 0.4 + 0.6 * part.sqrt())
}

fn draw(
    scene: &mut Scene,
    moves: &MovesPanel,
    arrows: &[MoveArrow],
    corner: (f64, f64),
    size: (f64, f64),
    (busiest, widest): (f64, f64),
) {
    let NodeLayout {
        nodes,
        switches,
        lines,
    } = &moves.layout;
    let ((left, top), (width, height)) = extent(&moves.layout);
    let pairs = || (1..nodes.len()).flat_map(|a| (0..a).map(move |b| (nodes[a], nodes[b])));
    let nearest = pairs()
        .map(|(a, b)| distance(a, b))
        .fold(f64::INFINITY, f64::min);
    let edge = 22.0;
    let scale = [
        (size.0 - 2.0 * edge) / width.max(1e-9),
        (size.1 - 2.0 * edge) / height.max(1e-9),
        160.0 / nearest,
    ];
    let scale = scale.into_iter().fold(f64::INFINITY, f64::min).max(1e-6);
    let place = |(x, y): (f64, f64)| {
        (
            corner.0 + size.0 / 2.0 + (x - left - width / 2.0) * scale,
            corner.1 + size.1 / 2.0 + (y - top - height / 2.0) * scale,
        )
    };
    let radius = (nearest * scale * 0.24).clamp(4.0, 15.0);
    for line in lines {
        scene.line(line.iter().copied().map(place).collect(), 1.5, GRID);
    }
    for &switch in switches {
        let (x, y) = place(switch);
        scene.rectangle((x - 3.0, y - 3.0), (6.0, 6.0), GRID);
    }
    let place = |node: usize| place(nodes[node]);
    for arrow in arrows {
        let part = arrow.blocks as f64 / widest.max(1.0);
        let (from, to) = (place(arrow.from), place(arrow.to));
        bent_arrow(
            scene,
            from,
            to,
            radius,
            arrow_width(part),
            arrow_colour(arrow.replica, part),
        );
    }
    for (node, &served) in moves.served.iter().enumerate() {
        let part = served / busiest.max(1e-12);
        scene.disc(place(node), radius + 1.0, FAINT);
        scene.disc(place(node), radius, IDLE.towards(BUSY, part));
        if radius >= 7.0 {
            let (x, y) = place(node);
            let colour = if part > 0.6 { WHITE } else { INK };
            let letters = (radius * 0.85).min(11.0);
            let label = node.to_string();
            scene.text(
                x,
                y + letters * 0.36,
                letters,
                colour,
                Anchor::Middle,
                &label,
            );
        }
    }
}

fn distance(a: (f64, f64), b: (f64, f64)) -> f64 {
    (a.0 - b.0).hypot(a.1 - b.1)
}

/// Draws an arrow between two discs. It bends to its left, so that the arrow of the opposite
/// direction lies beside it and arrows do not run through nodes between.
fn bent_arrow(
    scene: &mut Scene,
    from: (f64, f64),
    to: (f64, f64),
    radius: f64,
    width: f64,
    colour: Colour,
) {
    let length = distance(from, to).max(1e-6);
    let along = ((to.0 - from.0) / length, (to.1 - from.1) / length);
    let aside = (along.1, -along.0);
    let bend = (0.16 * length).clamp(8.0, 40.0);
    let middle = (
        (from.0 + to.0) / 2.0 + 2.0 * bend * aside.0,
        (from.1 + to.1) / 2.0 + 2.0 * bend * aside.1,
    );
    let point = |part: f64| {
        let weights = [
            (1.0 - part) * (1.0 - part),
            2.0 * part * (1.0 - part),
            part * part,
        ];
        (
            weights[0] * from.0 + weights[1] * middle.0 + weights[2] * to.0,
            weights[0] * from.1 + weights[1] * middle.1 + weights[2] * to.1,
        )
    };
    let head = 4.0 + 1.6 * width;
    // The curve starts at the edge of one disc and ends where the head touches the other.
    let steps: Vec<(f64, f64)> = (0..=48).map(|step| point(f64::from(step) / 48.0)).collect();
    let outside = |at: &&(f64, f64)| {
        distance(**at, from) >= radius + 1.0 && distance(**at, to) >= radius + head
    };
    let shaft: Vec<(f64, f64)> = steps.iter().filter(outside).copied().collect();
    let Some(&end) = shaft.last() else {
        return;
    };
    let towards = distance(end, to).max(1e-6);
    let way = ((to.0 - end.0) / towards, (to.1 - end.1) / towards);
    let tip = (to.0 - way.0 * (radius + 1.5), to.1 - way.1 * (radius + 1.5));
    let half = (0.5 * width + 2.0).max(3.0);
    scene.line(shaft, width, colour);
    scene.fill(
        vec![
            tip,
            (end.0 - half * way.1, end.1 + half * way.0),
            (end.0 + half * way.1, end.1 - half * way.0),
        ],
        colour,
    );
}

fn legend(
    scene: &mut Scene,
    (left, top): (f64, f64),
    kinds: impl Iterator<Item = (bool, &'static str)>,
    (busiest, widest): (f64, f64),
) {
    let mut y = top;
    for (replica, name) in kinds {
        scene.text(left, y, 12.0, INK, Anchor::Start, name);
        y += 20.0;
        for part in [1.0, 0.25, 0.04] {
            let blocks = (part * widest).round() as u64;
            if blocks > 0 {
                let (width, colour) = (arrow_width(part), arrow_colour(replica, part));
                let row = y - 4.0;
                scene.line(vec![(left, row), (left + 30.0, row)], width, colour);
                let head = vec![
                    (left + 40.0, row),
                    (left + 30.0, row - 2.5 - width / 2.0),
                    (left + 30.0, row + 2.5 + width / 2.0),
                ];
                scene.fill(head, colour);
                let label = format::count(blocks);
                scene.text(left + 50.0, y, 11.0, INK, Anchor::Start, &label);
                y += 19.0;
            }
        }
        y += 10.0;
    }
    scene.text(
        left,
        y,
        12.0,
        INK,
        Anchor::Start,
        "accesses that a node served",
    );
    for part in [0.0, 0.5, 1.0] {
        y += 22.0;
        scene.disc((left + 10.0, y - 4.0), 9.0, FAINT);
        scene.disc((left + 10.0, y - 4.0), 8.0, IDLE.towards(BUSY, part));
        let label = format::percent(part * busiest);
        scene.text(left + 26.0, y, 11.0, INK, Anchor::Start, &label);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(side: usize, panels: usize) -> MovesMap {
        let nodes = side * side;
        let arrows = (0..nodes).flat_map(|from| {
            (0..nodes)
                .filter(move |&to| to != from)
                .map(move |to| MoveArrow {
                    from,
                    to,
                    replica: (from + to) % 2 == 0,
                    blocks: (1 + from * to) as u64,
                })
        });
        let moves = MovesPanel {
            label: "post-office".to_owned(),
            note: "1,234 moves".to_owned(),
            layout: NodeLayout::of(&hither_core::Topology::mesh(&[side, side])),
            served: vec![1.0 / nodes as f64; nodes],
            arrows: arrows.collect(),
        };
        MovesMap {
            title: "Blocks that moved".to_owned(),
            subtitle: "made up".to_owned(),
            panels: vec![moves; panels],
            still: Vec::new(),
        }
    }

    #[test]
    fn the_busiest_pairs_are_drawn_and_their_part_is_said() {
        let picture = map(5, 2);
        let (arrows, part) = picture.panels[0].busiest_arrows();
        assert_eq!(arrows.len(), ARROWS_MAX);
        assert!(arrows.is_sorted_by_key(|arrow| arrow.blocks));
        assert!((0.2..1.0).contains(&part), "{part}");
        assert_eq!(
            picture.svg().matches("drawn: the 60 busiest pairs").count(),
            2
        );
        assert!(!picture.svg().contains("NaN"));
        assert!(picture.png().is_ok());
    }

    #[test]
    fn where_nothing_moved_there_is_a_line_and_no_panel() {
        let mut picture = map(3, 1);
        let alone = picture.scene();
        picture.still = vec!["first-touch".to_owned(), "upm".to_owned()];
        let scene = picture.scene();
        assert_eq!(scene.height, alone.height);
        assert!(
            picture
                .svg()
                .contains("nothing moved under first-touch, upm")
        );
        picture.still = vec!["upm".to_owned(); 7];
        assert!(picture.svg().contains("nothing moved under 7 others"));
        picture.panels.clear();
        assert!(picture.svg().contains("nothing moved  ·"));
        assert!(picture.scene().height < 100.0);
    }

    #[test]
    fn one_node_and_no_moves_are_drawn_all_the_same() {
        let mut still = map(1, 1);
        assert!(still.panels[0].arrows.is_empty());
        assert!(!still.svg().contains("NaN") && !still.svg().contains("inf"));
        still.panels.clear();
        assert!(!still.svg().contains("NaN"));
    }
}
