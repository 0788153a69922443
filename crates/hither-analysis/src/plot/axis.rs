//! Axes: from values to places in the picture, and which values get a label.

use crate::format;

/// A value with its label.
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: String,
}

/// A scale of values over a stretch of the picture.
pub(super) struct Axis {
    values: (f64, f64),
    places: (f64, f64),
    log: bool,
}

/// Labels of numbers do not come closer than this many points to each other.
const LABEL_POINTS: f64 = 62.0;

impl Axis {
    /// From the first value at the first place to the last at the last. A logarithmic one starts
    /// above 0.
    pub(super) fn new(values: (f64, f64), places: (f64, f64), log: bool) -> Axis {
        let last = if values.1 > values.0 {
            values.1
        } else {
            values.0 + 1.0
        };
        Axis {
            values: (values.0, last),
            places,
            log,
        }
    }

    pub(super) fn ends(&self) -> (f64, f64) {
        self.places
    }

    pub(super) fn place(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.log { value.ln() } else { value };
        let (first, last) = (scale(self.values.0), scale(self.values.1));
        let part = (scale(value) - first) / (last - first);
        self.places.0 + part * (self.places.1 - self.places.0)
    }

    /// Fifths or so of the axis, with as many decimals as they need.
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

    /// Round numbers.
    pub(super) fn count_ticks(&self) -> Vec<Tick> {
        let candidates = if self.log {
            rows(&[1.0, 2.0, 5.0], 10.0, 1.0)
        } else {
            self.steps(&[1.0, 2.0, 5.0], 10.0, 1.0)
        };
        self.spaced(
            candidates,
            |value| value.log10().fract() == 0.0,
            |value| format::count(value as u64),
        )
    }

    /// Round numbers at least so many points apart, on an axis that goes by steps: for one that
    /// stands upright.
    pub(super) fn count_ticks_apart(&self, points: f64) -> Vec<Tick> {
        let fit = ((self.places.1 - self.places.0).abs() / points).max(1.0);
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
            rows(&binary, 1024.0, 1.0)
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

    /// Multiples of a round step, of which some eight fit; in units of which one value has `unit`.
    fn steps(&self, mantissas: &[f64], base: f64, unit: f64) -> Vec<f64> {
        let last = self.values.1 * unit;
        let step = round_step(last / 8.0, mantissas, base).max(1.0);
        (0..)
            .map(|number| f64::from(number) * step)
            .take_while(|value| *value <= last)
            .collect()
    }

    /// Those of the candidates that lie on the axis and have room: the favoured ones first, then
    /// what fits between.
    fn spaced(
        &self,
        candidates: Vec<f64>,
        favoured: impl Fn(f64) -> bool,
        label: impl Fn(f64) -> String,
    ) -> Vec<Tick> {
        let within = |value: &f64| (self.values.0..=self.values.1).contains(value);
        let candidates: Vec<f64> = candidates.into_iter().filter(within).collect();
        let mut chosen: Vec<f64> = Vec::new();
        for favourites in [true, false] {
            for &value in candidates
                .iter()
                .filter(|value| favoured(**value) == favourites)
            {
                let place = self.place(value);
                let far = |other: &f64| (self.place(*other) - place).abs() >= LABEL_POINTS;
                if chosen.iter().all(far) {
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

/// A round number at or a little above `highest`, at most 1.
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

/// All products of a mantissa and a power of the base, from `first` on, as far as block numbers go.
fn rows(mantissas: &[f64], base: f64, first: f64) -> Vec<f64> {
    let powers = (0..20).map(|power| first * base.powi(power));
    powers
        .flat_map(|power| mantissas.iter().map(move |mantissa| mantissa * power))
        .collect()
}

/// The smallest product of a mantissa and a power of the base that is not below `step`.
fn round_step(step: f64, mantissas: &[f64], base: f64) -> f64 {
    let power = base.powf(step.log(base).floor());
    // The logarithm of a power of the base may fall short of it by a rounding error.
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
