//! Pictures as SVG and PNG: miss-ratio curves in `chart`, topologies in `network`, and the results
//! of placements in `heatmap`, `moves` and `timeline`.
//!
//! A [`Plot`] is laid out once into a `scene::Scene` of lines, filled shapes and texts. `svg`
//! writes the scene and `png` paints it, so both show the same. Text is set in DejaVu Sans from the
//! `dejavu` crate (Bitstream Vera licence), so that a picture does not depend on the fonts of the
//! machine.
//!
//! We draw by hand because no chart library covers these pictures:
//!
//! - network, moves, heatmap: a topology with its links, arrows between nodes, and a matrix with a
//!   number in each cell. Chart libraries have axes and series only;
//! - timeline: three kinds of plot on one axis of references, with a strip for each node;
//! - chart: two logarithmic axes over the same points, one in blocks by powers of ten and one in
//!   bytes by powers of two, and marks of different lines that do not overlap.
//!
//! plotters 0.3 was tried for the chart (2026-11; SVG and bitmap, DejaVu Sans through `ab_glyph`).
//! Its logarithmic ticks are powers of ten, in bytes too (`10000.0`). The legend covers curves and
//! its own text. Letters are placed on whole pixels, unevenly. All coordinates are whole numbers,
//! in SVG too (`points="79,85 79,539"`), so a flat curve has steps. Fixing this takes our own axis,
//! legend and marks, and the other pictures would still need the scene.
//!
//! Lines differ by mark as well as by colour, so that they can be told apart in grey. The colours
//! are those of Okabe and Ito, which most people with colour blindness can tell apart.

mod axis;
mod chart;
mod heatmap;
mod marks;
mod moves;
mod network;
mod panels;
mod picture;
mod png;
mod scene;
mod svg;
mod timeline;

pub use chart::{Chart, ChartLine};
pub use heatmap::{Heatmap, HeatmapPanel};
pub use moves::{MoveArrow, MovesMap, MovesPanel};
pub use network::{Network, NodeLayout};
pub use picture::Plot;
pub use timeline::{Timeline, TimelineRun, TimelineStep};
