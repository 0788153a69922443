//! A node's time as a member: it joins, renews its lease, follows the changes, and joins again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

use super::api::{Api, Change, Content, Created, Entry, Held, Listing, WatchMessage};
use super::client::with_causes;
use super::error::{CallError, EtcdError};
use crate::membership::{Standing, State};
use crate::view::{Member, View};

/// The wait between looks at a key that another instance holds.
const HELD_POLL: Duration = Duration::from_millis(200);
/// How much later than its time a lease may end: etcd looks every half second.
const LEASE_SLACK: Duration = Duration::from_secs(3);
/// The wait before a failed call is tried again.
const RETRY: Duration = Duration::from_millis(300);
/// The longest message of a watch.
const WATCH_BYTES_MAX: usize = 4 << 20;

pub(super) struct Session {
    api: Api,
    me: Member,
    entry: Entry,
    ttl_s: u64,
    state: watch::Sender<State>,
    /// What is wrong with the keys that are skipped: each is said once.
    skipped: Mutex<BTreeSet<String>>,
}

/// Why a node is no longer a member.
struct Lost(String);

/// The members, and how far the changes of them were followed.
#[derive(Default)]
pub(super) struct Followed {
    /// By name. `None`: a key that holds no member.
    entries: BTreeMap<String, Option<Entry>>,
    revision: i64,
}

impl Session {
    pub(super) fn new(api: Api, me: Member, ttl_s: u64, state: watch::Sender<State>) -> Session {
        let instance = format!("{:016x}", crate::random::random());
        let entry = Entry {
            address: me.address.clone(),
            instance,
        };
        Session {
            api,
            me,
            entry,
            ttl_s,
            state,
            skipped: Mutex::default(),
        }
    }

    /// Makes this node a member. Returns its lease and the members.
    pub(super) async fn join(&self) -> Result<(i64, Followed), EtcdError> {
        let mut held: Option<(Held, Instant, i64)> = None;
        loop {
            let lease = self.api.grant(self.ttl_s).await?;
            let joined = self.create(lease).await;
            let found = match joined {
                Ok(Ok(followed)) => return Ok((lease, followed)),
                Ok(Err(found)) => found,
                Err(error) => {
                    let _ = self.api.revoke(lease).await;
                    return Err(error.into());
                }
            };
            let _ = self.api.revoke(lease).await;
            if found.entry.instance == self.entry.instance {
                // This node's own key, of a lease that it has given up.
                let _ = self.api.revoke(found.lease).await;
                continue;
            }
            let left_s = self.api.left_s(found.lease).await?.unwrap_or(0);
            let renewed = match &held {
                Some((before, _, left_before_s)) => before != &found || left_s > *left_before_s,
                None => {
                    tracing::info!(
                        "the name {:?} is still held from {}: waiting for the end of the lease",
                        self.me.name,
                        found.entry.address
                    );
                    false
                }
            };
            let until = match &held {
                Some((_, until, _)) => *until,
                None => {
                    let left = Duration::from_secs(u64::try_from(left_s).unwrap_or(0));
                    Instant::now() + left + LEASE_SLACK
                }
            };
            if renewed || Instant::now() >= until {
                return Err(EtcdError::NameTaken {
                    name: self.me.name.clone(),
                    address: found.entry.address,
                });
            }
            held = Some((found, until, left_s));
            sleep(HELD_POLL).await;
        }
    }

    /// Creates this node's key and reads the members. The inner error is who holds the key.
    async fn create(&self, lease: i64) -> Result<Result<Followed, Held>, CallError> {
        let revision = match self.api.create(&self.me.name, &self.entry, lease).await? {
            Created::New(revision) => revision,
            Created::Held(held) => return Ok(Err(held)),
        };
        // The members in just that revision: whatever comes later, the watch will say.
        let listing = self.api.list(Some(revision)).await?;
        let followed = Followed::new(listing, revision);
        self.publish(&followed);
        Ok(Ok(followed))
    }

    /// Stays a member until it is told to leave.
    pub(super) async fn run(
        self,
        (mut lease, mut followed): (i64, Followed),
        mut left: oneshot::Receiver<()>,
    ) {
        loop {
            let lost = tokio::select! {
                lost = self.keep_lease(lease) => lost,
                lost = self.follow(&mut followed) => lost,
                _ = &mut left => {
                    let _ = self.api.revoke(lease).await;
                    return;
                }
            };
            self.isolate(lost.0);
            (lease, followed) = tokio::select! {
                joined = self.join_again() => joined,
                _ = &mut left => return,
            };
        }
    }

    async fn join_again(&self) -> (i64, Followed) {
        loop {
            match self.join().await {
                Ok(joined) => {
                    tracing::info!("joined the cluster again");
                    return joined;
                }
                Err(EtcdError::Unreachable(_)) => self.set_reachable(false, ""),
                Err(error) => self.isolate(error.to_string()),
            }
            sleep(RETRY).await;
        }
    }

    /// Renews the lease until etcd says that it is gone.
    async fn keep_lease(&self, lease: i64) -> Lost {
        let pause = Duration::from_secs(self.ttl_s) / 3;
        loop {
            match self.api.keep_alive(lease).await {
                Ok(true) => {
                    self.set_reachable(true, "");
                    sleep(pause).await;
                }
                Ok(false) => return Lost("etcd says that its lease has ended".to_owned()),
                Err(CallError::Unreachable(why)) => {
                    self.set_reachable(false, &why);
                    sleep(RETRY).await;
                }
                // "requested lease not found" comes as an error from some versions.
                Err(CallError::Answer { message, .. }) if message.contains("lease not found") => {
                    return Lost("etcd says that its lease has ended".to_owned());
                }
                Err(error) => {
                    tracing::warn!("the lease could not be renewed: {error}");
                    sleep(RETRY).await;
                }
            }
        }
    }

    /// Follows the changes of members until this node is none.
    async fn follow(&self, followed: &mut Followed) -> Lost {
        let mut complete = true;
        loop {
            let result = if complete {
                self.watch(followed).await
            } else {
                self.list_again(followed).await
            };
            if !self.is_member(followed) {
                return Lost("its key in etcd is gone or another node's".to_owned());
            }
            match result {
                Ok(()) => complete = true,
                Err(CallError::Unreachable(_)) => sleep(RETRY).await,
                Err(CallError::Answer { message, .. }) => {
                    tracing::debug!("the members are read anew: {message}");
                    complete = false;
                    sleep(RETRY).await;
                }
            }
        }
    }

    /// Reads all members, as changes were missed. If nothing has changed, the epoch stays.
    async fn list_again(&self, followed: &mut Followed) -> Result<(), CallError> {
        let listing = self.api.list(None).await?;
        let revision = listing.revision;
        let fresh = Followed::new(listing, revision);
        if fresh.entries != followed.entries {
            *followed = fresh;
            self.publish(followed);
        }
        Ok(())
    }

    /// Applies the changes of one watch until it ends, or until this node is no member.
    async fn watch(&self, followed: &mut Followed) -> Result<(), CallError> {
        let request = self.api.watch_request(followed.revision + 1);
        let mut response = self.api.client.stream("/v3/watch", &request).await?;
        // A watch without changes is silent, and so is one whose connection is dead: it is opened
        // anew from time to time, which costs one request.
        let silence = Duration::from_secs(self.ttl_s * 3);
        let mut buffer: Vec<u8> = Vec::new();
        loop {
            let chunk = match timeout(silence, response.chunk()).await {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) | Err(_) => return Ok(()),
                Ok(Err(error)) => {
                    return Err(CallError::Unreachable(with_causes(&error)));
                }
            };
            buffer.extend_from_slice(&chunk);
            while let Some(end) = buffer.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                match self.api.read_watch(&line)? {
                    WatchMessage::Changes(changes) => {
                        if !changes.is_empty() {
                            followed.apply(changes);
                            self.publish(followed);
                        }
                    }
                    WatchMessage::Canceled => {
                        return Err(CallError::Answer {
                            code: 0,
                            message: "the watch was canceled".to_owned(),
                        });
                    }
                }
                if !self.is_member(followed) {
                    return Ok(());
                }
            }
            if buffer.len() > WATCH_BYTES_MAX {
                return Err(CallError::Answer {
                    code: 0,
                    message: "a watch's message is too long".to_owned(),
                });
            }
        }
    }

    /// Whether this node's key is its own.
    fn is_member(&self, followed: &Followed) -> bool {
        let own = followed.entries.get(&self.me.name);
        own.is_some_and(|own| own.as_ref() == Some(&self.entry))
    }

    /// Makes the members known, if this node is one of them. A key that holds no member, or one
    /// that may not be in the view, is skipped and said: it must not keep the others from each
    /// other.
    fn publish(&self, followed: &Followed) {
        if !self.is_member(followed) {
            return;
        }
        let mut wrong = BTreeSet::new();
        let mut members = Vec::new();
        for (name, entry) in &followed.entries {
            match entry {
                Some(entry) => members.push(Member {
                    name: name.clone(),
                    address: entry.address.clone(),
                }),
                None => {
                    wrong.insert(format!("the key of {name:?} holds no member"));
                }
            }
        }
        let epoch = u64::try_from(followed.revision).unwrap_or(0);
        let (view, errors) = View::of_sound(epoch, members);
        wrong.extend(errors.iter().map(ToString::to_string));
        for text in wrong.difference(&self.skipped.lock()) {
            tracing::warn!("a member in etcd is skipped: {text}");
        }
        *self.skipped.lock() = wrong;
        if view.member(self.me.id()).is_none() {
            return self.isolate("another member's name has the same hash".to_owned());
        }
        self.state.send_if_modified(|state| {
            let changed = state.view != view || state.standing != Standing::Member;
            state.view = view;
            state.standing = Standing::Member;
            state.source_reachable = true;
            changed
        });
    }

    fn isolate(&self, why: String) {
        self.state.send_if_modified(|state| {
            let standing = Standing::Isolated(why);
            let changed = state.standing != standing || !state.source_reachable;
            if state.standing != standing {
                tracing::warn!("this node is no member of the cluster: {standing:?}");
            }
            state.standing = standing;
            state.source_reachable = true;
            changed
        });
    }

    fn set_reachable(&self, reachable: bool, why: &str) {
        self.state.send_if_modified(|state| {
            let changed = state.source_reachable != reachable;
            if changed && reachable {
                tracing::info!("etcd answers again");
            } else if changed {
                tracing::warn!("etcd cannot be reached, the members stay as they are: {why}");
            }
            state.source_reachable = reachable;
            changed
        });
    }
}

impl Followed {
    fn new(listing: Listing, revision: i64) -> Followed {
        let entries = listing.members.into_iter();
        Followed {
            entries: entries.collect(),
            revision,
        }
    }

    fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            self.revision = self.revision.max(change.revision);
            match change.content {
                Content::Put(entry) => self.entries.insert(change.name, entry),
                Content::Deleted => self.entries.remove(&change.name),
            };
        }
    }
}
