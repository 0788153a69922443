//! Volumes and their open files.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use hither_net::view::MemberId;
use parking_lot::Mutex;

use super::checksum::EtagChecks;
use super::counters::Counters;
use super::pattern::Pattern;
use super::place::Pin;
use crate::announcements::{ChangeListener, encode};
use crate::key::{BlockKey, CHUNK_BLOCKS, ChunkKey, FileKey, VolumeKey};
use crate::node::Node;
use crate::pending::Origin;
use crate::source::write::WritableSource;
use crate::source::{FileVersion, Source, SourceError, SourcePath};
use crate::store::disk::lending::Lent;

/// How a volume is read.
#[derive(Clone, Debug)]
pub struct VolumeSettings {
    /// Its name: the same on all nodes that share its blocks.
    pub name: String,
    /// How far to read ahead of a sequential reader, at most.
    pub prefetch_bytes_max: u64,
}

/// A source, seen through the node's cache.
pub struct Volume {
    pub(super) node: Arc<Node>,
    source: Arc<dyn Source>,
    /// The same, if it may be written.
    writable: Option<Arc<dyn WritableSource>>,
    settings: VolumeSettings,
    counters: Counters,
    /// Bytes that readers waited for, by the member that sent them.
    peer_bytes: Mutex<BTreeMap<MemberId, u64>>,
    /// Whether the last request to the source was answered.
    answers: AtomicBool,
    pub(super) etags: EtagChecks,
    observer: OnceLock<Arc<dyn ReadObserver>>,
    /// Files that are pinned.
    pub(super) pins: Mutex<BTreeMap<SourcePath, Pin>>,
}

impl Volume {
    /// The volume of `source` on `node`.
    pub fn new(node: Arc<Node>, source: Arc<dyn Source>, settings: VolumeSettings) -> Arc<Volume> {
        Volume::of(node, source, None, settings)
    }

    /// As [`new`](Volume::new), of a source that may be written too.
    pub fn writable(
        node: Arc<Node>,
        source: Arc<dyn WritableSource>,
        settings: VolumeSettings,
    ) -> Arc<Volume> {
        let readable = Arc::clone(&source) as Arc<dyn Source>;
        Volume::of(node, readable, Some(source), settings)
    }

    fn of(
        node: Arc<Node>,
        source: Arc<dyn Source>,
        writable: Option<Arc<dyn WritableSource>>,
        settings: VolumeSettings,
    ) -> Arc<Volume> {
        Arc::new(Volume {
            node,
            source,
            writable,
            settings,
            counters: Counters::default(),
            peer_bytes: Mutex::default(),
            answers: AtomicBool::new(true),
            etags: EtagChecks::default(),
            observer: OnceLock::new(),
            pins: Mutex::default(),
        })
    }

    /// The node that caches it.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Where its data comes from.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// Where writes go, if the volume may be written.
    pub fn writes(&self) -> Option<&Arc<dyn WritableSource>> {
        self.writable.as_ref()
    }

    /// Tells the members that may have the volume that what is at `path` has changed.
    pub fn announce(&self, path: &SourcePath) {
        let volume = VolumeKey::new(&self.settings.name);
        if let Some(body) = encode(volume, path) {
            self.node.announce(volume, &body);
        }
    }

    /// Calls `listener`, while it lives, for each change that another node announces.
    pub fn listen(&self, listener: Weak<dyn ChangeListener>) {
        let volume = VolumeKey::new(&self.settings.name);
        self.node.listeners.add(volume, listener);
    }

    /// Tells `observer` of each read from now on. The first one given holds.
    pub fn observe_by(&self, observer: Arc<dyn ReadObserver>) {
        let _ = self.observer.set(observer);
    }

    /// Where its reads were served from.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Its name: the same on all nodes that share its blocks.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Bytes that readers waited for, by the member that sent them.
    pub fn peer_bytes(&self) -> BTreeMap<MemberId, u64> {
        self.peer_bytes.lock().clone()
    }

    /// Whether the source answered the last request to it.
    pub fn source_answers(&self) -> bool {
        self.answers.load(Ordering::Relaxed)
    }

    /// Takes note of how a request to the source ended, and logs that it stopped or began to
    /// answer.
    pub fn note_answer<T>(&self, result: &Result<T, SourceError>) {
        let failure = match result {
            Err(SourceError::Failed { reason, .. }) => Some(reason),
            _ => None,
        };
        let answers = failure.is_none();
        if self.answers.load(Ordering::Relaxed) == answers
            || self.answers.swap(answers, Ordering::Relaxed) == answers
        {
            return;
        }
        match failure {
            Some(reason) => tracing::warn!("the source of {} fails: {reason}", self.name()),
            None => tracing::info!("the source of {} answers again", self.name()),
        }
    }

    /// Readers that waited got so many bytes from there.
    pub(super) fn on_served(&self, from: Origin, bytes: u64) {
        match from {
            Origin::Memory => self.counters.memory_bytes.add(bytes),
            Origin::Disk => self.counters.disk_bytes.add(bytes),
            Origin::Source => self.counters.source_bytes.add(bytes),
            Origin::Member(member) => {
                self.counters.peer_bytes.add(bytes);
                *self.peer_bytes.lock().entry(member).or_default() += bytes;
            }
        }
    }

    /// The key of a version of a file.
    pub(super) fn file_key(&self, file: &FileVersion) -> FileKey {
        FileKey::new(&self.settings.name, self.node.settings().block_bytes, file)
    }

    /// How many blocks of a file are in this node's memory, and how many it has.
    pub fn blocks_in_memory(&self, file: &FileVersion) -> (usize, u64) {
        let block_bytes = self.node.settings().block_bytes;
        let key = self.file_key(file);
        let keys = self.node.store.keys();
        let here = keys.iter().filter(|block| block.file == key).count();
        (here, file.bytes.div_ceil(u64::from(block_bytes)))
    }

    /// How many blocks of a file are on this node's disk, and how many it has.
    pub fn blocks_on_disk(&self, file: &FileVersion) -> (usize, u64) {
        let block_bytes = self.node.settings().block_bytes;
        let key = self.file_key(file);
        let blocks = file.bytes.div_ceil(u64::from(block_bytes));
        let here = self.node.disk().map_or(0, |disk| {
            let chunks = 0..blocks.div_ceil(CHUNK_BLOCKS.into()) as u32;
            let held = chunks.map(|number| disk.held(&ChunkKey { file: key, number }));
            held.map(|mask| mask.count_ones() as usize).sum()
        });
        (here, blocks)
    }

    /// Whether a file has no more blocks than can be numbered.
    pub fn can_number(&self, file: &FileVersion) -> bool {
        let block_bytes = u64::from(self.node.settings().block_bytes);
        file.bytes.div_ceil(block_bytes) < u64::from(u32::MAX)
    }

    /// Opens a version of a file whose blocks can be numbered. While `settled` is false its blocks
    /// are not kept.
    pub fn open(self: &Arc<Self>, file: FileVersion, settled: bool) -> Arc<OpenFile> {
        let block_bytes = self.node.settings().block_bytes;
        self.check_pin(&file);
        Arc::new(OpenFile {
            volume: Arc::clone(self),
            key: self.file_key(&file),
            block_bytes,
            pattern: Mutex::new(Pattern::new(block_bytes, self.settings.prefetch_bytes_max)),
            last_block: AtomicU32::new(u32::MAX),
            stale: AtomicBool::new(false),
            is_warming: AtomicBool::new(false),
            settled,
            file,
        })
    }
}

/// Who wants to hear of each read that a program makes, whether the bytes are cached or not.
pub trait ReadObserver: Send + Sync + 'static {
    /// `thread` reads `range` of `file`, which ends where the file ends. This is called on the
    /// thread that serves the read, and must not wait.
    fn on_read(&self, file: &Arc<OpenFile>, range: Range<u64>, thread: u32);
}

/// One version of one file, opened by one reader.
pub struct OpenFile {
    pub(super) volume: Arc<Volume>,
    pub(super) file: FileVersion,
    pub(super) key: FileKey,
    pub(super) block_bytes: u32,
    pub(super) settled: bool,
    pub(super) pattern: Mutex<Pattern>,
    /// The block that was read last: a reader that goes on in it is one access, not many.
    pub(super) last_block: AtomicU32,
    /// The source has another version by now, so what is not cached cannot be had any more.
    pub(super) stale: AtomicBool,
    /// All of it is wanted in the cache, whatever is read.
    pub(super) is_warming: AtomicBool,
}

impl OpenFile {
    /// The volume that it belongs to.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Which version of which file it is.
    pub fn version(&self) -> &FileVersion {
        &self.file
    }

    /// Tells the volume's observer, if it has one, that `thread` is about to read.
    pub fn note_reader(self: &Arc<Self>, offset: u64, bytes: u64, thread: u32) {
        let end = offset.saturating_add(bytes).min(self.file.bytes);
        if let Some(observer) = self.volume.observer.get()
            && offset < end
        {
            observer.on_read(self, offset..end, thread);
        }
    }

    /// The key of block `index`.
    pub fn block(&self, index: u32) -> BlockKey {
        BlockKey {
            file: self.key,
            index,
        }
    }

    /// The file on this node's disk that has all of this version, verified since the start. Where
    /// the disk has all of it, but it was not verified yet, that begins, and later calls find it.
    pub fn lend(&self) -> Option<Lent> {
        let node = &self.volume.node;
        let (disk, file, bytes) = (node.disk()?, self.key, self.file.bytes);
        if !self.settled {
            return None;
        }
        let lent = disk.lend(file, bytes);
        if lent.is_none() && disk.begin_verification(file, bytes) {
            let node = Arc::clone(node);
            node.runtime().clone().spawn(async move {
                let Some(disk) = node.disk() else {
                    return;
                };
                let _turn = disk.turn().await;
                let verifier = Arc::clone(&node);
                let verified = node.runtime().spawn_blocking(move || {
                    let bad = verifier.disk().map(|disk| disk.verify(file, bytes));
                    for key in bad.into_iter().flatten() {
                        verifier.note_block_dropped(key);
                    }
                });
                // It fails only where the runtime ends.
                let _ = verified.await;
            });
        }
        lent
    }

    /// The MD5 of block `index`, if the block is all of the file and the source may have said it.
    pub(super) fn md5(&self, index: u32) -> Option<[u8; 16]> {
        let is_all = index == 0 && self.file.bytes <= u64::from(self.block_bytes);
        if is_all {
            self.volume.source.md5(&self.file)
        } else {
            None
        }
    }

    /// Whether the source was found to have another version.
    pub fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }

    /// Where block `index` lies in the file.
    pub(super) fn block_range(&self, index: u32) -> Range<u64> {
        let start = u64::from(index) * u64::from(self.block_bytes);
        start..(start + u64::from(self.block_bytes)).min(self.file.bytes)
    }
}
