//! Reads a range of one version: each piece is a task that fetches, resumes and checks.
//!
//! A task never waits for who reads: so a slow reader holds no request open, and keeps no place
//! among those in flight. It costs the memory of the pieces ahead.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use object_store::path::Path;
use object_store::{GetOptions, GetRange};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::super::settings::PIECE_BYTES;
use super::super::{ByteStream, FileVersion, SourceError, check_range, pieces};
use super::attempts::{Attempts, Failure};
use super::store::Store;
use super::versions::{condition, version};

/// Pieces of one range that are fetched at the same time.
const PIECES_AHEAD: usize = 2;

type Chunk = Result<Bytes, SourceError>;

/// A piece that is being fetched. Dropped, it is given up.
struct Piece {
    chunks: UnboundedReceiver<Chunk>,
    left: u64,
    task: JoinHandle<()>,
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Piece {
    fn start(store: &Arc<Store>, file: &Arc<FileVersion>, key: &Path, range: Range<u64>) -> Piece {
        let (sender, chunks) = unbounded_channel();
        let (store, file, key) = (Arc::clone(store), Arc::clone(file), key.clone());
        let left = range.end - range.start;
        let task = tokio::spawn(async move {
            if let Err(error) = fetch(&store, &file, &key, range, &sender).await {
                // Whoever asked may be gone.
                let _ = sender.send(Err(error));
            }
        });
        Piece { chunks, left, task }
    }

    /// The next bytes. `None` at the end.
    async fn next(&mut self, file: &FileVersion) -> Option<Chunk> {
        if self.left == 0 {
            return None;
        }
        let chunk = self.chunks.recv().await.unwrap_or_else(|| {
            Err(SourceError::Failed {
                path: file.path.clone(),
                reason: "the read was interrupted".into(),
            })
        });
        if let Ok(bytes) = &chunk {
            self.left -= bytes.len() as u64;
        }
        Some(chunk)
    }
}

/// The bytes `range` of `file`.
pub(super) async fn read(
    store: &Arc<Store>,
    file: &FileVersion,
    range: Range<u64>,
) -> Result<ByteStream, SourceError> {
    check_range(file, &range)?;
    let key = store
        .key(&file.path)
        .ok_or_else(|| SourceError::NotFound(file.path.clone()))?;
    let mut reading = Reading {
        store: Arc::clone(store),
        file: Arc::new(file.clone()),
        key,
        ranges: Box::new(pieces(range, PIECE_BYTES)),
        running: VecDeque::new(),
    };
    // The first bytes now: an error there is the answer to the request itself.
    let Some(first) = reading.next().await.transpose()? else {
        return Ok(stream::empty().boxed());
    };
    let next = async |mut reading: Reading| Some((reading.next().await?, reading));
    let rest = stream::unfold(reading, next);
    Ok(stream::iter([Ok(first)]).chain(rest).boxed())
}

/// A range that is being read.
struct Reading {
    store: Arc<Store>,
    file: Arc<FileVersion>,
    key: Path,
    ranges: Box<dyn Iterator<Item = Range<u64>> + Send>,
    running: VecDeque<Piece>,
}

impl Reading {
    /// The next bytes. `None` after the last ones, or after an error.
    async fn next(&mut self) -> Option<Chunk> {
        loop {
            while self.running.len() < PIECES_AHEAD
                && let Some(range) = self.ranges.next()
            {
                let piece = Piece::start(&self.store, &self.file, &self.key, range);
                self.running.push_back(piece);
            }
            match self.running.front_mut()?.next(&self.file).await {
                Some(Err(error)) => {
                    self.running.clear();
                    self.ranges = Box::new(std::iter::empty());
                    return Some(Err(error));
                }
                Some(chunk) => return Some(chunk),
                None => self.running.pop_front(),
            };
        }
    }
}

/// Sends the bytes `range`, in as many attempts as it takes. Each goes on where the last one ended.
async fn fetch(
    store: &Store,
    file: &FileVersion,
    key: &Path,
    range: Range<u64>,
    chunks: &UnboundedSender<Chunk>,
) -> Result<(), SourceError> {
    let mut attempts = Attempts::new(&file.path, &store.settings, &store.counters);
    let mut left = range;
    while left.start < left.end {
        let waiting = Instant::now();
        let permit = store.permit().await;
        attempts.excuse(waiting.elapsed());
        let before = left.start;
        let done = attempt(store, file, key, &mut left, chunks, &attempts).await;
        drop(permit);
        if left.start > before {
            attempts.progress();
        }
        if let Err(failure) = done {
            if left.is_empty() && matches!(failure, Failure::Transient { .. }) {
                return Ok(()); // What failed comes after the last byte.
            }
            attempts.pause(failure).await?;
        }
    }
    Ok(())
}

/// One request. Moves the start of `left` past what was sent.
async fn attempt(
    store: &Store,
    file: &FileVersion,
    key: &Path,
    left: &mut Range<u64>,
    chunks: &UnboundedSender<Chunk>,
    attempts: &Attempts<'_>,
) -> Result<(), Failure> {
    let options = GetOptions {
        range: Some(GetRange::Bounded(left.clone())),
        ..condition(file)
    };
    let limit = attempts.time_left(store.settings.attempt_timeout);
    let answer = timeout(limit, store.objects.get_opts(key, options))
        .await
        .map_err(|_| Failure::transient(format!("no answer within {limit:?}")))?
        .map_err(|error| Failure::of(&file.path, &error))?;
    // A server may ignore the condition.
    if version(&answer.meta).as_ref() != Some(&file.version) || answer.meta.size != file.bytes {
        return Err(Failure::Final(SourceError::Changed(file.path.clone())));
    }
    let mut body = answer.into_stream();
    // Past the last byte as well: only a body that was read to its end leaves a usable connection.
    loop {
        let limit = store.settings.stall_timeout;
        let chunk = timeout(limit, body.next())
            .await
            .map_err(|_| Failure::transient(format!("no byte within {limit:?}")))?;
        let Some(chunk) = chunk else {
            let complete = left.is_empty();
            let early = || Failure::transient("the answer ended too early");
            return complete.then_some(()).ok_or_else(early);
        };
        let bytes = chunk.map_err(|error| Failure::of(&file.path, &error))?;
        let count = bytes.len() as u64;
        store.counters.bytes.add(count);
        if count > left.end - left.start {
            return Err(Failure::Final(SourceError::Failed {
                path: file.path.clone(),
                reason: "the answer holds more bytes than were asked for".into(),
            }));
        }
        left.start += count;
        if chunks.send(Ok(bytes)).is_err() {
            return Err(Failure::transient("nobody reads it any more"));
        }
    }
}
