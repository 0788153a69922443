//! Names of files that nobody can read, for traces that are passed on.

use std::hash::{BuildHasher, RandomState};

/// Each recording has a key of its own, which is kept nowhere: who has a list of names cannot look
/// one up. (`RandomState` is SipHash with a random key.)
#[derive(Debug, Default)]
pub(crate) struct HashedNames(RandomState);

impl HashedNames {
    /// A path with a hash in place of each of its names. Files of one folder stay in one folder.
    pub(crate) fn path(&self, path: &[u8]) -> Vec<u8> {
        let names = path.split(|&byte| byte == b'/');
        let hashed = names.map(|name| match name {
            [] => String::new(),
            name => format!("{:016x}", self.0.hash_one(name)),
        });
        hashed.collect::<Vec<_>>().join("/").into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_stay_what_they_are_and_names_do_not() {
        let names = HashedNames::default();
        let text = |path: &[u8]| String::from_utf8(names.path(path)).expect("digits");
        let first = text(b"/home/jo/a");
        let folders: Vec<&str> = first.split('/').collect();
        assert_eq!(folders.len(), 4);
        assert_eq!(folders[0], "");
        assert!(folders[1..].iter().all(|name| name.len() == 16));
        assert_eq!(first, text(b"/home/jo/a"));
        let (folder, other) = (first.rsplit_once('/'), text(b"/home/jo/b"));
        assert_eq!(
            folder.map(|(folder, _)| folder),
            other.rsplit_once('/').map(|(folder, _)| folder)
        );
        assert_ne!(first, other);
        assert_ne!(HashedNames::default().path(b"/home"), names.path(b"/home"));
    }
}
