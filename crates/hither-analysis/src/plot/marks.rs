//! The colour and the mark of each line of a chart.

use super::picture::WHITE;
use super::scene::{Colour, Scene};

/// The colours of Okabe and Ito, "Color universal design", 2008, with grey in place of yellow,
/// which is too pale on white.
const COLOURS: [Colour; 8] = [
    Colour(0x00, 0x72, 0xb2),
    Colour(0xd5, 0x5e, 0x00),
    Colour(0x00, 0x00, 0x00),
    Colour(0x00, 0x9e, 0x73),
    Colour(0xcc, 0x79, 0xa7),
    Colour(0xe6, 0x9f, 0x00),
    Colour(0x56, 0xb4, 0xe9),
    Colour(0x85, 0x85, 0x85),
];

/// The corners of a mark, relative to its centre.
type Corners = fn() -> Vec<(f64, f64)>;

/// The shapes of marks. There is one fewer than there are colours, so that 56 lines have different
/// pairs of the two.
const SHAPES: [Corners; 7] = [
    || round(24, 4.3),
    || vec![(-4.0, -4.0), (4.0, -4.0), (4.0, 4.0), (-4.0, 4.0)],
    || vec![(0.0, -5.2), (5.0, 3.8), (-5.0, 3.8)],
    || vec![(0.0, -5.6), (5.6, 0.0), (0.0, 5.6), (-5.6, 0.0)],
    || vec![(0.0, 5.2), (5.0, -3.8), (-5.0, -3.8)],
    plus,
    || {
        let half = std::f64::consts::FRAC_1_SQRT_2;
        let corners = plus().into_iter();
        corners
            .map(|(x, y)| (half * (x - y), half * (x + y)))
            .collect()
    },
];

/// The colour of a line.
pub(super) fn colour(line: usize) -> Colour {
    COLOURS[line % COLOURS.len()]
}

/// Draws the mark of a line, with a white edge that separates it from other lines.
pub(super) fn draw(scene: &mut Scene, line: usize, at: (f64, f64)) {
    let corners = SHAPES[line % SHAPES.len()]();
    let scaled = |scale: f64| -> Vec<(f64, f64)> {
        corners
            .iter()
            .map(|corner| (at.0 + scale * corner.0, at.1 + scale * corner.1))
            .collect()
    };
    scene.fill(scaled(1.35), WHITE);
    scene.fill(scaled(1.0), colour(line));
}

fn round(corners: u32, radius: f64) -> Vec<(f64, f64)> {
    (0..corners)
        .map(|corner| std::f64::consts::TAU * f64::from(corner) / f64::from(corners))
        .map(|angle| (radius * angle.cos(), radius * angle.sin()))
        .collect()
}

fn plus() -> Vec<(f64, f64)> {
    let (long, thin) = (5.2, 1.7);
    let quarter = [(-thin, -long), (thin, -long), (thin, -thin)];
    (0..4)
        .flat_map(|turn| quarter.map(|corner| turned(corner, turn)))
        .collect()
}

fn turned((x, y): (f64, f64), quarters: u32) -> (f64, f64) {
    (0..quarters).fold((x, y), |(x, y), _| (-y, x))
}
