//! A picture before it has a format: lines, filled shapes and texts. Coordinates are in points,
//! from the upper left corner.

use ttf_parser::OutlineBuilder;

/// Red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour(pub u8, pub u8, pub u8);

impl Colour {
    /// A mix with another colour: 0 is this one, 1 the other.
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

/// The part of a text that is at its coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// An element of the picture. Later ones are drawn over earlier ones.
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
        /// Whether the text is rotated by 90° and runs upwards.
        vertical: bool,
        text: String,
    },
}

/// The picture, on a white background.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The width in points.
    pub width: f64,
    /// The height in points.
    pub height: f64,
    /// The elements in the order of drawing.
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

    /// Adds a line through these points. The width is in points.
    pub fn line(&mut self, points: Vec<(f64, f64)>, width: f64, colour: Colour) {
        self.items.push(Item::Line {
            points,
            width,
            colour,
        });
    }

    /// Adds a filled polygon.
    pub fn fill(&mut self, corners: Vec<(f64, f64)>, colour: Colour) {
        self.items.push(Item::Fill { corners, colour });
    }

    /// Adds a filled rectangle with its upper left corner at `at`.
    pub fn rectangle(&mut self, at: (f64, f64), size: (f64, f64), colour: Colour) {
        let ((left, top), (right, bottom)) = (at, (at.0 + size.0, at.1 + size.1));
        let corners = vec![(left, top), (right, top), (right, bottom), (left, bottom)];
        self.fill(corners, colour);
    }

    /// Adds a filled circle, as a polygon of 40 corners.
    pub fn disc(&mut self, at: (f64, f64), radius: f64, colour: Colour) {
        let corners = (0..40)
            .map(|corner| std::f64::consts::TAU * f64::from(corner) / 40.0)
            .map(|angle| (at.0 + radius * angle.cos(), at.1 + radius * angle.sin()));
        self.fill(corners.collect(), colour);
    }

    /// Adds a text. `y` is its base line.
    pub fn text(&mut self, x: f64, y: f64, size: f64, colour: Colour, anchor: Anchor, text: &str) {
        self.items.push(Item::Text {
            at: (x, y),
            size,
            colour,
            anchor,
            vertical: false,
            text: text.to_owned(),
        });
    }

    /// Adds a text that runs upwards, with its middle at `y`.
    pub fn vertical_text(&mut self, x: f64, y: f64, size: f64, colour: Colour, text: &str) {
        self.items.push(Item::Text {
            at: (x, y),
            size,
            colour,
            anchor: Anchor::Middle,
            vertical: true,
            text: text.to_owned(),
        });
    }
}

/// The font, with the measures that a layout needs.
pub(super) struct Font(ttf_parser::Face<'static>);

impl Font {
    /// DejaVu Sans.
    pub(super) fn new() -> Font {
        let font = ttf_parser::Face::parse(dejavu::sans::regular(), 0);
        Font(font.expect("the font that is built in is one"))
    }

    /// The width of a text of that size, in points.
    pub(super) fn width(&self, text: &str, size: f64) -> f64 {
        text.chars().map(|letter| self.advance(letter, size)).sum()
    }

    /// The distance from a letter to the next one, in points.
    pub(super) fn advance(&self, letter: char, size: f64) -> f64 {
        let advance = self.0.glyph_hor_advance(self.glyph(letter)).unwrap_or(0);
        self.scale(size) * f64::from(advance)
    }

    /// The number of points in one of the font's units.
    pub(super) fn scale(&self, size: f64) -> f64 {
        size / f64::from(self.0.units_per_em())
    }

    /// Passes the outline of a letter to `builder`, in the font's units, whose y axis points up.
    pub(super) fn outline(&self, letter: char, builder: &mut dyn OutlineBuilder) {
        self.0.outline_glyph(self.glyph(letter), builder);
    }

    /// The glyph of a letter. The first glyph stands for letters that the font lacks.
    fn glyph(&self, letter: char) -> ttf_parser::GlyphId {
        self.0.glyph_index(letter).unwrap_or_default()
    }
}
