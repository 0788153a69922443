//! Which files of programs that run already are observed.

use std::path::Path;
use std::str::FromStr;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use hither_kernel_events::event::Device;

/// A pattern of whole paths. `*` stays within a folder, and `**` does not.
#[derive(Clone, Debug)]
pub struct FileGlob(GlobSet);

impl FromStr for FileGlob {
    type Err = String;

    fn from_str(text: &str) -> Result<FileGlob, String> {
        if !["/", "**", "{"].iter().any(|begin| text.starts_with(begin)) {
            return Err("it is for whole paths, so it begins with / or **/".to_owned());
        }
        let glob = GlobBuilder::new(text).literal_separator(true).build();
        let set = glob.and_then(|glob| GlobSetBuilder::new().add(glob).build());
        set.map(FileGlob).map_err(|error| error.kind().to_string())
    }
}

/// Which files are observed. By default all are.
#[derive(Clone, Debug, Default)]
pub struct FileFilter {
    /// Those whose names are like one of these. Empty: with any name.
    pub globs: Vec<FileGlob>,
    /// Those of these file systems. Empty: of all.
    pub devices: Vec<Device>,
}

impl FileFilter {
    /// Whether it depends on a file's name.
    pub(crate) fn is_by_name(&self) -> bool {
        !self.globs.is_empty()
    }

    /// Whether files of this name are observed.
    pub(crate) fn has_name(&self, name: &Path) -> bool {
        let mut globs = self.globs.iter();
        !self.is_by_name() || globs.any(|FileGlob(glob)| glob.is_match(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(globs: &[&str]) -> FileFilter {
        let globs = globs.iter().map(|glob| glob.parse().expect("a glob"));
        FileFilter {
            globs: globs.collect(),
            ..FileFilter::default()
        }
    }

    #[test]
    fn two_stars_reach_below_and_one_does_not() {
        let has = |glob, name: &str| filter(&[glob]).has_name(Path::new(name));
        assert!(has("/db/**", "/db/base/1/2"));
        assert!(has("/db/**", "/db/PG_VERSION"));
        assert!(!has("/db/**", "/dbs/1"));
        assert!(!has("/db/*", "/db/base/1"));
        assert!(has("/db/*", "/db/PG_VERSION"));
        assert!(has("**/*.log", "/var/log/a.log"));
        assert!(has("**/x/*.log", "(elsewhere)/x/a.log"));
        assert!(has("/{a,b}/[0-9]?", "/b/7x"));
        assert!(has(r"/a\*b", "/a*b"));
        assert!(!has(r"/a\*b", "/axb"));
    }

    #[test]
    fn one_of_several_is_enough_and_none_is_any() {
        let two = filter(&["/a/**", "/b/**"]);
        assert!(two.has_name(Path::new("/b/c")));
        assert!(!two.has_name(Path::new("/c")));
        assert!(filter(&[]).has_name(Path::new("/c")));
        assert!(!filter(&[]).is_by_name());
    }

    #[test]
    fn what_is_no_glob_of_paths_is_refused() {
        let refused = |glob: &str| glob.parse::<FileGlob>().expect_err("refused");
        assert!(refused("*.log").contains("begins with / or **/"));
        assert!(refused("").contains("begins with / or **/"));
        assert!(refused("/a/[").contains("unclosed character class"));
        assert!(refused("/{a").contains("unclosed alternate group"));
    }
}
