//! A process in a mount namespace of its own, with an overlay as its root, as in a container: its
//! files have the names that it sees.

use std::os::unix::fs::symlink;

use hither_testing::skip::skip_on_this_machine;

use super::*;

/// Mounts the layers in the folder `$0`, makes them the root, and becomes the program. As Docker
/// does, one of the layers is named by a link. The name of another has a colon.
const ENTER: &str = r#"
    cd "$0" &&
    layers="lowerdir=$PWD/l/AB:$PWD/a\:b,upperdir=$PWD/upper,workdir=$PWD/work" &&
    mount -t overlay overlay -o "$layers" root &&
    cd root && pivot_root . old && exec /program "$@""#;

/// A container with the program, which reads these files of it. None if that cannot be made here,
/// which is said.
fn container(folder: &Path, arguments: &[&str]) -> Option<(Child, BufReader<ChildStdout>)> {
    let program = compiled(folder);
    for path in ["a:b/old", "x/diff", "l", "upper", "work", "root"] {
        fs::create_dir_all(folder.join(path)).expect("created");
    }
    fs::copy(program, folder.join("a:b/program")).expect("copied");
    symlink("../x/diff", folder.join("l/AB")).expect("linked");
    file(&folder.join("a:b/data/lower"), PAGES);
    file(&folder.join("x/diff/data/linked"), PAGES);
    file(&folder.join("upper/data/upper"), PAGES);
    let enter = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", ENTER]);
        command.arg(folder).args(arguments);
        command
    };
    let tried = enter(&[]).stdin(Stdio::null()).output().expect("it starts");
    if !tried.status.success() {
        let said = String::from_utf8_lossy(&tried.stderr);
        skip_on_this_machine(format_args!("no overlay can be mounted: {said}"));
        return None;
    }
    Some(started(enter(arguments)))
}

/// What is recorded of such a container that reads its files twice.
fn recorded(arguments: &[&str], options: &[&str]) -> Option<BTreeMap<String, u64>> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let folder = folder.path();
    let (mut program, mut said) = container(folder, arguments)?;
    read_once(&mut program, &mut said);
    let hither = Command::new(env!("CARGO_BIN_EXE_hither"));
    let recording = start_recording_by(hither, folder, program.id(), options);
    read_once(&mut program, &mut said);
    read_once(&mut program, &mut said);
    drop(program.stdin.take());
    program.wait().expect("waited for");
    let output = recording.wait_with_output().expect("waited for");
    assert!(output.status.success(), "{output:?}");
    Some(read_bytes(folder, "t.hither"))
}

const DATA: [&str; 3] = ["/data/linked", "/data/lower", "/data/upper"];

#[test]
fn files_have_the_names_that_the_container_sees() {
    if !can_observe() {
        return;
    }
    // A child has ended before hither hears of it.
    for fork in [&[][..], &["--fork"]] {
        let arguments = [fork, &DATA].concat();
        let Some(mut read) = recorded(&arguments, &[]) else {
            return;
        };
        // Its pages are mapped.
        read.remove("/program");
        let expected = DATA.map(|name| (name.to_owned(), 2 * PAGES * PAGE));
        assert_eq!(read, BTreeMap::from(expected), "{arguments:?}");
    }
}

#[test]
fn files_are_chosen_by_the_names_that_the_container_sees() {
    if !can_observe() {
        return;
    }
    let Some(read) = recorded(&DATA, &["--files", "/data/l*"]) else {
        return;
    };
    let names: Vec<&str> = read.keys().map(String::as_str).collect();
    assert_eq!(names, ["/data/linked", "/data/lower"]);
}
