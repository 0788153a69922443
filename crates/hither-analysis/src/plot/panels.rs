//! Small multiples: one panel a placement, side by side under one title, so that they are compared
//! at a glance; and the scale of colours that they share.

use super::scene::{Anchor, Colour, Face, Scene};
use super::{FAINT, INK};

/// ColorBrewer's YlGnBu in nine classes (Brewer and Harrower): its lightness falls steadily, so
/// that it reads in grey and by those who see colours differently.
const RAMP: [Colour; 9] = [
    Colour(0xff, 0xff, 0xd9),
    Colour(0xed, 0xf8, 0xb1),
    Colour(0xc7, 0xe9, 0xb4),
    Colour(0x7f, 0xcd, 0xbb),
    Colour(0x41, 0xb6, 0xc4),
    Colour(0x1d, 0x91, 0xc0),
    Colour(0x22, 0x5e, 0xa8),
    Colour(0x25, 0x34, 0x94),
    Colour(0x08, 0x1d, 0x58),
];

/// The colour of a value from 0 to 1, in 64 steps.
pub(super) fn ramp(value: f64) -> Colour {
    let step = (value.clamp(0.0, 1.0) * 63.0).round() / 63.0;
    let place = step * (RAMP.len() - 1) as f64;
    let from = (place as usize).min(RAMP.len() - 2);
    RAMP[from].towards(RAMP[from + 1], place - from as f64)
}

/// What is read on top of a value's colour.
pub(super) fn ink_on(value: f64) -> Colour {
    match value > 0.55 {
        true => Colour(0xff, 0xff, 0xff),
        false => INK,
    }
}

/// Space above and beside a panel.
const ABOVE: f64 = 56.0;
const LEFT: f64 = 58.0;
const BELOW: f64 = 50.0;
/// The first row of panels begins here.
const TOP: f64 = 66.0;
const EDGE: f64 = 24.0;

/// Where the panels go.
pub(super) struct Panels {
    columns: usize,
    /// Width and height of each.
    pub(super) size: (f64, f64),
    /// Width of the picture.
    width: f64,
    height: f64,
}

impl Panels {
    /// Room for `count` panels, and for a legend `legend` wide to their right. The height of a
    /// panel is `aspect` times its width.
    pub(super) fn new(count: usize, aspect: f64, legend: f64, texts: [&str; 2]) -> Panels {
        let count = count.max(1);
        let columns = match count {
            1 | 2 | 4 => count.min(2),
            _ => 3,
        };
        let side = match columns {
            1 => 480.0,
            2 => 380.0,
            _ => 300.0,
        };
        let size = (side, (side * aspect).clamp(60.0, 1.4 * side));
        let rows = count.div_ceil(columns) as f64;
        let face = Face::new();
        let needed = [face.width(texts[0], 19.0), face.width(texts[1], 12.0)];
        let width = columns as f64 * (LEFT + size.0) + legend + EDGE;
        Panels {
            columns,
            size,
            width: needed
                .iter()
                .fold(width, |width, text| width.max(LEFT + text + EDGE)),
            height: TOP + rows * (ABOVE + size.1 + BELOW),
        }
    }

    /// The picture with its title and nothing else.
    pub(super) fn scene(&self, title: &str, subtitle: &str) -> Scene {
        let mut scene = Scene::new(self.width.ceil(), self.height.ceil());
        scene.text(LEFT, 34.0, 19.0, INK, Anchor::Start, title);
        scene.text(LEFT, 55.0, 12.0, FAINT, Anchor::Start, subtitle);
        scene
    }

    /// The upper left corner of a panel.
    pub(super) fn corner(&self, panel: usize) -> (f64, f64) {
        let (column, row) = ((panel % self.columns) as f64, (panel / self.columns) as f64);
        (
            LEFT + column * (LEFT + self.size.0),
            TOP + ABOVE + row * (ABOVE + self.size.1 + BELOW),
        )
    }

    /// What a panel is of, and remarks in smaller letters, a line each, above it.
    pub(super) fn heading(&self, scene: &mut Scene, panel: usize, label: &str, notes: &[String]) {
        let (left, top) = self.corner(panel);
        let mut line = top - 10.0;
        for note in notes.iter().rev() {
            scene.text(left, line, 11.0, FAINT, Anchor::Start, note);
            line -= 15.0;
        }
        scene.text(left, line - 1.0, 14.0, INK, Anchor::Start, label);
    }

    /// The upper left corner of the legend.
    pub(super) fn legend(&self) -> (f64, f64) {
        let right = self.columns as f64 * (LEFT + self.size.0);
        (right + EDGE, TOP + ABOVE)
    }
}

/// Every so many nodes get a label, `room` points apart at least, on an axis with `cell` points a
/// node.
pub(super) fn node_step(cell: f64, room: f64) -> usize {
    let steps = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
    let fits = steps.into_iter().find(|&step| step as f64 * cell >= room);
    fits.unwrap_or(4096)
}
