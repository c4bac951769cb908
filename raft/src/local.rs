//! Consensus of one node in memory: every proposal is committed at once, in the order of the
//! calls. No files, no threads and no clock of its own, so a run depends on nothing but the calls;
//! for tests of listeners and for simulation. It forgets everything when it is dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::{Mutex, RwLock};
use queen_engine::cluster::{ClusterChange, ClusterRefusal};
use queen_engine::entry::slice;
use queen_engine::ids::BatchRef;
use queen_engine::port::{BoxFuture, Failure};
use tokio::sync::watch;

use crate::apply::{Applier, Committed};
use crate::replicator::{
    Content, GroupId, Member, ONLY_GROUP, Position, Proposal, Refusal, Replicator, Role, Verdict,
};

const TERM: u64 = 1;
const ALONE: &str = "a node in memory has no peers";

/// A group of one, in memory.
pub struct LocalReplicator {
    node_id: i32,
    applier: Applier,
    log: Arc<RwLock<MemoryLog>>,
    /// Keeps proposals in the order of their indexes on the way to the apply thread.
    order: Arc<tokio::sync::Mutex<()>>,
    roles: watch::Sender<Role>,
    /// Bytes the log may hold, for tests of a full disk.
    capacity: Mutex<u64>,
}

#[derive(Default)]
struct MemoryLog {
    /// Index of the first entry held.
    first: u64,
    entries: Vec<Bytes>,
    bytes: u64,
}

impl MemoryLog {
    fn last(&self) -> u64 {
        self.first + self.entries.len() as u64 - 1
    }
}

impl LocalReplicator {
    /// Starts to lead a group of one.
    pub async fn start(node_id: i32, applier: Applier) -> Arc<LocalReplicator> {
        let blank = Committed {
            at: Position {
                term: TERM,
                index: 1,
            },
            content: Content::Blank,
            reply: None,
        };
        // An apply thread that ended has stopped the node already.
        let _ = applier.apply(blank).await;
        let log = MemoryLog {
            first: 1,
            entries: vec![Bytes::new()],
            bytes: 0,
        };
        let role = Role {
            term: TERM,
            leader: Some(node_id),
            is_leader: true,
            committed: 1,
            stopped: None,
        };
        Arc::new(LocalReplicator {
            node_id,
            applier,
            log: Arc::new(RwLock::new(log)),
            order: Arc::default(),
            roles: watch::Sender::new(role),
            capacity: Mutex::new(u64::MAX),
        })
    }

    /// Sets how many bytes the log may hold.
    pub fn set_capacity(&self, bytes: u64) {
        *self.capacity.lock() = bytes;
    }
}

impl Replicator for LocalReplicator {
    fn group(&self) -> GroupId {
        ONLY_GROUP
    }

    fn propose(&self, proposal: Proposal) -> BoxFuture<()> {
        let Proposal {
            parts,
            flushed,
            ticket,
        } = proposal;
        let (log, applier, order) = (self.log.clone(), self.applier.clone(), self.order.clone());
        let roles = self.roles.clone();
        Box::pin(async move {
            let _turn = order.lock().await;
            if roles.borrow().stopped.is_some() {
                ticket.answer(Verdict::Refused(Refusal::Stopped));
                return;
            }
            let mut whole = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
            parts.iter().for_each(|part| whole.extend_from_slice(part));
            let payload = whole.freeze();
            let index = {
                let mut log = log.write();
                log.bytes += payload.len() as u64;
                log.entries.push(payload.clone());
                log.last()
            };
            flushed.fire();
            roles.send_modify(|role| role.committed = index);
            let at = Position { term: TERM, index };
            let reply = Box::new(move |outcomes| ticket.answer(Verdict::Applied(at, outcomes)));
            let entry = Committed {
                at,
                content: Content::Commands(payload),
                reply: Some(reply),
            };
            // An entry that is not taken drops its ticket: unknown.
            let _ = applier.apply(entry).await;
        })
    }

    fn barrier(&self) -> BoxFuture<Result<u64, Refusal>> {
        let index = self.log.read().last();
        Box::pin(std::future::ready(Ok(index)))
    }

    fn role(&self) -> Role {
        self.roles.borrow().clone()
    }

    fn roles(&self) -> watch::Receiver<Role> {
        self.roles.subscribe()
    }

    fn members(&self) -> Vec<Member> {
        vec![Member {
            id: self.node_id,
            voter: true,
            ..Member::default()
        }]
    }

    fn read(&self, at: BatchRef) -> Result<Bytes, Failure> {
        let log = self.log.read();
        let entry = at
            .index
            .checked_sub(log.first)
            .and_then(|nth| usize::try_from(nth).ok());
        entry
            .and_then(|nth| log.entries.get(nth))
            .and_then(|payload| slice(payload, at))
            .ok_or_else(|| Failure::Storage(format!("entry {} is not in the log", at.index)))
    }

    fn reserve(&self, bytes: u64) -> bool {
        self.log.read().bytes.saturating_add(bytes) <= *self.capacity.lock()
    }

    fn first_index(&self) -> u64 {
        self.log.read().first
    }

    fn purge(&self, through: u64) -> BoxFuture<()> {
        let mut log = self.log.write();
        let gone = (through + 1)
            .saturating_sub(log.first)
            .min(log.entries.len() as u64 - 1);
        let gone_entries = usize::try_from(gone).unwrap_or(0);
        let freed: usize = log
            .entries
            .drain(..gone_entries)
            .map(|entry| entry.len())
            .sum();
        log.first += gone;
        log.bytes -= freed as u64;
        Box::pin(std::future::ready(()))
    }

    fn figures(&self, into: &mut BTreeMap<String, f64>) {
        into.insert("log_bytes".to_string(), self.log.read().bytes as f64);
    }

    fn last(&self) -> Option<Position> {
        let index = self.log.read().last();
        Some(Position { term: TERM, index })
    }

    fn disk_bytes(&self) -> u64 {
        0
    }

    fn in_touch(&self) -> bool {
        true
    }

    fn matched(&self) -> BTreeMap<i32, u64> {
        BTreeMap::from([(self.node_id, self.log.read().last())])
    }

    fn form(&self, _members: Vec<Member>) -> BoxFuture<Result<(), String>> {
        Box::pin(std::future::ready(Err(ALONE.to_string())))
    }

    fn move_to(&self, _moved: Vec<Member>) -> BoxFuture<Result<(), ClusterRefusal>> {
        let refusal = ClusterRefusal::Invalid(ALONE.to_string());
        Box::pin(std::future::ready(Err(refusal)))
    }

    fn change(&self, _change: ClusterChange) -> BoxFuture<Result<(), ClusterRefusal>> {
        let refusal = ClusterRefusal::Invalid(ALONE.to_string());
        Box::pin(std::future::ready(Err(refusal)))
    }

    fn hand_over(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }

    fn served(&self) -> Option<crate::consensus::Served> {
        None
    }

    fn stop(&self) -> BoxFuture<()> {
        self.roles.send_modify(|role| {
            role.is_leader = false;
            role.stopped = Some("stopped".to_string());
        });
        Box::pin(std::future::ready(()))
    }
}
