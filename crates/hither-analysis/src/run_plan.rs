//! A plan: the settings that `hither advise` found to help, as a file for `hither run --plan`.
//!
//! It is TOML, and its keys are the switches of `hither run`, so that people can read, change and
//! write it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::file::write_whole;
use crate::format::printable;
use crate::{Error, Result};

/// The settings of a run. Without any, the program runs unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RunPlan {
    /// The replacement policy of the page cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_cache: Option<String>,
    /// The budget of that policy, such as `95MiB`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    /// The placement policy that replicates blocks of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<String>,
    /// The placement policy of file pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_placement: Option<String>,
    /// The placement policy of memory, or two separated by a comma.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
}

impl RunPlan {
    /// Reads a plan. Errors name the file and the line. The run checks whether the settings can be
    /// combined.
    pub fn load(path: &Path) -> Result<RunPlan> {
        let text = std::fs::read_to_string(path).map_err(Error::of_file(path))?;
        toml::from_str(&text).map_err(|error| Error::Usage(format!("{}: {error}", path.display())))
    }

    /// Writes the plan, with the lines of `about` as comments before it.
    pub fn save(&self, path: &Path, about: &[String]) -> Result<()> {
        let lines = about.iter().flat_map(|about| about.lines());
        let mut text: String = lines
            .map(|line| format!("# {}\n", printable(line)))
            .collect();
        text += &toml::to_string(self).expect("a plan is a table of strings");
        write_whole(path, text.as_bytes())
    }

    /// Whether it has no settings.
    pub fn is_empty(&self) -> bool {
        *self == RunPlan::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_loaded() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("plan.toml");
        let plan = RunPlan {
            page_cache: Some("pcc{other=arc}".to_owned()),
            cache: Some("256MiB".to_owned()),
            ..RunPlan::default()
        };
        plan.save(&path, &["Two\nlines.".to_owned()])
            .expect("saved");
        let text = std::fs::read_to_string(&path).expect("text");
        assert!(text.starts_with("# Two\n# lines.\npage-cache = "), "{text}");
        assert_eq!(RunPlan::load(&path).expect("loaded"), plan);
        RunPlan::default().save(&path, &[]).expect("saved");
        assert!(RunPlan::load(&path).expect("loaded").is_empty());
    }

    #[test]
    fn what_is_none_is_refused_by_name_and_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("plan.toml");
        for (text, says) in [
            ("page-cache = 'pcc'\nspeed = 3\n", "speed"),
            ("files = 'pcc'\n", "page-cache"),
            ("memory = \n", "line 1"),
        ] {
            std::fs::write(&path, text).expect("written");
            let error = RunPlan::load(&path).expect_err(text).to_string();
            assert!(error.contains(says), "{error}");
            assert!(error.contains("plan.toml"), "{error}");
        }
    }
}
