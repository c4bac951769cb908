//! Timers: messages that append themselves later (semantics 13). Owns the map of pending timers
//! and their order by due time; the leader's scheduler proposes the firing.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::TimeUs;

/// One timer operation, on (queue, key).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerOp {
    pub queue: String,
    pub key: String,
    pub action: TimerAction,
}

/// What a [`TimerOp`] does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimerAction {
    /// Create or replace (semantics TMR-1).
    Schedule {
        /// Lane of the fired message.
        partition: String,
        /// Milliseconds from the entry's time; 0 or less is due at once.
        delay_ms: i64,
        /// Transaction id of the fired message.
        txn: String,
        /// Promised id of the fired message, a UUID text.
        message_id: String,
        /// Decoded payload bytes, kept exactly.
        payload: Bytes,
        /// Authenticated producer, if any.
        producer_sub: Option<String>,
    },
    /// Remove if pending. `txn` is echoed when absent.
    Cancel { txn: Option<String> },
}

/// How one operation went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimerStatus {
    Scheduled,
    Rescheduled,
    Cancelled,
    Absent,
}

/// The result of one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerResult {
    pub status: TimerStatus,
    pub queue: String,
    pub key: String,
    pub txn: Option<String>,
    pub message_id: Option<String>,
    pub deliver_at: Option<TimeUs>,
}

/// A pending timer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    pub queue: String,
    pub key: String,
    pub partition: String,
    pub due: TimeUs,
    pub txn: String,
    pub message_id: String,
    pub payload: Bytes,
    pub producer_sub: Option<String>,
    /// Rises with every schedule; a firing names the version it saw.
    pub version: u64,
    pub created: TimeUs,
    pub updated: TimeUs,
}

/// All pending timers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerStore {
    timers: BTreeMap<(String, String), Timer>,
    by_due: BTreeSet<(TimeUs, String, String)>,
    next_version: u64,
}

impl TimerStore {
    /// A pending timer.
    pub fn get(&self, queue: &str, key: &str) -> Option<&Timer> {
        self.timers.get(&(queue.to_string(), key.to_string()))
    }

    /// A queue's timers in byte order of keys, behind `after`, at most `limit`; and whether there
    /// are more.
    pub fn list(&self, queue: &str, after: Option<&str>, limit: usize) -> (Vec<&Timer>, bool) {
        let from = (queue.to_string(), after.unwrap_or_default().to_string());
        let mut rows: Vec<&Timer> = self
            .timers
            .range(from..)
            .map(|(_, timer)| timer)
            .take_while(|timer| timer.queue == queue)
            .filter(|timer| after.is_none_or(|after| timer.key.as_str() > after))
            .take(limit + 1)
            .collect();
        let more = rows.len() > limit;
        rows.truncate(limit);
        (rows, more)
    }

    /// Number of a queue's timers whose key begins with `prefix`.
    pub fn count(&self, queue: &str, prefix: &str) -> u64 {
        let from = (queue.to_string(), prefix.to_string());
        self.timers
            .range(from..)
            .take_while(|((q, key), _)| q == queue && key.starts_with(prefix))
            .count() as u64
    }

    /// Timers due at or before `now`, earliest first, at most `limit`.
    pub fn due(&self, now: TimeUs, limit: usize) -> Vec<&Timer> {
        self.by_due
            .iter()
            .take_while(|(due, _, _)| *due <= now)
            .take(limit)
            .filter_map(|(_, queue, key)| self.get(queue, key))
            .collect()
    }

    /// When the earliest timer is due.
    pub fn next_due(&self) -> Option<TimeUs> {
        self.by_due.first().map(|(due, _, _)| *due)
    }

    /// Number of pending timers.
    pub fn len(&self) -> usize {
        self.timers.len()
    }

    /// Whether no timer is pending.
    pub fn is_empty(&self) -> bool {
        self.timers.is_empty()
    }
}

impl TimerStore {
    /// Applies operations in order.
    pub(crate) fn apply(&mut self, ops: &[TimerOp], now: TimeUs) -> Vec<TimerResult> {
        ops.iter().map(|op| self.apply_one(op, now)).collect()
    }

    fn apply_one(&mut self, op: &TimerOp, now: TimeUs) -> TimerResult {
        let result = |status, txn, message_id, deliver_at| TimerResult {
            status,
            queue: op.queue.clone(),
            key: op.key.clone(),
            txn,
            message_id,
            deliver_at,
        };
        let old = self.remove(&op.queue, &op.key);
        match &op.action {
            TimerAction::Cancel { txn } => match old {
                None => result(TimerStatus::Absent, txn.clone(), None, None),
                Some(old) => result(
                    TimerStatus::Cancelled,
                    Some(old.txn),
                    Some(old.message_id),
                    Some(old.due),
                ),
            },
            TimerAction::Schedule {
                partition,
                delay_ms,
                txn,
                message_id,
                payload,
                producer_sub,
            } => {
                self.next_version += 1;
                let due = now.plus_millis((*delay_ms).max(0));
                let timer = Timer {
                    queue: op.queue.clone(),
                    key: op.key.clone(),
                    partition: partition.clone(),
                    due,
                    txn: txn.clone(),
                    message_id: message_id.clone(),
                    payload: payload.clone(),
                    producer_sub: producer_sub.clone(),
                    version: self.next_version,
                    created: old.as_ref().map_or(now, |old| old.created),
                    updated: now,
                };
                self.by_due.insert((due, op.queue.clone(), op.key.clone()));
                self.timers
                    .insert((op.queue.clone(), op.key.clone()), timer);
                let status = match old {
                    Some(_) => TimerStatus::Rescheduled,
                    None => TimerStatus::Scheduled,
                };
                result(
                    status,
                    Some(txn.clone()),
                    Some(message_id.clone()),
                    Some(due),
                )
            }
        }
    }

    /// Removes a timer.
    pub(crate) fn remove(&mut self, queue: &str, key: &str) -> Option<Timer> {
        let timer = self.timers.remove(&(queue.to_string(), key.to_string()))?;
        self.by_due
            .remove(&(timer.due, queue.to_string(), key.to_string()));
        Some(timer)
    }
}
