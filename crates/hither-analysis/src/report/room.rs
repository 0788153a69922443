//! Tables that are cut to their room on the page.

use serde::Serialize;

/// The most rows of a table.
pub(super) const ROWS_MAX: usize = 2000;

/// The first rows, as many as fit into `bytes` of JSON.
pub(super) fn rows_that_fit<T: Serialize>(mut rows: Vec<T>, bytes: usize) -> Vec<T> {
    let mut left = bytes;
    let fits = rows
        .iter()
        .take(ROWS_MAX)
        .take_while(|row| take_room(row, &mut left));
    let kept = fits.count();
    rows.truncate(kept);
    rows
}

/// Subtracts the size of a row, if it fits.
pub(super) fn take_room(row: &impl Serialize, left: &mut usize) -> bool {
    let length = serde_json::to_string(row).map_or(0, |text| text.len());
    let rest = left.checked_sub(length);
    *left = rest.unwrap_or(*left);
    rest.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stop_where_room_does() {
        assert_eq!(rows_that_fit(vec!["aaaa", "b", "c"], 9), ["aaaa", "b"]);
        assert_eq!(
            rows_that_fit(vec![0; 3 * ROWS_MAX], 1 << 20).len(),
            ROWS_MAX
        );
    }
}
