//! What became of work on files of a mount, for `hither warm`, `pin` and `evict`.

use hither_analysis::format::printable;
use hither_service::warming::Report;

use crate::ui;

/// Prints what was done: one line, or a JSON document. Whether all of it was.
pub(crate) fn print(report: &Report, line: &str, json: bool) -> anyhow::Result<bool> {
    if json {
        ui::print_json(report)?
    } else {
        ui::print(&format!("{}\n", printable(line)))?
    }
    for error in &report.errors {
        ui::print_message(error);
    }
    Ok(report.failed_files == 0 && report.left_out_files == 0)
}
