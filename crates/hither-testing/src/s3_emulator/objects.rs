//! Buckets, objects, and uploads in parts.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

/// All that the server holds.
#[derive(Default)]
pub(super) struct Buckets {
    buckets: BTreeMap<String, BTreeMap<String, Object>>,
    uploads: BTreeMap<String, Upload>,
    uploads_begun: u64,
}

/// The headers of an object's user metadata.
pub(super) type Metadata = BTreeMap<String, String>;

#[derive(Default)]
struct Upload {
    parts: BTreeMap<u32, Bytes>,
    metadata: Metadata,
}

#[derive(Clone)]
pub(super) struct Object {
    pub(super) bytes: Bytes,
    pub(super) etag: String,
    pub(super) modified: SystemTime,
    pub(super) metadata: Metadata,
}

/// How long an object was there that no request has put.
const AGE: Duration = Duration::from_secs(3600);

impl Object {
    fn new(bytes: Bytes) -> Object {
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, &bytes).hash(&mut hasher);
            hasher.finish()
        };
        Object {
            etag: format!("\"{:016x}{:016x}\"", half(0), half(1)),
            modified: SystemTime::now() - AGE,
            metadata: Metadata::new(),
            bytes,
        }
    }
}

impl Buckets {
    pub(super) fn create(&mut self, bucket: &str) {
        self.buckets.entry(bucket.into()).or_default();
    }

    pub(super) fn has(&self, bucket: &str) -> bool {
        self.buckets.contains_key(bucket)
    }

    pub(super) fn objects(&self, bucket: &str) -> Option<&BTreeMap<String, Object>> {
        self.buckets.get(bucket)
    }

    pub(super) fn get(&self, bucket: &str, key: &str) -> Option<&Object> {
        self.buckets.get(bucket)?.get(key)
    }

    /// Gives the etag. The object was there for an hour.
    pub(super) fn put(&mut self, bucket: &str, key: &str, bytes: Bytes) -> Option<String> {
        self.insert(bucket, key, Object::new(bytes))
    }

    /// Gives the etag.
    pub(super) fn put_now(
        &mut self,
        bucket: &str,
        key: &str,
        (bytes, metadata): (Bytes, Metadata),
    ) -> Option<String> {
        let object = Object {
            modified: SystemTime::now(),
            metadata,
            ..Object::new(bytes)
        };
        self.insert(bucket, key, object)
    }

    fn insert(&mut self, bucket: &str, key: &str, object: Object) -> Option<String> {
        let etag = object.etag.clone();
        self.buckets.get_mut(bucket)?.insert(key.into(), object);
        Some(etag)
    }

    pub(super) fn remove(&mut self, bucket: &str, key: &str) {
        if let Some(objects) = self.buckets.get_mut(bucket) {
            objects.remove(key);
        }
    }

    /// Rewrites an object: as many bytes, all of them others.
    pub(super) fn change(&mut self, bucket: &str, key: &str) {
        if let Some(object) = self.get(bucket, key) {
            let bytes: Vec<u8> = object.bytes.iter().map(|byte| byte ^ 0x55).collect();
            self.put(bucket, key, bytes.into());
        }
    }

    /// Begins an upload and gives its identifier.
    pub(super) fn begin_upload(&mut self, metadata: Metadata) -> String {
        self.uploads_begun += 1;
        let id = format!("upload-{}", self.uploads_begun);
        let upload = Upload {
            metadata,
            ..Upload::default()
        };
        self.uploads.insert(id.clone(), upload);
        id
    }

    pub(super) fn put_part(&mut self, id: &str, number: u32, bytes: Bytes) -> Option<String> {
        let etag = Object::new(bytes.clone()).etag;
        self.uploads.get_mut(id)?.parts.insert(number, bytes);
        Some(etag)
    }

    /// Takes the parts of an upload out.
    pub(super) fn end_upload(&mut self, id: &str) -> Option<(Bytes, Metadata)> {
        let Upload { parts, metadata } = self.uploads.remove(id)?;
        let bytes = parts.into_values().collect::<Vec<_>>().concat();
        Some((bytes.into(), metadata))
    }

    pub(super) fn has_upload(&self, id: &str) -> bool {
        self.uploads.contains_key(id)
    }

    /// What a lifecycle rule does to uploads that are not completed.
    pub(super) fn abort_uploads(&mut self) {
        self.uploads.clear();
    }

    pub(super) fn open_uploads(&self) -> usize {
        self.uploads.len()
    }
}

/// Year, month, day, hour, minute, second and day of the week (0 is Thursday) of a time, in UTC.
pub(super) fn calendar(time: SystemTime) -> [u64; 7] {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap().as_secs();
    let days = seconds / 86_400;
    // Days in eras of 400 years from March 0000 on (Hinnant, "chrono-compatible date algorithms").
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    [year, month, day, hour, minute, second, days % 7]
}
