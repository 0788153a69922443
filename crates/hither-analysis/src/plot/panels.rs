//! Small multiples: one panel for each placement, side by side under one title, and the scale of
//! colours that they share.

use super::picture::{FAINT, INK, WHITE};
use super::scene::{Anchor, Colour, Font, Scene};
/// ColorBrewer's YlGnBu in nine classes (Brewer and Harrower). Its lightness falls steadily, so it
/// can be read in grey and with colour blindness.
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

/// The colour of text on top of a value's colour.
pub(super) fn ink_on(value: f64) -> Colour {
    if value > 0.55 { WHITE } else { INK }
}

/// Space around a panel, in points.
const PANEL_ABOVE: f64 = 56.0;
const PANEL_LEFT: f64 = 58.0;
const PANEL_BELOW: f64 = 50.0;
/// The height of title and subtitle, in points.
const TITLE_HEIGHT: f64 = 66.0;
/// Space at the right edge of the picture, in points.
const RIGHT_MARGIN: f64 = 24.0;

/// The layout of the panels.
pub(super) struct PanelGrid {
    columns: usize,
    /// Width and height of each.
    pub(super) size: (f64, f64),
    /// Width of the picture.
    width: f64,
    height: f64,
}

impl PanelGrid {
    /// A layout for `count` panels, with a legend of width `legend` to their right. The height of a
    /// panel is `aspect` times its width. The picture is wide enough for `texts`, title and
    /// subtitle.
    pub(super) fn new(count: usize, aspect: f64, legend: f64, texts: [&str; 2]) -> PanelGrid {
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
        let font = Font::new();
        let needed = [font.width(texts[0], 19.0), font.width(texts[1], 12.0)];
        let width = columns as f64 * (PANEL_LEFT + size.0) + legend + RIGHT_MARGIN;
        PanelGrid {
            columns,
            size,
            width: needed.iter().fold(width, |width, text| {
                width.max(PANEL_LEFT + text + RIGHT_MARGIN)
            }),
            height: TITLE_HEIGHT + rows * (PANEL_ABOVE + size.1 + PANEL_BELOW),
        }
    }

    /// An empty picture with its title.
    pub(super) fn scene(&self, title: &str, subtitle: &str) -> Scene {
        let mut scene = Scene::new(self.width.ceil(), self.height.ceil());
        scene.text(PANEL_LEFT, 34.0, 19.0, INK, Anchor::Start, title);
        scene.text(PANEL_LEFT, 55.0, 12.0, FAINT, Anchor::Start, subtitle);
        scene
    }

    /// The upper left corner of a panel.
    pub(super) fn corner(&self, panel: usize) -> (f64, f64) {
        let (column, row) = ((panel % self.columns) as f64, (panel / self.columns) as f64);
        (
            PANEL_LEFT + column * (PANEL_LEFT + self.size.0),
            TITLE_HEIGHT + PANEL_ABOVE + row * (PANEL_ABOVE + self.size.1 + PANEL_BELOW),
        )
    }

    /// Draws the label of a panel above it, and notes in smaller letters, a line each.
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
        let right = self.columns as f64 * (PANEL_LEFT + self.size.0);
        (right + RIGHT_MARGIN, TITLE_HEIGHT + PANEL_ABOVE)
    }
}

/// A picture of a title and a subtitle, where there is nothing else to draw.
pub(super) fn heading_alone(texts: [&str; 2]) -> Scene {
    let grid = PanelGrid {
        height: TITLE_HEIGHT,
        ..PanelGrid::new(1, 1.0, 0.0, texts)
    };
    grid.scene(texts[0], texts[1])
}

/// The distance between labelled nodes, a power of two, on an axis with `cell` points a node. The
/// labels are at least `room` points apart.
pub(super) fn node_label_step(cell: f64, room: f64) -> usize {
    let steps = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
    let fits = steps.into_iter().find(|&step| step as f64 * cell >= room);
    fits.unwrap_or(4096)
}
