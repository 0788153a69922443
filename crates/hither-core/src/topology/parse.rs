//! Topologies as a user writes them: `4`, `mesh:5x5`, `ring:4x4`, or the name of a preset.

use std::str::FromStr;

use super::error::TopologyError;
use super::network::{About, Topology};
use super::presets::presets;
use super::shape::{AXES_MAX, AXIS_MAX, NODES_MAX, Shape};
use crate::text::hint;

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// A kind of shape, as users write it.
struct ShapeSyntax {
    name: &'static str,
    example: &'static str,
    means: &'static str,
    /// Makes a shape from the lengths, each of which is a number within bounds.
    make: fn(&[usize]) -> Result<Made, String>,
}

/// A shape, its number of nodes, and the CPUs of each.
type Made = (Shape, usize, usize);

static SHAPES: &[ShapeSyntax] = &[
    ShapeSyntax {
        name: "mesh",
        example: "mesh:5x5",
        means: "5 rows of 5 nodes",
        make: |axes| grid(axes, false),
    },
    ShapeSyntax {
        name: "torus",
        example: "torus:4x4x4",
        means: "a mesh whose axes are rings",
        make: |axes| grid(axes, true),
    },
    ShapeSyntax {
        name: "hypercube",
        example: "hypercube:4",
        means: "16 nodes in 4 dimensions; `hypercube:3x2` puts 2 nodes on each of 8 routers",
        make: hypercube,
    },
    ShapeSyntax {
        name: "ring",
        example: "ring:4x4",
        means: "4 stations of 4 processors on a ring; `ring:2x4x4` joins 2 such rings by another",
        make: rings,
    },
    ShapeSyntax {
        name: "tree",
        example: "tree:4x4",
        means: "4 switches of 4 nodes under one switch",
        make: |fan| {
            let nodes = product(fan)?;
            let shape = Shape::Hierarchy {
                fan: fan.to_vec(),
                rings: false,
            };
            Ok((shape, nodes, 1))
        },
    },
];

fn product(lengths: &[usize]) -> Result<usize, String> {
    let nodes = lengths
        .iter()
        .try_fold(1_usize, |nodes, &length| nodes.checked_mul(length));
    nodes
        .filter(|nodes| *nodes <= NODES_MAX)
        .ok_or_else(|| format!("that is more than {NODES_MAX} nodes"))
}

fn grid(axes: &[usize], wraps: bool) -> Result<Made, String> {
    let nodes = product(axes)?;
    if let Some(long) = axes.iter().find(|length| **length > AXIS_MAX) {
        return Err(format!("an axis has at most {AXIS_MAX} nodes, not {long}"));
    }
    let shape = Shape::Grid {
        axes: axes.to_vec(),
        wraps,
        cube: false,
    };
    Ok((shape, nodes, 1))
}

fn hypercube(lengths: &[usize]) -> Result<Made, String> {
    let (dimensions, each) = match *lengths {
        [dimensions] => (dimensions, 1),
        [dimensions, each] => (dimensions, each),
        _ => return Err("a hypercube has one number of dimensions".to_owned()),
    };
    if dimensions > AXES_MAX {
        return Err(format!("a hypercube has at most {AXES_MAX} dimensions"));
    }
    let axes = vec![2; dimensions];
    let nodes = product(&axes)?;
    let shape = match each {
        1 => Shape::Grid {
            axes,
            wraps: false,
            cube: true,
        },
        _ => Shape::Routers { dimensions, each },
    };
    Ok((shape, product(&[nodes, each])?, 1))
}

fn rings(lengths: &[usize]) -> Result<Made, String> {
    // A single number: stations of one processor.
    let (fan, processors) = match lengths {
        [stations] => (&[*stations][..], 1),
        [fan @ .., processors] => (fan, *processors),
        [] => (&[][..], 1),
    };
    let shape = Shape::Hierarchy {
        fan: fan.to_vec(),
        rings: true,
    };
    Ok((shape, product(fan)?, processors))
}

impl Topology {
    /// A mesh with axes of these lengths, slowest first; on 5x5, node 7 is at row 1, column 2.
    ///
    /// # Panics
    /// If the text form would not parse. For input there is [`str::parse`].
    pub fn mesh(axes: &[usize]) -> Topology {
        let lengths: Vec<String> = axes.iter().map(usize::to_string).collect();
        let mesh = format!("mesh:{}", lengths.join("x")).parse();
        mesh.expect("the axes are within bounds")
    }
}

impl FromStr for Topology {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Topology, TopologyError> {
        let text = text.trim();
        if let Some(preset) = presets().iter().find(|preset| preset.name == text) {
            return Ok(preset.topology());
        }
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return match text.parse() {
                Ok(0) => Err(unknown(text)),
                Ok(nodes) if nodes <= NODES_MAX => Ok(Topology::uniform(nodes)),
                _ => Err(TopologyError::TooMany(shortened(text))),
            };
        }
        let (name, lengths) = text.split_once(':').ok_or_else(|| unknown(text))?;
        let written = SHAPES.iter().find(|shape| shape.name == name);
        let written = written.ok_or_else(|| unknown(text))?;
        let wrong = |problem| TopologyError::Lengths {
            text: shortened(text),
            problem,
            example: written.example,
            means: written.means,
        };
        let numbers = numbers(lengths).map_err(wrong)?;
        let (shape, nodes, cpus) = (written.make)(&numbers).map_err(wrong)?;
        let canonical: Vec<String> = numbers.iter().map(usize::to_string).collect();
        let name = format!("{name}:{}", canonical.join("x"));
        let cpus = |_, about: &mut About| about.cpus = cpus as u32;
        Ok(Topology::of(name, nodes, shape).with_nodes(cpus))
    }
}

fn numbers(text: &str) -> Result<Vec<usize>, String> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| digits && *number > 0);
        let number = number.filter(|number| *number <= NODES_MAX);
        number.ok_or_else(|| {
            let text = shortened(text);
            format!("`{text}` is not a whole number from 1 to {NODES_MAX}")
        })
    };
    let numbers: Vec<usize> = text.split('x').map(number).collect::<Result<_, _>>()?;
    if numbers.len() > AXES_MAX {
        return Err(format!("{} numbers, of at most {AXES_MAX}", numbers.len()));
    }
    Ok(numbers)
}

fn unknown(text: &str) -> TopologyError {
    let (name, _) = text.split_once(':').unwrap_or((text, ""));
    let names = presets().iter().map(|preset| preset.name);
    let name = shortened(name);
    TopologyError::Unknown {
        text: shortened(text),
        hint: hint(
            &name,
            names.clone().chain(SHAPES.iter().map(|shape| shape.name)),
        ),
        known: format!(
            "a number of nodes, {}, or one of {}",
            listed(SHAPES.iter().map(|shape| shape.example)),
            listed(names)
        ),
    }
}

/// The part of the input that a message repeats: at most a line.
fn shortened(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 60;
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}
