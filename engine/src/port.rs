//! The one door between the listeners and the node: what `kafka/` and `http/` may ask, in plain
//! `std` futures. Implemented by the Raft node in production and by [`crate::testing::LocalBroker`]
//! in listener tests. A listener builds requests and renders answers; it never waits for anything
//! but these futures.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::Engine;
use crate::batch::{BatchHeader, DecodedBatch};
use crate::cluster::{ClusterChange, ClusterRefusal, ClusterView};
use crate::command::{AckItem, Command, LaneHints, Position};
use crate::ids::{BatchRef, LaneId, LeaseId, TimeUs, TopicId};
use crate::index::RecordIndex;
use crate::kv::{KvOp, KvResult};
use crate::outcome::{AckResult, Appended, Outcome, Reject, Rollback};
use crate::timer::{TimerOp, TimerResult};

/// A boxed future that owns all it needs.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// Why the node could not carry out a request. Not a verdict of the state machine (those are
/// outcomes), but a fault of this node or of the moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Failure {
    /// Nothing was applied; another node leads.
    #[error("this node does not lead; the leader is {leader:?}")]
    NotLeader { leader: Option<i32> },
    /// The outcome is unknown: it may still be applied.
    #[error("no answer before the deadline; the outcome is unknown")]
    Timeout,
    /// Nothing was applied; the disk is full.
    #[error("the disk of the data directory is full")]
    StorageFull,
    /// Nothing was applied; too much is waiting.
    #[error("too many writes are waiting")]
    Overloaded,
    /// One entry cannot hold the request.
    #[error("the request is too large for one log entry")]
    TooLarge,
    /// The node is going down; nothing was applied.
    #[error("the node is stopping")]
    Stopping,
    /// Stored bytes cannot be read or are damaged.
    #[error("storage: {0}")]
    Storage(String),
}

/// A broker as clients are told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerAddress {
    pub id: i32,
    pub kafka_host: String,
    pub kafka_port: u16,
    pub rack: Option<String>,
}

/// What a node says of itself and its cluster.
#[derive(Clone, Debug)]
pub struct NodeView {
    pub id: i32,
    pub cluster_id: String,
    /// Kafka partitions of a topic made without a width.
    pub default_partitions: u32,
    /// All members that have told their address, by id.
    pub brokers: Vec<BrokerAddress>,
    /// Ids of all voters, told or not, in order: Kafka's replicas.
    pub replicas: Vec<i32>,
    /// Ids of the voters that keep up, in order: Kafka's ISR.
    pub in_sync: Vec<i32>,
    pub leader: Option<i32>,
    /// Where the leader's HTTP listener is reached, `HOST:PORT`, when this is another node.
    pub leader_http: Option<String>,
    pub is_leader: bool,
    /// Raft term; Kafka's leader epoch.
    pub term: u64,
    pub applied: u64,
    pub committed: u64,
    /// Whether it serves: it leads, has applied an entry of its own term and a majority was heard
    /// lately; or it follows a leader that was heard lately and keeps up.
    pub ready: bool,
    pub storage_full: bool,
}

/// A consistent look at the applied state. Short: apply waits meanwhile.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub engine: &'a Engine,
    pub index: &'a RecordIndex,
}

/// A Kafka producer's batch, checked and walked by the listener.
#[derive(Clone, Debug)]
pub struct ProduceBatch {
    pub topic: TopicId,
    pub partition: u32,
    /// The batch as the producer sent it.
    pub bytes: Bytes,
    pub header: BatchHeader,
    pub lanes: LaneHints,
    /// Records with a `queen.transaction-id` header: index and
    /// [`crate::dedup::transaction_hash`].
    pub dedup: Vec<(u32, u128)>,
}

/// One message pushed over HTTP.
#[derive(Clone, Debug, Default)]
pub struct PushItem {
    pub queue: String,
    /// Lane name; [`crate::names::DEFAULT_LANE`] is stored without a key.
    pub lane: String,
    /// JSON text, stored byte for byte.
    pub payload: Bytes,
    pub transaction_id: Option<String>,
    pub trace_id: Option<String>,
    pub producer_sub: Option<String>,
    /// Only where the id was promised before (timers, binary pushes); else it is derived.
    pub message_id: Option<String>,
}

/// Where a pushed message went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    pub topic: TopicId,
    pub lane: LaneId,
    /// The HTTP contract's `offset`.
    pub number: u64,
    pub time: TimeUs,
    pub duplicate: bool,
    /// Its id, or that of the original.
    pub message_id: String,
}

/// A transaction as the HTTP edge hands it over.
#[derive(Clone, Debug, Default)]
pub struct Bundle {
    pub acks: Vec<AckItem>,
    pub pushes: Vec<PushItem>,
    pub positions: Vec<Position>,
    pub kv: Vec<KvOp>,
    pub timers: Vec<TimerOp>,
}

/// A committed transaction; every list in the order of the bundle.
#[derive(Clone, Debug, Default)]
pub struct BundleDone {
    pub acks: Vec<AckResult>,
    /// A repeat inside the call is marked duplicate.
    pub pushes: Vec<Pushed>,
    pub kv: Vec<KvResult>,
    pub timers: Vec<TimerResult>,
}

/// A rolled-back transaction; indexes refer to the bundle's lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BundleRollback {
    Duplicate { push: usize },
    Other(Rollback),
}

/// Which lanes a pop may claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PopTarget {
    Queue(String),
    Lane {
        queue: String,
        lane: String,
    },
    /// All queues that carry these labels.
    Labels {
        namespace: Option<String>,
        task: Option<String>,
    },
}

/// Where a group begins if this pop is its first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscription {
    /// The client's word: `new` skips the backlog, absent means `new`, any other word means `all`
    /// (http-api 5.3).
    pub mode: Option<String>,
    /// Start time; decides when present.
    pub from: Option<TimeUs>,
}

/// A pop (semantics 5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PopRequest {
    pub target: PopTarget,
    /// [`crate::names::QUEUE_MODE_GROUP`] when the client names none.
    pub group: String,
    /// Most messages of the whole answer.
    pub batch: u32,
    /// Most lanes.
    pub lanes: u32,
    /// How long to wait for work, milliseconds; 0 answers at once.
    pub wait_ms: u64,
    pub lease_ms: Option<i64>,
    pub subscription: Subscription,
    pub commit: bool,
    pub conflation: bool,
}

/// One claimed run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PopClaim {
    pub topic: TopicId,
    pub queue: String,
    pub lane: LaneId,
    pub name: Bytes,
    /// Numbers leased.
    pub from: u64,
    pub to: u64,
    /// First number to deliver; differs from `from` for conflating groups.
    pub deliver_from: u64,
    pub attempt: u32,
    pub expires: TimeUs,
}

/// The answer of a pop; no claims when there was nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PopAnswer {
    /// `None` when nothing was claimed or the cursors moved at delivery.
    pub lease: Option<LeaseId>,
    pub claims: Vec<PopClaim>,
    /// The group's effective policy conflates.
    pub conflation: bool,
    /// The request asked for another policy than the stored one.
    pub conflict: bool,
}

/// What a node offers to its listeners.
pub trait Broker: Send + Sync + 'static {
    /// The node and its cluster as of now.
    fn node(&self) -> NodeView;

    /// Whether this node leads and knows everything that was committed before its term. Cheap:
    /// asked for every request.
    fn is_leading(&self) -> bool;

    /// Resolves at the next change of who leads or whether this node serves (after the call, not
    /// after the first poll). May resolve early; look again.
    fn leader_changed(&self) -> BoxFuture<()>;

    /// The cluster and its members as of now.
    fn cluster(&self) -> ClusterView;

    /// Changes the cluster; only on the leader, else [`Failure::NotLeader`]. One at a time.
    fn change_cluster(&self, change: ClusterChange) -> BoxFuture<Result<(), ClusterRefusal>>;

    /// The clock that stamps entries, as of now.
    fn now(&self) -> TimeUs;

    /// Looks at the applied state. Keep it short, and never call the broker from inside.
    fn view(&self, look: &mut dyn FnMut(View<'_>));

    /// A stored batch, byte for byte as its producer sent it, without copying where possible.
    fn read(&self, at: BatchRef) -> Result<Bytes, Failure>;

    /// A stored batch decompressed, from a bounded cache.
    fn decoded(&self, at: BatchRef) -> Result<Arc<DecodedBatch>, Failure>;

    /// Resolves at the next append to one of `topics` after this call (at the call, not at the
    /// first poll). May resolve early; look again.
    fn appended(&self, topics: &[TopicId]) -> BoxFuture<()>;

    /// Resolves once everything committed before the call is applied here.
    fn barrier(&self) -> BoxFuture<Result<(), Failure>>;

    /// Logs and applies a command that carries no records. A node that does not lead hands it to
    /// the leader, and answers when it is applied here too.
    fn submit(&self, command: Command) -> BoxFuture<Result<Outcome, Failure>>;

    /// Appends producers' batches; each stands alone. One answer per batch, in order.
    fn produce(
        &self,
        batches: Vec<ProduceBatch>,
    ) -> BoxFuture<Result<Vec<Result<Appended, Reject>>, Failure>>;

    /// Appends messages; each stands alone. One answer per item, in order.
    fn push(&self, items: Vec<PushItem>)
    -> BoxFuture<Result<Vec<Result<Pushed, Reject>>, Failure>>;

    /// Commits all of a bundle or nothing.
    fn transact(
        &self,
        bundle: Bundle,
    ) -> BoxFuture<Result<Result<BundleDone, BundleRollback>, Failure>>;

    /// Appends `copy` and removes the dead letter `id`, atomically.
    fn replay(&self, id: u64, copy: PushItem)
    -> BoxFuture<Result<Result<Pushed, Reject>, Failure>>;

    /// Claims work. Dropping the future gives back what it claimed.
    fn pop(&self, pop: PopRequest) -> BoxFuture<Result<PopAnswer, Failure>>;

    /// Tells the node that a claimed answer could not be delivered: its lanes are free again and
    /// the attempt is not counted.
    fn unclaim(&self, group: String, answer: PopAnswer);

    /// Counters and gauges of the node beyond the `metrics` recorder, by name.
    fn figures(&self) -> BTreeMap<String, f64>;
}

/// Looks at the applied state and returns what `look` found.
pub fn query<R>(broker: &dyn Broker, look: impl FnOnce(View<'_>) -> R) -> R {
    let mut look = Some(look);
    let mut found = None;
    broker.view(&mut |view| {
        if let Some(look) = look.take() {
            found = Some(look(view));
        }
    });
    found.expect("a broker calls the look it is given, by the trait's contract")
}
