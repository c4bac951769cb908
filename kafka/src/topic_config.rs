//! Kafka's topic configs as admin clients see them: types, checks, and rows with their sources.
//! Names and defaults are the engine's (`config::KAFKA_TOPIC_CONFIGS`).

use queen_engine::config::{KAFKA_TOPIC_CONFIGS, Origin};
use queen_engine::topic::Topic;

/// `source` of a config that was set on the topic.
pub(crate) const SOURCE_TOPIC: i8 = 1;
/// `source` of a broker setting given at start.
pub(crate) const SOURCE_STATIC_BROKER: i8 = 4;
/// `source` of a default.
pub(crate) const SOURCE_DEFAULT: i8 = 5;

/// What a config's value is; the numbers are the wire's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub(crate) enum Kind {
    Boolean = 1,
    Text = 2,
    Int = 3,
    Long = 5,
    Double = 6,
    List = 7,
}

/// One config of a topic, as described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigRow {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) default: String,
    pub(crate) is_set: bool,
    pub(crate) kind: Kind,
}

impl ConfigRow {
    /// Where the value comes from.
    pub(crate) fn source(&self) -> i8 {
        if self.is_set {
            SOURCE_TOPIC
        } else {
            SOURCE_DEFAULT
        }
    }
}

/// The type of a config's value.
pub(crate) fn kind(name: &str) -> Kind {
    match name {
        "cleanup.policy"
        | "follower.replication.throttled.replicas"
        | "leader.replication.throttled.replicas" => Kind::List,
        "compression.type" | "message.timestamp.type" | "queen.lanes" => Kind::Text,
        "preallocate"
        | "remote.log.copy.disable"
        | "remote.log.delete.on.disable"
        | "remote.storage.enable"
        | "unclean.leader.election.enable" => Kind::Boolean,
        "min.cleanable.dirty.ratio" => Kind::Double,
        "compression.gzip.level"
        | "compression.lz4.level"
        | "compression.zstd.level"
        | "index.interval.bytes"
        | "max.message.bytes"
        | "min.insync.replicas"
        | "segment.bytes"
        | "segment.index.bytes" => Kind::Int,
        _ => Kind::Long,
    }
}

/// Checks a value; the text says what is wrong, for the client.
pub(crate) fn check(name: &str, value: Option<&str>) -> Result<(), String> {
    if !KAFKA_TOPIC_CONFIGS.iter().any(|(known, _)| *known == name) {
        return Err(format!("Unknown topic config name: {name}"));
    }
    let Some(value) = value else {
        return Err(format!(
            "Null value not supported for topic configs: {name}"
        ));
    };
    let one_of = |choices: &[&str]| choices.contains(&value);
    let number = |min: i64, max: i64| {
        value
            .trim()
            .parse::<i64>()
            .is_ok_and(|number| (min..=max).contains(&number))
    };
    let int_max = i64::from(i32::MAX);
    let good = match name {
        "cleanup.policy" => {
            // An empty list means: never cleaned (KIP-1161).
            let mut words = value.split(',').map(str::trim);
            value.trim().is_empty() || words.all(|word| matches!(word, "delete" | "compact"))
        }
        "compression.type" => {
            one_of(&["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
        }
        "message.timestamp.type" => one_of(&["CreateTime", "LogAppendTime"]),
        "queen.lanes" => one_of(&["on", "off"]),
        "preallocate" | "unclean.leader.election.enable" => one_of_flags(value),
        // There is no remote storage to switch on.
        "remote.storage.enable" => value.trim().eq_ignore_ascii_case("false"),
        "remote.log.copy.disable" | "remote.log.delete.on.disable" => one_of_flags(value),
        "compression.gzip.level" => number(1, 9) || number(-1, -1),
        "compression.lz4.level" => number(1, 17),
        "compression.zstd.level" => number(-131_072, 22),
        "follower.replication.throttled.replicas" | "leader.replication.throttled.replicas" => {
            throttled(value)
        }
        "local.retention.bytes" | "local.retention.ms" => number(-2, i64::MAX),
        "min.cleanable.dirty.ratio" => value
            .trim()
            .parse::<f64>()
            .is_ok_and(|ratio| (0.0..=1.0).contains(&ratio)),
        "retention.ms" => number(-1, i64::MAX),
        // Any negative number is no bound, as in Kafka.
        "retention.bytes" => number(i64::MIN, i64::MAX),
        "segment.bytes" => number(14, int_max),
        "min.insync.replicas" => number(1, int_max),
        "flush.messages" | "max.compaction.lag.ms" | "segment.ms" => number(1, i64::MAX),
        "index.interval.bytes" | "max.message.bytes" => number(0, int_max),
        "segment.index.bytes" => number(4, int_max),
        _ => number(0, i64::MAX),
    };
    if good {
        Ok(())
    } else {
        Err(format!("Invalid value {value} for configuration {name}"))
    }
}

fn one_of_flags(value: &str) -> bool {
    let value = value.trim();
    value.eq_ignore_ascii_case("true") || value.eq_ignore_ascii_case("false")
}

/// `*`, or a list of partition and broker pairs, or nothing.
fn throttled(value: &str) -> bool {
    let value = value.trim();
    let is_pair = |pair: &str| {
        pair.trim()
            .split_once(':')
            .is_some_and(|(partition, broker)| {
                partition.parse::<u32>().is_ok() && broker.parse::<u32>().is_ok()
            })
    };
    value.is_empty() || value == "*" || value.split(',').all(is_pair)
}

/// The configs of a topic, in the order of their names.
pub(crate) fn rows(topic: &Topic) -> Vec<ConfigRow> {
    KAFKA_TOPIC_CONFIGS
        .iter()
        .map(|(name, default)| {
            let kept_for_ever = *name == "retention.ms" && topic.origin != Origin::Kafka;
            let default = if kept_for_ever { "-1" } else { default };
            let set = topic.kafka.0.get(*name);
            ConfigRow {
                name,
                value: set.map_or(default, String::as_str).to_owned(),
                default: default.to_owned(),
                is_set: set.is_some(),
                kind: kind(name),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_passes_its_own_check() {
        for (name, default) in KAFKA_TOPIC_CONFIGS {
            assert_eq!(check(name, Some(default)), Ok(()), "{name}");
        }
    }

    #[test]
    fn wrong_values_and_names_are_refused() {
        for (name, value) in [
            ("retention.ms", "-2"),
            ("retention.ms", "soon"),
            ("cleanup.policy", "keep"),
            ("segment.bytes", "99999999999"),
            ("min.cleanable.dirty.ratio", "1.5"),
            ("no.such.config", "1"),
        ] {
            assert!(check(name, Some(value)).is_err(), "{name}={value}");
        }
        assert_eq!(check("cleanup.policy", Some("compact,delete")), Ok(()));
        assert_eq!(check("cleanup.policy", Some("")), Ok(()));
    }
}
