//! Which topic names Kafka clients may use, and how the wire's name types are made.

use kafka_protocol::messages::TopicName;
use kafka_protocol::protocol::StrBytes;

/// Longest topic name.
const NAME_MAX: usize = 249;

/// Whether Kafka allows the name: letters, digits, dot, underscore, dash; not `.` or `..`.
pub(crate) fn is_legal_topic(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !name.is_empty()
        && name.len() <= NAME_MAX
        && name != "."
        && name != ".."
        && name.bytes().all(legal)
}

/// A name as the codec wants it.
pub(crate) fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

/// A string as the codec wants it.
pub(crate) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kafkas_rules_for_names() {
        for good in ["a", "A.b_c-9", "...", &"x".repeat(249)] {
            assert!(is_legal_topic(good), "{good}");
        }
        for bad in ["", ".", "..", "a b", "ä", "a/b", &"x".repeat(250)] {
            assert!(!is_legal_topic(bad), "{bad}");
        }
    }
}
