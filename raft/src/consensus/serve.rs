//! What consensus answers to peers.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use openraft::ReadPolicy;
use openraft::async_runtime::WatchReceiver;
use openraft::raft::TransferLeaderResponse;
use parking_lot::Mutex;
use queen_engine::port::BoxFuture;
use tokio::sync::mpsc;

use super::types::TypeConfig;
use super::{OurRaft, rpc};
use crate::cluster::kind;
use crate::replicator::Position;

/// Consensus as its peers call it.
#[derive(Clone)]
pub struct Served {
    pub raft: OurRaft,
    pub heard: Arc<Heard>,
}

/// What a follower was told of how far the log is committed.
#[derive(Default)]
pub struct Heard(Mutex<Option<Told>>);

/// The first and the last that was told since this node started.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// When the leader was heard last.
    pub at: Instant,
    /// Commit index as it was told first.
    pub first: u64,
    /// Commit index as it was told last.
    pub last: u64,
}

impl Heard {
    fn note(&self, commit: Option<u64>) {
        let commit = commit.unwrap_or(0);
        let mut heard = self.0.lock();
        *heard = Some(Told {
            at: Instant::now(),
            first: heard.map_or(commit, |told| told.first),
            last: heard.map_or(commit, |told| told.last.max(commit)),
        });
    }

    /// What was told; `None` as long as no leader was heard.
    pub fn told(&self) -> Option<Told> {
        *self.0.lock()
    }
}

impl Served {
    /// The newest entry consensus has let go of.
    pub fn purged(&self) -> Option<Position> {
        let metrics = self.raft.data_metrics();
        let purged = metrics.borrow_watched().purged?;
        Some(Position {
            term: purged.leader_id.term,
            index: purged.index,
        })
    }

    /// Makes sure with a majority that this node leads now.
    pub async fn surely_leads(&self) -> io::Result<()> {
        match self.raft.get_read_linearizer(ReadPolicy::ReadIndex).await {
            Ok(_) => Ok(()),
            Err(error) => Err(io::Error::other(format!("not the leader: {error}"))),
        }
    }

    /// Reads which entry a leader wants this node to hold.
    pub fn wanted(body: Bytes) -> io::Result<Option<Position>> {
        rpc::get_wanted(body)
    }

    /// Says whether it does.
    pub fn has(has: bool) -> Vec<Bytes> {
        rpc::put_has(has)
    }

    /// Answers one question; `None` when it is not for consensus.
    pub fn answer(&self, kind: u8, body: Bytes) -> Option<BoxFuture<io::Result<Vec<Bytes>>>> {
        let served = self.clone();
        let raft = self.raft.clone();
        Some(match kind {
            kind::APPEND => Box::pin(async move {
                let append = rpc::get_append(body)?;
                let commit = append.leader_commit.map(|id| id.index);
                let answer = raft
                    .append_entries(append)
                    .await
                    .map_err(io::Error::other)?;
                if answer.is_success() {
                    served.heard.note(commit);
                }
                Ok(rpc::put_appended(&answer))
            }),
            kind::VOTE => Box::pin(async move {
                let request = rpc::get_vote_request(body)?;
                let answer = raft.vote(request).await.map_err(io::Error::other)?;
                Ok(rpc::put_vote_response(&answer))
            }),
            kind::PRE_VOTE => Box::pin(async move {
                let request = rpc::get_vote_request(body)?;
                let answer = raft.pre_vote(request).await.map_err(io::Error::other)?;
                Ok(rpc::put_vote_response(&answer))
            }),
            kind::TRANSFER => Box::pin(async move {
                let request = rpc::get_transfer(body)?;
                let answer: TransferLeaderResponse<TypeConfig> = raft
                    .handle_transfer_leader(request)
                    .await
                    .map_err(io::Error::other)?;
                answer.map_err(io::Error::other)?;
                Ok(Vec::new())
            }),
            _ => return None,
        })
    }

    /// Carries out a session of appends.
    pub fn appends(
        &self,
        mut requests: mpsc::Receiver<Bytes>,
        answers: mpsc::Sender<Vec<Bytes>>,
    ) -> BoxFuture<()> {
        let served = self.clone();
        Box::pin(async move {
            let heard = served.heard.clone();
            let appends = stream::poll_fn(move |context| {
                requests.poll_recv(context).map(|body| {
                    // A message that cannot be read ends the session.
                    let append = rpc::get_append(body?).ok()?;
                    heard.note(append.leader_commit.map(|id| id.index));
                    Some(append)
                })
            });
            let results = served.raft.stream_append(appends);
            let mut results = std::pin::pin!(results);
            while let Some(Ok(result)) = results.next().await {
                if answers.send(rpc::put_streamed(&result)).await.is_err() {
                    return;
                }
            }
        })
    }
}
