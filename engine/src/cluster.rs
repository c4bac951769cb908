//! What listeners may ask of the cluster: who is in it, how each member is, and to change it.
//! Plain data; the Raft node fills it in.

use crate::port::{BrokerAddress, Failure};

/// One member, as this node knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberView {
    pub id: i32,
    /// Where its peers reach it, `HOST:PORT`; empty for a node that is alone.
    pub raft_address: String,
    /// Random number of its data directory: a wiped directory is another member.
    pub generation: u64,
    /// Whether it counts for majorities; a learner only receives.
    pub voter: bool,
    /// Where Kafka clients reach it; `None` until it has told.
    pub kafka: Option<BrokerAddress>,
    /// Where HTTP clients and other nodes' listeners reach it, `HOST:PORT`; `None` until it has told.
    pub http: Option<String>,
    /// Milliseconds since it was last heard of; 0 for this node, `None` for never.
    pub heard_ms_ago: Option<u64>,
    /// Index of the newest entry of its log, as it said last.
    pub last_index: Option<u64>,
    /// Index of the newest entry it has applied, as it said last.
    pub applied: Option<u64>,
    /// Bytes its log takes on its disk, as it said last.
    pub disk_bytes: Option<u64>,
    /// Bytes free on its disk, as it said last.
    pub disk_free: Option<u64>,
    /// Whether it holds everything that is committed, but for what is on its way (Kafka's ISR).
    pub in_sync: bool,
}

/// The cluster, as this node knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    pub node_id: i32,
    pub cluster_id: String,
    pub term: u64,
    pub leader: Option<i32>,
    pub committed: u64,
    pub applied: u64,
    /// Whether a majority of the voters was heard of lately.
    pub quorum: bool,
    /// What a node that belongs to no cluster yet, or hears no leader, waits for; one sentence.
    pub waits_for: Option<String>,
    /// By id.
    pub members: Vec<MemberView>,
}

impl ClusterView {
    /// A member by id.
    pub fn member(&self, id: i32) -> Option<&MemberView> {
        self.members.iter().find(|member| member.id == id)
    }
}

/// A change of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterChange {
    /// Takes in a node with an empty data directory that runs and listens for its peers at
    /// `raft_address`; answered when it is a voter.
    Add { id: i32, raft_address: String },
    /// Takes a member out, whether it runs or not.
    Remove { id: i32 },
    /// Hands leadership to a voter, or to the one that is furthest.
    Transfer { to: Option<i32> },
}

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterRefusal {
    /// Another change is under way.
    #[error("another change of the cluster is under way; wait for its end")]
    Busy,
    /// The change makes no sense, in one sentence that says what to do.
    #[error("{0}")]
    Invalid(String),
    /// The node concerned did not answer or did not catch up, in one sentence.
    #[error("{0}")]
    Unreachable(String),
    /// This node could not carry the change out.
    #[error(transparent)]
    Failed(#[from] Failure),
}
