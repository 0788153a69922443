//! A picture before it has a format: lines, filled shapes and texts in points, from the upper left corner.

use ttf_parser::OutlineBuilder;

/// Red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Colour(pub(super) u8, pub(super) u8, pub(super) u8);

/// Which part of a text is at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A thing in the picture; what comes later lies on top.
#[derive(Clone, Debug)]
pub(super) enum Item {
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
pub(super) struct Scene {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) items: Vec<Item>,
}

impl Scene {
    pub(super) fn new(width: f64, height: f64) -> Scene {
        Scene {
            width,
            height,
            items: Vec::new(),
        }
    }

    pub(super) fn line(&mut self, points: Vec<(f64, f64)>, width: f64, colour: Colour) {
        self.items.push(Item::Line {
            points,
            width,
            colour,
        });
    }

    pub(super) fn fill(&mut self, corners: Vec<(f64, f64)>, colour: Colour) {
        self.items.push(Item::Fill { corners, colour });
    }

    /// A text on its base line.
    pub(super) fn text(
        &mut self,
        x: f64,
        y: f64,
        size: f64,
        colour: Colour,
        anchor: Anchor,
        text: &str,
    ) {
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
    pub(super) fn upright(&mut self, x: f64, y: f64, size: f64, colour: Colour, text: &str) {
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
