//! Which topic names Kafka clients may use, and how the wire's name types are made.

use kafka_protocol::messages::TopicName;
use kafka_protocol::protocol::StrBytes;

/// Longest topic name.
const NAME_MAX: usize = 249;

/// Whether Kafka allows the name: letters, digits, dot, underscore, dash; not `.` or `..`.
pub(crate) fn is_legal_topic(name: &str) -> bool {
    check_topic(name).is_ok()
}

/// As [`is_legal_topic`]; the text tells which rule the name breaks, and the name.
pub(crate) fn check_topic(name: &str) -> Result<(), String> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.is_empty() {
        Err("Topic name is empty".to_owned())
    } else if name == "." || name == ".." {
        Err(format!("Topic name may not be '{name}'"))
    } else if name.len() > NAME_MAX {
        let len = name.len();
        Err(format!(
            "Topic name has {len} characters, more than {NAME_MAX}: '{name}'"
        ))
    } else if !name.bytes().all(legal) {
        Err(format!(
            "Topic name '{name}' has characters other than letters, digits, '.', '_' and '-'"
        ))
    } else {
        Ok(())
    }
}

/// A name with dots and underscores made alike: two topics whose names differ in nothing else
/// would share the names of Kafka's metrics, so Kafka lets only the first exist.
pub(crate) fn collision_form(name: &str) -> String {
    name.replace('.', "_")
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
