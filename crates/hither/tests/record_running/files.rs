//! Only some files of programs that run already are recorded.

use hither_testing::skip::skip_on_this_machine;

use super::*;

/// Other files that the program reads.
const OTHERS: usize = 400;

#[test]
fn a_trace_has_only_files_that_are_like_the_glob() {
    if !can_observe() {
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let folder = folder.path();
    let mut command = Command::new(compiled(folder));
    for number in 0..OTHERS {
        let other = folder.join(format!("other/{number}"));
        file(&other, 1);
        command.arg(other);
    }
    let wanted = ["wanted/a", "wanted/deep/b", "more.log"].map(|name| folder.join(name));
    let beside = folder.join("wanted.not");
    for path in wanted.iter().chain([&beside]) {
        file(path, PAGES);
        command.arg(path);
    }
    let (mut program, mut said) = started(command);
    read_once(&mut program, &mut said);
    let glob = format!("{}/wanted/**", folder.display());
    let hither = Command::new(env!("CARGO_BIN_EXE_hither"));
    let options = ["--files", &glob, "--files", "**/more.*"];
    let recording = start_recording_by(hither, folder, program.id(), &options);
    // All are left out by user space at first, and by the kernel's side later.
    for _ in 0..3 {
        read_once(&mut program, &mut said);
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    drop(program.stdin.take());
    program.wait().expect("waited for");
    let output = recording.wait_with_output().expect("waited for");
    assert!(output.status.success(), "{output:?}");
    let read = read_bytes(folder, "t.hither");
    let expected = wanted.map(|path| (path.display().to_string(), 3 * PAGES * PAGE));
    assert_eq!(read, BTreeMap::from(expected));
    let stat = stat(folder, "t.hither");
    assert_eq!(stat["bytes"]["read"], 9 * PAGES * PAGE, "{stat}");
    assert_eq!(stat["stats"]["losses"]["dropped_events"], 0, "{stat}");
}

/// A mount namespace with an ext4 of its own at `disk` in a folder, until it is dropped.
struct Disk(Child);

impl Disk {
    /// None if it cannot be mounted here, which is said.
    fn new(folder: &Path) -> Option<Disk> {
        const MOUNT: &str = "mkdir disk && truncate -s 16M image && mke2fs -q -F -t ext4 image && \
                             mount -t ext4 -o loop image disk && echo mounted && exec cat";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", MOUNT]);
        command.current_dir(folder).stderr(Stdio::piped());
        let (child, mut said) = started(command);
        let mut line = String::new();
        said.read_line(&mut line).expect("it says so");
        if line == "mounted\n" {
            return Some(Disk(child));
        }
        let failed = child.wait_with_output().expect("waited for");
        let why = String::from_utf8_lossy(&failed.stderr);
        skip_on_this_machine(format_args!("no ext4 in a file: {why}"));
        None
    }

    /// Starts a program where it is mounted.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.0.id().to_string(), "--"]);
        command.arg(program);
        command
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn a_trace_has_only_files_of_the_file_system() {
    if !can_observe() {
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let folder = folder.path();
    let Some(disk) = Disk::new(folder) else {
        return;
    };
    let program = compiled(folder);
    file(&folder.join("outside"), PAGES);
    let inside = folder.join("disk/inside");
    let copied = disk
        .command(Path::new("cp"))
        .args([&folder.join("outside"), &inside])
        .status();
    assert!(copied.expect("cp starts").success());
    for (of, other) in [("disk", "outside"), (".", "disk/inside")] {
        let mut command = disk.command(&program);
        command.args([&inside, &folder.join("outside")]);
        let (mut program, mut said) = started(command);
        read_once(&mut program, &mut said);
        let hither = disk.command(Path::new(env!("CARGO_BIN_EXE_hither")));
        let of = folder.join(of).display().to_string();
        let options = ["--file-system", &of];
        let recording = start_recording_by(hither, folder, program.id(), &options);
        read_once(&mut program, &mut said);
        drop(program.stdin.take());
        program.wait().expect("waited for");
        let output = recording.wait_with_output().expect("waited for");
        assert!(output.status.success(), "{output:?}");
        let read = read_bytes(folder, "t.hither");
        let other = folder.join(other).display().to_string();
        assert!(!read.contains_key(&other), "{of}: {read:?}");
        assert!(
            read.values().any(|bytes| *bytes == PAGES * PAGE),
            "{of}: {read:?}"
        );
        fs::remove_dir_all(folder.join("t.hither")).expect("removed");
    }
}

#[test]
fn what_is_no_choice_of_files_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = std::process::id().to_string();
    let cases: &[(&[&str], i32, &str)] = &[
        (
            &["record", "-p", &own, "--files", "/a/["],
            2,
            "unclosed character class",
        ),
        (
            &["run", "-p", &own, "--files", "*.log"],
            2,
            "it begins with / or **/",
        ),
        (&["record", "--files", "/a/*", "--", "true"], 2, "--pid"),
        (&["run", "--file-system", "/", "--", "true"], 2, "--pid"),
        (
            &["advise", "--pid", &own, "--file-system", "/no/such"],
            1,
            "--file-system /no/such",
        ),
    ];
    for (arguments, code, expected) in cases {
        let output = hither(folder.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}
