//! A scene as SVG. Coordinates have one decimal, since a tenth of a point is not visible.

use std::fmt::Write;

use super::scene::{Anchor, Colour, Item, Scene};

pub(super) fn write(scene: &Scene, title: &str) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = describe(&mut text, scene, title);
    text
}

fn describe(out: &mut String, scene: &Scene, title: &str) -> std::fmt::Result {
    let (width, height) = (scene.width, scene.height);
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" \
         font-family=\"DejaVu Sans, Verdana, Helvetica, Arial, sans-serif\" \
         stroke-linejoin=\"round\">"
    )?;
    writeln!(out, "<title>{}</title>", escaped(title))?;
    writeln!(
        out,
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
    )?;
    for item in &scene.items {
        match item {
            Item::Line {
                points,
                width,
                colour,
            } => {
                write!(out, "<polyline points=\"")?;
                places(out, points)?;
                let colour = hex(*colour);
                writeln!(
                    out,
                    "\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>"
                )?;
            }
            Item::Fill { corners, colour } => {
                write!(out, "<polygon points=\"")?;
                places(out, corners)?;
                writeln!(out, "\" fill=\"{}\"/>", hex(*colour))?;
            }
            Item::Text {
                at: (x, y),
                size,
                colour,
                anchor,
                vertical,
                text,
            } => {
                let anchor = match anchor {
                    Anchor::Start => "start",
                    Anchor::Middle => "middle",
                    Anchor::End => "end",
                };
                let turn = if *vertical {
                    format!(" transform=\"rotate(-90 {x:.1} {y:.1})\"")
                } else {
                    String::new()
                };
                let (colour, text) = (hex(*colour), escaped(text));
                writeln!(
                    out,
                    "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{colour}\" \
                     text-anchor=\"{anchor}\"{turn}>{text}</text>"
                )?;
            }
        }
    }
    writeln!(out, "</svg>")
}

fn places(out: &mut String, points: &[(f64, f64)]) -> std::fmt::Result {
    for (index, (x, y)) in points.iter().enumerate() {
        let space = if index == 0 { "" } else { " " };
        write!(out, "{space}{x:.1},{y:.1}")?;
    }
    Ok(())
}

fn hex(Colour(red, green, blue): Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
