//! Identities and units of the replicated state. Owns nothing; every id that crosses a module is a
//! type of its own here, so that two of them cannot be swapped.

use serde::{Deserialize, Serialize};

/// A topic (the HTTP contract says *queue*), numbered by the log in order of creation and never
/// reused, so a late command for a deleted topic cannot reach its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TopicId(pub u32);

/// A lane: all records of one topic with the same key. Numbered by the log over all topics, never
/// reused. Its decimal form is the HTTP contract's `partitionId`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LaneId(pub u32);

/// The lease of one pop, shared by all lanes it claimed. Random, minted by the node that serves
/// the pop; its UUID text is the HTTP contract's `leaseId`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseId(pub u128);

/// Microseconds since the Unix epoch, as stamped on an entry by the leader. Never decreases along
/// the log.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct TimeUs(pub i64);

impl TimeUs {
    /// Whole milliseconds, rounded down: what Kafka and `createdAt` show.
    pub fn millis(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// This time moved by `seconds`, saturating at the ends of the range.
    pub fn plus_seconds(self, seconds: i64) -> TimeUs {
        TimeUs(self.0.saturating_add(seconds.saturating_mul(1_000_000)))
    }

    /// This time moved by `millis`, saturating at the ends of the range.
    pub fn plus_millis(self, millis: i64) -> TimeUs {
        TimeUs(self.0.saturating_add(millis.saturating_mul(1000)))
    }
}

/// Where a record batch lies: in the payload of the log entry `index`, `len` bytes from `offset`.
/// The same on every node, whatever file the entry is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BatchRef {
    /// Index of the log entry that holds the batch.
    pub index: u64,
    /// Byte position inside the entry's payload.
    pub offset: u32,
    /// Length of the batch in bytes, header included.
    pub len: u32,
}
