//! Numbers and names as text.

use std::borrow::Cow;

use hither_core::Spec;
use hither_core::registry::{Param, ParamKind};
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

/// How much less or more bytes another policy misses: `1.00 MiB less` or `1.00 MiB more`.
pub fn less_or_more(without: u64, with: u64) -> String {
    match without.checked_sub(with) {
        Some(less) => format!("{} less", bytes(less)),
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

/// A policy or placement: its name, and its parameters that differ from the defaults, or from what
/// a preset that it has makes of them.
pub fn policy<E: RegistryEntry>(spec: &Spec<E>) -> String {
    let defaults = Spec::defaults(spec.entry());
    let is_preset = |param: &Param| matches!(param.kind, ParamKind::Preset { .. });
    let presets = spec.params().filter(|(param, _)| is_preset(param));
    let base = presets.fold(defaults, |base, (param, value)| {
        base.with(param.name, value).unwrap_or(base)
    });
    let values = spec.params().zip(base.params()).zip(defaults.params());
    let changed: Vec<String> = values
        .filter(|(((param, value), (_, base)), (_, default))| {
            value != base || is_preset(param) && value != default
        })
        .map(|(((param, value), _), _)| format!("{}={value}", param.name))
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

/// `text` as a part of a line: whatever is not printed is written as an escape, such as `\n`,
/// `\u{1b}` for ESC, `\u{202e}` for what turns the direction of writing. Names come from whoever
/// made a file, and a terminal obeys what is in them.
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    // These are printed; `escape_debug` would quote them.
    let parts = text.split_inclusive(['"', '\'', '\\']).map(|part| {
        let kept = part.trim_end_matches(['"', '\'', '\\']);
        kept.escape_debug().to_string() + &part[kept.len()..]
    });
    Cow::Owned(parts.collect())
}

/// As [`printable`], of a text whose lines were meant.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')) {
        return Cow::Borrowed(text);
    }
    // So were its tabs, which separate columns.
    let cells = |line: &str| {
        let cells: Vec<_> = line.split('\t').map(printable).collect();
        cells.join("\t")
    };
    let lines: Vec<String> = text.split('\n').map(cells).collect();
    Cow::Owned(lines.join("\n"))
}

/// As [`printable_lines`], of a message: a line that a name began is not taken for another message.
pub fn printable_message(text: &str) -> String {
    printable_lines(text).replace('\n', "\n  ")
}

/// A JSON document that a terminal prints as it is. It means the same: within strings any character
/// may be an escape, and elsewhere there are none of these.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    let is_plain = |found: char| found == '\n' || matches!(found, ' '..='~') || !hides(found);
    if json.chars().all(is_plain) {
        return Cow::Borrowed(json);
    }
    let mut text = String::with_capacity(json.len());
    for found in json.chars() {
        if is_plain(found) {
            text.push(found)
        } else {
            for unit in found.encode_utf16(&mut [0; 2]) {
                text += &format!("\\u{unit:04x}");
            }
        }
    }
    Cow::Owned(text)
}

/// Whether a character is not printed, or does something else on a terminal.
fn hides(found: char) -> bool {
    found.escape_debug().nth(1) == Some('u')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_shown_as_it_would_be_written() {
        for text in [
            "ubm",
            "ubm{threshold=4}",
            "ubm{as=paper}",
            "ubm{expire=2,as=paper}",
        ] {
            let spec: Spec = text.parse().unwrap();
            assert_eq!(policy(&spec), text);
            assert_eq!(policy(&spec).parse::<Spec>().unwrap(), spec);
        }
    }

    #[test]
    fn what_a_terminal_would_obey_is_escaped_and_nothing_else() {
        let name = "x\u{1b}]0;t\u{7}\r\nFAKE \u{9b}2J\u{202e}gnp\u{2028}\t\u{7f}";
        let escaped = r"x\u{1b}]0;t\u{7}\r\nFAKE \u{9b}2J\u{202e}gnp\u{2028}\t\u{7f}";
        assert_eq!(printable(name), escaped);
        let plain = "sh -c 'echo \"a\\\\b\"' µs ← … 名前 e\u{301}.txt";
        assert_eq!(printable(plain), plain);
        assert_eq!(printable_lines("a\tb\n\u{1b}[2J\n"), "a\tb\n\\u{1b}[2J\n");
        assert_eq!(
            printable_message("no \u{7}\nhither: all well"),
            "no \\u{7}\n  hither: all well"
        );
        let json = serde_json::to_string(&[name, plain, "\u{e0001}"]).unwrap();
        let shown = printable_json(&json);
        assert!(
            !shown
                .chars()
                .any(|found| found.is_control() || found == '\u{202e}'),
            "{shown}"
        );
        assert_eq!(
            serde_json::from_str::<Vec<String>>(&shown).unwrap(),
            [name, plain, "\u{e0001}"]
        );
        assert!(shown.contains("← … 名前"), "{shown}");
    }

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
