//! Parsing that several kinds of user input share: whole numbers with units, and a hint for a
//! misspelt name.

/// A whole number with an optional unit: `4096`, `64k`, `10M`, `2G`. Units are powers of 1000, for
/// numbers of blocks or references; sizes in bytes are parsed elsewhere.
pub fn parse_count(text: &str) -> Option<u64> {
    let units = [
        ('k', 1_000),
        ('K', 1_000),
        ('M', 1_000_000),
        ('G', 1_000_000_000),
    ];
    let unit = units
        .into_iter()
        .find(|(suffix, _)| text.ends_with(*suffix));
    let (digits, factor) = match unit {
        Some((suffix, factor)) => (text.strip_suffix(suffix)?, factor),
        None => (text, 1),
    };
    let whole = digits.bytes().all(|byte| byte.is_ascii_digit());
    let value: u64 = whole.then(|| digits.parse().ok()).flatten()?;
    value.checked_mul(factor)
}

/// ` (did you mean ...?)` for the nearest of `names`, if it is at most two edits away, and fewer
/// than it has letters.
pub(crate) fn hint(written: &str, names: impl Iterator<Item = &'static str>) -> String {
    names
        .map(|name| (distance(written, name), name))
        .min()
        .filter(|&(edits, name)| edits <= 2 && edits < name.len())
        .map_or_else(String::new, |(_, name)| {
            format!(" (did you mean `{name}`?)")
        })
}

/// The edit distance (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(from != *to))
                .min(above + 1)
                .min(row[j] + 1);
            diagonal = above;
        }
    }
    row[b.len()]
}
