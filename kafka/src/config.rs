//! The settings of the listener. The binary fills them from its own configuration.

use std::time::Duration;

/// How the Kafka listener behaves; the defaults are Kafka's unless said otherwise.
#[derive(Clone, Debug)]
pub struct KafkaConfig {
    /// Connections above this are closed at once.
    pub connections_max: usize,
    /// Largest request frame (`socket.request.max.bytes`); also the bytes of requests one
    /// connection may have under way.
    pub request_bytes_max: usize,
    /// A connection without requests is closed after this (`connections.max.idle.ms`).
    pub idle_close: Duration,
    /// Whether Metadata may create a topic (`auto.create.topics.enable`).
    pub auto_create_topics: bool,
    /// Wait of an empty group for more members (`group.initial.rebalance.delay.ms`, there 3 s).
    pub group_initial_delay: Duration,
    /// Bounds of a member's session time-out.
    pub group_session_min: Duration,
    pub group_session_max: Duration,
    /// Members of one group (`group.max.size`).
    pub group_members_max: usize,
    /// Fetch sessions kept (`max.incremental.fetch.session.cache.slots`).
    pub fetch_sessions_max: usize,
    /// How long a shutdown waits for requests under way.
    pub drain: Duration,
}

impl Default for KafkaConfig {
    fn default() -> Self {
        KafkaConfig {
            connections_max: 20_000,
            request_bytes_max: 100 * 1024 * 1024,
            idle_close: Duration::from_secs(600),
            auto_create_topics: true,
            group_initial_delay: Duration::from_millis(500),
            group_session_min: Duration::from_secs(6),
            group_session_max: Duration::from_secs(1800),
            group_members_max: 10_000,
            fetch_sessions_max: 1000,
            drain: Duration::from_millis(2500),
        }
    }
}
