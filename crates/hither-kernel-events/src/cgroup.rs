//! Which cgroup is observed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::mounts::Mounts;

/// A cgroup, with all that are below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroup {
    folder: PathBuf,
    /// The kernel's number of it, which is the inode of its folder.
    pub(crate) id: u64,
    /// Whether it is one of the memory controller in the first version's hierarchies.
    pub(crate) is_memory_hierarchy: bool,
}

impl Cgroup {
    /// The cgroup of this folder. Of the first version's hierarchies, only the memory controller's
    /// can be observed.
    pub fn at(path: &Path) -> Result<Cgroup, Error> {
        let read = |source| Error::Read {
            path: path.display().to_string(),
            source,
        };
        let full = fs::canonicalize(path).map_err(read)?;
        let id = fs::metadata(&full).map_err(read)?.ino();
        let mounts = Mounts::read()?;
        match mounts.of(&full).filter(|mount| mount.is_cgroup()) {
            Some(mount) => Ok(Cgroup {
                id,
                is_memory_hierarchy: mount.kind != "cgroup2",
                folder: full.clone(),
            }),
            None => Err(Error::NoCgroup(path.display().to_string())),
        }
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The cgroup of a systemd unit, a service unless its name says otherwise.
    pub fn of_unit(name: &str) -> Result<Cgroup, Error> {
        let kinds = [".service", ".scope", ".slice", ".mount", ".socket", ".swap"];
        let has_kind = kinds.iter().any(|kind| name.ends_with(kind));
        let full = if has_kind {
            name.to_owned()
        } else {
            format!("{name}.service")
        };
        match Cgroup::called(&|folder| folder == full) {
            Err(Error::NoSuchCgroup) => Err(instance_of(name)?),
            found => found,
        }
    }

    /// The cgroup of a container, by the first digits of its ID: that of Docker, Podman,
    /// containerd or CRI-O.
    pub fn of_container(id: &str) -> Result<Cgroup, Error> {
        Cgroup::called(&|folder| is_of_container(folder, id))
    }

    /// The cgroup whose folder has such a name. Those below one are not looked at.
    fn called(is_it: &dyn Fn(&str) -> bool) -> Result<Cgroup, Error> {
        for hierarchy in Mounts::read()?.cgroup_hierarchies() {
            let mut found = Vec::new();
            find(&hierarchy.at, is_it, &mut found);
            // Users may call theirs as they like.
            let of_system = |path: &PathBuf| !path.iter().any(|name| name == "user.slice");
            if found.iter().any(of_system) {
                found.retain(of_system);
            }
            match &found[..] {
                [] => {}
                [only] => return Cgroup::at(only),
                [first, second, ..] => {
                    return Err(Error::SeveralCgroups {
                        first: first.display().to_string(),
                        second: second.display().to_string(),
                    });
                }
            }
        }
        Err(Error::NoSuchCgroup)
    }
}

/// The error that there is no service of this name. It names one that is an instance of a template
/// of this name: Debian's `postgresql` starts `postgresql@17-main`, and has no process of its own.
fn instance_of(name: &str) -> Result<Error, Error> {
    let is_instance = |folder: &str| is_instance(folder, name);
    for hierarchy in Mounts::read()?.cgroup_hierarchies() {
        let mut found = Vec::new();
        find(&hierarchy.at, &is_instance, &mut found);
        if let Some(name) = found.iter().find_map(|folder| folder.file_name()) {
            return Ok(Error::OnlyInstance(name.display().to_string()));
        }
    }
    Ok(Error::NoSuchCgroup)
}

fn is_instance(folder: &str, name: &str) -> bool {
    let name = name.strip_suffix(".service").unwrap_or(name);
    let instance = folder
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix('@'));
    instance.is_some_and(|instance| instance.ends_with(".service"))
}

/// Finds folders by their names. One that cannot be read has been removed meanwhile, or is not for
/// this user.
fn find(folder: &Path, is_it: &dyn Fn(&str) -> bool, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if is_it(&entry.file_name().to_string_lossy()) {
            found.push(entry.path());
        } else {
            find(&entry.path(), is_it, found);
        }
    }
}

/// Whether a cgroup's folder is that of a container: of its ID, or `docker-ID.scope` and the like.
/// The monitor beside a container (`conmon`) is not part of it.
fn is_of_container(folder: &str, id: &str) -> bool {
    const ID_DIGITS: usize = 64;
    let (before, full) = match folder.trim_end_matches(".scope").rsplit_once('-') {
        Some(parts) => parts,
        None => ("", folder),
    };
    let is_id = full.len() == ID_DIGITS && full.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id && !id.is_empty() && full.starts_with(id) && !before.ends_with("conmon")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_are_known_by_their_template() {
        assert!(is_instance("postgresql@17-main.service", "postgresql"));
        assert!(is_instance(
            "postgresql@17-main.service",
            "postgresql.service"
        ));
        assert!(!is_instance("postgresql.service", "postgresql"));
        assert!(!is_instance("postgresql@17-main.slice", "postgresql"));
        assert!(!is_instance("xpostgresql@1.service", "postgresql"));
    }

    #[test]
    fn containers_are_known_by_their_folders() {
        let id = "0123456789abcdef".repeat(4);
        let is_it = |folder: String| is_of_container(&folder, "0123456789ab");
        assert!(is_it(id.clone()));
        assert!(is_it(format!("docker-{id}.scope")));
        assert!(is_it(format!("cri-containerd-{id}.scope")));
        assert!(!is_it(format!("libpod-conmon-{id}.scope")));
        assert!(!is_it(format!("docker-f{}.scope", &id[1..])));
        assert!(!is_it("0123456789ab".to_owned()));
        assert!(!is_of_container(&id, ""));
    }
}
