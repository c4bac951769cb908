//! openraft's calls to peers, over our links: appends pipelined on the bulk connection, heartbeats
//! and votes on the fast one. openraft sets no bound on a stuck stream, so each answer has one here.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, FuturesOrdered};
use futures_util::{Stream, StreamExt};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendResult,
    TransferLeaderRequest, TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::type_config::alias::{SnapshotOf, VoteOf};
use queen_engine::port::BoxFuture;

use super::rpc;
use super::types::{Peer, TypeConfig};
use crate::cluster::handshake::Purpose;
use crate::cluster::link::Link;
use crate::cluster::wire::Frame;
use crate::cluster::{Links, kind};

/// Appends on their way to one follower.
const PIPELINE: usize = 16;
/// How long an append may take at least: 4 MiB over a slow line, and a slow disk behind it.
const APPEND_PATIENCE: Duration = Duration::from_secs(5);
/// How long a vote or a heartbeat may take.
const FAST_PATIENCE: Duration = Duration::from_secs(1);

type Failed = RPCError<TypeConfig>;
type Streamed = Result<StreamAppendResult<TypeConfig>, Failed>;
type Answers<'s> = futures_util::stream::BoxStream<'s, Streamed>;

/// Makes openraft's clients.
pub struct Peers {
    /// Absent for a node that is alone, which has nobody to call.
    pub links: Option<Arc<Links>>,
}

/// openraft's client of one peer.
pub struct Client {
    /// The link for votes, and the one for appends: the bulk link, or the fast one for heartbeats.
    links: Option<(Arc<Link>, Arc<Link>)>,
    patience: Duration,
}

impl Peers {
    fn client(&self, target: u64, heartbeats: bool) -> Client {
        let target = i32::try_from(target).unwrap_or(i32::MAX);
        let (purpose, patience) = match heartbeats {
            true => (Purpose::Fast, FAST_PATIENCE),
            false => (Purpose::Bulk, APPEND_PATIENCE),
        };
        let links = self.links.as_ref().map(|links| {
            let fast = links.get(target, Purpose::Fast);
            (fast, links.get(target, purpose))
        });
        Client { links, patience }
    }
}

impl Client {
    fn fast(&self) -> Result<&Link, Failed> {
        self.links
            .as_ref()
            .map(|(fast, _)| &**fast)
            .ok_or_else(alone)
    }

    fn appends(&self) -> Result<&Arc<Link>, Failed> {
        self.links
            .as_ref()
            .map(|(_, appends)| appends)
            .ok_or_else(alone)
    }
}

fn alone() -> Failed {
    failed(io::Error::new(
        io::ErrorKind::NotConnected,
        "this node has no peers",
    ))
}

impl RaftNetworkFactory<TypeConfig> for Peers {
    type Network = Client;

    async fn new_client(&mut self, target: u64, _node: &Peer) -> Client {
        self.client(target, false)
    }

    async fn new_heartbeat_client(&mut self, target: u64, _node: &Peer) -> Client {
        self.client(target, true)
    }
}

fn failed(error: io::Error) -> Failed {
    match error.kind() {
        // Answered, or not answered in time: worth another try at once.
        io::ErrorKind::TimedOut | io::ErrorKind::InvalidData | io::ErrorKind::Other => {
            RPCError::Network(NetworkError::new(&error))
        }
        _ => RPCError::Unreachable(Unreachable::new(&error)),
    }
}

/// The body of an answer, or the error it tells.
fn said(frame: Frame) -> io::Result<Bytes> {
    match frame.kind {
        kind::ERROR => {
            let text = String::from_utf8_lossy(&frame.whole()).into_owned();
            Err(io::Error::other(text))
        }
        _ => Ok(frame.whole()),
    }
}

async fn ask(link: &Link, kind: u8, body: Vec<Bytes>, within: Duration) -> Result<Bytes, Failed> {
    let asked = async { said(link.send(kind, body).await?.answer().await?) };
    match tokio::time::timeout(within, asked).await {
        Ok(answer) => answer.map_err(failed),
        Err(_) => {
            link.drop_live();
            Err(failed(io::ErrorKind::TimedOut.into()))
        }
    }
}

/// A session of appends.
struct Pipeline<S> {
    link: Arc<Link>,
    session: Bytes,
    patience: Duration,
    requests: S,
    ended: bool,
    flying: FuturesOrdered<BoxFuture<io::Result<Bytes>>>,
}

impl<S> Pipeline<S>
where
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Unpin,
{
    /// The next answer; sends on while there is room.
    async fn next(mut self) -> Option<(Streamed, Option<Self>)> {
        loop {
            let room = !self.ended && self.flying.len() < PIPELINE;
            if !room && self.flying.is_empty() {
                return None;
            }
            tokio::select! {
                biased;
                Some(answer) = self.flying.next(), if !self.flying.is_empty() => {
                    return Some(match answer.and_then(rpc::get_streamed) {
                        Ok(result) => {
                            let goes_on = result.is_ok().then_some(self);
                            (Ok(result), goes_on)
                        }
                        Err(error) => {
                            if error.kind() == io::ErrorKind::TimedOut {
                                self.link.drop_live();
                            }
                            (Err(failed(error)), None)
                        }
                    });
                }
                request = self.requests.next(), if room => match request {
                    None => self.ended = true,
                    Some(request) => {
                        let mut body = vec![self.session.clone()];
                        body.extend(rpc::put_append(request));
                        let sent = tokio::time::timeout(
                            self.patience,
                            self.link.send(kind::STREAM, body),
                        );
                        let question = match sent.await {
                            Ok(Ok(question)) => question,
                            Ok(Err(error)) => return Some((Err(failed(error)), None)),
                            Err(_) => {
                                self.link.drop_live();
                                let error = io::ErrorKind::TimedOut.into();
                                return Some((Err(failed(error)), None));
                            }
                        };
                        let patience = self.patience;
                        self.flying.push_back(Box::pin(async move {
                            match tokio::time::timeout(patience, question.answer()).await {
                                Ok(frame) => said(frame?),
                                Err(_) => Err(io::ErrorKind::TimedOut.into()),
                            }
                        }));
                    }
                }
            }
        }
    }
}

impl RaftNetworkV2<TypeConfig> for Client {
    type SnapshotData = Bytes;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, Failed> {
        let body = rpc::put_append(rpc);
        let answer = ask(self.appends()?, kind::APPEND, body, self.patience).await?;
        rpc::get_appended(answer).map_err(failed)
    }

    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        _option: RPCOption,
    ) -> futures_util::future::BoxFuture<'s, Result<Answers<'s>, Failed>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'static,
    {
        let link = match self.appends() {
            Ok(link) => link.clone(),
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let pipeline = Pipeline {
            link,
            session: Bytes::copy_from_slice(&rand::random::<u64>().to_le_bytes()),
            patience: self.patience,
            requests: input,
            ended: false,
            flying: FuturesOrdered::new(),
        };
        let answers = stream::unfold(
            Some(pipeline),
            |pipeline| async move { pipeline?.next().await },
        );
        Box::pin(std::future::ready(Ok(answers.boxed())))
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, Failed> {
        let body = rpc::put_vote_request(&rpc);
        let answer = ask(self.fast()?, kind::VOTE, body, FAST_PATIENCE).await?;
        rpc::get_vote_response(answer).map_err(failed)
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, Failed> {
        let body = rpc::put_vote_request(&rpc);
        let answer = ask(self.fast()?, kind::PRE_VOTE, body, FAST_PATIENCE).await?;
        rpc::get_vote_response(answer).map_err(failed)
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, Failed> {
        let body = rpc::put_transfer(&request);
        ask(self.fast()?, kind::TRANSFER, body, FAST_PATIENCE).await?;
        Ok(Ok(()))
    }

    /// The state alone is of no use without the records it points to: the follower is told to fetch
    /// the log's files and to start again with them, and until it has, openraft hears that it cannot
    /// be reached and asks again in a while. When the follower holds the entry that the snapshot
    /// names, as part of a log that was committed, it holds everything before it as well: openraft
    /// goes on behind it.
    async fn full_snapshot(
        &mut self,
        vote: VoteOf<TypeConfig>,
        snapshot: SnapshotOf<TypeConfig, Bytes>,
        _cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let unreachable =
            |text: String| StreamingError::Unreachable(Unreachable::from_string(text));
        let fast = self
            .fast()
            .map_err(|_| unreachable("this node has no peers".to_string()))?;
        let body = rpc::put_wanted(snapshot.meta.last_log_id.as_ref());
        let answer = ask(fast, kind::INSTALL, body, FAST_PATIENCE).await;
        match answer.map(rpc::get_has) {
            Ok(Ok(true)) => Ok(SnapshotResponse::new(vote)),
            Ok(Ok(false)) => Err(unreachable("it fetches the files of the log".to_string())),
            Ok(Err(error)) => Err(unreachable(error.to_string())),
            Err(error) => Err(unreachable(error.to_string())),
        }
    }
}
