//! Makes the rows of call sites: their frames with names, and the frame that names the site.
//!
//! A site is named after its innermost frame outside the C and C++ runtime: a program's call of
//! `fread`, not what `fread` does inside. A stack that is all runtime is named after its innermost
//! frame.

use hither_ids::FileKey;
use hither_session::record::USED_FILE;
use hither_trace::labels::is_runtime;
use hither_trace::schema::{Frame, SiteRow};
use rustc_hash::FxHashMap;

use super::intern::{Definitions, Numbers, PYTHON_FUNCTION};
use crate::symbolise::{Module, SourceLocation, Symboliser};

/// The module of frames of code that was made at run time and that a map names.
const PERF_MAP: &str = "[perf map]";

/// The row of each signature; the first, 0, is the unknown site.
pub(crate) fn rows(
    signatures: &[u64],
    definitions: &Definitions,
    symboliser: &Symboliser,
) -> Vec<SiteRow> {
    let mut rows: Vec<SiteRow> = signatures
        .iter()
        .map(|&signature| unnamed(signature, definitions))
        .collect();
    name(&mut rows, symboliser);
    rows
}

/// Whether all is known that makes the row of a site.
pub(crate) fn is_defined(signature: u64, definitions: &Definitions) -> bool {
    let is_known =
        |frame: &(u64, u64)| frame.0 == USED_FILE || definitions.modules.contains_key(&frame.0);
    let site = definitions.site(signature);
    signature == 0 || site.is_some_and(|site| site.frames.iter().all(is_known))
}

/// The row of a site without the names of its functions.
pub(crate) fn unnamed(signature: u64, definitions: &Definitions) -> SiteRow {
    let Some(site) = definitions.site(signature) else {
        return SiteRow {
            signature,
            ..SiteRow::unknown()
        };
    };
    if let [(program, _), (USED_FILE, file)] = site.frames[..] {
        return of_file(signature, definitions, program, FileKey(file));
    }
    let frame = |&(key, offset): &(u64, u64)| {
        if let Some(name) = definitions.code_name((key, offset)) {
            return run_time_frame(name, offset);
        }
        let module = definitions.modules.get(&key);
        let build_id = module.map_or(&[][..], |module| &module.build_id);
        Frame {
            module: module.map_or(String::new(), |module| {
                module.path.to_string_lossy().into_owned()
            }),
            build_id: build_id.iter().map(|byte| format!("{byte:02x}")).collect(),
            offset,
            ..Frame::default()
        }
    };
    SiteRow {
        signature,
        truncated: site.truncated,
        frames: site.frames.iter().map(frame).collect(),
        ..SiteRow::unknown()
    }
}

/// A site of which no more is known than the program and the file that it uses: without frames,
/// named after both.
fn of_file(signature: u64, definitions: &Definitions, program: u64, file: FileKey) -> SiteRow {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let module = definitions.modules.get(&program);
    let module = module.map(|module| module.path.to_string_lossy().into_owned());
    let name = module.as_deref().and_then(|path| path.rsplit('/').next());
    let name = name.filter(|name| !name.is_empty());
    SiteRow {
        signature,
        truncated: true,
        function: name.map(str::to_owned),
        file: definitions.object(file).map(|file| text(&file.path)),
        module,
        ..SiteRow::unknown()
    }
}

/// Looks up the functions of all frames, and names each site after one of them.
pub(crate) fn name(rows: &mut [SiteRow], symboliser: &Symboliser) {
    let mut modules: FxHashMap<(String, String), usize> = FxHashMap::default();
    let mut addresses: Vec<Numbers<u64>> = Vec::new();
    let mut places: Vec<(usize, u32)> = Vec::new();
    let is_unnamed = |frame: &&Frame| frame.module != PERF_MAP;
    for frame in rows.iter().flat_map(|row| &row.frames).filter(is_unnamed) {
        let next = modules.len();
        let key = (frame.module.clone(), frame.build_id.clone());
        let module = *modules.entry(key).or_insert(next);
        addresses.resize_with(addresses.len().max(module + 1), Numbers::default);
        places.push((module, addresses[module].number(frame.offset)));
    }
    let mut questions = vec![(Module::default(), Vec::new()); modules.len()];
    for ((path, build_id), module) in modules {
        let (pairs, _) = build_id.as_bytes().as_chunks::<2>();
        let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
        let known = Module {
            path: path.into(),
            build_id: pairs.iter().filter_map(byte).collect(),
        };
        questions[module] = (known, addresses[module].keys().to_vec());
    }
    let locations = symboliser.locations(&questions);
    let mut places = places.into_iter();
    for row in rows {
        let frames = row.frames.iter_mut();
        let unnamed = frames.filter(|frame| frame.module != PERF_MAP);
        for (frame, (module, address)) in unnamed.zip(places.by_ref()) {
            let SourceLocation {
                function,
                file,
                line,
            } = locations[module][address as usize].clone();
            (frame.function, frame.file, frame.line) = (function, file, line);
        }
        name_after_frame(row);
    }
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
fn name_after_frame(row: &mut SiteRow) {
    let outside = |frame: &&Frame| !frame.module.is_empty() && !is_runtime(&frame.module);
    if let Some(frame) = row.frames.iter().find(outside).or(row.frames.first()) {
        row.function = frame.function.clone();
        row.file = frame.file.clone();
        row.line = frame.line;
        row.module = (!frame.module.is_empty()).then(|| frame.module.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use hither_session::record::Record;

    use super::*;

    #[test]
    fn a_site_without_frames_is_named_after_program_and_file() {
        let mut definitions = Definitions::default();
        let records = [
            Record::Module {
                module: 1,
                build_id: &[],
                path: b"/usr/bin/tool",
            },
            Record::Object {
                object: FileKey(7),
                id: hither_kernel::file_id::FileId::default(),
                size: 1,
                asked_pages: None,
                path: b"/data/one",
            },
            Record::Site {
                signature: 10,
                truncated: true,
                frames: &[1, 0, USED_FILE, 7],
            },
        ];
        for record in records {
            definitions.on_record(&record, Vec::new);
        }
        assert!(is_defined(10, &definitions));
        let rows = rows(&[10], &definitions, &Symboliser::new(SystemTime::now()));
        assert_eq!(rows[0].label(), "tool (/data/one)");
        assert_eq!(rows[0].module.as_deref(), Some("/usr/bin/tool"));
        assert!(rows[0].truncated && rows[0].frames.is_empty());
    }

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
