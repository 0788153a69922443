//! Changes that mounts of a volume tell each other of: the paths that somebody has written.
//!
//! An announcement is sent once and not confirmed. One that is lost costs what a node believes of
//! the path until it asks the source again, and never a wrong byte: blocks are named by version.

use std::sync::{Arc, Weak};

use crate::key::VolumeKey;
use crate::readers::Readers;
use crate::source::SourcePath;
use bytes::{BufMut, Bytes};
use hither_net::view::MemberId;
use parking_lot::Mutex;

/// The longest path that is announced, in bytes.
const PATH_BYTES_MAX: usize = 64 << 10;

/// The length of a volume's key.
const VOLUME_BYTES: usize = size_of::<VolumeKey>();

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

    /// Passes on what the member `from` has sent. Else what is wrong with it.
    pub(crate) fn on_announcement(
        &self,
        from: MemberId,
        body: &[u8],
        readers: &Readers,
    ) -> Result<(), &'static str> {
        let (volume, path) = decode(body).ok_or("an announcement that makes no sense")?;
        if !readers.may_know(from, volume) {
            return Err("an announcement of a volume that is not for it");
        }
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
    let mut body = Vec::with_capacity(VOLUME_BYTES + path.len());
    body.put_u32_le(volume.0);
    body.put_slice(path);
    Some(body.into())
}

fn decode(body: &[u8]) -> Option<(VolumeKey, SourcePath)> {
    let (volume, path) = body.split_first_chunk::<VOLUME_BYTES>()?;
    let path = (path.len() <= PATH_BYTES_MAX).then_some(path)?;
    let volume = VolumeKey(u32::from_le_bytes(*volume));
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
        assert_eq!(decode(&body[..3]), None);
        let with = |path: &[u8]| [&body[..VOLUME_BYTES], path].concat();
        for wrong in [&b"../a"[..], b"/a", b"a//b", b"a/", &[b'a'; (64 << 10) + 1]] {
            assert_eq!(decode(&with(wrong)), None);
        }
        let long = SourcePath::new(&[b'a'; (64 << 10) + 1]).unwrap();
        assert_eq!(encode(volume, &long), None);
    }
}
