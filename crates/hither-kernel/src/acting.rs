//! Acts on files as another user, on one thread and for the time of one call.
//!
//! A process of root that makes, moves or changes files for other users could be led to do it where
//! they may not: between a check and the change, names lead elsewhere. As that user it cannot: the
//! kernel checks each call, by whatever access model the file system has. Nothing that is made has
//! to be given away afterwards.
//!
//! The kernel keeps these ids for each thread (credentials(7)); libc would set them for all. With
//! another user's number in place of root's, the thread is without root's rights to files as well.

use std::cell::Cell;
use std::io;

/// A user, as file systems know one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its number.
    pub uid: u32,
    /// Its group, which is that of the files it makes.
    pub gid: u32,
    /// Its other groups.
    pub groups: Vec<u32>,
}

/// For whom files are made and changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acting {
    /// As which user. `None`: as this process.
    pub user: Option<User>,
    /// Permission bits that new files do not get, but where their directory has a default access
    /// list.
    pub umask: u32,
}

/// capabilities(7): the right to be another user, or of other groups.
const CHANGES_IDS: u64 = 1 << 6 | 1 << 7;

/// Those that let a process pass by the permissions of files: `CAP_FS_SET` of the kernel.
const PASSES_PERMISSIONS: u64 = 0b1_1111 | 1 << 9 | 1 << 27 | 1 << 32;

/// Whether this process may act as any user.
pub fn may_act() -> bool {
    // SAFETY: it takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    // With another number, a change of user would leave it the rights that it has.
    user == 0 && effective_capabilities().is_ok_and(|own| own & CHANGES_IDS == CHANGES_IDS)
}

impl Acting {
    /// Runs `job` as that user.
    ///
    /// # Errors
    /// This thread cannot be that user, or would keep rights that the user does not have.
    pub fn run<T>(&self, job: impl FnOnce() -> T) -> io::Result<T> {
        let _umask = Umask::set(self.umask)?;
        let _ids = match &self.user {
            Some(user) => Some(Ids::set(user)?),
            None => None,
        };
        Ok(job())
    }
}

/// The umask of this thread. Dropped, it is what it was.
struct Umask(libc::mode_t);

impl Umask {
    fn set(umask: u32) -> io::Result<Umask> {
        thread_local! {
            static IS_OWN: Cell<bool> = const { Cell::new(false) };
        }
        if !IS_OWN.get() {
            // SAFETY: this thread no longer shares its umask and its folders with the others.
            checked(unsafe { libc::unshare(libc::CLONE_FS) })?;
            IS_OWN.set(true);
        }
        // SAFETY: it takes a number and cannot fail.
        Ok(Umask(unsafe { libc::umask(umask & 0o777) }))
    }
}

impl Drop for Umask {
    fn drop(&mut self) {
        // SAFETY: it takes a number and cannot fail.
        unsafe { libc::umask(self.0) };
    }
}

/// The ids of this thread. Dropped, they are those of the process.
struct Ids {
    groups: Vec<u32>,
}

impl Ids {
    fn set(user: &User) -> io::Result<Ids> {
        let ids = Ids { groups: groups()? };
        set_groups(&user.groups)?;
        set_ids(user.uid, user.gid)?;
        if user.uid != 0 && effective_capabilities()? & PASSES_PERMISSIONS != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(ids)
    }
}

impl Drop for Ids {
    fn drop(&mut self) {
        // SAFETY: it takes nothing and cannot fail.
        let uid = unsafe { libc::geteuid() };
        // SAFETY: as above.
        let gid = unsafe { libc::getegid() };
        let restored = set_ids(uid, gid).and_then(|()| set_groups(&self.groups));
        if restored.is_err() {
            // What runs next on this thread must not be somebody else.
            std::process::abort();
        }
    }
}

/// Sets what the calling thread is to file systems.
fn set_ids(uid: u32, gid: u32) -> io::Result<()> {
    let set = |number, id: u32| {
        // SAFETY: it takes a number. It returns the id before, also where it fails.
        unsafe { libc::syscall(number, libc::c_ulong::from(id)) };
        // SAFETY: as above. No user has the largest number, so this changes nothing.
        let now = unsafe { libc::syscall(number, libc::c_ulong::from(u32::MAX)) };
        if now as u32 == id {
            Ok(())
        } else {
            Err(io::Error::from(io::ErrorKind::PermissionDenied))
        }
    };
    // The group first on the way out, while there is the right to it; on the way back neither needs
    // one.
    set(libc::SYS_setfsgid, gid)?;
    set(libc::SYS_setfsuid, uid)
}

fn groups() -> io::Result<Vec<u32>> {
    let get = |room: usize, at: *mut u32| {
        // SAFETY: the kernel writes at most `room` numbers at `at`, or none.
        let count = unsafe { libc::syscall(libc::SYS_getgroups, room, at) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    };
    let mut groups = vec![0; get(0, std::ptr::null_mut())?];
    let count = get(groups.len(), groups.as_mut_ptr())?;
    groups.truncate(count);
    Ok(groups)
}

fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the kernel reads these numbers. Past libc, which would set them for all threads.
    let set = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    checked(set as i32)
}

/// What the calling thread may do (capget(2), version 3).
fn effective_capabilities() -> io::Result<u64> {
    let header: [u32; 2] = [0x2008_0522, 0];
    // Two words of each: effective, permitted, inheritable.
    let mut sets = [0_u32; 6];
    // SAFETY: the kernel reads two words of the one and writes six of the other.
    let got = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    checked(got as i32)?;
    Ok(u64::from(sets[0]) | u64::from(sets[3]) << 32)
}

fn checked(result: i32) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[test]
    fn what_is_made_is_the_users_and_what_is_not_is_out_of_reach() {
        if !may_act() {
            return hither_testing::skip::skip_on_this_machine("only root may act as another user");
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(at("secret"), "secret").unwrap();
        fs::set_permissions(at("secret"), fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::chown(at("secret"), Some(0), Some(3002)).unwrap();
        let user = |groups: &[u32]| Acting {
            user: Some(User {
                uid: 2001,
                gid: 3001,
                groups: groups.to_vec(),
            }),
            umask: 0o027,
        };
        let before = groups().unwrap();
        user(&[])
            .run(|| fs::write(at("made"), ""))
            .unwrap()
            .unwrap();
        let made = fs::metadata(at("made")).unwrap();
        assert_eq!((made.uid(), made.gid()), (2001, 3001));
        assert_eq!(made.mode() & 0o777, 0o640);
        let read = |groups: &[u32]| user(groups).run(|| fs::read(at("secret"))).unwrap();
        assert!(read(&[]).is_err());
        assert_eq!(read(&[3002]).unwrap(), b"secret", "by its other group");
        // Others are who they were, and so is this one afterwards.
        user(&[])
            .run(|| {
                std::thread::scope(|scope| {
                    let other = scope.spawn(|| fs::read(at("secret")));
                    assert!(fs::read(at("secret")).is_err());
                    // A thread begins as the one that has started it.
                    assert!(other.join().unwrap().is_err());
                });
            })
            .unwrap();
        let caught = std::panic::catch_unwind(|| user(&[]).run(|| panic!("a job fails")));
        assert!(caught.is_err());
        assert_eq!(fs::read(at("secret")).unwrap(), b"secret");
        assert_eq!(groups().unwrap(), before);
        fs::write(at("ours"), "").unwrap();
        assert_eq!(fs::metadata(at("ours")).unwrap().uid(), 0);
    }
}
