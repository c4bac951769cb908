//! One member of a group, and the answers it may be waiting for.

use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::ResponseError;
use tokio::sync::oneshot;

/// Where an answer goes; a client that is gone simply does not receive it.
pub(crate) type Waiter<T> = oneshot::Sender<T>;

/// What a JoinGroup asks, without the wire's shapes.
#[derive(Clone, Debug)]
pub(crate) struct Join {
    /// Empty for a newcomer.
    pub(crate) member_id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) session_timeout: Duration,
    pub(crate) rebalance_timeout: Duration,
    pub(crate) protocol_type: String,
    /// Protocols in order of preference, with their metadata.
    pub(crate) protocols: Vec<(String, Bytes)>,
    /// Whether a newcomer must come back with the id it is given (v4+).
    pub(crate) id_required: bool,
    /// Whether the client knows `skip_assignment` (v9+).
    pub(crate) can_skip: bool,
}

/// A member as the leader is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JoinedMember {
    pub(crate) id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) metadata: Bytes,
}

/// The answer to a JoinGroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Joined {
    pub(crate) generation: i32,
    pub(crate) protocol_type: String,
    pub(crate) protocol: String,
    pub(crate) leader: String,
    pub(crate) skip_assignment: bool,
    pub(crate) member_id: String,
    /// Only for the leader.
    pub(crate) members: Vec<JoinedMember>,
}

/// A refused JoinGroup; the id matters for MEMBER_ID_REQUIRED.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JoinRefused {
    pub(crate) error: ResponseError,
    pub(crate) member_id: String,
}

pub(crate) type JoinAnswer = Result<Joined, JoinRefused>;

/// The answer to a SyncGroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Synced {
    pub(crate) protocol_type: String,
    pub(crate) protocol: String,
    pub(crate) assignment: Bytes,
}

pub(crate) type SyncAnswer = Result<Synced, ResponseError>;

/// One member.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) session_timeout: Duration,
    pub(crate) rebalance_timeout: Duration,
    pub(crate) protocols: Vec<(String, Bytes)>,
    pub(crate) assignment: Bytes,
    /// End of its session unless it is heard of.
    pub(crate) deadline: Instant,
    /// Place in the order of first joins; the oldest leads.
    pub(crate) order: u64,
    /// Has not been through a whole join yet.
    pub(crate) is_new: bool,
    /// Has asked for its assignment in this generation.
    pub(crate) synced: bool,
    pub(crate) joining: Option<Waiter<JoinAnswer>>,
    pub(crate) syncing: Option<Waiter<SyncAnswer>>,
}

impl Member {
    /// Whether its session is over. Who waits for the group is alive, a newcomer for a while.
    pub(crate) fn is_expired(&self, now: Instant) -> bool {
        self.deadline <= now && !self.waits()
    }

    /// Whether it waits for an answer of the group without a limit of its own.
    pub(crate) fn waits(&self) -> bool {
        self.syncing.is_some() || (self.joining.is_some() && !self.is_new)
    }

    /// Notes a sign of life.
    pub(crate) fn refresh(&mut self, now: Instant) {
        self.deadline = now + self.session_timeout;
    }

    /// Its metadata for a protocol.
    pub(crate) fn metadata(&self, protocol: &str) -> Bytes {
        let found = self.protocols.iter().find(|(name, _)| name == protocol);
        found
            .map(|(_, metadata)| metadata.clone())
            .unwrap_or_default()
    }

    /// Takes over what a new JoinGroup says.
    pub(crate) fn update(&mut self, join: &Join) {
        self.client_id.clone_from(&join.client_id);
        self.client_host.clone_from(&join.client_host);
        self.session_timeout = join.session_timeout;
        self.rebalance_timeout = join.rebalance_timeout;
        self.protocols.clone_from(&join.protocols);
    }

    /// Ends whatever it waits for with an error.
    pub(crate) fn dismiss(&mut self, error: ResponseError) {
        if let Some(waiter) = self.joining.take() {
            let _ = waiter.send(Err(JoinRefused {
                error,
                member_id: self.id.clone(),
            }));
        }
        if let Some(waiter) = self.syncing.take() {
            let _ = waiter.send(Err(error));
        }
    }
}
