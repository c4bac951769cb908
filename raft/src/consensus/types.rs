//! openraft's type parameters, filled with ours. An entry's payload is bytes that openraft never
//! looks into; there is one leader per term, so (term, index) names an entry.

use std::fmt;

use bytes::{Bytes, BytesMut};
use openraft::impls::leader_id_std::LeaderId;
use openraft::raft::responder::Responder;
use openraft::vote::RaftLeaderId;
use openraft::{EntryPayload, OptionalSend, RaftTypeConfig};
use parking_lot::Mutex;
use queen_engine::outcome::Outcome;

use crate::replicator::Signal;

/// What a member is, beside its id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Where its peers reach it; empty for a node that is alone.
    pub address: String,
    /// Random number of its data directory.
    pub generation: u64,
}

/// The bytes of a normal entry.
#[derive(Default)]
pub struct Payload {
    pub parts: Vec<Bytes>,
    /// Fired when the entry is durable here; only on the node that proposed it.
    flushed: Mutex<Option<Signal>>,
}

impl Payload {
    /// An entry to propose.
    pub fn new(parts: Vec<Bytes>, flushed: Signal) -> Payload {
        Payload {
            parts,
            flushed: Mutex::new(Some(flushed)),
        }
    }

    /// An entry read back from the log.
    pub fn stored(bytes: Bytes) -> Payload {
        Payload {
            parts: vec![bytes],
            flushed: Mutex::default(),
        }
    }

    /// Takes the signal out; the one who takes it fires it.
    pub fn take_flushed(&self) -> Option<Signal> {
        self.flushed.lock().take()
    }

    /// The payload in one piece; copies only when it is in several.
    pub fn whole(&self) -> Bytes {
        match self.parts.as_slice() {
            [one] => one.clone(),
            parts => {
                let mut whole = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
                parts.iter().for_each(|part| whole.extend_from_slice(part));
                whole.freeze()
            }
        }
    }

    fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }
}

impl Clone for Payload {
    fn clone(&self) -> Self {
        Payload {
            parts: self.parts.clone(),
            flushed: Mutex::default(),
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Equality of bytes, however they are cut into parts.
impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.whole() == other.whole()
    }
}

/// What applying an entry came to; empty for blank entries and memberships.
#[derive(Debug, Default)]
pub struct Applied(pub Vec<Outcome>);

/// Hands a result to whoever waits, on the thread that has it.
pub struct Callback<T>(Box<dyn FnOnce(T) + Send>);

impl<T> Callback<T> {
    pub fn new(act: impl FnOnce(T) + Send + 'static) -> Callback<T> {
        Callback(Box::new(act))
    }
}

impl<C: RaftTypeConfig, T: OptionalSend + 'static> Responder<C, T> for Callback<T> {
    fn on_complete(self, result: T) {
        (self.0)(result);
    }
}

/// Written out: openraft's macro cannot name a responder of our own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypeConfig;

impl RaftTypeConfig for TypeConfig {
    type D = Payload;
    type R = Applied;
    type NodeId = u64;
    type Node = Peer;
    type Term = u64;
    type LeaderId = LeaderId<u64, u64>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = EntryPayload<Payload, u64, Peer>;
    type Entry = openraft::impls::Entry<<Self::LeaderId as RaftLeaderId>::Committed, Self::Payload>;
    type Responder<T>
        = Callback<T>
    where
        T: OptionalSend + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: OptionalSend + 'static;
    type AsyncRuntime = openraft::TokioRuntime;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

pub type LogId = openraft::type_config::alias::LogIdOf<TypeConfig>;
pub type Vote = openraft::type_config::alias::VoteOf<TypeConfig>;
pub type Entry = openraft::type_config::alias::EntryOf<TypeConfig>;
pub type Membership = openraft::Membership<u64, Peer>;
pub type StoredMembership = openraft::type_config::alias::StoredMembershipOf<TypeConfig>;
pub type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<TypeConfig>;
