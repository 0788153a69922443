//! Small files that came from another member, checked by the source's own checksum where it has
//! one.
//!
//! A store of objects names an object that was put in one piece by its MD5, as etag. A file of one
//! block can be checked by that: no member can make another file of the same MD5. (Who wrote the
//! file can have made two, which nobody could tell apart then.) Encrypted objects and other servers
//! have etags of the same form that are no MD5. So a block that does not match is read from the
//! source. If that does not match either, the etags of this source say nothing, and are not looked
//! at any more.

use std::sync::atomic::{AtomicU8, Ordering};

use md5::{Digest, Md5};

/// What is known of a source's etags.
#[derive(Debug, Default)]
pub(super) struct EtagChecks(AtomicU8);

/// Nothing contradicts that they are an MD5.
const TRUSTED: u8 = 0;
/// A block of another member did not match; one of the source will tell.
const DOUBTED: u8 = 1;
/// They are no MD5.
const USELESS: u8 = 2;

impl EtagChecks {
    /// Whether bytes of another member are not those that the source names by `md5`.
    pub(super) fn contradicts(&self, md5: [u8; 16], bytes: &[u8]) -> bool {
        if self.0.load(Ordering::Relaxed) == USELESS || Md5::digest(bytes)[..] == md5 {
            return false;
        }
        let _ = self.change(TRUSTED, DOUBTED);
        true
    }

    /// Takes note of bytes of the source. True if these show that a member has sent others.
    pub(super) fn note_source(&self, md5: [u8; 16], bytes: &[u8]) -> bool {
        if self.0.load(Ordering::Relaxed) != DOUBTED {
            return false;
        }
        let matches = Md5::digest(bytes)[..] == md5;
        self.change(DOUBTED, if matches { TRUSTED } else { USELESS }) && matches
    }

    fn change(&self, from: u8, to: u8) -> bool {
        let order = Ordering::Relaxed;
        self.0.compare_exchange(from, to, order, order).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_source_names_is_believed_until_it_contradicts_itself() {
        let checks = EtagChecks::default();
        let md5: [u8; 16] = Md5::digest(b"right").into();
        assert!(!checks.contradicts(md5, b"right"));
        assert!(!checks.note_source(md5, b"anything"), "nothing is in doubt");
        assert!(checks.contradicts(md5, b"wrong"));
        assert!(
            checks.note_source(md5, b"right"),
            "the member has sent others"
        );
        assert!(checks.contradicts(md5, b"wrong"), "once more");
        // The etag is something else.
        assert!(!checks.note_source(md5, b"what the source has"));
        assert!(!checks.contradicts(md5, b"what the source has"));
    }
}
