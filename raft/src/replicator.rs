//! The seam to Raft: what the node asks of consensus, in our own words. Two implementations:
//! [`crate::consensus`] (openraft over the log on disk) and [`crate::local`] (one node, in memory,
//! deterministic). No type of openraft passes through here.
//!
//! The other direction, committed entries on their way to the state machine, is
//! [`crate::apply::Applier`].

use bytes::Bytes;
use queen_engine::cluster::{ClusterChange, ClusterRefusal};
use queen_engine::ids::BatchRef;
use queen_engine::outcome::Outcome;
use queen_engine::port::{BoxFuture, Failure};
use tokio::sync::watch;

/// A Raft group. One per node today; in every frame and call so that several can come later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(pub u32);

/// The group of a node that has only one.
pub const ONLY_GROUP: GroupId = GroupId(1);

/// An entry's place in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub term: u64,
    pub index: u64,
}

/// What a node is in its group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Role {
    pub term: u64,
    /// The leader as far as this node knows.
    pub leader: Option<i32>,
    pub is_leader: bool,
    /// Index of the newest entry known to be committed.
    pub committed: u64,
    /// Consensus ended for good, and why.
    pub stopped: Option<String>,
}

/// A member of the group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    pub id: i32,
    /// Where its peers reach it; empty for a node that is alone.
    pub address: String,
    /// Random number of its data directory: a wiped directory is another member.
    pub generation: u64,
    pub voter: bool,
}

/// Why a proposal was not appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another node leads.
    NotLeader(Option<i32>),
    /// This node leads but may not write for the moment; ask again.
    NotNow,
    /// Consensus has stopped.
    Stopped,
}

/// What became of a proposal.
#[derive(Debug)]
pub enum Verdict {
    /// Committed and applied here.
    Applied(Position, Vec<Outcome>),
    /// Certainly not appended.
    Refused(Refusal),
    /// It may have been committed, now or later.
    Unknown,
}

/// One entry on its way into the log.
pub struct Proposal {
    /// The entry's bytes, in pieces.
    pub parts: Vec<Bytes>,
    /// Told when the entry is durable here.
    pub flushed: Signal,
    /// Told what became of it.
    pub ticket: Ticket,
}

/// A call that is made at most once.
pub struct Signal(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Signal {
    /// A signal that calls `act`.
    pub fn new(act: impl FnOnce() + Send + Sync + 'static) -> Signal {
        Signal(Some(Box::new(act)))
    }

    /// Makes the call.
    pub fn fire(mut self) {
        if let Some(act) = self.0.take() {
            act();
        }
    }
}

/// A proposer's claim to a verdict. Dropping it unanswered means [`Verdict::Unknown`].
pub struct Ticket(Option<Box<dyn FnOnce(Verdict) + Send>>);

impl Ticket {
    /// A ticket whose verdict goes to `answer`.
    pub fn new(answer: impl FnOnce(Verdict) + Send + 'static) -> Ticket {
        Ticket(Some(Box::new(answer)))
    }

    /// Gives the verdict.
    pub fn answer(mut self, verdict: Verdict) {
        if let Some(answer) = self.0.take() {
            answer(verdict);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(answer) = self.0.take() {
            answer(Verdict::Unknown);
        }
    }
}

/// What a committed entry holds.
#[derive(Clone, Debug)]
pub enum Content {
    /// Commands of [`queen_engine::entry`].
    Commands(Bytes),
    /// A new leader's first entry.
    Blank,
    /// A membership, in the implementation's own bytes.
    Membership(Bytes),
}

/// What a node asks of consensus for one group.
pub trait Replicator: Send + Sync + 'static {
    /// The group this speaks for.
    fn group(&self) -> GroupId;

    /// Offers an entry to the log. The verdict comes through the ticket; the future only ends
    /// when the offer has been taken. Offers are appended in the order of the calls.
    fn propose(&self, proposal: Proposal) -> BoxFuture<()>;

    /// The index that must be applied here before a read that begins now is linearizable.
    fn barrier(&self) -> BoxFuture<Result<u64, Refusal>>;

    /// What this node is now.
    fn role(&self) -> Role;

    /// The same, as it changes.
    fn roles(&self) -> watch::Receiver<Role>;

    /// The members of the group.
    fn members(&self) -> Vec<Member>;

    /// Bytes of an applied entry.
    fn read(&self, at: BatchRef) -> Result<Bytes, Failure>;

    /// Makes sure that the log has room for `bytes` more; `false` when the disk is full.
    fn reserve(&self, bytes: u64) -> bool;

    /// Index of the oldest entry still in the log.
    fn first_index(&self) -> u64;

    /// Lets go of entries up to and including `through`. Whole files go, so some may stay.
    fn purge(&self, through: u64) -> BoxFuture<()>;

    /// Adds counters of the log and of consensus, by name.
    fn figures(&self, into: &mut std::collections::BTreeMap<String, f64>);

    /// Place of the newest entry of the log.
    fn last(&self) -> Option<Position>;

    /// Bytes the log takes on its disk.
    fn disk_bytes(&self) -> u64;

    /// Whether a majority of the voters acknowledged this leader lately, or this follower heard its
    /// leader lately and holds about what that one has committed.
    fn in_touch(&self) -> bool;

    /// How far each voter's log is known to be the leader's; empty unless this node leads.
    fn matched(&self) -> std::collections::BTreeMap<i32, u64>;

    /// Makes these the members of a new group.
    fn form(&self, members: Vec<Member>) -> BoxFuture<Result<(), String>>;

    /// Changes who is in the group; only on the leader.
    fn change(&self, change: ClusterChange) -> BoxFuture<Result<(), ClusterRefusal>>;

    /// Tells the group where members are reached now; only on the leader.
    fn move_to(&self, moved: Vec<Member>) -> BoxFuture<Result<(), ClusterRefusal>>;

    /// Hands leadership to another voter, if there is one that is there.
    fn hand_over(&self) -> BoxFuture<()>;

    /// Where peers ask consensus; `None` for a node that has none.
    fn served(&self) -> Option<crate::consensus::Served>;

    /// Stops taking part. Entries taken before are flushed.
    fn stop(&self) -> BoxFuture<()>;
}
