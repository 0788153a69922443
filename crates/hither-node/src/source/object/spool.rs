//! Where a part of an object waits until it is sent: in memory while there is room, else in a file.
//!
//! Programs may have any number of files open, and each may wait with less than a part: nothing can
//! be sent of it yet, since S3 takes no small parts but the last. So memory for what waits is
//! given away only if it is free at once; a part that gets none goes to a file without a name. What
//! is sent from such a file has memory of its own, which is only held while requests run. So
//! whoever waits for it waits for requests, never for a program.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use hither_net::random::random;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use super::super::settings::WriteSettings;

/// The unit in which memory is counted.
const UNIT_BYTES: u64 = 1 << 10;

/// What the first bytes of a part take.
const START_BYTES: usize = 4 << 10;

/// After so many parts, they are twice as large: S3 takes 10,000 at most, and objects of 5 TiB.
const PARTS_OF_ONE_SIZE: usize = 1250;

/// Memory and files for what is written to one source.
#[derive(Debug)]
pub(super) struct WriteSpace {
    /// For parts that programs still write.
    waiting: Arc<Semaphore>,
    /// For parts that are sent from files.
    sending: Arc<Semaphore>,
    sending_bytes: u64,
    part_bytes: u64,
    folders: Vec<PathBuf>,
}

impl WriteSpace {
    pub(super) fn new(settings: &WriteSettings) -> WriteSpace {
        let sending_bytes = (settings.memory_bytes / 2).max(settings.part_bytes);
        let waiting_bytes = settings.memory_bytes.saturating_sub(sending_bytes);
        let semaphore = |bytes: u64| Arc::new(Semaphore::new(units(bytes) as usize));
        let by_default = || {
            let named = std::env::var_os("TMPDIR").map(PathBuf::from);
            named.into_iter().chain(["/var/tmp".into(), "/tmp".into()])
        };
        WriteSpace {
            waiting: semaphore(waiting_bytes),
            sending: semaphore(sending_bytes),
            sending_bytes,
            part_bytes: settings.part_bytes,
            folders: settings
                .folder
                .iter()
                .cloned()
                .chain(by_default())
                .collect(),
        }
    }

    /// The length of a part that comes after so many.
    pub(super) fn part_bytes(&self, parts: usize) -> u64 {
        let wanted = self.part_bytes << (parts / PARTS_OF_ONE_SIZE);
        wanted.min(self.sending_bytes)
    }

    /// A file that only its descriptor leads to.
    fn make_file(&self) -> io::Result<File> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for folder in &self.folders {
            match make_file_in(folder) {
                Ok(file) => return Ok(file),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn make_file_in(folder: &Path) -> io::Result<File> {
    let path = folder.join(format!(".hither-{:016x}.part", random()));
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

/// A part that is being written.
#[derive(Debug)]
pub(super) struct PartBuffer {
    space: Arc<WriteSpace>,
    bytes: Vec<u8>,
    memory: Option<OwnedSemaphorePermit>,
    file: Option<Arc<File>>,
    /// What is in the file.
    spooled_bytes: u64,
}

/// A part that is ready to be sent, and the memory that it takes.
#[derive(Debug)]
pub(super) struct Part {
    pub bytes: Bytes,
    _memory: Option<OwnedSemaphorePermit>,
}

impl PartBuffer {
    pub(super) fn new(space: &Arc<WriteSpace>) -> PartBuffer {
        PartBuffer {
            space: Arc::clone(space),
            bytes: Vec::new(),
            memory: None,
            file: None,
            spooled_bytes: 0,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.spooled_bytes + self.bytes.len() as u64
    }

    /// Whether it is in a file.
    pub(super) fn is_spooled(&self) -> bool {
        self.spooled_bytes > 0
    }

    /// Adds `data`, if there is memory for it, and none of the part is in a file.
    pub(super) fn push(&mut self, data: &[u8]) -> bool {
        if self.is_spooled() {
            return false;
        }
        let needed = self.bytes.len() + data.len();
        if needed > self.bytes.capacity() {
            let longest = needed.max(self.space.part_bytes as usize);
            let wanted = needed.next_power_of_two().max(START_BYTES).min(longest);
            let held = self.memory.as_ref().map_or(0, |it| it.num_permits() as u32);
            let more = units(wanted as u64).saturating_sub(held);
            let waiting = Arc::clone(&self.space.waiting);
            let Ok(more) = waiting.try_acquire_many_owned(more) else {
                return false;
            };
            match &mut self.memory {
                Some(memory) => memory.merge(more),
                None => self.memory = Some(more),
            }
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        self.bytes.extend_from_slice(data);
        true
    }

    /// Adds `data` in a file, to which all of the part goes.
    pub(super) async fn spool(&mut self, data: Bytes) -> io::Result<()> {
        let file = self.file.clone();
        let space = Arc::clone(&self.space);
        let (at, total) = (self.spooled_bytes, self.len() + data.len() as u64);
        let before = std::mem::take(&mut self.bytes);
        let written = spawn_blocking(move || {
            let file = match file {
                Some(file) => file,
                None => Arc::new(space.make_file()?),
            };
            file.write_all_at(&before, at)?;
            file.write_all_at(&data, at + before.len() as u64)?;
            Ok(file)
        });
        let written: io::Result<Arc<File>> = written.await.map_err(io::Error::other)?;
        self.file = Some(written?);
        self.memory = None;
        self.spooled_bytes = total;
        Ok(())
    }

    /// Takes the part out. Waits for memory if it is in a file.
    pub(super) async fn take(&mut self) -> io::Result<Part> {
        let Some(file) = self.file.clone().filter(|_| self.is_spooled()) else {
            return Ok(Part {
                bytes: std::mem::take(&mut self.bytes).into(),
                _memory: self.memory.take(),
            });
        };
        let bytes = std::mem::take(&mut self.spooled_bytes);
        let units = units(bytes.min(self.space.sending_bytes));
        let sending = Arc::clone(&self.space.sending);
        let memory = sending.acquire_many_owned(units).await;
        let read = spawn_blocking(move || {
            let mut part = vec![0; bytes as usize];
            file.read_exact_at(&mut part, 0)?;
            Ok(part)
        });
        let read: io::Result<Vec<u8>> = read.await.map_err(io::Error::other)?;
        Ok(Part {
            bytes: read?.into(),
            _memory: Some(memory.expect("it is never closed")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(memory_bytes: u64, folder: Option<PathBuf>) -> Arc<WriteSpace> {
        Arc::new(WriteSpace::new(&WriteSettings {
            memory_bytes,
            part_bytes: 64 << 10,
            folder,
        }))
    }

    async fn write(buffer: &mut PartBuffer, data: &[u8]) {
        if !buffer.push(data) {
            buffer.spool(Bytes::copy_from_slice(data)).await.unwrap();
        }
    }

    #[tokio::test]
    async fn parts_beyond_the_memory_wait_in_files() {
        let folder = tempfile::tempdir().unwrap();
        let space = space(256 << 10, Some(folder.path().into()));
        let all = space.waiting.available_permits();
        assert_eq!(all, 128);
        let mut buffers: Vec<PartBuffer> = (0..20).map(|_| PartBuffer::new(&space)).collect();
        for round in 0..10u8 {
            for (number, buffer) in buffers.iter_mut().enumerate() {
                write(buffer, &[number as u8 * 10 + round; 5000]).await;
            }
        }
        let spooled = buffers.iter().filter(|it| it.is_spooled()).count();
        assert!((15..20).contains(&spooled), "{spooled}");
        let held: usize = buffers.iter().map(|it| it.bytes.capacity()).sum();
        assert!(held <= 128 << 10, "{held}");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "no names");
        for (number, buffer) in buffers.iter_mut().enumerate() {
            assert_eq!(buffer.len(), 50_000);
            let part = buffer.take().await.unwrap();
            assert_eq!(buffer.len(), 0);
            for (round, bytes) in part.bytes.chunks(5000).enumerate() {
                assert!(bytes == [number as u8 * 10 + round as u8; 5000]);
            }
            // The next part.
            write(buffer, b"more").await;
            assert_eq!(&buffer.take().await.unwrap().bytes[..], b"more");
        }
        assert_eq!(space.waiting.available_permits(), all);
        assert_eq!(space.sending.available_permits(), 128);
    }

    #[tokio::test]
    async fn small_writes_take_little_more_memory_than_their_bytes() {
        let space = space(256 << 10, None);
        let mut buffer = PartBuffer::new(&space);
        for _ in 0..64 << 10 {
            assert!(buffer.push(b"x"));
        }
        assert_eq!(space.waiting.available_permits(), 64);
        assert!(buffer.bytes.capacity() <= 64 << 10);
        assert_eq!(buffer.take().await.unwrap().bytes.len(), 64 << 10);
    }

    #[tokio::test]
    async fn without_a_place_for_files_a_write_fails() {
        let mut space = WriteSpace::new(&WriteSettings {
            memory_bytes: 0,
            part_bytes: 1 << 10,
            folder: None,
        });
        space.folders = vec!["/nowhere/at/all".into()];
        let mut buffer = PartBuffer::new(&Arc::new(space));
        assert!(!buffer.push(b"data"));
        assert!(buffer.spool("data".into()).await.is_err());
    }
}
