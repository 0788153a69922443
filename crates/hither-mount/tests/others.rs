//! Other users on root's mount: they may do what they may do at the source, whatever it goes by.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use hither_mount::Consistency;
use rustix::fs::XattrFlags;

mod support;

use support::{Bench, TTL};

/// Entries of an access list: who, and what they may do.
const OWNER: u16 = 1;
const USER: u16 = 2;
const GROUP: u16 = 4;
const MASK: u16 = 16;
const OTHERS: u16 = 32;

/// The users of these tests, and the group of the second.
const ALICE: u32 = 2001;
const BOB: u32 = 2002;
const STAFF: u32 = 3000;

/// Gives a file an access list, as the extended attribute has it. False where there are none.
fn set_list(path: &Path, name: &str, entries: &[(u16, u16, u32)]) -> bool {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (who, rights, number) in entries {
        value.extend(who.to_le_bytes());
        value.extend(rights.to_le_bytes());
        value.extend(number.to_le_bytes());
    }
    match rustix::fs::setxattr(path, name, &value, XattrFlags::empty()) {
        Err(rustix::io::Errno::OPNOTSUPP) => {
            hither_testing::skip::skip_on_this_machine(
                "the file system of temporary files has no access lists",
            );
            false
        }
        set => {
            set.unwrap();
            true
        }
    }
}

/// What a shell says that runs `script` as Bob in `folder`. What fails says so itself.
fn as_bob(folder: &Path, script: &str) -> String {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(folder);
    let output = shell.uid(BOB).gid(STAFF).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// A folder where all may write, `None` where this user is not root.
fn shared_folder() -> Option<tempfile::TempDir> {
    if !rustix::process::getuid().is_root() {
        hither_testing::skip::skip_on_this_machine(
            "only root mounts for all users and acts as them",
        );
        return None;
    }
    let source = tempfile::tempdir().unwrap();
    fs::set_permissions(source.path(), Permissions::from_mode(0o777)).unwrap();
    Some(source)
}

#[test]
fn an_access_list_holds_as_at_the_source() {
    const NOBODY: u32 = u32::MAX;
    let Some(source) = shared_folder() else {
        return;
    };
    let at = |name: &str| source.path().join(name);
    let make = |name: &str, group: u32, mode: u32| {
        fs::write(at(name), name).unwrap();
        chown(at(name), Some(ALICE), Some(group)).unwrap();
        fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
    };
    let list = |name: &str, of_bob: u16, of_group: u16, mask: u16, of_others: u16| {
        let entries = [
            (OWNER, 7, NOBODY),
            (USER, of_bob, BOB),
            (GROUP, of_group, NOBODY),
            (MASK, mask, NOBODY),
            (OTHERS, of_others, NOBODY),
        ];
        set_list(&at(name), "system.posix_acl_access", &entries)
    };
    // The mode shows the mask where the rights of the group were: none here, as Bob has none.
    make("secret", STAFF, 0o600);
    make("denied", 3001, 0o644);
    make("granted", 3001, 0o600);
    for folder in ["closed", "open"] {
        fs::create_dir(at(folder)).unwrap();
        fs::write(at(folder).join("file"), folder).unwrap();
        chown(at(folder), Some(ALICE), Some(3001)).unwrap();
    }
    let has_lists = list("secret", 0, 0, 6, 0)
        && list("denied", 0, 4, 4, 4)
        && list("granted", 6, 0, 6, 0)
        && list("closed", 0, 5, 5, 5)
        && list("open", 5, 0, 5, 0);
    if !has_lists {
        return;
    }
    for consistency in [Consistency::Strict, TTL] {
        let Some(bench) = Bench::shared(source.path(), consistency) else {
            return;
        };
        let script = "cat secret denied granted closed/file open/file 2>/dev/null; \
            (echo forged > secret) 2>/dev/null; (echo forged >> denied) 2>/dev/null; \
            (printf more >> granted) && tail -c 4 granted";
        let here = as_bob(bench.target.path(), script);
        fs::write(at("granted"), "granted").unwrap();
        assert_eq!(here, as_bob(source.path(), script));
        assert_eq!(here, "grantedopenmore", "what there is to be seen");
        fs::write(at("granted"), "granted").unwrap();
        assert_eq!(fs::read(at("secret")).unwrap(), b"secret");
        assert_eq!(fs::read(at("denied")).unwrap(), b"denied");
    }
}

#[test]
fn what_is_made_is_its_makers_from_the_start() {
    const NOBODY: u32 = u32::MAX;
    let Some(source) = shared_folder() else {
        return;
    };
    let at = |name: &str| source.path().join(name);
    fs::create_dir(at("group")).unwrap();
    chown(at("group"), Some(0), Some(3001)).unwrap();
    fs::set_permissions(at("group"), Permissions::from_mode(0o2777)).unwrap();
    fs::create_dir(at("private")).unwrap();
    let Some(bench) = Bench::shared(source.path(), TTL) else {
        return;
    };
    let said = as_bob(
        bench.target.path(),
        "umask 027; echo text > file && mkdir dir && ln -s file link && echo text > group/file; \
         mkdir group/dir; (umask 222; echo once > fixed) && cat fixed; \
         mkdir private/dir 2>/dev/null || echo refused; rm file && echo text > file && cat file",
    );
    assert_eq!(said, "once\nrefused\ntext\n");
    let of = |name: &str| {
        let made = fs::symlink_metadata(at(name)).unwrap();
        (made.uid(), made.gid(), made.mode() & 0o7777)
    };
    assert_eq!(of("file"), (BOB, STAFF, 0o640));
    assert_eq!(of("dir"), (BOB, STAFF, 0o750));
    assert_eq!(of("link"), (BOB, STAFF, 0o777));
    assert_eq!(of("group/file"), (BOB, 3001, 0o640));
    assert_eq!(of("group/dir"), (BOB, 3001, 0o2750));
    assert_eq!(of("fixed"), (BOB, STAFF, 0o444));
    // A default list takes no umask.
    fs::create_dir(at("lists")).unwrap();
    let entries = [
        (OWNER, 7, NOBODY),
        (USER, 6, ALICE),
        (GROUP, 5, NOBODY),
        (MASK, 7, NOBODY),
        (OTHERS, 0, NOBODY),
    ];
    fs::set_permissions(at("lists"), Permissions::from_mode(0o777)).unwrap();
    if set_list(&at("lists"), "system.posix_acl_default", &entries) {
        as_bob(&bench.at(""), "umask 077; echo text > lists/here");
        as_bob(source.path(), "umask 077; echo text > lists/there");
        let list = |name: &str| {
            let mut value = vec![0; 1024];
            let name = at(name);
            let bytes = rustix::fs::getxattr(name, "system.posix_acl_access", &mut value[..]);
            value[..bytes.unwrap()].to_vec()
        };
        assert_eq!(of("lists/here"), of("lists/there"));
        assert_eq!(list("lists/here"), list("lists/there"));
    }
}

#[test]
fn nobody_changes_what_is_anothers() {
    let Some(source) = shared_folder() else {
        return;
    };
    let at = |name: &str| source.path().join(name);
    for name in ["his", "set-uid"] {
        fs::write(at(name), "his").unwrap();
        chown(at(name), Some(ALICE), Some(3001)).unwrap();
    }
    fs::set_permissions(at("his"), Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(at("set-uid"), Permissions::from_mode(0o4777)).unwrap();
    let Some(bench) = Bench::shared(source.path(), TTL) else {
        return;
    };
    // The kernel believes for ten minutes that the file is Bob's. At the source it is Alice's
    // since.
    as_bob(source.path(), "umask 0; echo mine > mine");
    assert_eq!(as_bob(bench.target.path(), "cat mine"), "mine\n");
    fs::rename(at("his"), at("mine")).unwrap();
    let said = as_bob(
        bench.target.path(),
        "chmod 666 mine 2>/dev/null && echo changed; cat mine 2>/dev/null; \
         (echo forged > mine) 2>/dev/null && echo written",
    );
    assert_eq!(said, "");
    let after = fs::metadata(at("mine")).unwrap();
    assert_eq!((after.uid(), after.mode() & 0o7777), (ALICE, 0o600));
    assert_eq!(fs::read(at("mine")).unwrap(), b"his");
    // Who may write a file that runs as its owner does not decide what runs.
    for script in ["printf evil > set-uid", "printf more >> set-uid"] {
        fs::set_permissions(at("set-uid"), Permissions::from_mode(0o4777)).unwrap();
        as_bob(bench.target.path(), script);
        let after = fs::metadata(at("set-uid")).unwrap();
        assert_eq!(
            (after.uid(), after.mode() & 0o7777),
            (ALICE, 0o777),
            "{script}"
        );
    }
    assert_eq!(fs::read(at("set-uid")).unwrap(), b"evilmore");
}
