//! What all pictures share: how they become SVG or PNG, and the colours of text and grid lines.

use super::scene::{Colour, Scene};
use super::{png, svg};
use crate::Result;

/// The colour of text and axes.
pub(super) const INK: Colour = Colour(0x22, 0x22, 0x22);
/// The colour of subtitles and notes.
pub(super) const FAINT: Colour = Colour(0x5a, 0x5a, 0x5a);
/// The colour of grid lines.
pub(super) const GRID: Colour = Colour(0xe2, 0xe2, 0xe2);
/// The background.
pub(super) const WHITE: Colour = Colour(0xff, 0xff, 0xff);

/// A picture that can be written as SVG and PNG.
pub trait Plot {
    /// The title, which is also that of the SVG document.
    fn title(&self) -> &str;

    /// The laid-out picture.
    fn scene(&self) -> Scene;

    /// The picture as SVG.
    fn svg(&self) -> String {
        svg::write(&self.scene(), self.title())
    }

    /// The picture as PNG, with two pixels a point.
    fn png(&self) -> Result<Vec<u8>> {
        png::paint(&self.scene())
    }
}
