//! Every change of the replicated state, as it stands in the log. A command says what a client or
//! the leader's scheduler *wants*; whether it happens is judged when it is applied, by the same
//! rules on every node. Enum variants and fields are stored in order: append, never reorder.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::config::{Origin, QueueOptionsPatch};
use crate::ids::{LaneId, LeaseId, TimeUs, TopicId};
use crate::kv::KvOp;
use crate::timer::TimerOp;

/// A topic as a command names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TopicRef {
    /// By id: refused when that very topic is gone, though another may have its name.
    Id(TopicId),
    /// By name: created with the node's default width when missing.
    Name {
        name: String,
        partitions: u32,
        uuid: u128,
        origin: Origin,
    },
}

/// A stretch of the entry's batch region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Bytes from the start of the batch region.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
}

/// KIP-98 stamp of a batch from an idempotent producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProducerStamp {
    pub id: i64,
    pub epoch: i16,
    pub base_sequence: i32,
}

/// The lane of each record, found out once by the node that received the batch. A record names a
/// lane by id when that node knew it, else by its name; an id that died meanwhile is refused by
/// apply as [`crate::outcome::Reject::StaleLane`], and the sender tries again with names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneHints {
    /// One per record: a [`LaneId`], or the index of a name with [`LaneHints::BY_NAME`] set.
    pub lane_of: Vec<u32>,
    /// The names, each as a little-endian u16 length and its bytes.
    pub names: Bytes,
}

impl LaneHints {
    /// Bit that marks an index into the names.
    pub const BY_NAME: u32 = 1 << 31;

    /// Hints that name every lane; `lane_of` indexes `names`. Names longer than 65,535 bytes are
    /// cut there (a Kafka key that long shares its lane with keys of the same beginning).
    pub fn from_names<N: AsRef<[u8]>>(names: &[N], lane_of: &[u32]) -> LaneHints {
        let mut packed = Vec::with_capacity(names.iter().map(|n| n.as_ref().len() + 2).sum());
        for name in names {
            let name = name.as_ref();
            let len = u16::try_from(name.len()).unwrap_or(u16::MAX);
            packed.extend_from_slice(&len.to_le_bytes());
            packed.extend_from_slice(&name[..usize::from(len)]);
        }
        LaneHints {
            lane_of: lane_of.iter().map(|index| index | Self::BY_NAME).collect(),
            names: packed.into(),
        }
    }

    /// The names in order; ends early where the packing is damaged.
    pub fn iter_names(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest: &[u8] = &self.names;
        std::iter::from_fn(move || {
            let (len, tail) = rest.split_first_chunk::<2>()?;
            let len = usize::from(u16::from_le_bytes(*len));
            if tail.len() < len {
                return None;
            }
            let (name, tail) = tail.split_at(len);
            rest = tail;
            Some(name)
        })
    }
}

/// One record batch to append to one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppendBatch {
    pub topic: TopicRef,
    pub partition: u32,
    pub span: Span,
    /// Number of records in the batch.
    pub records: u32,
    /// Largest record timestamp, milliseconds.
    pub max_timestamp: i64,
    pub producer: Option<ProducerStamp>,
    /// Empty when the topic has `queen.lanes=off`.
    pub lanes: LaneHints,
    /// Records with a transaction id: index in the batch and [`crate::dedup::transaction_hash`].
    pub dedup: Vec<(u32, u128)>,
    /// Whether the sender wants a verdict per record (HTTP pushes do, Kafka does not).
    pub verdicts: bool,
}

/// How an acked message went (semantics 6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AckStatus {
    Completed,
    Failed,
    Retry,
    Dlq,
}

/// One acknowledgement, its message already resolved to a lane number by the edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckItem {
    pub lane: LaneId,
    pub group: String,
    /// Number of the message in its lane.
    pub number: u64,
    pub status: AckStatus,
    /// The fence; an ack without one is not fenced (semantics ACK-8).
    pub lease: Option<LeaseId>,
    pub error: Option<String>,
    /// Number of the first message of the lane at or above the group's base, as the edge saw it
    /// ([`crate::group::first_pending`]); used only when the lane is no exception.
    pub first_pending: u64,
    /// When the message was appended, for the dead letter.
    pub created: TimeUs,
    /// The message's transaction id, for the dead letter.
    pub transaction_id: String,
    /// The message's payload, sent along when this ack may dead-letter it.
    pub payload: Option<Bytes>,
}

/// A run of one lane that the scheduler wants to lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimItem {
    pub lane: LaneId,
    /// First number of the run.
    pub from: u64,
    /// One past the last number of the run.
    pub to: u64,
    /// Number of the lane's first message at or above the group's base; used only when the lane
    /// is no exception yet.
    pub first_pending: u64,
}

/// One partition's step of a group's base: everything in `from..to` belongs to the listed lanes,
/// or to nobody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advance {
    pub partition: u32,
    pub from: u64,
    pub to: u64,
    pub lanes: Vec<Passed>,
}

/// What the walk met of one lane while it passed a stretch of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    pub lane: LaneId,
    /// Number of the lane's first record in the stretch.
    pub first: u64,
    /// One past the number of its last record in the stretch.
    pub end: u64,
}

/// A pop as the scheduler proposes it: walk on, then lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub topic: TopicId,
    pub group: String,
    /// [`crate::group::GroupTopic::epoch`] as the plan saw it.
    pub epoch: u64,
    pub advance: Vec<Advance>,
    pub lanes: Vec<ClaimItem>,
    pub lease: LeaseId,
    /// Length of the lease, milliseconds.
    pub lease_ms: i64,
    /// Move the cursors at delivery and grant no lease (semantics COD-1).
    pub commit: bool,
    /// Do nothing when the entry is stamped later than this: its caller is gone.
    pub deadline: TimeUs,
}

/// Where a group that does not exist yet begins (semantics SUB-1 to SUB-4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartAt {
    /// Behind everything appended so far.
    End,
    /// At the oldest retained message.
    Beginning,
    /// At these offsets, one per partition, resolved from a time by the edge.
    Offsets(Vec<u64>),
}

/// First contact of a group with a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    pub topic: TopicRef,
    pub group: String,
    pub start: StartAt,
    /// `new`, `all` or the text the client sent, for listings.
    pub mode: String,
    /// Start time that was asked for, if any.
    pub timestamp: Option<TimeUs>,
    pub conflation: bool,
}

/// Where a seek goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seek {
    pub topic: TopicId,
    pub group: String,
    /// Base per partition for the whole topic; `None` leaves the partition as it is.
    pub offsets: Vec<Option<u64>>,
    /// Only this lane: its next number, and the number of its first message at or above the base.
    pub lane: Option<(LaneId, u64, u64)>,
}

/// One committed Kafka offset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitOffset {
    pub topic: TopicId,
    pub partition: u32,
    /// Next offset to read.
    pub offset: u64,
    pub leader_epoch: i32,
    pub metadata: String,
}

/// A transaction's part that sets or forgets a group's position in a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    pub topic: TopicRef,
    pub group: String,
    /// The lane's name.
    pub lane: Bytes,
    /// Next number to read, `None` to forget.
    pub number: Option<u64>,
    /// Number of the lane's first message at or above the group's base, as the edge saw it.
    pub first_pending: u64,
    pub metadata: String,
}

/// All of it or none of it (semantics 11).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    pub acks: Vec<AckItem>,
    pub pushes: Vec<AppendBatch>,
    pub positions: Vec<Position>,
    pub kv: Vec<KvOp>,
    pub timers: Vec<TimerOp>,
}

/// One replicated command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Create a topic; refused when the name is taken.
    CreateTopic {
        name: String,
        uuid: u128,
        partitions: u32,
        kafka: BTreeMap<String, String>,
        origin: Origin,
    },
    /// Create a queue or merge options into it (semantics CFG-1, CFG-2).
    Configure {
        topic: TopicRef,
        patch: QueueOptionsPatch,
        replace: bool,
    },
    DeleteTopic {
        name: String,
    },
    /// Raise the number of partitions; refused when not larger.
    Widen {
        topic: TopicId,
        partitions: u32,
    },
    /// Set (`Some`) or unset (`None`) Kafka configs; `replace` unsets all others first.
    AlterConfig {
        topic: TopicId,
        set: Vec<(String, Option<String>)>,
        replace: bool,
    },
    /// Raise log starts: DeleteRecords and retention.
    Trim {
        topic: TopicId,
        before: Vec<(u32, u64)>,
    },
    Append(AppendBatch),
    Register(Register),
    Claim(Claim),
    Ack {
        items: Vec<AckItem>,
    },
    /// Extend every lane still under the lease to at least `seconds` from now.
    Extend {
        lease: LeaseId,
        seconds: i64,
    },
    /// Undo a claim nobody received: leases end, attempts are taken back (semantics CLM-7).
    Unclaim {
        topic: TopicId,
        group: String,
        lease: LeaseId,
    },
    Seek(Seek),
    /// A Kafka commit: sets bases, drops exceptions and leases of those partitions.
    CommitOffsets {
        group: String,
        offsets: Vec<CommitOffset>,
        protocol_type: String,
    },
    /// Forget committed offsets (OffsetDelete).
    ForgetOffsets {
        group: String,
        partitions: Vec<(TopicId, u32)>,
    },
    /// Forget a group everywhere, or on one topic; `keep_start` keeps its registration.
    DeleteGroup {
        group: String,
        topic: Option<TopicId>,
        keep_start: bool,
    },
    /// Change the stored start time for lanes the group has not touched.
    Resubscribe {
        group: String,
        offsets: Vec<(TopicId, Vec<u64>)>,
        timestamp: TimeUs,
    },
    /// Hand out a producer id, or raise the epoch of a known one.
    InitProducer {
        known: Option<(i64, i16)>,
    },
    Kv {
        ops: Vec<KvOp>,
    },
    Timers {
        ops: Vec<TimerOp>,
    },
    /// Append a due timer's message and remove the timer, if it is still that version.
    FireTimer {
        queue: String,
        key: String,
        version: u64,
        append: AppendBatch,
    },
    Transaction(Transaction),
    /// Append a dead letter's copy and remove the record, if it is still there.
    ReplayDeadLetter {
        id: u64,
        append: AppendBatch,
    },
    /// Remove dead letters by id.
    DeleteDeadLetters {
        ids: Vec<u64>,
    },
    /// Let time pass: forget expired dedup memory, KV rows, idle producers. Bounded per call.
    Tick,
}
