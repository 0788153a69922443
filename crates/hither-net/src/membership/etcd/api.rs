//! The few calls of etcd's interface that a membership needs, as JSON.
//!
//! The gateway writes 64-bit numbers as strings and leaves out what is zero or false; keys and
//! values are in base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::client::Client;
use super::error::CallError;

/// What stands in a member's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Where the member listens.
    pub(super) address: String,
    /// Tells a restarted node from a second one of its name.
    pub(super) instance: String,
}

/// A member's key as it is in etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) entry: Entry,
    pub(super) lease: i64,
}

/// The result of an attempt to create this node's key.
pub(super) enum Created {
    /// It was created, in this revision.
    New(i64),
    /// It is there already.
    Held(Held),
}

/// The members in one revision.
pub(super) struct Listing {
    /// Their names and what stands in their keys; `None`: nothing that is a member.
    pub(super) members: Vec<(String, Option<Entry>)>,
    /// The revision of etcd when it answered.
    pub(super) revision: i64,
}

/// A change of one key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) name: String,
    pub(super) content: Content,
    pub(super) revision: i64,
}

/// What a key holds after a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// An entry; `None`: something that is no member.
    Put(Option<Entry>),
    /// The key is gone.
    Deleted,
}

/// A message of a watch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WatchMessage {
    /// The changes of one revision or several, in their order.
    Changes(Vec<Change>),
    /// The watch has ended: the revisions that it should have started with are gone.
    Canceled,
}

/// The calls, for the keys under one prefix.
pub(super) struct Api {
    pub(super) client: Client,
    prefix: String,
}

impl Api {
    pub(super) fn new(client: Client, cluster: &str) -> Api {
        Api {
            client,
            prefix: format!("/hither/{cluster}/members/"),
        }
    }

    /// Asks for a lease of `ttl_s` seconds.
    pub(super) async fn grant(&self, ttl_s: u64) -> Result<i64, CallError> {
        let answer = self
            .client
            .call("/v3/lease/grant", &json!({ "TTL": ttl_s }))
            .await?;
        match int(&answer["ID"]) {
            0 => Err(malformed("a lease without an id")),
            id => Ok(id),
        }
    }

    /// Renews a lease. False if it is gone.
    pub(super) async fn keep_alive(&self, lease: i64) -> Result<bool, CallError> {
        let body = json!({ "ID": lease.to_string() });
        let answer = self.client.call("/v3/lease/keepalive", &body).await?;
        Ok(int(&answer["result"]["TTL"]) > 0)
    }

    /// The seconds that are left of a lease, or none if it is gone.
    pub(super) async fn left_s(&self, lease: i64) -> Result<Option<i64>, CallError> {
        let body = json!({ "ID": lease.to_string() });
        let answer = self.client.call("/v3/lease/timetolive", &body).await?;
        Ok(Some(int(&answer["TTL"])).filter(|&left_s| left_s > 0))
    }

    /// Ends a lease, and with it deletes its key.
    pub(super) async fn revoke(&self, lease: i64) -> Result<(), CallError> {
        let body = json!({ "ID": lease.to_string() });
        self.client.call("/v3/lease/revoke", &body).await.map(drop)
    }

    /// Creates the key of the member called `name`, unless it is there.
    pub(super) async fn create(
        &self,
        name: &str,
        entry: &Entry,
        lease: i64,
    ) -> Result<Created, CallError> {
        let key = encode(format!("{}{name}", self.prefix).as_bytes());
        let value = encode(serde_json::to_string(entry).expect("plain text").as_bytes());
        let body = json!({
            "compare": [{
                "key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0",
            }],
            "success": [{
                "request_put": { "key": key, "value": value, "lease": lease.to_string() },
            }],
            "failure": [{ "request_range": { "key": key } }],
        });
        let answer = self.client.call("/v3/kv/txn", &body).await?;
        if answer["succeeded"] == true {
            return Ok(Created::New(int(&answer["header"]["revision"])));
        }
        let held = &answer["responses"][0]["response_range"]["kvs"][0];
        match entry_of(held) {
            Some(entry) => Ok(Created::Held(Held {
                entry,
                lease: int(&held["lease"]),
            })),
            None => Err(CallError::Answer {
                code: 0,
                message: format!(
                    "the key {}{name} is there already and holds no member: delete it",
                    self.prefix
                ),
            }),
        }
    }

    /// Lists the members in `revision`, or in the latest one.
    pub(super) async fn list(&self, revision: Option<i64>) -> Result<Listing, CallError> {
        let body = json!({
            "key": encode(self.prefix.as_bytes()),
            "range_end": self.range_end(),
            "revision": revision.unwrap_or(0).to_string(),
        });
        let answer = self.client.call("/v3/kv/range", &body).await?;
        let none = Vec::new();
        let found = answer["kvs"].as_array().unwrap_or(&none);
        let members = found
            .iter()
            .filter_map(|found| Some((self.name_of(found)?, entry_of(found))));
        Ok(Listing {
            members: members.collect(),
            revision: int(&answer["header"]["revision"]),
        })
    }

    /// The request that watches the members from `revision` on.
    pub(super) fn watch_request(&self, revision: i64) -> Value {
        json!({ "create_request": {
            "key": encode(self.prefix.as_bytes()),
            "range_end": self.range_end(),
            "start_revision": revision.to_string(),
        }})
    }

    /// Reads one message of a watch.
    pub(super) fn read_watch(&self, line: &[u8]) -> Result<WatchMessage, CallError> {
        let message: Value =
            serde_json::from_slice(line).map_err(|_| malformed("a watch with no JSON"))?;
        let result = &message["result"];
        if result["canceled"] == true || result.is_null() {
            return Ok(WatchMessage::Canceled);
        }
        let none = Vec::new();
        let events = result["events"].as_array().unwrap_or(&none);
        let changes = events.iter().filter_map(|event| {
            Some(Change {
                name: self.name_of(&event["kv"])?,
                content: if event["type"] == "DELETE" {
                    Content::Deleted
                } else {
                    Content::Put(entry_of(&event["kv"]))
                },
                revision: int(&event["kv"]["mod_revision"]),
            })
        });
        Ok(WatchMessage::Changes(changes.collect()))
    }

    /// The end of the range of keys that start with the prefix.
    fn range_end(&self) -> String {
        let mut end = self.prefix.clone().into_bytes();
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        encode(&end)
    }

    /// What follows the prefix in a key. One that is no text is no member's name either way.
    fn name_of(&self, found: &Value) -> Option<String> {
        let key = decode(&found["key"])?;
        let name = key.strip_prefix(self.prefix.as_bytes())?;
        Some(String::from_utf8_lossy(name).into_owned())
    }
}

fn entry_of(found: &Value) -> Option<Entry> {
    serde_json::from_slice(&decode(&found["value"])?).ok()
}

fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn decode(text: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(text.as_str()?).ok()
}

/// A number, which the gateway writes as a string.
fn int(value: &Value) -> i64 {
    let text = value.as_str().and_then(|text| text.parse().ok());
    text.or(value.as_i64()).unwrap_or(0)
}

fn malformed(what: &str) -> CallError {
    CallError::Answer {
        code: 0,
        message: format!("it answered with {what}"),
    }
}
