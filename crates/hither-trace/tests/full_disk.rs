//! A full disk during a write is a plain error and leaves nothing behind. This needs a file system
//! that can be filled without harm: a small tmpfs, which only root may mount.

mod common;

use std::path::Path;
use std::process::Command;

use common::{Sample, names_in};
use hither_testing::skip::skip_on_this_machine;

/// A small tmpfs, unmounted at the end.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn mount(size: &str) -> Option<Tmpfs> {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(folder.path());
        mount
            .output()
            .is_ok_and(|output| output.status.success())
            .then(|| Tmpfs(folder))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.path()).status();
        assert!(
            unmounted.is_ok_and(|status| status.success()),
            "{} stays mounted",
            self.path().display()
        );
    }
}

#[test]
fn a_full_disk_is_an_error_and_leaves_nothing() {
    let Some(disk) = Tmpfs::mount("256k") else {
        skip_on_this_machine("cannot mount a tmpfs");
        return;
    };
    let path = disk.path().join("t");
    // A few rows more or less move the point of failure: into the accesses, the tables, or the last
    // table.
    for rows in [10, 1000, 50_000, 70_000, 200_000] {
        let sample = Sample::new(rows);
        match sample.write(&path, false) {
            Ok(()) => std::fs::remove_dir_all(&path).unwrap(),
            Err(error) => {
                assert!(rows > 1000, "{error}");
                assert!(error.is_no_space(), "{error}");
                let place = disk.path().to_str().unwrap();
                assert!(error.to_string().starts_with(place), "{error}");
            }
        }
        assert!(names_in(disk.path()).is_empty());
    }
    assert!(Sample::new(200_000).write(&path, false).is_err());

    // An old trace survives a new one that did not fit.
    Sample::new(100).write(&path, false).unwrap();
    assert!(Sample::new(200_000).write(&path, true).is_err());
    assert_eq!(names_in(disk.path()), ["t"]);
    let trace =
        hither_trace::Trace::load(&path, None, &hither_trace::LoadOptions::default()).unwrap();
    assert_eq!(trace.counts().total.requests, 100);
}
