//! One proposer: requests queue here, and what is waiting becomes one log entry. No timer: an
//! entry goes out as soon as the one before it is durable here or committed, so a lone request is
//! written at once and under load an entry holds what arrived during the last flush.
//!
//! Owns the byte budgets and the order (acks and claims before pushes, else first come). Never
//! decides what a command does: that is apply's business.

mod build;
mod push;
mod request;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use queen_engine::port::Failure;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::{Instant, timeout};

use crate::apply::SharedState;
use crate::clock::Clock;
use crate::leader::Leader;
use crate::limits;
use crate::metrics;
use crate::replicator::{Proposal, Refusal, Replicator, Signal, Ticket, Verdict};

use build::{Built, Routed};
use request::Queued;
pub use request::{PushJob, PushPart, Reply, Request, Reserved};

/// The queue in front of the log.
#[derive(Clone)]
pub struct Batcher {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    /// Told when the proposer may have something to do.
    wake: Notify,
    /// Room for queued bytes, in units of [`ROOM_UNIT`].
    room: Arc<Semaphore>,
    /// The disk had no room for the last entry.
    storage_full: AtomicBool,
}

#[derive(Default)]
struct Queue {
    urgent: VecDeque<Queued>,
    bulk: VecDeque<Queued>,
    /// Pushes whose transaction id is in flight; they go back to `bulk` with the next verdict.
    deferred: Vec<Queued>,
    /// Transaction ids in entries that are not applied yet.
    ids_in_flight: HashSet<u128>,
    entries_in_flight: usize,
    bytes_in_flight: usize,
    /// Number of the entry that must be flushed or answered before the next one goes out.
    gate: Option<u64>,
    proposed: u64,
    /// The consensus asked to wait until then.
    paused_until: Option<Instant>,
    stopping: bool,
}

/// One permit of the room, in bytes.
const ROOM_UNIT: usize = 1024;

impl Queue {
    fn has_work(&self) -> bool {
        !self.urgent.is_empty() || !self.bulk.is_empty()
    }

    fn may_propose(&self) -> bool {
        self.has_work()
            && self.gate.is_none()
            && self.entries_in_flight < limits::IN_FLIGHT_ENTRIES_MAX
            && self.bytes_in_flight < limits::IN_FLIGHT_BYTES_MAX
    }

    fn enter(&mut self, queued: Queued) {
        if queued.request.is_urgent() {
            self.urgent.push_back(queued);
        } else {
            self.bulk.push_back(queued);
        }
    }

    fn put_back(&mut self, queued: Queued) {
        if queued.request.is_urgent() {
            self.urgent.push_front(queued);
        } else {
            self.bulk.push_front(queued);
        }
    }

    /// Takes what fits into one entry, in order.
    fn take(&mut self) -> Vec<Queued> {
        let mut taken = Vec::new();
        let (mut bytes, mut commands) = (0usize, 0usize);
        let urgent_max = match self.bulk.is_empty() {
            true => limits::ENTRY_COMMANDS_MAX,
            false => limits::ENTRY_URGENT_MAX,
        };
        for (queue, commands_max) in [
            (&mut self.urgent, urgent_max),
            (&mut self.bulk, limits::ENTRY_COMMANDS_MAX),
        ] {
            let mut first = true;
            while let Some(next) = queue.front() {
                let count = next.request.commands();
                let fits = bytes.saturating_add(next.bytes) <= limits::ENTRY_BYTES_TARGET
                    && commands.saturating_add(count) <= commands_max;
                // The first of each queue always goes, however large: acks must not starve pushes.
                if !fits && !first {
                    break;
                }
                first = false;
                bytes = bytes.saturating_add(next.bytes);
                commands = commands.saturating_add(count);
                taken.extend(queue.pop_front());
            }
        }
        taken
    }
}

impl Default for Batcher {
    fn default() -> Self {
        let room = limits::QUEUED_BYTES_MAX / ROOM_UNIT;
        Batcher {
            shared: Arc::new(Shared {
                queue: Mutex::default(),
                wake: Notify::new(),
                room: Arc::new(Semaphore::new(room)),
                storage_full: AtomicBool::new(false),
            }),
        }
    }
}

impl Batcher {
    /// Queues the request that `make` builds around a reply, and waits for the answer.
    pub async fn ask<T>(&self, make: impl FnOnce(Reply<T>) -> Request) -> Result<T, Failure> {
        let (reply, answer) = oneshot::channel();
        self.enter(make(reply)).await?;
        Batcher::answer(answer).await
    }

    /// Waits for the answer of a request that was queued with [`Batcher::enter`].
    pub async fn answer<T>(
        answer: impl Future<Output = Result<Result<T, Failure>, oneshot::error::RecvError>>,
    ) -> Result<T, Failure> {
        match timeout(limits::OUTCOME_WAIT, answer).await {
            Ok(Ok(answer)) => answer,
            // A reply that was dropped unanswered may have been carried out.
            Ok(Err(_)) | Err(_) => {
                metrics::failed("timeout");
                Err(Failure::Timeout)
            }
        }
    }

    /// Queues a request as soon as there is room.
    pub async fn enter(&self, request: Request) -> Result<(), Failure> {
        let bytes = request.bytes();
        if bytes > limits::ENTRY_BYTES_MAX {
            metrics::failed("too_large");
            return Err(Failure::TooLarge);
        }
        let cost = (bytes + limits::REQUEST_BYTES).div_ceil(ROOM_UNIT);
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        let room = self.shared.room.clone();
        let permit = match room.clone().try_acquire_many_owned(cost) {
            Ok(permit) => permit,
            Err(_) => match timeout(limits::ROOM_WAIT, room.acquire_many_owned(cost)).await {
                Ok(Ok(permit)) => permit,
                Ok(Err(_)) => return Err(Failure::Stopping),
                Err(_) => {
                    metrics::failed("overloaded");
                    return Err(Failure::Overloaded);
                }
            },
        };
        self.put(Queued {
            request,
            bytes,
            room: Some(permit),
        })
    }

    /// Queues a small request of the node itself at once, whatever the room.
    pub fn enter_now(&self, request: Request) {
        let bytes = request.bytes();
        // A node that stops gives its leases back by their deadline.
        let _ = self.put(Queued {
            request,
            bytes,
            room: None,
        });
    }

    fn put(&self, queued: Queued) -> Result<(), Failure> {
        let mut queue = self.shared.queue.lock();
        if queue.stopping {
            drop(queue);
            queued.request.fail(Failure::Stopping);
            return Err(Failure::Stopping);
        }
        queue.enter(queued);
        drop(queue);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Refuses everything from now on, and what is queued. Entries in flight are finished.
    pub fn stop(&self) {
        let mut queue = self.shared.queue.lock();
        queue.stopping = true;
        let mut refused: Vec<Queued> = queue.urgent.drain(..).collect();
        refused.extend(queue.bulk.drain(..));
        refused.append(&mut queue.deferred);
        drop(queue);
        for queued in refused {
            queued.request.fail(Failure::Stopping);
        }
        self.shared.wake.notify_one();
    }

    /// Whether the disk had no room for the last entry.
    pub fn storage_full(&self) -> bool {
        self.shared.storage_full.load(Ordering::Relaxed)
    }

    /// Entries and bytes in flight, and requests queued.
    pub fn load(&self) -> (usize, usize, usize) {
        let queue = self.shared.queue.lock();
        let queued = queue.urgent.len() + queue.bulk.len() + queue.deferred.len();
        (queue.entries_in_flight, queue.bytes_in_flight, queued)
    }

    /// Proposes until it is stopped and nothing is in flight.
    pub async fn run(self, proposer: Proposer) {
        loop {
            let (taken, pause) = {
                let mut queue = self.shared.queue.lock();
                let pause = queue.paused_until.filter(|until| *until > Instant::now());
                if queue.stopping && queue.entries_in_flight == 0 {
                    return;
                }
                let may = pause.is_none() && queue.may_propose();
                (if may { queue.take() } else { Vec::new() }, pause)
            };
            if taken.is_empty() {
                match pause {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => self.shared.wake.notified().await,
                }
                continue;
            }
            self.propose(&proposer, taken).await;
        }
    }

    async fn propose(&self, proposer: &Proposer, taken: Vec<Queued>) {
        let requests = taken.len();
        // A leader that does not know everything before its term would build on an old state.
        if !proposer.leader.is_leading() {
            let role = proposer.replicator.role();
            let failure = match role.stopped {
                Some(_) => Failure::Stopping,
                None => Failure::NotLeader {
                    leader: role.leader.filter(|id| *id != proposer.node_id),
                },
            };
            taken
                .into_iter()
                .for_each(|queued| queued.request.fail(failure.clone()));
            return;
        }
        let Some(built) = build::build(proposer, taken, &self.shared) else {
            return;
        };
        let Built {
            parts,
            routes,
            ids,
            pushes_at,
        } = built;
        let bytes: usize = parts.iter().map(bytes::Bytes::len).sum();
        let is_full = !proposer.replicator.reserve(bytes as u64);
        if self.shared.storage_full.swap(is_full, Ordering::Relaxed) != is_full {
            tracing::warn!(is_full, "the disk of the data directory");
        }
        if is_full {
            self.refuse(routes, &ids, &Failure::StorageFull);
            metrics::failed("storage_full");
            return;
        }
        metrics::proposed(bytes, requests);
        let number = {
            let mut queue = self.shared.queue.lock();
            queue.proposed += 1;
            queue.entries_in_flight += 1;
            queue.bytes_in_flight += bytes;
            queue.gate = Some(queue.proposed);
            queue.proposed
        };
        let flushed = {
            let shared = self.shared.clone();
            Signal::new(move || shared.open_gate(number))
        };
        let batcher = self.clone();
        let ticket = Ticket::new(move |verdict| {
            batcher.shared.left_flight(number, bytes);
            batcher.conclude(routes, pushes_at, &ids, verdict);
        });
        proposer
            .replicator
            .propose(Proposal {
                parts,
                flushed,
                ticket,
            })
            .await;
    }

    /// Hands an entry's outcomes to the requesters, or puts the requests back.
    fn conclude(&self, routes: Vec<Routed>, pushes_at: usize, ids: &[u128], verdict: Verdict) {
        match verdict {
            Verdict::Applied(_, outcomes) => {
                let again = build::deliver(routes, pushes_at, outcomes);
                let mut queue = self.shared.queue.lock();
                queue.forget(ids);
                again
                    .into_iter()
                    .rev()
                    .for_each(|queued| queue.put_back(queued));
                drop(queue);
                self.shared.wake.notify_one();
            }
            Verdict::Refused(Refusal::NotNow) => {
                let mut queue = self.shared.queue.lock();
                queue.forget(ids);
                queue.paused_until = Some(Instant::now() + limits::REFUSED_PAUSE);
                let stopping = queue.stopping;
                let mut refused = Vec::new();
                for routed in routes.into_iter().rev() {
                    match stopping {
                        true => refused.push(routed.queued),
                        false => queue.put_back(routed.queued),
                    }
                }
                drop(queue);
                refused
                    .into_iter()
                    .for_each(|queued| queued.request.fail(Failure::Stopping));
                self.shared.wake.notify_one();
            }
            Verdict::Refused(Refusal::NotLeader(leader)) => {
                self.refuse(routes, ids, &Failure::NotLeader { leader });
            }
            Verdict::Refused(Refusal::Stopped) => self.refuse(routes, ids, &Failure::Stopping),
            Verdict::Unknown => {
                metrics::failed("unknown");
                self.refuse(routes, ids, &Failure::Timeout);
            }
        }
    }

    fn refuse(&self, routes: Vec<Routed>, ids: &[u128], failure: &Failure) {
        self.shared.queue.lock().forget(ids);
        for routed in routes {
            routed.queued.request.fail(failure.clone());
        }
        self.shared.wake.notify_one();
    }
}

impl Queue {
    /// Ends the flight of transaction ids: pushes that waited for one may go on.
    fn forget(&mut self, ids: &[u128]) {
        for id in ids {
            self.ids_in_flight.remove(id);
        }
        for queued in std::mem::take(&mut self.deferred).into_iter().rev() {
            self.bulk.push_front(queued);
        }
    }
}

impl Shared {
    fn open_gate(&self, number: u64) {
        let mut queue = self.queue.lock();
        if queue.gate == Some(number) {
            queue.gate = None;
            drop(queue);
            self.wake.notify_one();
        }
    }

    fn left_flight(&self, number: u64, bytes: usize) {
        let mut queue = self.queue.lock();
        queue.entries_in_flight -= 1;
        queue.bytes_in_flight -= bytes;
        if queue.gate == Some(number) {
            queue.gate = None;
        }
    }
}

/// What the proposer needs of the node.
pub struct Proposer {
    pub node_id: i32,
    pub leader: Arc<Leader>,
    pub replicator: Arc<dyn Replicator>,
    pub state: SharedState,
    pub clock: Arc<Clock>,
    /// Kafka partitions of a topic made without a width.
    pub default_partitions: u32,
}
