//! What a node asks other members about themselves, for people: `hither cluster status`. Nothing
//! that is asked or answered here has an effect on the cache.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hither_net::frame::FrameHeader;
use hither_net::view::MemberId;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use crate::peers::{ANSWER, ASK, Peers};

/// The longest answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Answers that are made at the same time. Further questions get none.
const ANSWERS_MAX: usize = 16;

/// How long a member has for its answer.
const DEADLINE: Duration = Duration::from_secs(1);

/// Makes the answer to whoever asks.
type Answer = Box<dyn Fn() -> Vec<u8> + Send + Sync>;

/// Why a member's answer is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// There is no connection to it.
    #[error("not connected")]
    NotConnected,
    /// It did not answer in time.
    #[error("no answer")]
    NoAnswer,
}

/// Questions that are not answered yet, and the answer to those of others.
#[derive(Default)]
pub(crate) struct Questions {
    next: AtomicU64,
    asked: Mutex<FxHashMap<u64, (MemberId, oneshot::Sender<Bytes>)>>,
    answer: OnceLock<Answer>,
    /// Answers that are being made.
    answering: AtomicUsize,
}

impl Questions {
    /// What is answered. The first one given holds.
    pub(crate) fn answer_with(&self, answer: impl Fn() -> Vec<u8> + Send + Sync + 'static) {
        let _ = self.answer.set(Box::new(answer));
    }

    /// Asks a member about itself.
    pub(crate) async fn ask(&self, peers: &Peers, member: MemberId) -> Result<Bytes, AskError> {
        let request = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.asked.lock().insert(request, (member, sender));
        let header = FrameHeader {
            kind: ASK,
            request,
            deadline_ms: DEADLINE.as_millis() as u32,
            ..FrameHeader::default()
        };
        let answer = if peers.send_small(member, header, &[]) {
            tokio::time::timeout(DEADLINE, receiver).await
        } else {
            self.asked.lock().remove(&request);
            return Err(AskError::NotConnected);
        };
        self.asked.lock().remove(&request);
        match answer {
            Ok(Ok(body)) => Ok(body),
            _ => Err(AskError::NoAnswer),
        }
    }

    /// Whether one more answer may be made: [`answer`](Self::answer) must follow then.
    pub(crate) fn may_answer(&self) -> bool {
        let may = self.answering.fetch_add(1, Ordering::Relaxed) < ANSWERS_MAX;
        if !may {
            self.answering.fetch_sub(1, Ordering::Relaxed);
        }
        may
    }

    /// Answers the question of a member. This takes longer than a connection may wait.
    pub(crate) fn answer(&self, peers: &Peers, from: MemberId, request: u64) {
        if let Some(answer) = self.answer.get() {
            let body = answer();
            debug_assert!(body.len() <= ANSWER_BYTES_MAX, "an answer that is too long");
            let header = FrameHeader {
                kind: ANSWER,
                request,
                ..FrameHeader::default()
            };
            peers.send_small(from, header, &body);
        }
        self.answering.fetch_sub(1, Ordering::Relaxed);
    }

    /// A member answers. What was not asked of it is dropped.
    pub(crate) fn on_answer(&self, from: MemberId, request: u64, body: &[u8]) {
        let mut asked = self.asked.lock();
        let is_asked = asked.get(&request).is_some_and(|(to, _)| *to == from);
        if is_asked
            && body.len() <= ANSWER_BYTES_MAX
            && let Some((_, sender)) = asked.remove(&request)
        {
            // A copy: the frame shares the memory of a larger buffer.
            let _ = sender.send(Bytes::copy_from_slice(body));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_who_was_asked_answers_and_only_in_short() {
        let questions = Questions::default();
        let [asked, other] = ["a", "b"].map(MemberId::of);
        let (sender, mut receiver) = oneshot::channel();
        questions.asked.lock().insert(7, (asked, sender));
        questions.on_answer(other, 7, b"false");
        questions.on_answer(asked, 8, b"false");
        questions.on_answer(asked, 7, &vec![0; ANSWER_BYTES_MAX + 1]);
        assert!(receiver.try_recv().is_err(), "taken");
        questions.on_answer(asked, 7, b"true");
        assert_eq!(receiver.await.unwrap(), "true");
        // Without a mesh there is nobody to ask.
        let answer = questions.ask(&Peers::default(), asked).await;
        assert_eq!(answer, Err(AskError::NotConnected));
        assert!(questions.asked.lock().is_empty());
    }

    #[test]
    fn few_answers_are_made_at_the_same_time() {
        let questions = Questions::default();
        assert!((0..ANSWERS_MAX).all(|_| questions.may_answer()));
        assert!(!questions.may_answer());
        questions.answer(&Peers::default(), MemberId::of("a"), 1);
        assert!(questions.may_answer());
    }
}
