//! Consensus by openraft, and the only place that knows it: types of openraft end here. Wires the
//! log storage, the state machine and the (still empty) network together and offers them as a
//! [`Replicator`]. Everything of openraft runs on the runtime [`start`] is called on.

mod codec;
mod log_store;
mod network;
mod state_machine;
mod types;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{
    ClientWriteError, ForwardReason, ForwardToLeader, LinearizableReadError, RaftError,
};
use openraft::{Config, Raft, ReadPolicy, SnapshotPolicy};
use parking_lot::{Mutex, RwLock};
use queen_engine::ids::BatchRef;
use queen_engine::port::{BoxFuture, Failure};
use queen_log::{Log, LogError};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::apply::Applier;
use crate::error::{Fatal, StartError};
use crate::identity::Identity;
use crate::replicator::{
    GroupId, Member, Position, Proposal, Refusal, Replicator, Role, Ticket, Verdict,
};

pub use log_store::LogStore;
pub use state_machine::Machine;
pub use types::{Callback, Peer, TypeConfig};

use types::{Applied, Payload};

type OurRaft = Raft<TypeConfig, Machine>;
type WriteResult = openraft::raft::ClientWriteResult<TypeConfig>;

/// A Raft group of openraft over the log on disk.
pub struct Consensus {
    group: GroupId,
    raft: OurRaft,
    /// Absent once it has stopped: the log must not outlive its node.
    disk: RwLock<Option<Disk>>,
    roles: watch::Receiver<Role>,
    follow: Mutex<Option<JoinHandle<()>>>,
    /// It was told to stop.
    stopping: Arc<AtomicBool>,
}

#[derive(Clone)]
struct Disk {
    log: Arc<Log>,
    store: LogStore,
}

/// What consensus starts from.
pub struct Foundation {
    pub log: Arc<Log>,
    /// The vote the log was opened with.
    pub vote: Option<Bytes>,
    pub applier: Applier,
    /// The image the state was loaded from.
    pub image: Option<Bytes>,
    pub identity: Identity,
    /// Called when openraft ends by itself.
    pub fatal: Fatal,
}

/// openraft.md section 5 and engine.md 3.5 say why.
fn config(cluster: String) -> Config {
    Config {
        cluster_name: cluster,
        heartbeat_interval: 150,
        election_timeout_min: 600,
        election_timeout_max: 1200,
        max_payload_entries: 64,
        snapshot_policy: SnapshotPolicy::Never,
        enable_pre_vote: Some(true),
        enable_leader_restore: Some(false),
        allow_log_reversion: Some(false),
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
        image,
        identity,
        fatal,
    } = foundation;
    let fail = |error: &dyn std::fmt::Display| StartError::Consensus(error.to_string());
    let store = LogStore::new(log.clone(), vote.as_deref()).map_err(|error| fail(&error))?;
    let machine = Machine::new(applier, image).map_err(|error| fail(&error))?;
    let config = config(identity.cluster_text())
        .validate()
        .map_err(|error| fail(&error))?;
    let id = u64::from(identity.node_id.unsigned_abs());
    let raft = Raft::new(
        id,
        Arc::new(config),
        network::NoPeers,
        store.clone(),
        machine,
    )
    .await
    .map_err(|error| fail(&error))?;
    if !raft.is_initialized().await.map_err(|error| fail(&error))? {
        let peer = Peer {
            address: String::new(),
            generation: identity.generation,
        };
        let members = BTreeMap::from([(id, peer)]);
        raft.initialize(members)
            .await
            .map_err(|error| fail(&error))?;
    }
    check_members(&raft, id, identity.generation)?;
    // Nobody else can lead: no need to wait for an election time-out.
    raft.trigger()
        .elect(false)
        .await
        .map_err(|error| fail(&error))?;
    let stopping = Arc::new(AtomicBool::new(false));
    let (sender, roles) = watch::channel(Role::default());
    let follow = tokio::spawn(follow(raft.clone(), sender, stopping.clone(), fatal));
    let group = GroupId(identity.group);
    let follow = Mutex::new(Some(follow));
    let disk = RwLock::new(Some(Disk { log, store }));
    Ok(Arc::new(Consensus {
        group,
        raft,
        disk,
        roles,
        follow,
        stopping,
    }))
}

/// Refuses to start in a group that this node cannot speak to, or under a name that another data
/// directory holds.
fn check_members(raft: &OurRaft, id: u64, generation: u64) -> Result<(), StartError> {
    let metrics = raft.server_metrics();
    let metrics = metrics.borrow_watched();
    let membership = metrics.membership_config.membership();
    let others = membership
        .nodes()
        .filter(|(other, _)| **other != id)
        .count();
    if others > 0 {
        let text = format!("the group has {others} other members, and this version has no peers");
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
) {
    let mut metrics = raft.server_metrics();
    loop {
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
        self.disk.read().as_ref().map(|disk| disk.log.clone())
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
        let membership = metrics.membership_config.membership();
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

    fn read(&self, at: BatchRef) -> Result<Bytes, Failure> {
        let disk = self.disk.read();
        let disk = disk.as_ref().ok_or(Failure::Stopping)?;
        disk.log
            .slice(at.index, at.offset, at.len)
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
        use openraft::storage::RaftLogStorage;
        let disk = self.disk.read().clone();
        Box::pin(async move {
            let Some(Disk { log, mut store }) = disk else {
                return;
            };
            // Only whole segments go, and openraft must not miss more than what is gone.
            let ends = log.segments().into_iter().filter(|segment| segment.sealed);
            let last = ends
                .filter_map(|end| end.last_index)
                .take_while(|at| *at <= through)
                .last();
            let Some((last, term)) = last.and_then(|last| Some((last, log.term_of(last)?))) else {
                return;
            };
            if let Err(error) = store.purge(codec::log_id(term, last)).await {
                tracing::warn!(through, %error, "log not purged");
            }
        })
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
        drop(self.disk.write().take());
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
