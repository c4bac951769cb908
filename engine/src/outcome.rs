//! What applying a command came to: answers and refusals. Both are part of the replicated
//! behaviour (the same on every node); texts and wire codes are the listeners' business.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{LaneId, TimeUs, TopicId};
use crate::kv::{KvLoss, KvResult};
use crate::timer::TimerResult;

/// Why a command changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reject {
    UnknownTopic,
    UnknownPartition,
    TopicExists,
    /// Not larger than the present width, zero, or beyond the bound.
    InvalidPartitions,
    InvalidConfig,
    InvalidName,
    NameTooLong,
    OffsetOutOfRange,
    UnknownGroup,
    /// The entry was stamped after the command's deadline.
    TooLate,
    /// State moved between plan and apply; plan again.
    Stale,
    /// A lane hint named a lane that is gone; send names.
    StaleLane,
    /// Idempotent producer: a gap in the sequence.
    OutOfOrderSequence,
    /// Idempotent producer: fenced by a newer epoch.
    InvalidProducerEpoch,
    /// The queue's `maxSize` is reached.
    QueueFull,
    UnknownDeadLetter,
    /// A timer fired or changed meanwhile.
    UnknownTimer,
    /// A destination already holds the transaction id.
    Duplicate,
    /// The command contradicts itself: a span outside the entry, hints that do not fit the batch.
    Malformed,
}

/// Verdict on one pushed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordVerdict {
    pub lane: LaneId,
    /// Number in the lane: its own, or that of the original when it is a duplicate.
    pub number: u64,
    /// Append time: its own, or that of the original.
    pub time: TimeUs,
    pub duplicate: bool,
}

/// A batch that was stored, or recognised as stored before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Appended {
    pub topic: TopicId,
    pub partition: u32,
    /// Offset of the first record; of the original for a repeat of an idempotent producer.
    pub base_offset: u64,
    pub log_start: u64,
    pub time: TimeUs,
    /// An idempotent producer's repeat: nothing was written.
    pub repeat: bool,
    /// One per record when asked for.
    pub verdicts: Vec<RecordVerdict>,
}

/// Why one acknowledgement was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AckReject {
    /// The lease is not the live, unexpired lease of that lane and group, or is for another run.
    LeaseLost,
    /// The message lies outside the leased run or does not exist.
    Unresolvable,
    /// A failure of a message that is finished already.
    AlreadyCommitted,
    /// The group has never been seen on that topic.
    UnknownConsumer,
}

/// The result of one acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckResult {
    pub rejected: Option<AckReject>,
    pub lease_released: bool,
    pub dead_lettered: bool,
    pub noop: bool,
    /// Conflating groups: messages retired without delivery.
    pub conflated: u64,
}

/// A run that was leased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    pub lane: LaneId,
    pub from: u64,
    pub to: u64,
    /// 1 for fresh work, one more with each redelivery of the same head.
    pub attempt: u32,
    pub expires: TimeUs,
}

/// Why a transaction was rolled back (semantics TXN-8: the first refusal in this order).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rollback {
    /// Index among the acks, and why.
    Ack(usize, AckReject),
    /// Index of the batch and of its record whose transaction id is taken.
    Duplicate {
        batch: usize,
        record: u32,
    },
    /// A push was refused.
    Push(usize, Reject),
    Position(usize, Reject),
    /// Index among the KV operations, and the row that won.
    Kv(KvLoss),
}

/// What a transaction did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    pub acks: Vec<AckResult>,
    pub pushes: Vec<Appended>,
    pub kv: Vec<KvResult>,
    pub timers: Vec<TimerResult>,
}

/// What applying one command came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Done,
    Rejected(Reject),
    /// A topic was created or changed.
    Topic(TopicId),
    /// Whether there was something to delete, and how much.
    Deleted(u64),
    Appended(Appended),
    Claimed(Vec<Claimed>),
    Acked(Vec<AckResult>),
    /// Number of lanes extended and the earliest new end.
    Extended(u64, Option<TimeUs>),
    /// Log starts after a trim, in the order asked for.
    Trimmed(Vec<u64>),
    Producer {
        id: i64,
        epoch: i16,
    },
    Kv(Result<Vec<KvResult>, KvLoss>),
    Timers(Vec<TimerResult>),
    Committed(Committed),
    RolledBack(Rollback),
}

/// A message a group gave up on (semantics DLQ-4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    pub id: u64,
    pub topic: TopicId,
    pub group: String,
    pub lane: LaneId,
    pub number: u64,
    pub transaction_id: String,
    pub error: String,
    pub retries: u32,
    /// When the message was appended.
    pub created: TimeUs,
    pub failed: TimeUs,
    /// The payload as it was; without it the record is still in the log at (lane, number).
    pub payload: Option<Bytes>,
}
