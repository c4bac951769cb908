//! openraft's log storage over our log. Entries lie in the log as frames, told apart by the frame's
//! kind; the vote and the purge point lie in the log's vote file. Appends return when the frames are
//! readable and complete in order when they are durable; a failed flush completes nothing and ends
//! the process through the log's own hook.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, stream};
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{EntryPayload, LogState, OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use queen_log::{FrameIn, FrameOut, Log, LogError};

use super::codec::{Meta, decode_membership, encode_membership, log_id};
use super::types::{Entry, LogId, Payload, Peer, TypeConfig, Vote};
use crate::limits::READ_BYTES_MAX;
use crate::replicator::Signal;

/// Frame kinds.
const KIND_COMMANDS: u8 = 1;
const KIND_BLANK: u8 = 2;
const KIND_MEMBERSHIP: u8 = 3;

/// Log storage for openraft; clones share everything.
#[derive(Clone)]
pub struct LogStore {
    log: Arc<Log>,
    meta: Arc<Mutex<Meta>>,
}

fn io_error(error: LogError) -> io::Error {
    match error {
        LogError::Full { .. } => io::Error::new(io::ErrorKind::StorageFull, error.to_string()),
        other => io::Error::other(other.to_string()),
    }
}

/// What stands in for a lost vote file. A node that is alone can have voted for nobody but itself,
/// and not in a later term than that of its last entry, since it writes one at once.
fn without_vote(log: &Log) -> io::Result<Meta> {
    let Some((term, index)) = log.last() else {
        return Ok(Meta::default());
    };
    if log.first_index() > 1 {
        let first = log.first_index();
        return Err(io::Error::other(format!(
            "the file `vote` of the log is missing or empty, though the log holds entries {first} \
             to {index}; put it back"
        )));
    }
    tracing::warn!(
        term,
        "the file `vote` of the log is missing or empty; going on from the log"
    );
    Ok(Meta {
        vote: Some(Vote::new(term, LONE_NODE)),
        purged: None,
    })
}

/// A vote for nobody in particular: the next term is this node's own all the same.
const LONE_NODE: u64 = 0;

impl LogStore {
    /// Storage over an open log and the vote it was opened with. Only a node that is `alone` may go
    /// on without its vote: one with peers might vote twice in a term.
    pub fn new(log: Arc<Log>, vote: Option<&[u8]>, alone: bool) -> io::Result<LogStore> {
        let meta = match vote {
            Some(vote) => Meta::decode(vote)?,
            None if alone || log.last().is_none() => without_vote(&log)?,
            None => {
                return Err(io::Error::other(
                    "the file `vote` of the log is missing or empty; without it this node could \
                     vote twice in a term. Put it back, or empty the data directory, remove the \
                     node with `queen cluster remove` and add it again",
                ));
            }
        };
        Ok(LogStore {
            log,
            meta: Arc::new(Mutex::new(meta)),
        })
    }

    /// The newest entry that is gone for openraft.
    pub(super) fn purged(&self) -> Option<LogId> {
        self.meta.lock().purged
    }

    /// Takes entries up to `through` as purged: the log came from a peer and begins behind it.
    pub(super) async fn begins_behind(&self, through: LogId) -> io::Result<()> {
        self.save(|meta| meta.purged = meta.purged.max(Some(through)))
            .await
    }

    /// Keeps a changed vote or purge point; durable on return, after all appends before it.
    async fn save(&self, change: impl FnOnce(&mut Meta)) -> io::Result<()> {
        let meta = {
            let mut meta = *self.meta.lock();
            change(&mut meta);
            meta
        };
        let log = self.log.clone();
        let bytes = meta.encode();
        // Off the runtime: a slow disk must not hold back heartbeats.
        let saved = tokio::task::spawn_blocking(move || log.save_vote(&bytes));
        saved.await.map_err(io::Error::other)?.map_err(io_error)?;
        *self.meta.lock() = meta;
        Ok(())
    }

    /// First index that openraft may still see.
    fn begin(&self) -> u64 {
        let purged = self.meta.lock().purged.map_or(0, |id| id.index + 1);
        purged.max(self.log.first_index())
    }

    fn entries(&self, from: u64, to: u64, bytes_max: u64) -> io::Result<Vec<Entry>> {
        let from = from.max(self.begin());
        if from >= to {
            return Ok(Vec::new());
        }
        let frames = self.log.read_range(from, to, bytes_max).map_err(io_error)?;
        frames.into_iter().map(entry).collect()
    }
}

/// A frame as openraft's entry.
fn entry(frame: FrameOut) -> io::Result<Entry> {
    entry_of(frame.kind, frame.term, frame.index, frame.payload)
}

/// An entry of its kind and bytes, as the log and the wire hold it.
pub(super) fn entry_of(kind: u8, term: u64, index: u64, bytes: Bytes) -> io::Result<Entry> {
    let payload = match kind {
        KIND_COMMANDS => EntryPayload::Normal(Payload::stored(bytes)),
        KIND_BLANK => EntryPayload::Blank,
        KIND_MEMBERSHIP => EntryPayload::Membership(decode_membership(&bytes)?),
        kind => {
            let text = format!("entry {index} is of kind {kind}, which is newer");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
    };
    Ok(Entry {
        log_id: log_id(term, index),
        payload,
    })
}

/// The kind and bytes of an entry, and who is to be told when it is durable.
pub(super) fn parts_of(
    payload: EntryPayload<Payload, u64, Peer>,
) -> (u8, Vec<Bytes>, Option<Signal>) {
    match payload {
        EntryPayload::Blank => (KIND_BLANK, Vec::new(), None),
        EntryPayload::Membership(membership) => {
            (KIND_MEMBERSHIP, vec![encode_membership(&membership)], None)
        }
        EntryPayload::Normal(payload) => {
            let signal = payload.take_flushed();
            (KIND_COMMANDS, payload.parts, signal)
        }
    }
}

fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let from = match range.start_bound() {
        Bound::Included(from) => *from,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let to = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(to) => *to,
        Bound::Unbounded => u64::MAX,
    };
    (from, to)
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<Entry>> {
        let (from, to) = bounds(&range);
        self.entries(from, to, u64::MAX)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        self.entries(start, end, READ_BYTES_MAX as u64)
    }

    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = io::Result<Entry>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (from, to) = bounds(&range);
        let store = self.clone();
        let chunks = stream::unfold(Some(from.max(store.begin())), move |from| {
            let store = store.clone();
            async move {
                let from = from.filter(|from| *from < to)?;
                match store.entries(from, to, READ_BYTES_MAX as u64) {
                    Ok(entries) if entries.is_empty() => None,
                    Ok(entries) => {
                        let next = entries.last().map(|entry| entry.log_id.index + 1);
                        let items: Vec<_> = entries.into_iter().map(Ok).collect();
                        Some((items, next))
                    }
                    Err(error) => Some((vec![Err(error)], None)),
                }
            }
        });
        Box::pin(futures_util::StreamExt::flat_map(chunks, stream::iter))
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.meta.lock().vote)
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let purged = self.meta.lock().purged;
        let last = self.log.last().map(|(term, index)| log_id(term, index));
        Ok(LogState {
            last_purged_log_id: purged,
            last_log_id: last.max(purged),
        })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.save(|meta| meta.vote = Some(*vote)).await
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut signals = Vec::new();
        let mut frames = Vec::new();
        for Entry { log_id, payload } in entries {
            let (kind, payload, signal) = parts_of(payload);
            signals.extend(signal);
            let (term, index) = (log_id.leader_id.term, log_id.index);
            frames.push(FrameIn {
                kind,
                term,
                index,
                payload,
            });
        }
        let done = move |result: Result<(), LogError>| {
            // A failed flush has ended the node; nothing may be reported as durable.
            if result.is_ok() {
                callback.io_completed(Ok(()));
                signals.into_iter().for_each(|signal| signal.fire());
            }
        };
        self.log.append(frames, Box::new(done)).map_err(io_error)
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let log = self.log.clone();
        let cut = tokio::task::spawn_blocking(move || match last {
            Some(last) => log.truncate_after(last.index),
            None => log.reset_to(0),
        });
        cut.await.map_err(io::Error::other)?.map_err(io_error)
    }

    async fn purge(&mut self, through: LogId) -> io::Result<()> {
        // The purge point first: entries behind it may be gone, those before it never come back.
        self.save(|meta| meta.purged = meta.purged.max(Some(through)))
            .await?;
        let log = self.log.clone();
        let purged = tokio::task::spawn_blocking(move || {
            let behind = log.last().is_none_or(|(_, last)| last < through.index);
            match behind {
                true => log.reset_to(through.index + 1),
                false => log.purge_through(through.index).map(|_| ()),
            }
        });
        purged.await.map_err(io::Error::other)?.map_err(io_error)
    }
}
