//! Where the sockets of running nodes are: `PID.sock` in a folder that only this user can write.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use hither_kernel::private_folder;

/// The variable that names the folder, for users and tests that want another one.
const VARIABLE: &str = "HITHER_RUNTIME_DIR";

/// The most rights that the folder may give.
const FOLDER_MODE: u32 = 0o755;

/// Of `$HITHER_RUNTIME_DIR`, for root `/run/hither`, `hither` in `$XDG_RUNTIME_DIR`, and a folder
/// in the temporary directory: the first that there is.
fn folder() -> io::Result<PathBuf> {
    let variable = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let user = rustix::process::getuid();
    let folder = match (variable(VARIABLE), variable("XDG_RUNTIME_DIR")) {
        (Some(folder), _) => folder,
        (None, _) if user.is_root() => PathBuf::from("/run/hither"),
        (None, Some(runtime)) => runtime.join("hither"),
        (None, None) => {
            let name = format!("hither-nodes-{}", user.as_raw());
            return private_folder::own(&std::env::temp_dir(), &name, 0o700);
        }
    };
    // Where it is ours to make, nobody else may enter.
    let _ = DirBuilder::new().mode(0o700).create(&folder);
    private_folder::create(&folder, FOLDER_MODE)?;
    Ok(folder)
}

/// The path for this process's socket, in a folder that is there.
pub(crate) fn own() -> io::Result<PathBuf> {
    let folder = folder()?;
    // What a killed process has left is in the way of nobody, but would be found.
    drop(in_folder(&folder));
    Ok(folder.join(format!("{}.sock", std::process::id())))
}

/// Listens at `path`, which only this user may open. The path is there when it is served and not
/// before: other nodes that start would take it for that of a dead process, and remove it.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    let beside = path.with_extension("new");
    for path in [path, &beside] {
        // An earlier process of this number may have left it.
        let _ = fs::remove_file(path);
    }
    let listener = UnixListener::bind(&beside)?;
    fs::set_permissions(&beside, Permissions::from_mode(0o600))?;
    fs::rename(&beside, path)?;
    Ok(listener)
}

/// The sockets of the nodes of this user that run, by process.
pub fn running() -> Vec<PathBuf> {
    let folder = folder();
    folder.map_or_else(|_| Vec::new(), |folder| in_folder(&folder))
}

fn in_folder(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = files.map(|file| file.path());
    let mut sockets: Vec<(u32, PathBuf)> = paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "sock")
        })
        .filter_map(|path| Some((path.file_stem()?.to_str()?.parse().ok()?, path)))
        .filter(|(_, path)| is_served(path))
        .collect();
    sockets.sort();
    sockets.into_iter().map(|(_, path)| path).collect()
}

/// Whether a process listens there. The socket of one that is gone is removed.
fn is_served(path: &Path) -> bool {
    match UnixStream::connect(path) {
        Ok(_) => true,
        Err(error) => {
            if error.kind() == io::ErrorKind::ConnectionRefused {
                let _ = fs::remove_file(path);
            }
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_socket_of_a_node_that_starts_stays() {
        let folder = tempfile::tempdir().unwrap();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    in_folder(folder.path());
                }
            });
            let stays = (0..5000).all(|process| {
                let path = folder.path().join(format!("{process}.sock"));
                listen(&path).is_ok_and(|_listener| path.exists())
            });
            ended.store(true, Ordering::Relaxed);
            assert!(stays);
        });
    }

    #[test]
    fn sockets_of_dead_processes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let _alive = UnixListener::bind(at("30.sock")).unwrap();
        let _first = UnixListener::bind(at("4.sock")).unwrap();
        drop(UnixListener::bind(at("7.sock")).unwrap());
        drop(UnixListener::bind(at("other.sock")).unwrap());
        fs::write(at("9.json"), "").unwrap();
        assert_eq!(in_folder(folder.path()), [at("4.sock"), at("30.sock")]);
        assert!(!at("7.sock").exists(), "it stays");
        assert!(
            at("other.sock").exists() && at("9.json").exists(),
            "not ours"
        );
    }
}
