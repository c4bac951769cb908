//! What every request handler works with: the node, the settings, and the listener's own memory
//! (groups, fetch sessions, topic ids). Shared by all connections.

use std::sync::Arc;

use dashmap::DashMap;
use kafka_protocol::messages::BrokerId;
use queen_engine::ids::TopicId;
use queen_engine::port::{Broker, NodeView, View, query};
use queen_engine::topic::Topic;
use tokio::sync::watch;
use uuid::Uuid;

use crate::config::KafkaConfig;
use crate::fetch_session::FetchSessions;
use crate::group::Coordinator;
use crate::metrics::Metrics;

/// One listener's state.
pub(crate) struct Context {
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) config: KafkaConfig,
    pub(crate) groups: Coordinator,
    pub(crate) sessions: FetchSessions,
    pub(crate) metrics: Metrics,
    /// Becomes true when the listener stops; long waits end then.
    pub(crate) shutdown: watch::Receiver<bool>,
    /// Topic ids seen before, so that a look-up by id is no walk over all topics.
    known_ids: DashMap<u128, TopicId>,
}

impl Context {
    pub(crate) fn new(
        broker: Arc<dyn Broker>,
        config: KafkaConfig,
        shutdown: watch::Receiver<bool>,
    ) -> Context {
        Context {
            broker,
            groups: Coordinator::new(&config),
            sessions: FetchSessions::new(config.fetch_sessions_max),
            metrics: Metrics::new(),
            config,
            shutdown,
            known_ids: DashMap::new(),
        }
    }

    /// Looks at the applied state.
    pub(crate) fn look<R>(&self, look: impl FnOnce(View<'_>) -> R) -> R {
        query(&*self.broker, look)
    }

    /// The node and its cluster.
    pub(crate) fn node(&self) -> NodeView {
        self.broker.node()
    }

    /// The topic with a Kafka topic id.
    pub(crate) fn topic_with_id<'a>(&self, view: View<'a>, id: Uuid) -> Option<&'a Topic> {
        let uuid = id.as_u128();
        if uuid == 0 {
            return None;
        }
        let known = self.known_ids.get(&uuid).map(|entry| *entry.value());
        if let Some(topic) = known.and_then(|id| view.engine.topics.get(id))
            && topic.uuid == uuid
        {
            return Some(topic);
        }
        let topic = view.engine.topics.with_uuid(uuid)?;
        // Ids of deleted topics pile up; start over when they outnumber the living.
        if self.known_ids.len() > 2 * view.engine.topics.len() + 1024 {
            self.known_ids.clear();
        }
        self.known_ids.insert(uuid, topic.id);
        Some(topic)
    }

    /// Resolves when the listener stops.
    pub(crate) async fn stopped(&self) {
        let mut shutdown = self.shutdown.clone();
        // An error means the sender is gone, which is a stop as well.
        let _ = shutdown.wait_for(|stop| *stop).await;
    }
}

/// The leader as clients may be told: one whose address they are told too.
pub(crate) fn told_leader(node: &NodeView) -> Option<i32> {
    let told = |leader: &i32| node.brokers.iter().any(|broker| broker.id == *leader);
    node.leader.filter(told)
}

/// Ids of brokers as requests and answers carry them.
pub(crate) fn broker_ids(ids: &[i32]) -> Vec<BrokerId> {
    ids.iter().copied().map(BrokerId).collect()
}

/// Kafka's leader epoch of a Raft term.
pub(crate) fn leader_epoch(node: &NodeView) -> i32 {
    i32::try_from(node.term).unwrap_or(i32::MAX)
}

/// An offset as Kafka writes it.
pub(crate) fn wire_offset(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}
