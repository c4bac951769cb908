//! The replicated state of Queen and its rules. Deterministic: `apply` takes an entry of the log
//! and the time the leader stamped on it and returns what came of it; it reads no clock, socket
//! or file and draws no randomness.
//!
//! Read in this order: `command.rs` (what may happen), `outcome.rs` (what comes of it),
//! `apply.rs` (the judge), then the state: `topic.rs`, `lane.rs`, `group.rs`, `dedup.rs`, `kv.rs`,
//! `timer.rs`. `port.rs` is the door for the listeners, `cluster.rs`
//! what they see of the cluster, `index.rs` knows where records lie,
//! `schedule.rs` is the leader's memory of what to propose next, `batch.rs` reads Kafka's record
//! batches.

#![forbid(unsafe_code)]

mod apply;
pub mod batch;
mod chunks;
pub mod cluster;
pub mod command;
pub mod config;
pub mod dedup;
pub mod entry;
pub mod group;
pub mod ids;
mod image;
pub mod index;
pub mod kv;
pub mod lane;
pub mod limits;
pub mod message;
pub mod names;
pub mod outcome;
pub mod port;
pub mod schedule;
pub mod timer;
pub mod topic;

use std::collections::BTreeMap;

pub use apply::{Effects, GroupTouch};
pub use image::ImageError;

use dedup::{Dedup, Seen};
use group::Groups;
use ids::{LaneId, TimeUs};
use kv::KvStore;
use lane::LaneTable;
use outcome::DeadLetter;
use timer::TimerStore;
use topic::Topics;

/// The whole replicated state of one Raft group. Read through its fields and methods; changed
/// only by [`Engine::apply`].
#[derive(Clone, Debug, Default)]
pub struct Engine {
    pub topics: Topics,
    pub lanes: LaneTable,
    pub groups: Groups,
    pub kv: KvStore,
    pub timers: TimerStore,
    /// Dead letters by id, oldest first.
    pub dead_letters: BTreeMap<u64, DeadLetter>,
    dedup: Dedup,
    next_dead_letter: u64,
    next_producer: i64,
    /// Log index of the newest applied entry.
    applied: u64,
    /// Its time.
    now: TimeUs,
}

impl Engine {
    /// The state before the first entry.
    pub fn new() -> Engine {
        Engine::default()
    }

    /// Log index of the newest applied entry.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Time stamped on the newest applied entry.
    pub fn now(&self) -> TimeUs {
        self.now
    }

    /// Transaction ids remembered.
    pub fn dedup_len(&self) -> usize {
        self.dedup.len()
    }

    /// Where a transaction id was used in a lane, as long as it is remembered (also past the
    /// dedup window, semantics ACK-10).
    pub fn find_transaction(&self, lane: LaneId, transaction_id: &str) -> Option<Seen> {
        let topic = self.lanes.get(lane)?.topic;
        self.dedup.find(
            topic,
            lane,
            dedup::transaction_hash(transaction_id.as_bytes()),
        )
    }

    /// The same, only inside the queue's dedup window at `now`.
    pub fn find_duplicate(&self, lane: LaneId, hash: u128, now: TimeUs) -> Option<Seen> {
        let topic = self.topics.get(self.lanes.get(lane)?.topic)?;
        let window = topic.options.dedup_window_seconds;
        self.dedup
            .find(topic.id, lane, hash)
            .filter(|seen| window > 0 && now < seen.time.plus_seconds(window))
    }
}
