//! A picture before it has a format: lines, filled shapes and texts in points, from the upper left
//! corner.

use ttf_parser::OutlineBuilder;

/// Red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour(pub u8, pub u8, pub u8);

impl Colour {
    /// So far on the way to another colour, from 0 to 1.
    pub fn towards(self, other: Colour, part: f64) -> Colour {
        let mix = |from: u8, to: u8| {
            (f64::from(from) + part * (f64::from(to) - f64::from(from))).round() as u8
        };
        let (red, green, blue) = (
            mix(self.0, other.0),
            mix(self.1, other.1),
            mix(self.2, other.2),
        );
        Colour(red, green, blue)
    }
}

/// Which part of a text is at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A thing in the picture; what comes later lies on top.
#[derive(Clone, Debug)]
pub enum Item {
    Line {
        points: Vec<(f64, f64)>,
        width: f64,
        colour: Colour,
    },
    Fill {
        corners: Vec<(f64, f64)>,
        colour: Colour,
    },
    Text {
        at: (f64, f64),
        size: f64,
        colour: Colour,
        anchor: Anchor,
        /// Read from below to above.
        upright: bool,
        text: String,
    },
}

/// The picture, on white.
#[derive(Clone, Debug)]
pub struct Scene {
    /// In points.
    pub width: f64,
    /// In points.
    pub height: f64,
    /// From below to above.
    pub items: Vec<Item>,
}

impl Scene {
    /// An empty picture.
    pub fn new(width: f64, height: f64) -> Scene {
        Scene {
            width,
            height,
            items: Vec::new(),
        }
    }

    /// A line through points, so many points wide.
    pub fn line(&mut self, points: Vec<(f64, f64)>, width: f64, colour: Colour) {
        self.items.push(Item::Line {
            points,
            width,
            colour,
        });
    }

    /// A filled polygon.
    pub fn fill(&mut self, corners: Vec<(f64, f64)>, colour: Colour) {
        self.items.push(Item::Fill { corners, colour });
    }

    /// A filled rectangle with its upper left corner at `at`.
    pub fn rectangle(&mut self, at: (f64, f64), size: (f64, f64), colour: Colour) {
        let ((left, top), (right, bottom)) = (at, (at.0 + size.0, at.1 + size.1));
        let corners = vec![(left, top), (right, top), (right, bottom), (left, bottom)];
        self.fill(corners, colour);
    }

    /// A filled circle.
    pub fn disc(&mut self, at: (f64, f64), radius: f64, colour: Colour) {
        let corners = (0..40)
            .map(|corner| std::f64::consts::TAU * f64::from(corner) / 40.0)
            .map(|angle| (at.0 + radius * angle.cos(), at.1 + radius * angle.sin()));
        self.fill(corners.collect(), colour);
    }

    /// A text on its base line.
    pub fn text(&mut self, x: f64, y: f64, size: f64, colour: Colour, anchor: Anchor, text: &str) {
        self.items.push(Item::Text {
            at: (x, y),
            size,
            colour,
            anchor,
            upright: false,
            text: text.to_owned(),
        });
    }

    /// A text that is read from below to above, with its middle at its place.
    pub fn upright(&mut self, x: f64, y: f64, size: f64, colour: Colour, text: &str) {
        self.items.push(Item::Text {
            at: (x, y),
            size,
            colour,
            anchor: Anchor::Middle,
            upright: true,
            text: text.to_owned(),
        });
    }
}

/// The font.
pub(super) struct Face(ttf_parser::Face<'static>);

impl Face {
    /// DejaVu Sans.
    pub(super) fn new() -> Face {
        let face = ttf_parser::Face::parse(dejavu::sans::regular(), 0);
        Face(face.expect("the font that is built in is one"))
    }

    /// How wide a text of that size is.
    pub(super) fn width(&self, text: &str, size: f64) -> f64 {
        text.chars().map(|letter| self.advance(letter, size)).sum()
    }

    /// How far the next letter is.
    pub(super) fn advance(&self, letter: char, size: f64) -> f64 {
        let advance = self.0.glyph_hor_advance(self.glyph(letter)).unwrap_or(0);
        self.scale(size) * f64::from(advance)
    }

    /// From the font's units to points.
    pub(super) fn scale(&self, size: f64) -> f64 {
        size / f64::from(self.0.units_per_em())
    }

    /// The letter's shape in the font's units, upwards.
    pub(super) fn outline(&self, letter: char, builder: &mut dyn OutlineBuilder) {
        self.0.outline_glyph(self.glyph(letter), builder);
    }

    /// The first glyph stands for all that the font does not have.
    fn glyph(&self, letter: char) -> ttf_parser::GlyphId {
        self.0.glyph_index(letter).unwrap_or_default()
    }
}
