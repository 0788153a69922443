//! Numbers and names as text.

use hither_core::Spec;
use hither_core::spec::RegistryEntry;

/// A share as a percentage with one decimal: `12.3 %`; a share too small to show but not zero is
/// `<0.1 %`.
pub fn percent(share: f64) -> String {
    if share > 0.0 && share < 0.0005 {
        "<0.1 %".to_owned()
    } else {
        format!("{:.1} %", share * 100.0)
    }
}

/// A difference of two ratios in points, one percent each: `46.0`. What rounds to zero has no sign.
pub fn points(ratio: f64) -> String {
    match format!("{:.1}", ratio * 100.0).as_str() {
        "-0.0" => "0.0".to_owned(),
        text => text.to_owned(),
    }
}

/// A count with thousands separated: `1,119,161`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A size in the largest binary unit that fits: `259.60 MiB`.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    let (mut value, mut unit) = (number as f64 / 1024.0, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2} {}", UNITS[unit])
}

/// `count` with the noun that fits: `1 file`, `2 files`, `3 processes`.
pub fn counted(number: u64, noun: &str) -> String {
    let ending = match number {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{} {noun}{ending}", count(number))
}

/// The difference of the bytes missed without and with a policy: `1.00 MiB saved` or `1.00 MiB
/// more`.
pub fn saved(without: u64, with: u64) -> String {
    match without.checked_sub(with) {
        Some(less) => format!("{} saved", bytes(less)),
        None => format!("{} more", bytes(with - without)),
    }
}

/// A time in the largest unit that fits, with three digits, or with thousands separated: `104 ns`,
/// `12.3 µs`, `4.56 s`, `1,234 s`.
pub fn duration_ns(time_ns: f64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")];
    // 999.5 of a unit would be rounded to 1,000.
    let fits = units.into_iter().find(|(unit, _)| time_ns >= unit * 0.9995);
    let (value, unit) = fits.map_or((time_ns, "ns"), |(scale, unit)| (time_ns / scale, unit));
    if value >= 999.5 {
        return format!("{} {unit}", count(value.round() as u64));
    }
    let decimals = match value {
        small if small == 0.0 || small >= 99.95 => 0,
        middle if middle >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

/// A policy or placement: its name, and its parameters that differ from the defaults.
pub fn policy<E: RegistryEntry>(spec: &Spec<E>) -> String {
    let defaults = Spec::defaults(spec.entry());
    let changed: Vec<String> = spec
        .params()
        .zip(defaults.params())
        .filter(|((_, value), (_, default))| value != default)
        .map(|((param, value), _)| format!("{}={value}", param.name))
        .collect();
    let name = spec.entry().name();
    if changed.is_empty() {
        name.to_owned()
    } else {
        format!("{name}{{{}}}", changed.join(","))
    }
}

/// `text` shortened in its middle to `width` characters, so that both ends of a path or a symbol
/// stay readable.
pub fn shortened(text: &str, width: usize) -> String {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= width || width < 5 {
        return text.to_owned();
    }
    let head = (width - 3) / 2;
    let tail = width - 3 - head;
    let head: String = characters[..head].iter().collect();
    let tail: String = characters[characters.len() - tail..].iter().collect();
    format!("{head}...{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_counts_and_long_names_read_well() {
        assert_eq!(percent(0.12345), "12.3 %");
        assert_eq!(percent(0.0001), "<0.1 %");
        assert_eq!(percent(0.0), "0.0 %");
        let times = [
            0.0,
            7.256,
            104.3,
            999.96,
            12_345.0,
            1_230_000.0,
            4.56e9,
            123_456e9,
        ];
        let written = [
            "0 ns",
            "7.26 ns",
            "104 ns",
            "1.00 µs",
            "12.3 µs",
            "1.23 ms",
            "4.56 s",
            "123,456 s",
        ];
        assert_eq!(times.map(duration_ns), written);
        assert_eq!(counted(1, "file"), "1 file");
        assert_eq!(counted(1500, "file"), "1,500 files");
        assert_eq!(
            shortened("/usr/include/x86_64-linux-gnu/bits/stdio.h", 20),
            "/usr/inc...s/stdio.h"
        );
        assert_eq!(shortened("short", 20), "short");
    }
}
