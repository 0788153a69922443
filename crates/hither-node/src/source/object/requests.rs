//! Requests under conditions, with the mark of a write.

use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, CopyOptions, MultipartId, ObjectStore, ObjectStoreExt, PutMode,
    PutOptions, PutPayload, PutResult,
};

use super::conditions::Condition;
use super::store::Store;
use super::versions::MARK;

/// What an object says of the write that has stored it.
pub(super) fn marked(mark: &str) -> Attributes {
    Attributes::from_iter([(Attribute::Metadata(MARK.into()), mark.to_owned())])
}

/// Requests under a condition. It holds for what is at the key that changes.
impl Store {
    /// Stores an object as a whole.
    pub(super) async fn put_if(
        &self,
        key: &Path,
        payload: PutPayload,
        mark: &str,
        condition: Condition,
    ) -> object_store::Result<PutResult> {
        let options = PutOptions {
            mode: match condition {
                Condition::None => PutMode::Overwrite,
                Condition::Nothing => PutMode::Create,
                Condition::Same(version) => PutMode::Update(version),
            },
            attributes: marked(mark),
            ..PutOptions::default()
        };
        self.objects.put_opts(key, payload, options).await
    }

    /// Makes an object of its parts.
    pub(super) async fn complete_if(
        &self,
        parts: &dyn MultipartStore,
        key: &Path,
        id: &MultipartId,
        sent: Vec<PartId>,
        condition: Condition,
    ) -> object_store::Result<PutResult> {
        match self.conditions.client(None, &condition) {
            Some(client) => client.complete_multipart(key, id, sent).await,
            None => parts.complete_multipart(key, id, sent).await,
        }
    }

    /// Removes an object.
    pub(super) async fn delete_if(
        &self,
        key: &Path,
        condition: Condition,
    ) -> object_store::Result<()> {
        match self.conditions.client(None, &condition) {
            Some(client) => client.delete(key).await,
            None => self.objects.delete(key).await,
        }
    }

    /// Copies an object, if `source` holds of it.
    pub(super) async fn copy_if(
        &self,
        from: &Path,
        to: &Path,
        source: Condition,
        target: Condition,
    ) -> object_store::Result<()> {
        match self.conditions.client(Some(&source), &target) {
            Some(client) => client.copy_opts(from, to, CopyOptions::new()).await,
            None => self.objects.copy_opts(from, to, CopyOptions::new()).await,
        }
    }
}
