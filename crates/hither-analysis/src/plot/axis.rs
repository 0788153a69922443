//! Axes: the position of a value in the picture, and which values get a tick with a label.

use crate::format;

/// A labelled value on an axis.
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: String,
}

/// A mapping of a range of values to a range of coordinates, in points.
pub(super) struct Axis {
    values: (f64, f64),
    coordinates: (f64, f64),
    log: bool,
}

/// The smallest distance between the labels of two ticks.
const LABEL_SPACING_POINTS: f64 = 62.0;

impl Axis {
    /// Maps the first value to the first coordinate and the last to the last. The values of a
    /// logarithmic axis are above 0.
    pub(super) fn new(values: (f64, f64), coordinates: (f64, f64), log: bool) -> Axis {
        let last = if values.1 > values.0 {
            values.1
        } else {
            values.0 + 1.0
        };
        Axis {
            values: (values.0, last),
            coordinates,
            log,
        }
    }

    /// The coordinates of both ends.
    pub(super) fn ends(&self) -> (f64, f64) {
        self.coordinates
    }

    /// The coordinate of a value.
    pub(super) fn coordinate(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.log { value.ln() } else { value };
        let (first, last) = (scale(self.values.0), scale(self.values.1));
        let part = (scale(value) - first) / (last - first);
        self.coordinates.0 + part * (self.coordinates.1 - self.coordinates.0)
    }

    /// Round numbers with decimals, about six over the axis.
    pub(super) fn decimal_ticks(&self) -> Vec<Tick> {
        let step = round_step(self.values.1 / 6.0, &[1.0, 2.0, 5.0], 10.0);
        let decimals = (-step.log10()).ceil().max(0.0) as usize;
        (0..)
            .map(|number| f64::from(number) * step)
            .take_while(|at| *at <= self.values.1 * 1.0001)
            .map(|at| Tick {
                at,
                label: format!("{at:.decimals$}"),
            })
            .collect()
    }

    /// Round whole numbers.
    pub(super) fn count_ticks(&self) -> Vec<Tick> {
        let candidates = if self.log {
            mantissa_products(&[1.0, 2.0, 5.0], 10.0, 1.0)
        } else {
            self.steps(&[1.0, 2.0, 5.0], 10.0, 1.0)
        };
        self.spaced(
            candidates,
            |value| value.log10().fract() == 0.0,
            |value| format::count(value as u64),
        )
    }

    /// Round whole numbers at least `points` apart, for a linear, vertical axis.
    pub(super) fn count_ticks_apart(&self, points: f64) -> Vec<Tick> {
        let fit = ((self.coordinates.1 - self.coordinates.0).abs() / points).max(1.0);
        let step = round_step(self.values.1 / fit, &[1.0, 2.0, 5.0], 10.0).max(1.0);
        (0..)
            .map(|number| f64::from(number) * step)
            .take_while(|at| *at <= self.values.1)
            .map(|at| Tick {
                at,
                label: format::count(at as u64),
            })
            .collect()
    }

    /// Round numbers of bytes, on an axis of blocks.
    pub(super) fn byte_ticks(&self, block_bytes: u64) -> Vec<Tick> {
        let unit = block_bytes as f64;
        let binary = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
        let candidates = if self.log {
            mantissa_products(&binary, 1024.0, 1.0)
        } else {
            self.steps(&binary, 1024.0, unit)
        };
        let blocks = candidates.into_iter().map(|bytes| bytes / unit).collect();
        self.spaced(
            blocks,
            |blocks| (blocks * unit).log(16.0).fract() == 0.0,
            |blocks| {
                let label = format::bytes((blocks * unit).round() as u64);
                label.replace(".00", "")
            },
        )
    }

    /// Multiples of a round step, about eight over the axis. One value of the axis is `unit` units.
    fn steps(&self, mantissas: &[f64], base: f64, unit: f64) -> Vec<f64> {
        let last = self.values.1 * unit;
        let step = round_step(last / 8.0, mantissas, base).max(1.0);
        (0..)
            .map(|number| f64::from(number) * step)
            .take_while(|value| *value <= last)
            .collect()
    }

    /// The candidates that lie on the axis and have room for their labels. Preferred values are
    /// placed first, the others where room is left.
    fn spaced(
        &self,
        candidates: Vec<f64>,
        preferred: impl Fn(f64) -> bool,
        label: impl Fn(f64) -> String,
    ) -> Vec<Tick> {
        let within = |value: &f64| (self.values.0..=self.values.1).contains(value);
        let candidates: Vec<f64> = candidates.into_iter().filter(within).collect();
        let mut chosen: Vec<f64> = Vec::new();
        for round in [true, false] {
            for &value in candidates
                .iter()
                .filter(|value| preferred(**value) == round)
            {
                let at = self.coordinate(value);
                let is_far =
                    |other: &f64| (self.coordinate(*other) - at).abs() >= LABEL_SPACING_POINTS;
                if chosen.iter().all(is_far) {
                    chosen.push(value);
                }
            }
        }
        chosen.sort_unstable_by(f64::total_cmp);
        let ticks = chosen.into_iter();
        ticks
            .map(|at| Tick {
                at,
                label: label(at),
            })
            .collect()
    }
}

/// The upper end of an axis of ratios: a round number at or a little above `highest`, at most 1.
pub(super) fn ceiling(highest: f64) -> f64 {
    if highest > 0.5 {
        1.0
    } else {
        round_step(
            highest.max(1e-6),
            &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0],
            10.0,
        )
    }
}

/// All products of a mantissa and a power of the base, from `first` on, up to the largest block
/// number.
fn mantissa_products(mantissas: &[f64], base: f64, first: f64) -> Vec<f64> {
    let powers = (0..20).map(|power| first * base.powi(power));
    powers
        .flat_map(|power| mantissas.iter().map(move |mantissa| mantissa * power))
        .collect()
}

/// The smallest product of a mantissa and a power of the base that is not below `step`.
fn round_step(step: f64, mantissas: &[f64], base: f64) -> f64 {
    let power = base.powf(step.log(base).floor());
    // The logarithm of a power of the base may be too small by a rounding error.
    let reached = |candidate: &f64| *candidate >= step * 0.999_999;
    let next = mantissas.iter().map(|mantissa| mantissa * power);
    next.chain([base * power])
        .find(reached)
        .unwrap_or(base * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: Vec<Tick>) -> Vec<String> {
        ticks.into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn ticks_are_round_and_have_room() {
        let wide = Axis::new((1.0, 1e6), (0.0, 700.0), true);
        let decades = ["1", "10", "100", "1,000", "10,000", "100,000", "1,000,000"];
        assert_eq!(labels(wide.count_ticks()), decades);
        let bytes = ["64 KiB", "1 MiB", "16 MiB", "256 MiB"];
        let found = labels(wide.byte_ticks(4096));
        assert!(
            bytes
                .iter()
                .all(|label| found.contains(&(*label).to_owned())),
            "{found:?}"
        );

        let narrow = Axis::new((1.0, 10.0), (0.0, 700.0), true);
        assert_eq!(labels(narrow.count_ticks()), ["1", "2", "5", "10"]);
        let linear = Axis::new((1.0, 5000.0), (0.0, 700.0), false);
        let thousands = ["1,000", "2,000", "3,000", "4,000", "5,000"];
        assert_eq!(labels(linear.count_ticks()), thousands);
        assert_eq!(
            labels(linear.byte_ticks(4096)),
            ["4 MiB", "8 MiB", "12 MiB", "16 MiB"]
        );

        let ratio = Axis::new((0.0, 1.0), (0.0, 400.0), false);
        let fifths = ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"];
        assert_eq!(labels(ratio.decimal_ticks()), fifths);
        let small = Axis::new((0.0, ceiling(0.017)), (0.0, 400.0), false);
        let found = ["0.000", "0.005", "0.010", "0.015", "0.020"];
        assert_eq!(labels(small.decimal_ticks()), found);
    }
}
