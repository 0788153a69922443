//! Topologies drawn as text: grids plane by plane, hypercubes as grids in Gray code order, rings
//! and trees with lines.

use std::iter::repeat_n;

use hither_core::{Node, Topology};

/// The largest drawing that fits a terminal.
const COLUMNS_MAX: usize = 110;
const LINES_MAX: usize = 100;

/// The space between planes side by side.
const GAP: &str = "    ";

/// The drawing, its lines indented by two spaces. `None`: it would be too large, or all nodes are
/// linked with each other.
pub fn drawing(topology: &Topology) -> Option<String> {
    let (lines, legend) = match topology.kind() {
        "mesh" | "torus" => grid(topology),
        "hypercube" => cube(topology),
        "ring" => (rings(topology), "a ring goes one way"),
        "tree" => (branch(topology.levels(), 0, topology.nodes()), ""),
        _ => return None,
    };
    let fits =
        lines.len() <= LINES_MAX && lines.iter().all(|line| line.chars().count() <= COLUMNS_MAX);
    let legend = (!legend.is_empty()).then(|| format!("({legend})"));
    let lines = lines.into_iter().chain(legend);
    fits.then(|| {
        lines
            .map(|line| format!("  {line}").trim_end().to_owned() + "\n")
            .collect()
    })
}

const WRAP_LEGEND: &str = "dotted lines lead around to the other side";

/// A plane of labels. In a torus, links wrap around rows and columns.
struct Plane {
    rows: Vec<Vec<String>>,
    around_rows: bool,
    around_columns: bool,
}

impl Plane {
    fn draw(&self) -> Vec<String> {
        let wide = |row: &Vec<String>| row.iter().map(String::len).max().unwrap_or(0);
        let width = self.rows.iter().map(wide).max().unwrap_or(0);
        let (before, after) = if self.around_rows {
            ("┄ ", " ┄")
        } else {
            ("", "")
        };
        let columns = self.rows.first().map_or(0, Vec::len);
        // Vertical lines run through the last letter of the labels.
        let between = |line: &str| {
            let cells = repeat_n(format!("{line:>width$}"), columns);
            let indent = " ".repeat(before.chars().count());
            indent.clone() + &cells.collect::<Vec<_>>().join("    ") + &indent
        };
        let mut lines = Vec::new();
        for (number, row) in self.rows.iter().enumerate() {
            match (number, self.around_columns) {
                (0, true) => lines.push(between("┊")),
                (0, false) => {}
                _ => lines.push(between("│")),
            }
            let labels = row.iter().map(|label| format!("{label:>width$}"));
            let labels: Vec<String> = labels.collect();
            lines.push(format!("{before}{}{after}", labels.join(" ── ")));
        }
        lines.extend(self.around_columns.then(|| between("┊")));
        lines
    }
}

/// Draws planes with their titles, as many side by side as fit.
fn planes(planes: impl Iterator<Item = (String, Plane)>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut row: Vec<String> = Vec::new();
    for (title, plane) in planes {
        let mut drawn = plane.draw();
        if !title.is_empty() {
            drawn.insert(0, title);
        }
        let width = drawn
            .iter()
            .map(|line| line.chars().count())
            .max()
            .unwrap_or(0);
        let taken = row
            .iter()
            .map(|line| line.chars().count())
            .max()
            .unwrap_or(0);
        if row.is_empty() {
            row = drawn;
        } else if taken + GAP.len() + width <= COLUMNS_MAX {
            for (line, more) in row.iter_mut().zip(drawn) {
                let space = taken - line.chars().count();
                *line += &(" ".repeat(space) + GAP + &more);
            }
        } else {
            lines.append(&mut row);
            lines.push(String::new());
            row = drawn;
        }
    }
    lines.append(&mut row);
    lines
}

fn grid(topology: &Topology) -> (Vec<String>, &'static str) {
    let axes = topology.axes();
    let (rows, columns) = match *axes {
        [.., rows, columns] => (rows, columns),
        _ => (1, topology.nodes()),
    };
    let wraps = topology.kind() == "torus";
    let upper = &axes[..axes.len().saturating_sub(2)];
    let layers = topology.nodes() / (rows * columns);
    let plane = |layer: usize| {
        let label =
            |row: usize, column: usize| ((layer * rows + row) * columns + column).to_string();
        let row = |row| (0..columns).map(|column| label(row, column)).collect();
        let plane = Plane {
            rows: (0..rows).map(row).collect(),
            around_rows: wraps && columns > 2,
            around_columns: wraps && rows > 2,
        };
        (layer_title(upper, layer), plane)
    };
    let legend = match (layers > 1, wraps) {
        (false, false) => "",
        (false, true) => WRAP_LEGEND,
        (true, false) => "each node has links to its places in the layers before and after",
        (true, true) => {
            "dotted lines lead around; each node has links to its places in the layers before \
             and after, around as well"
        }
    };
    (planes((0..layers).map(plane)), legend)
}

/// Where a layer is along the upper axes.
fn layer_title(upper: &[usize], mut layer: usize) -> String {
    let places = upper.iter().rev().map(|length| {
        let place = layer % length;
        layer /= length;
        place.to_string()
    });
    let mut places: Vec<String> = places.collect();
    places.reverse();
    if places.is_empty() {
        return String::new();
    }
    format!("layer {}", places.join(","))
}

/// Two dimensions are a cycle of four in the order of Gray's code, so that four are a torus of 4 by
/// 4; more are layers.
fn cube(topology: &Topology) -> (Vec<String>, &'static str) {
    // The nodes of one router are each other's nearest, one hop apart, and so are those of a cube
    // without routers.
    let each = match topology.axes() {
        [] => topology.neighbours(Node(0)).len() + 1,
        _ => 1,
    };
    let routers = topology.nodes() / each;
    let dimensions = routers.ilog2() as usize;
    let (columns, rows) = (
        1 << dimensions.min(2),
        1 << dimensions.saturating_sub(2).min(2),
    );
    let gray = |place: usize| place ^ place >> 1;
    let plane = |layer: usize| {
        let label = |row: usize, column: usize| {
            let router = gray(layer) << 4 | gray(row) << 2 | gray(column);
            match each {
                1 => router.to_string(),
                _ => {
                    let nodes = router * each..(router + 1) * each;
                    let nodes: Vec<String> = nodes.map(|node| node.to_string()).collect();
                    format!("[{}]", nodes.join(" "))
                }
            }
        };
        let row = |row| (0..columns).map(|column| label(row, column)).collect();
        let plane = Plane {
            rows: (0..rows).map(row).collect(),
            around_rows: columns > 2,
            around_columns: rows > 2,
        };
        let title = match dimensions {
            ..=4 => String::new(),
            _ => format!("layer {:0width$b}", gray(layer), width = dimensions - 4),
        };
        (title, plane)
    };
    let legend = match dimensions {
        ..=2 => "",
        3..=4 => WRAP_LEGEND,
        _ => {
            "dotted lines lead around; each node has links to its places in the layers \
             that differ in one bit"
        }
    };
    (planes((0..routers.div_ceil(16)).map(plane)), legend)
}

/// The rings of the lowest level with their stations, and above these the rings that join them.
fn rings(topology: &Topology) -> Vec<String> {
    let fan = topology.levels();
    let mut lines = Vec::new();
    let mut rings = 1;
    let mut before = 0;
    for (level, &parts) in fan.iter().enumerate() {
        let lowest = level + 1 == fan.len();
        for ring in 0..rings {
            let labels = (ring * parts..(ring + 1) * parts).map(|part| {
                if lowest {
                    part.to_string()
                } else {
                    format!("(ring {})", before + rings + part)
                }
            });
            let labels: Vec<String> = labels.collect();
            let title = match fan.len() {
                1 => String::new(),
                _ => format!("ring {} ", before + ring),
            };
            let indent = " ".repeat(title.len());
            let row = format!("{title}╭→ {} →╮", labels.join(" → "));
            let inner = row.chars().count() - title.len() - 2;
            lines.push(row);
            lines.push(format!(
                "{indent}╰{}╯",
                "←".to_owned() + &"─".repeat(inner - 1)
            ));
        }
        before += rings;
        rings *= parts;
    }
    lines
}

/// The part of a tree below a switch of the level that `fan` begins with, from the leaf `first` on.
fn branch(fan: &[usize], first: usize, leaves: usize) -> Vec<String> {
    let Some((&parts, below)) = fan.split_first() else {
        return vec![format!(" {first}")];
    };
    let leaves = leaves / parts;
    let mut lines = Vec::new();
    for part in 0..parts {
        let (start, on) = match (part, part + 1 == parts) {
            (0, true) => ("──", "  "),
            (0, false) => ("┬─", "│ "),
            (_, true) => ("╰─", "  "),
            (_, false) => ("├─", "│ "),
        };
        let part = branch(below, first + part * leaves, leaves);
        let prefixes = std::iter::once(start).chain(std::iter::repeat(on));
        lines.extend(
            prefixes
                .zip(part)
                .map(|(prefix, line)| format!("{prefix}{line}")),
        );
    }
    lines
}
