//! Of which commit a build is, for `hither --version`. The command's build script includes this
//! file, and a test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// How many digits of a commit's hash are shown. Git's own choice differs between clones.
const DIGITS: usize = 12;

/// The commit of the sources in `root` and its date, or that it is not known, with the date of
/// `epoch` (`SOURCE_DATE_EPOCH`) if that is given.
pub(crate) fn describe(root: &Path, epoch: Option<&str>) -> String {
    let commit = git(root, &["log", "-1", "--format=%H %cs"]);
    match (commit, epoch.and_then(|seconds| seconds.parse().ok())) {
        (Some(commit), _) if is_checkout(root) => {
            let (hash, date) = commit.split_at(DIGITS);
            format!("{hash} {}", date.split(' ').next_back().unwrap_or_default())
        }
        (_, Some(seconds)) => format!("built without git, sources of {}", date(seconds)),
        (_, None) => "built without git".to_owned(),
    }
}

/// A file that changes with each commit and checkout.
pub(crate) fn changes_with_commits(root: &Path) -> Option<PathBuf> {
    let path = git(
        root,
        &[
            "rev-parse",
            "--path-format=absolute",
            "--git-path",
            "logs/HEAD",
        ],
    )?;
    let path = PathBuf::from(path);
    (is_checkout(root) && path.exists()).then_some(path)
}

/// Whether it is the root of a checkout: a tarball's sources may lie in a folder of one.
fn is_checkout(root: &Path) -> bool {
    let above = git(root, &["rev-parse", "--show-toplevel"]);
    let above = above.and_then(|path| Path::new(&path).canonicalize().ok());
    above.is_some() && above == root.canonicalize().ok()
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let ran = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(arguments)
        .output();
    let ran = ran.ok().filter(|ran| ran.status.success())?;
    let text = String::from_utf8(ran.stdout).ok()?;
    Some(text.trim().to_owned())
}

/// The day of a time in seconds since 1970, in UTC, as `2026-11-30`.
fn date(seconds: u64) -> String {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut month, mut days) = (1970, 0, seconds / 86_400);
    let year_days = |year| 365 + u64::from(is_leap(year));
    while days >= year_days(year) {
        days -= year_days(year);
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while days >= months[month] {
        days -= months[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, days + 1)
}
