//! Consensus by openraft, and the only place that knows it: types of openraft end here. Wires the
//! log storage, the state machine and the network together and offers them as a
//! [`Replicator`]. Everything of openraft runs on the runtime [`start`] is called on.

mod codec;
mod log_store;
mod members;
mod network;
mod rpc;
mod serve;
mod state_machine;
mod types;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use openraft::Instant as _;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{
    ClientWriteError, ForwardReason, ForwardToLeader, LinearizableReadError, RaftError,
};
use openraft::{Config, Raft, ReadPolicy, SnapshotPolicy};
use parking_lot::{Mutex, RwLock};
use queen_engine::cluster::{ClusterChange, ClusterRefusal};
use queen_engine::ids::BatchRef;
use queen_engine::port::{BoxFuture, Failure};
use queen_log::{Log, LogError};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::apply::Applier;
use crate::checkpoint::ImageFigures;
use crate::cluster::{HEARD_LATELY, Links};
use crate::error::{Fatal, StartError};
use crate::identity::Identity;
use crate::replicator::{
    GroupId, Member, Position, Proposal, Refusal, Replicator, Role, Ticket, Verdict,
};

pub use log_store::LogStore;
pub use serve::Served;
pub use state_machine::Machine;
pub use types::{Callback, Peer, TypeConfig};

use types::{Applied, Membership, Payload};

/// Entries a follower may lack of what it was told is committed, and still count as keeping up.
const LAG_MAX: u64 = 1024;

type OurRaft = Raft<TypeConfig, Machine>;
type WriteResult = openraft::raft::ClientWriteResult<TypeConfig>;

/// A Raft group of openraft over the log on disk.
pub struct Consensus {
    group: GroupId,
    raft: OurRaft,
    /// Absent once it has stopped: the log must not outlive its node.
    log: RwLock<Option<Arc<Log>>>,
    roles: watch::Receiver<Role>,
    follow: Mutex<Option<JoinHandle<()>>>,
    /// It was told to stop.
    stopping: Arc<AtomicBool>,
    served: Served,
    id: u64,
    /// Absent for a node without peers.
    links: Option<Arc<Links>>,
    /// Held by a change of the members.
    changing: Arc<tokio::sync::Mutex<()>>,
}

/// What consensus starts from.
pub struct Foundation {
    pub log: Arc<Log>,
    /// The vote the log was opened with.
    pub vote: Option<Bytes>,
    pub applier: Applier,
    pub images: Arc<ImageFigures>,
    pub identity: Identity,
    /// Whether what is acknowledged is on disk.
    pub fsync: bool,
    /// The way to the peers; absent for a node that is alone.
    pub links: Option<Arc<Links>>,
    /// Where a log begins that came from a peer: what that one had purged.
    pub begins_behind: Option<Position>,
    /// Called when openraft ends by itself.
    pub fatal: Fatal,
}

/// openraft.md section 5 and engine.md 3.5 say why.
fn config(cluster: String, fsync: bool) -> Config {
    Config {
        cluster_name: cluster,
        heartbeat_interval: 150,
        election_timeout_min: 600,
        election_timeout_max: 1200,
        max_payload_entries: 64,
        snapshot_policy: SnapshotPolicy::Never,
        enable_pre_vote: Some(true),
        // What may go is decided in `reclaim.rs`.
        max_in_snapshot_log_to_keep: u64::MAX,
        enable_leader_restore: Some(false),
        // A follower that lost what it had acknowledged would end the leader otherwise; with fsync
        // that cannot be, without it a power cut is enough.
        allow_log_reversion: Some(!fsync),
        // At least the lease (an election time-out) plus the longest election time-out.
        quorum_loss_probe_interval: Some(2400),
        ..Config::default()
    }
}

/// Starts to take part in the group; forms a group of one when this node never was in any.
pub async fn start(foundation: Foundation) -> Result<Arc<Consensus>, StartError> {
    let Foundation {
        log,
        vote,
        applier,
        images,
        identity,
        fsync,
        links,
        begins_behind,
        fatal,
    } = foundation;
    let fail = |error: &dyn std::fmt::Display| StartError::Consensus(error.to_string());
    let alone = links.is_none();
    let store = LogStore::new(log.clone(), vote.as_deref(), alone).map_err(|error| fail(&error))?;
    if let Some(Position { term, index }) = begins_behind {
        let through = codec::log_id(term, index);
        let begun = store.begins_behind(through).await;
        begun.map_err(|error| fail(&error))?;
    }
    let machine = Machine::new(applier, Some((images, store.clone())));
    // The name is compared by nobody: connections are judged before openraft hears of them.
    let config = config("queen".to_string(), fsync)
        .validate()
        .map_err(|error| fail(&error))?;
    let id = u64::from(identity.node_id.unsigned_abs());
    let raft = Raft::new(
        id,
        Arc::new(config),
        network::Peers {
            links: links.clone(),
        },
        store,
        machine,
    )
    .await
    .map_err(|error| fail(&error))?;
    if alone && !raft.is_initialized().await.map_err(|error| fail(&error))? {
        let peer = Peer {
            address: String::new(),
            generation: identity.generation,
        };
        let members = BTreeMap::from([(id, peer)]);
        raft.initialize(members)
            .await
            .map_err(|error| fail(&error))?;
    }
    check_members(&raft, id, identity.generation, alone)?;
    if is_sole_voter(&raft, id) {
        // Nobody else can lead: no need to wait for an election time-out.
        raft.trigger()
            .elect(false)
            .await
            .map_err(|error| fail(&error))?;
    }
    let stopping = Arc::new(AtomicBool::new(false));
    let (sender, roles) = watch::channel(Role::default());
    let follow = tokio::spawn(follow(
        raft.clone(),
        sender,
        stopping.clone(),
        fatal,
        links.clone(),
    ));
    let served = Served {
        raft: raft.clone(),
        heard: Arc::default(),
    };
    let group = GroupId(identity.group);
    let follow = Mutex::new(Some(follow));
    let log = RwLock::new(Some(log));
    Ok(Arc::new(Consensus {
        group,
        raft,
        log,
        roles,
        follow,
        stopping,
        served,
        id,
        links,
        changing: Arc::default(),
    }))
}

fn is_sole_voter(raft: &OurRaft, id: u64) -> bool {
    let mut voters = raft.voter_ids();
    voters.next() == Some(id) && voters.next().is_none()
}

/// The members of a membership.
fn members_of(membership: &Membership) -> Vec<Member> {
    let voters: Vec<u64> = membership.voter_ids().collect();
    let member = |(id, peer): (&u64, &Peer)| {
        Some(Member {
            id: i32::try_from(*id).ok()?,
            address: peer.address.clone(),
            generation: peer.generation,
            voter: voters.contains(id),
        })
    };
    membership.nodes().filter_map(member).collect()
}

/// Refuses to start in a group that this node cannot speak to, or under a name that another data
/// directory holds.
fn check_members(raft: &OurRaft, id: u64, generation: u64, alone: bool) -> Result<(), StartError> {
    let metrics = raft.server_metrics();
    let metrics = metrics.borrow_watched();
    let membership = metrics.membership_config.membership();
    let others = membership
        .nodes()
        .filter(|(other, _)| **other != id)
        .count();
    if alone && others > 0 {
        let text = format!(
            "this node has {others} peers in its cluster; start it with --peers and --raft-listen"
        );
        return Err(StartError::Consensus(text));
    }
    match membership.get_node(&id) {
        Some(peer) if peer.generation != generation => Err(StartError::Consensus(format!(
            "the log belongs to another data directory of node {id}: its identity file was replaced"
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Turns openraft's metrics into roles until openraft ends. Ending by itself is final: a node that
/// neither leads nor follows must not look alive.
async fn follow(
    raft: OurRaft,
    roles: watch::Sender<Role>,
    stopping: Arc<AtomicBool>,
    fatal: Fatal,
    links: Option<Arc<Links>>,
) {
    let mut metrics = raft.server_metrics();
    loop {
        if let Some(links) = &links {
            let membership = metrics.borrow_watched().membership_config.clone();
            links
                .cluster
                .set_members(members_of(membership.membership()));
        }
        let role = {
            let now = metrics.borrow_watched();
            let is_leader =
                now.current_leader == Some(now.id) && now.state == openraft::ServerState::Leader;
            Role {
                term: now.vote.leader_id.term,
                leader: now.current_leader.and_then(|id| i32::try_from(id).ok()),
                is_leader,
                committed: 0,
                stopped: None,
            }
        };
        roles.send_if_modified(|old| {
            let changed = *old != role;
            *old = role;
            changed
        });
        if metrics.changed().await.is_err() {
            break;
        }
    }
    roles.send_modify(|role| {
        role.is_leader = false;
        role.stopped = Some("consensus has ended".to_string());
    });
    if !stopping.load(Ordering::SeqCst) {
        let why = match &raft.metrics().borrow_watched().running_state {
            Ok(()) => "it gave no reason".to_string(),
            Err(why) => why.to_string(),
        };
        fatal.stop(&format!("consensus has ended: {why}"));
    }
}

fn refusal(forward: &ForwardToLeader<TypeConfig>) -> Refusal {
    match forward.reason {
        ForwardReason::LeaseExpired => Refusal::NotNow,
        ForwardReason::NotLeader | ForwardReason::LeadershipTransfer => {
            Refusal::NotLeader(forward.leader_id.and_then(|id| i32::try_from(id).ok()))
        }
    }
}

fn conclude(ticket: Ticket, result: WriteResult) {
    let verdict = match result {
        Ok(response) => {
            let at = Position {
                term: response.log_id.leader_id.term,
                index: response.log_id.index,
            };
            let Applied(outcomes) = response.data;
            Verdict::Applied(at, outcomes)
        }
        Err(ClientWriteError::ForwardToLeader(forward)) => Verdict::Refused(refusal(&forward)),
        Err(ClientWriteError::LogEntryDiscarded(_)) => Verdict::Unknown,
        // Neither a change of membership nor conditional; if it comes all the same, nothing is
        // known.
        Err(
            ClientWriteError::ChangeMembershipError(_) | ClientWriteError::PreconditionFailed(_),
        ) => Verdict::Unknown,
    };
    ticket.answer(verdict);
}

fn failure(error: &LogError) -> Failure {
    match error {
        LogError::Full { .. } => Failure::StorageFull,
        other => Failure::Storage(other.to_string()),
    }
}

impl Consensus {
    fn log(&self) -> Option<Arc<Log>> {
        self.log.read().clone()
    }
}

impl Replicator for Consensus {
    fn group(&self) -> GroupId {
        self.group
    }

    fn propose(&self, proposal: Proposal) -> BoxFuture<()> {
        let Proposal {
            parts,
            flushed,
            ticket,
        } = proposal;
        let raft = self.raft.clone();
        Box::pin(async move {
            let payload = Payload::new(parts, flushed);
            let responder = Callback::new(move |result| conclude(ticket, result));
            if let Err(error) = raft.client_write_ff(payload, Some(responder)).await {
                // The ticket was dropped with the offer: unknown.
                tracing::warn!(%error, "proposal not taken");
            }
        })
    }

    fn barrier(&self) -> BoxFuture<Result<u64, Refusal>> {
        let raft = self.raft.clone();
        Box::pin(async move {
            match raft.get_read_linearizer(ReadPolicy::ReadIndex).await {
                Ok(linearizer) => Ok(linearizer.read_log_id().index()),
                Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => {
                    Err(refusal(&forward))
                }
                Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => {
                    Err(Refusal::NotNow)
                }
                Err(RaftError::Fatal(_)) => Err(Refusal::Stopped),
            }
        })
    }

    fn role(&self) -> Role {
        let mut role = self.roles.borrow().clone();
        let metrics = self.raft.data_metrics();
        let metrics = metrics.borrow_watched();
        role.committed = metrics.local_committed.map_or(0, |id| id.index);
        role
    }

    fn roles(&self) -> watch::Receiver<Role> {
        self.roles.clone()
    }

    fn members(&self) -> Vec<Member> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        members_of(metrics.membership_config.membership())
    }

    fn read(&self, at: BatchRef) -> Result<Bytes, Failure> {
        let log = self.log.read();
        let log = log.as_ref().ok_or(Failure::Stopping)?;
        log.slice(at.index, at.offset, at.len)
            .map_err(|error| failure(&error))
    }

    fn reserve(&self, bytes: u64) -> bool {
        let Some(log) = self.log() else { return true };
        // Any other error shows itself when the entry is appended.
        !matches!(log.reserve(bytes), Err(LogError::Full { .. }))
    }

    fn first_index(&self) -> u64 {
        self.log().map_or(0, |log| log.first_index())
    }

    fn purge(&self, through: u64) -> BoxFuture<()> {
        let Some(log) = self.log() else {
            return Box::pin(std::future::ready(()));
        };
        // Only whole segments go, and openraft must not miss more than what is gone.
        let ends = log.segments().into_iter().filter(|segment| segment.sealed);
        let last = ends
            .filter_map(|end| end.last_index)
            .take_while(|at| *at <= through)
            .last();
        drop(log);
        let raft = self.raft.clone();
        Box::pin(async move {
            let Some(last) = last else { return };
            if let Err(why) = members::purge(&raft, last).await {
                tracing::warn!(last, why, "log not purged");
            }
        })
    }

    fn last(&self) -> Option<Position> {
        let (term, index) = self.log()?.last()?;
        Some(Position { term, index })
    }

    fn disk_bytes(&self) -> u64 {
        self.log().map_or(0, |log| log.stats().disk_bytes)
    }

    fn in_touch(&self) -> bool {
        let role = self.role();
        if role.stopped.is_some() || role.leader.is_none() {
            return false;
        }
        if !role.is_leader {
            // A node that comes back serves when it has what was there before it came.
            return self.served.heard.told().is_some_and(|told| {
                told.at.elapsed() < HEARD_LATELY
                    && role.committed >= told.first
                    && role.committed + LAG_MAX >= told.last
            });
        }
        if is_sole_voter(&self.raft, self.id) {
            return true;
        }
        let metrics = self.raft.data_metrics();
        let acked = metrics.borrow_watched().last_quorum_acked;
        acked.is_some_and(|at| at.elapsed() < HEARD_LATELY)
    }

    fn matched(&self) -> BTreeMap<i32, u64> {
        members::matched(&self.raft)
    }

    fn form(&self, members: Vec<Member>) -> BoxFuture<Result<(), String>> {
        let raft = self.raft.clone();
        Box::pin(async move { members::form(&raft, members).await })
    }

    fn change(&self, change: ClusterChange) -> BoxFuture<Result<(), ClusterRefusal>> {
        let changing = self.changing.clone();
        let (raft, links, id) = (self.raft.clone(), self.links.clone(), self.id);
        Box::pin(async move {
            let Ok(_turn) = changing.try_lock() else {
                return Err(ClusterRefusal::Busy);
            };
            let Some(links) = links else {
                return Err(ClusterRefusal::Invalid(
                    "this node is alone; start it with --peers and --raft-listen to let it have \
                     peers"
                        .to_string(),
                ));
            };
            members::change(&raft, &links, id, change).await
        })
    }

    fn move_to(&self, moved: Vec<Member>) -> BoxFuture<Result<(), ClusterRefusal>> {
        let (raft, changing) = (self.raft.clone(), self.changing.clone());
        Box::pin(async move {
            let Ok(_turn) = changing.try_lock() else {
                return Err(ClusterRefusal::Busy);
            };
            members::move_to(&raft, moved).await
        })
    }

    fn hand_over(&self) -> BoxFuture<()> {
        let (raft, id) = (self.raft.clone(), self.id);
        let alive: Vec<u64> = match &self.links {
            Some(links) => links.cluster.others_lately(),
            None => Vec::new(),
        };
        Box::pin(async move { members::hand_over(&raft, id, &alive).await })
    }

    fn served(&self) -> Option<Served> {
        Some(self.served.clone())
    }

    fn figures(&self, into: &mut BTreeMap<String, f64>) {
        let Some(log) = self.log() else { return };
        let stats = log.stats();
        let mut put = |name: &str, value: f64| into.insert(name.to_string(), value);
        put("log_bytes_written", stats.bytes_written as f64);
        put("log_disk_bytes", stats.disk_bytes as f64);
        put("log_segments", stats.segments as f64);
        put("log_writes", stats.writes as f64);
        put("log_fsyncs", stats.fsyncs as f64);
        put(
            "log_fsync_seconds_total",
            stats.fsync_nanos_total as f64 / 1e9,
        );
        put(
            "log_fsync_seconds_last",
            stats.fsync_nanos_last as f64 / 1e9,
        );
        put("log_entries", stats.frames as f64);
    }

    fn stop(&self) -> BoxFuture<()> {
        let raft = self.raft.clone();
        let follow = self.follow.lock().take();
        self.stopping.store(true, Ordering::SeqCst);
        drop(self.log.write().take());
        Box::pin(async move {
            if let Err(error) = raft.shutdown().await {
                tracing::warn!(%error, "consensus ended badly");
            }
            if let Some(follow) = follow {
                follow.abort();
            }
        })
    }
}
