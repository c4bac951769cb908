//! openraft's state machine: hands entries to the apply thread and waits until they are applied.
//! A snapshot on disk only names an entry and carries no bytes: a state is of no use without the
//! records it points to, which lie in the log, so a node that lacks too much gets the log's files
//! ([`crate::catch_up`]). What openraft is told to have as a snapshot decides two things:
//!
//! * what it may let go of: the snapshot it builds is the newest state image;
//! * where it goes on with a node that has fetched the files: the one it sends is the entry before
//!   the first it still has, which that node then certainly holds, however many images were written
//!   while it fetched.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine, Snapshot};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};

use super::codec::{decode_membership, encode_membership, log_id};
use super::log_store::LogStore;
use super::types::{Applied, LogId, SnapshotMeta, StoredMembership, TypeConfig};
use crate::apply::{Applier, Committed, Reply};
use crate::checkpoint::{ImageFigures, ImagePlace, image};
use crate::replicator::{Content, Position};

/// The state machine as openraft sees it.
pub struct Machine {
    applier: Applier,
    /// Absent for a machine without a disk, whose snapshots carry the state.
    disk: Option<(Arc<ImageFigures>, LogStore)>,
    /// The snapshot taken or installed last, without a disk.
    current: Option<(SnapshotMeta, Bytes)>,
}

impl Machine {
    /// A machine on the apply thread's state, the images of it and the log they stand for.
    pub fn new(applier: Applier, disk: Option<(Arc<ImageFigures>, LogStore)>) -> Machine {
        Machine {
            applier,
            disk,
            current: None,
        }
    }

    fn meta(&self) -> io::Result<SnapshotMeta> {
        let (last_log_id, last_membership) = self.read_applied()?;
        Ok(SnapshotMeta {
            last_log_id,
            last_membership,
        })
    }

    fn read_applied(&self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let state = self.applier.state().read();
        let id = |at: Position| log_id(at.term, at.index);
        let membership = match &state.membership {
            Some((at, bytes)) => StoredMembership::new(Some(id(*at)), decode_membership(bytes)?),
            None => StoredMembership::default(),
        };
        Ok((state.applied.map(id), membership))
    }
}

/// The snapshot that stands for the newest state image.
fn newest_image(images: &ImageFigures) -> io::Result<Option<SnapshotMeta>> {
    let Some(ImagePlace { at, membership }) = images.place() else {
        return Ok(None);
    };
    let last_membership = match membership {
        Some((at, bytes)) => {
            StoredMembership::new(Some(log_id(at.term, at.index)), decode_membership(&bytes)?)
        }
        None => StoredMembership::default(),
    };
    Ok(Some(SnapshotMeta {
        last_log_id: Some(log_id(at.term, at.index)),
        last_membership,
    }))
}

fn ended<E: std::error::Error + Send + Sync + 'static>(error: E) -> io::Error {
    io::Error::other(error)
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = Bytes;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        self.read_applied()
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let at = Position {
                term: entry.log_id.leader_id.term,
                index: entry.log_id.index,
            };
            let content = match entry.payload {
                EntryPayload::Normal(payload) => Content::Commands(payload.whole()),
                EntryPayload::Blank => Content::Blank,
                EntryPayload::Membership(membership) => {
                    Content::Membership(encode_membership(&membership))
                }
            };
            let reply = responder.map(|responder| -> Reply {
                Box::new(move |outcomes| responder.send(Applied(outcomes)))
            });
            self.applier
                .apply(Committed { at, content, reply })
                .await
                .map_err(ended)?;
        }
        self.applier.reached().await.map_err(ended)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        if let Some((images, _)) = &self.disk {
            let none = || io::Error::other("there is no state image yet");
            let newest = newest_image(images).and_then(|newest| newest.ok_or_else(none));
            let taken = newest.map(|meta| (meta, Bytes::new()));
            return Builder { taken };
        }
        let taken = self.meta().map(|meta| {
            let bytes = image::encode(&self.applier.state().read());
            (meta, bytes)
        });
        if let Ok(taken) = &taken {
            self.current = Some(taken.clone());
        }
        Builder { taken }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, bytes: Bytes) -> io::Result<()> {
        if self.disk.is_some() {
            return Err(io::Error::other("a state without its records is of no use"));
        }
        let mut state = image::decode(bytes.clone()).map_err(ended)?;
        // What openraft says of the snapshot holds, even for an image of nothing.
        let at = |id: LogId| Position {
            term: id.leader_id.term,
            index: id.index,
        };
        state.applied = meta.last_log_id.map(at);
        state.membership = meta
            .last_membership
            .log_id()
            .map(|id| (at(id), encode_membership(meta.last_membership.membership())));
        self.applier.replace(state).await.map_err(ended)?;
        self.current = Some((meta.clone(), bytes));
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> io::Result<Option<openraft::type_config::alias::SnapshotOf<TypeConfig, Bytes>>> {
        let Some((images, store)) = &self.disk else {
            let current = self.current.clone();
            return Ok(current.map(|(meta, snapshot)| Snapshot { meta, snapshot }));
        };
        let meta = match store.purged() {
            Some(purged) => Some(SnapshotMeta {
                last_log_id: Some(purged),
                // Who receives it has the membership from the files.
                last_membership: StoredMembership::default(),
            }),
            None => newest_image(images)?,
        };
        let snapshot = Bytes::new();
        Ok(meta.map(|meta| Snapshot { meta, snapshot }))
    }
}

/// A snapshot that was taken when the builder was asked for.
pub struct Builder {
    taken: io::Result<(SnapshotMeta, Bytes)>,
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    type SnapshotData = Bytes;

    async fn build_snapshot(
        &mut self,
    ) -> io::Result<openraft::type_config::alias::SnapshotOf<TypeConfig, Bytes>> {
        match &self.taken {
            Ok((meta, snapshot)) => Ok(Snapshot {
                meta: meta.clone(),
                snapshot: snapshot.clone(),
            }),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        }
    }
}
