//! Changes that mounts of a volume tell each other of: the paths that somebody has written.
//!
//! An announcement is sent once and not confirmed. One that is lost costs what a node believes of
//! the path until it asks the source again, and never a wrong byte: blocks are named by version.

use std::sync::{Arc, Weak};

use bytes::{BufMut, Bytes};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::source::SourcePath;

/// The longest path that is announced, in bytes.
const PATH_BYTES_MAX: usize = 64 << 10;

/// A volume, by a hash of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VolumeKey(u128);

impl VolumeKey {
    /// The key of the volume called `name`.
    pub(crate) fn new(name: &str) -> VolumeKey {
        let digest = Sha256::digest(name.as_bytes());
        let mut half = [0; 16];
        half.copy_from_slice(&digest[..16]);
        VolumeKey(u128::from_le_bytes(half))
    }
}

/// Who wants to know of changes by other nodes. It is called on a thread that receives frames, and
/// must not wait.
pub trait ChangeListener: Send + Sync + 'static {
    /// What is at `path`, and below it, may be another one by now.
    fn on_change(&self, path: &SourcePath);
}

/// Those who listen on this node.
#[derive(Default)]
pub(crate) struct Listeners(Mutex<Vec<(VolumeKey, Weak<dyn ChangeListener>)>>);

impl Listeners {
    pub(crate) fn add(&self, volume: VolumeKey, listener: Weak<dyn ChangeListener>) {
        let mut listeners = self.0.lock();
        listeners.retain(|(_, listener)| listener.strong_count() > 0);
        listeners.push((volume, listener));
    }

    /// Passes on what another node has sent. Else what is wrong with it.
    pub(crate) fn on_announcement(&self, body: &[u8]) -> Result<(), &'static str> {
        let (volume, path) = decode(body).ok_or("an announcement that makes no sense")?;
        let listeners: Vec<Arc<dyn ChangeListener>> = {
            let listeners = self.0.lock();
            let of_volume = listeners.iter().filter(|(key, _)| *key == volume);
            of_volume.filter_map(|(_, it)| it.upgrade()).collect()
        };
        for listener in listeners {
            listener.on_change(&path);
        }
        Ok(())
    }
}

/// An announcement on the wire: the volume, and the path. `None` if the path is too long.
pub(crate) fn encode(volume: VolumeKey, path: &SourcePath) -> Option<Bytes> {
    let path = path.as_bytes();
    if path.len() > PATH_BYTES_MAX {
        return None;
    }
    let mut body = Vec::with_capacity(16 + path.len());
    body.put_u128_le(volume.0);
    body.put_slice(path);
    Some(body.into())
}

fn decode(body: &[u8]) -> Option<(VolumeKey, SourcePath)> {
    let (volume, path) = body.split_first_chunk::<16>()?;
    let path = (path.len() <= PATH_BYTES_MAX).then_some(path)?;
    let volume = VolumeKey(u128::from_le_bytes(*volume));
    Some((volume, SourcePath::new(path)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_are_read_back_and_nonsense_is_not() {
        let volume = VolumeKey::new("v");
        let path = SourcePath::new(b"a/b").unwrap();
        let body = encode(volume, &path).unwrap();
        assert_eq!(decode(&body), Some((volume, path)));
        assert_eq!(decode(&body[..15]), None);
        let with = |path: &[u8]| [&body[..16], path].concat();
        for wrong in [&b"../a"[..], b"/a", b"a//b", b"a/", &[b'a'; (64 << 10) + 1]] {
            assert_eq!(decode(&with(wrong)), None);
        }
        let long = SourcePath::new(&[b'a'; (64 << 10) + 1]).unwrap();
        assert_eq!(encode(volume, &long), None);
    }
}
