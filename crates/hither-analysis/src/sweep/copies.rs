//! Copies of traces: a sweep reads a copy on this machine in place of a trace that lies elsewhere.
//!
//! ```toml
//! [[copies]]
//! trace = "s3://bucket/a.oracleGeneral.zst"   # as the sweep names it
//! path = "/scratch/a.oracleGeneral.zst"       # from the folder of this file
//! bytes = 123456789                           # the size, where this machine has no copy
//! ```
//!
//! Results name the trace and never the copy. A shard needs copies of the traces that it reads, and
//! the sizes of all, since work is divided by size.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::plan::SweepPlan;
use crate::Result;
use crate::file::folder_of;
use crate::toml_file::{self, Problem};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CopiesDocument {
    #[serde(default)]
    copies: Vec<CopyTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CopyTable {
    trace: Spanned<String>,
    path: Option<PathBuf>,
    bytes: Option<u64>,
}

/// Makes the plan read the copies that the file at `path` names. Copies of other traces are
/// ignored, so one file can serve several sweeps.
pub fn use_copies(plan: &mut SweepPlan, path: &Path) -> Result<()> {
    let copies = toml_file::read(path, |document: CopiesDocument| {
        let mut copies = BTreeMap::new();
        for copy in document.copies {
            let at = copy.trace.span();
            let name = PathBuf::from(copy.trace.as_ref());
            if copies.insert(name, (copy.path, copy.bytes)).is_some() {
                let problem = format!("a second copy of {}", copy.trace.as_ref());
                return Err(Problem::at(at)(problem));
            }
        }
        Ok(copies)
    })?;
    for job in &mut plan.jobs {
        if let Some((copy, bytes)) = copies.get(&job.name) {
            if let Some(copy) = copy {
                job.path = folder_of(path).join(copy);
            }
            job.bytes = *bytes;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hither_trace::LoadOptions;

    use super::super::plan::TraceJob;
    use super::*;
    use crate::placement::PlacementSetup;

    fn job(name: &str) -> TraceJob {
        TraceJob {
            name: name.into(),
            path: name.into(),
            bytes: None,
            format: None,
            options: LoadOptions::default(),
            policies: Vec::new(),
            sizes: Vec::new(),
            placing: PlacementSetup::default(),
        }
    }

    fn with_copies(text: &str) -> Result<SweepPlan> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copies.toml");
        std::fs::write(&path, text).unwrap();
        let jobs = vec![job("s3://b/a"), job("s3://b/c"), job("/own")];
        let mut plan = SweepPlan { jobs };
        use_copies(&mut plan, &path).map(|()| plan)
    }

    #[test]
    fn a_copy_changes_what_is_read_and_not_what_the_results_say() {
        let plan = with_copies(
            "[[copies]]\ntrace = \"s3://b/a\"\npath = \"a\"\nbytes = 7\n\
             [[copies]]\ntrace = \"s3://b/c\"\nbytes = 9\n\
             [[copies]]\ntrace = \"s3://b/other\"\npath = \"/x\"\n",
        )
        .unwrap();
        let [a, c, own] = &plan.jobs[..] else {
            panic!("{plan:?}")
        };
        assert!(a.path.is_absolute() && a.path.ends_with("a"), "{a:?}");
        assert_eq!((a.name.as_path(), a.weight()), (Path::new("s3://b/a"), 7));
        assert_eq!((c.path.as_path(), c.weight()), (Path::new("s3://b/c"), 9));
        assert_eq!(own.path, Path::new("/own"));
        assert_eq!(plan.digest(), with_copies("").unwrap().digest());
    }

    #[test]
    fn what_is_wrong_is_named_by_file_and_line() {
        let twice = "[[copies]]\ntrace = \"x\"\npath = \"a\"\n".repeat(2);
        for (text, expected) in [
            (&twice[..], "copies.toml:5: a second copy of x"),
            ("[[copies]]\npath = \"a\"\n", "missing field `trace`"),
            ("[[copys]]\n", "copies.toml:1: unknown field `copys`"),
        ] {
            let error = with_copies(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
