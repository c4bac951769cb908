//! The settings of a topic: the 21 queue options of the HTTP contract (http-api 4.1) and the Kafka
//! topic configs. Owns their defaults, merge rule and bounds; knows no wire format.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a configure call says about one option (semantics CFG-1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Patch<T> {
    /// Not mentioned: the stored value stays.
    #[default]
    Keep,
    /// Sent as null: back to the default.
    Reset,
    /// Sent with a value.
    Set(T),
}

impl<T> Patch<T> {
    fn apply(self, value: &mut T, default: T) {
        match self {
            Patch::Keep => {}
            Patch::Reset => *value = default,
            Patch::Set(new) => *value = new,
        }
    }
}

macro_rules! options {
    ($($(#[$doc:meta])* $field:ident : $type:ty = $default:expr;)*) => {
        /// The effective options of a queue.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub struct QueueOptions { $($(#[$doc])* pub $field: $type,)* }

        /// A change of options, one [`Patch`] each.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct QueueOptionsPatch { $($(#[$doc])* pub $field: Patch<$type>,)* }

        impl Default for QueueOptions {
            fn default() -> Self { QueueOptions { $($field: $default,)* } }
        }

        impl QueueOptions {
            /// Merges `patch` into the options; a reset option takes the value of `defaults`.
            pub fn merge(&mut self, patch: QueueOptionsPatch, defaults: &QueueOptions) {
                $(patch.$field.apply(&mut self.$field, defaults.$field.clone());)*
            }
        }
    };
}

options! {
    /// First label, matched exactly by discovery pops.
    namespace: String = String::new();
    /// Second label.
    task: String = String::new();
    /// Seconds a lease lasts when the pop names no length. 60 for a queue made by a push, a pop or
    /// a Kafka client, 300 for one made by configure.
    lease_time: i64 = 300;
    /// How many `failed` acks redeliver; the next one dead-letters.
    retry_limit: i64 = 3;
    /// Milliseconds before a failed lane is claimable again. `None` (reported as 1000): at once.
    retry_delay: Option<i64> = None;
    /// Most retained unconsumed messages; 0 is no limit.
    max_size: i64 = 0;
    /// Seconds a message lives. `None` (reported as 3600): no limit.
    ttl: Option<i64> = None;
    /// Queues of a higher priority are served first by discovery pops.
    priority: i64 = 0;
    /// With the next one, OR-ed: dead-lettering is off only when both are false.
    dead_letter_queue: bool = true;
    /// See `dead_letter_queue`.
    dlq_after_max_retries: bool = true;
    /// Seconds between append and first delivery.
    delayed_processing: i64 = 0;
    /// Seconds a lane must have been quiet before it delivers, bounded by the same time after its
    /// first undelivered message.
    window_buffer: i64 = 0;
    /// Master switch of the next two.
    retention_enabled: bool = false;
    /// Seconds after which a message is deleted, consumed or not; 0 is never.
    retention_seconds: i64 = 0;
    /// Seconds after which a message is deleted that every group has finished; 0 is never.
    completed_retention_seconds: i64 = 0;
    /// Seconds after which a message is deleted whatever the master switch says; 0 is never.
    max_wait_time_seconds: i64 = 0;
    /// Whether payloads are stored encrypted.
    encryption_enabled: bool = false;
    /// Milliseconds, 0..=60000; stored and echoed.
    min_pop_wait_time: i64 = 0;
    /// Seconds a lane remembers transaction ids; 0 is off.
    dedup_window_seconds: i64 = 3600;
    /// Name of a sink that retention waits for; stored and echoed.
    retention_sink_hold: String = String::new();
    /// Longest time the hold may keep data, seconds.
    retention_sink_hold_max_seconds: i64 = 604_800;
    /// Deliveries without an answer after which a message is dead-lettered; 0 is never. Our own
    /// option (DESIGN section 8).
    max_deliveries: i64 = 0;
}

/// Which surface made a topic; decides some defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// By CreateTopics or auto-creation on the Kafka side: Kafka's default retention applies.
    Kafka,
    /// By a push, a pop, a timer or a transaction.
    Push,
    /// By a configure call.
    Configure,
}

impl QueueOptions {
    /// The options a new queue starts from.
    pub fn initial(origin: Origin, name: &str) -> QueueOptions {
        let mut options = QueueOptions::default();
        if origin != Origin::Configure {
            options.lease_time = 60;
        }
        // A dotted name labels the queue: namespace, then task (http-api 4.1).
        if let Some((namespace, rest)) = name.split_once('.') {
            options.namespace = namespace.to_string();
            options.task = rest.split('.').next().unwrap_or_default().to_string();
        }
        options
    }

    /// Whether an exhausted message is kept as a dead letter (otherwise it is dropped).
    pub fn dead_letters(&self) -> bool {
        self.dead_letter_queue || self.dlq_after_max_retries
    }
}

/// A Kafka topic config this broker knows: name, default as text; all of Kafka 4.3's, and ours.
/// `cleanup.policy`, sizes and times as in Kafka 4.x. Those of compression levels, throttles and
/// remote storage are kept and told, and mean nothing here.
pub const KAFKA_TOPIC_CONFIGS: &[(&str, &str)] = &[
    ("cleanup.policy", "delete"),
    ("compression.gzip.level", "-1"),
    ("compression.lz4.level", "9"),
    ("compression.type", "producer"),
    ("compression.zstd.level", "3"),
    ("delete.retention.ms", "86400000"),
    ("file.delete.delay.ms", "60000"),
    ("flush.messages", "9223372036854775807"),
    ("flush.ms", "9223372036854775807"),
    ("follower.replication.throttled.replicas", ""),
    ("index.interval.bytes", "4096"),
    ("leader.replication.throttled.replicas", ""),
    ("local.retention.bytes", "-2"),
    ("local.retention.ms", "-2"),
    ("max.compaction.lag.ms", "9223372036854775807"),
    ("max.message.bytes", "1048588"),
    ("message.timestamp.after.max.ms", "3600000"),
    ("message.timestamp.before.max.ms", "9223372036854775807"),
    ("message.timestamp.type", "CreateTime"),
    ("min.cleanable.dirty.ratio", "0.5"),
    ("min.compaction.lag.ms", "0"),
    ("min.insync.replicas", "1"),
    ("preallocate", "false"),
    ("queen.lanes", "on"),
    ("remote.log.copy.disable", "false"),
    ("remote.log.delete.on.disable", "false"),
    ("remote.storage.enable", "false"),
    ("retention.bytes", "-1"),
    ("retention.ms", "604800000"),
    ("segment.bytes", "1073741824"),
    ("segment.index.bytes", "10485760"),
    ("segment.jitter.ms", "0"),
    ("segment.ms", "604800000"),
    ("unclean.leader.election.enable", "false"),
];

/// The Kafka configs a topic has explicitly, and typed looks at them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KafkaConfig(pub BTreeMap<String, String>);

impl KafkaConfig {
    /// The value in force: the explicit one, else the default; `None` for an unknown name.
    pub fn get(&self, name: &str) -> Option<&str> {
        if let Some(value) = self.0.get(name) {
            return Some(value);
        }
        KAFKA_TOPIC_CONFIGS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, default)| *default)
    }

    fn number(&self, name: &str) -> i64 {
        self.get(name)
            .and_then(|text| text.parse().ok())
            .unwrap_or(-1)
    }

    /// Milliseconds a record is kept, `None` for ever. Topics made over HTTP keep for ever unless
    /// the config is set (semantics RET-8).
    pub fn retention_ms(&self, origin: Origin) -> Option<i64> {
        if origin != Origin::Kafka && !self.0.contains_key("retention.ms") {
            return None;
        }
        Some(self.number("retention.ms")).filter(|ms| *ms >= 0)
    }

    /// Bytes kept per partition, `None` without bound.
    pub fn retention_bytes(&self) -> Option<u64> {
        u64::try_from(self.number("retention.bytes")).ok()
    }

    /// Largest batch accepted, in bytes.
    pub fn max_message_bytes(&self) -> usize {
        usize::try_from(self.number("max.message.bytes")).unwrap_or(0)
    }

    /// Whether the broker stamps records with the append time.
    pub fn log_append_time(&self) -> bool {
        self.get("message.timestamp.type") == Some("LogAppendTime")
    }

    /// Whether old records may be deleted.
    pub fn deletes(&self) -> bool {
        self.get("cleanup.policy")
            .is_some_and(|policy| policy.contains("delete"))
    }

    /// Whether only the newest record of each key is kept.
    pub fn compacts(&self) -> bool {
        self.get("cleanup.policy")
            .is_some_and(|policy| policy.contains("compact"))
    }
}
