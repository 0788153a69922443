//! Makes the rows of call sites: their frames with names, and the frame that names the site.
//!
//! A site is named after its innermost frame outside the C and C++ runtime: a program's call of
//! `fread`, not what `fread` does inside. A stack that is all runtime is named after its innermost
//! frame.

use hither_trace::labels::is_runtime;
use hither_trace::schema::{Frame, SiteRow};

use super::intern::{Definitions, Numbers, PYTHON_FUNCTION};
use crate::symbolise::{SourceLocation, Symboliser};

/// The module of frames of code that was made at run time and that a map names.
const PERF_MAP: &str = "[perf map]";

/// The row of each signature; the first, 0, is the unknown site.
pub(crate) fn rows(
    signatures: &[u64],
    definitions: &Definitions,
    symboliser: &Symboliser,
) -> Vec<SiteRow> {
    let frames_of = |&signature: &u64| {
        let site = definitions.site(signature);
        site.map_or(&[][..], |site| &site.frames)
    };
    let mut modules: Numbers<u64> = Numbers::default();
    let mut addresses: Vec<Numbers<u64>> = Vec::new();
    for &(module, offset) in signatures.iter().flat_map(frames_of) {
        let module = modules.number(module) as usize;
        addresses.resize_with(addresses.len().max(module + 1), Numbers::default);
        addresses[module].number(offset);
    }
    let questions: Vec<_> = modules
        .keys()
        .iter()
        .zip(&addresses)
        .map(|(key, addresses)| {
            (
                definitions.modules.get(key).cloned().unwrap_or_default(),
                addresses.keys().to_vec(),
            )
        })
        .collect();
    let locations = symboliser.locations(&questions);

    let mut frame = |&(key, offset): &(u64, u64)| {
        if let Some(name) = definitions.code_name((key, offset)) {
            return run_time_frame(name, offset);
        }
        let module = modules.number(key) as usize;
        let SourceLocation {
            function,
            file,
            line,
        } = locations[module][addresses[module].number(offset) as usize].clone();
        let (module, _) = &questions[module];
        let build_id = module
            .build_id
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Frame {
            module: module.path.to_string_lossy().into_owned(),
            build_id,
            offset,
            function,
            file,
            line,
        }
    };
    signatures
        .iter()
        .map(|signature| {
            let frames = frames_of(signature).iter().map(&mut frame).collect();
            let site = definitions.site(*signature);
            let truncated = site.is_some_and(|site| site.truncated);
            named(SiteRow {
                signature: *signature,
                truncated,
                frames,
                ..SiteRow::unknown()
            })
        })
        .collect()
}

/// A frame of code made at run time. CPython names it `py::FUNCTION:FILE`.
fn run_time_frame(name: &str, offset: u64) -> Frame {
    let python = name.strip_prefix(PYTHON_FUNCTION);
    let (function, file) = match python.and_then(|name| name.split_once(':')) {
        Some((function, file)) => (
            format!("{PYTHON_FUNCTION}{function}"),
            Some(file.to_owned()),
        ),
        None => (name.to_owned(), None),
    };
    Frame {
        module: PERF_MAP.to_owned(),
        offset,
        function: Some(function),
        file,
        ..Frame::default()
    }
}

/// Names a site after one of its frames.
fn named(mut row: SiteRow) -> SiteRow {
    let outside = |frame: &&Frame| !frame.module.is_empty() && !is_runtime(&frame.module);
    if let Some(frame) = row.frames.iter().find(outside).or(row.frames.first()) {
        row.function = frame.function.clone();
        row.file = frame.file.clone();
        row.line = frame.line;
        row.module = (!frame.module.is_empty()).then(|| frame.module.clone());
    }
    row
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use hither_sys::record::Record;

    use super::*;

    #[test]
    fn sites_are_named_after_the_innermost_frame_outside_the_runtime() {
        let mut definitions = Definitions::default();
        let modules: [(u64, &[u8], &[u8]); 2] = [
            (1, &[0xab, 0x01], b"/lib/libc.so.6"),
            (2, &[], b"/opt/none/tool"),
        ];
        for (module, build_id, path) in modules {
            definitions.on_record(
                &Record::Module {
                    module,
                    build_id,
                    path,
                },
                Vec::new,
            );
        }
        let sites: [(u64, bool, &[u64]); 3] = [
            (10, false, &[1, 100, 2, 200, 2, 300]),
            (11, true, &[1, 100]),
            (12, false, &[9, 400]),
        ];
        for (signature, truncated, frames) in sites {
            definitions.on_record(
                &Record::Site {
                    signature,
                    truncated,
                    frames,
                },
                Vec::new,
            );
        }
        let rows = rows(
            &[0, 10, 11, 12, 13],
            &definitions,
            &Symboliser::new(SystemTime::now()),
        );
        assert_eq!(rows[0], SiteRow::unknown());
        let modules: Vec<_> = rows.iter().map(|row| row.module.as_deref()).collect();
        // Nothing is known of the module of 12 but its key, and nothing at all of 13.
        assert_eq!(
            modules,
            [
                None,
                Some("/opt/none/tool"),
                Some("/lib/libc.so.6"),
                None,
                None
            ]
        );
        assert_eq!(
            rows[1]
                .frames
                .iter()
                .map(|frame| frame.offset)
                .collect::<Vec<_>>(),
            [100, 200, 300]
        );
        assert_eq!(rows[1].frames[0].build_id, "ab01");
        assert_eq!(
            rows.iter().map(|row| row.truncated).collect::<Vec<_>>(),
            [false, false, true, false, false]
        );
        assert_eq!(rows[4].signature, 13);
    }
}
