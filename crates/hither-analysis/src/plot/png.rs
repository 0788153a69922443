//! A scene as PNG, painted by tiny-skia with smooth edges. It needs no font, display or library of
//! the machine.

use tiny_skia::{
    Color, FillRule, LineCap, LineJoin, Paint, PathBuilder, Pixmap, Stroke, Transform,
};
use ttf_parser::OutlineBuilder;

use crate::{Error, Result};

use super::scene::{Anchor, Colour, Font, Item, Scene};

/// Two pixels a point are sharp on current displays and on paper.
const PIXELS_PER_POINT: f32 = 2.0;

pub(super) fn paint(scene: &Scene) -> Result<Vec<u8>> {
    let pixels_of = |points: f64| points as f32 * PIXELS_PER_POINT;
    let (width, height) = (pixels_of(scene.width), pixels_of(scene.height));
    let mut pixels = Pixmap::new(width as u32, height as u32)
        .ok_or_else(|| encode_error("the size of the picture"))?;
    pixels.fill(Color::WHITE);
    let font = Font::new();
    let scale = Transform::from_scale(PIXELS_PER_POINT, PIXELS_PER_POINT);
    for item in &scene.items {
        match item {
            Item::Line {
                points,
                width,
                colour,
            } => {
                let stroke = Stroke {
                    width: *width as f32,
                    line_cap: LineCap::Butt,
                    line_join: LineJoin::Round,
                    ..Stroke::default()
                };
                if let Some(path) = through(points, false) {
                    pixels.stroke_path(&path, &ink(*colour), &stroke, scale, None);
                }
            }
            Item::Fill { corners, colour } => {
                if let Some(path) = through(corners, true) {
                    pixels.fill_path(&path, &ink(*colour), FillRule::Winding, scale, None);
                }
            }
            Item::Text {
                at: (x, y),
                size,
                colour,
                anchor,
                vertical,
                text,
            } => {
                let turn = if *vertical { -90.0 } else { 0.0 };
                let place = scale
                    .pre_translate(*x as f32, *y as f32)
                    .pre_concat(Transform::from_rotate(turn));
                if let Some(path) = letters(&font, text, *size, *anchor) {
                    pixels.fill_path(&path, &ink(*colour), FillRule::Winding, place, None);
                }
            }
        }
    }
    pixels.encode_png().map_err(encode_error)
}

fn encode_error(problem: impl ToString) -> Error {
    Error::Encode {
        format: "PNG",
        problem: problem.to_string(),
    }
}

fn ink(Colour(red, green, blue): Colour) -> Paint<'static> {
    let mut paint = Paint::default();
    paint.set_color_rgba8(red, green, blue, 0xff);
    paint
}

fn through(points: &[(f64, f64)], close: bool) -> Option<tiny_skia::Path> {
    let mut builder = PathBuilder::new();
    for (index, &(x, y)) in points.iter().enumerate() {
        if index == 0 {
            builder.move_to(x as f32, y as f32);
        } else {
            builder.line_to(x as f32, y as f32);
        }
    }
    if close {
        builder.close();
    }
    builder.finish()
}

/// The outlines of a text whose base line runs through the origin.
fn letters(font: &Font, text: &str, size: f64, anchor: Anchor) -> Option<tiny_skia::Path> {
    let from = match anchor {
        Anchor::Start => 0.0,
        Anchor::Middle => -font.width(text, size) / 2.0,
        Anchor::End => -font.width(text, size),
    };
    let mut pen = Pen {
        builder: PathBuilder::new(),
        scale: font.scale(size) as f32,
        x: from as f32,
    };
    for letter in text.chars() {
        font.outline(letter, &mut pen);
        pen.x += font.advance(letter, size) as f32;
    }
    pen.builder.finish()
}

/// Converts outlines from the font's units to points at `x`. The font's y axis points up.
struct Pen {
    builder: PathBuilder,
    scale: f32,
    x: f32,
}

impl Pen {
    fn at(&self, x: f32, y: f32) -> (f32, f32) {
        (self.x + x * self.scale, -y * self.scale)
    }
}

impl OutlineBuilder for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.builder.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.builder.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.at(x1, y1), self.at(x, y));
        self.builder.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2), (x, y)) = (self.at(x1, y1), self.at(x2, y2), self.at(x, y));
        self.builder.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.builder.close();
    }
}
