//! What a node tells its peers of itself a few times a second: where clients reach it, how far its
//! log and its state are, and, when it leads, who keeps up and what time it is.

use serde::{Deserialize, Serialize};

/// A node's card. Stored nowhere; encoded with a version in front, so that a later one is refused
/// and not misread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Card {
    pub id: i32,
    pub generation: u64,
    /// 0 as long as it belongs to no cluster.
    pub cluster: u128,
    /// Whether its log is empty and it never voted.
    pub pristine: bool,
    /// Ids of the peers it was started with, itself included.
    pub peers: Vec<i32>,
    pub raft_address: String,
    pub kafka_host: String,
    pub kafka_port: u16,
    pub http: String,
    pub rack: Option<String>,
    pub term: u64,
    /// Whether it leads and serves.
    pub leads: bool,
    pub last_index: u64,
    pub applied: u64,
    pub disk_bytes: u64,
    pub disk_free: u64,
    /// The leader's word on who keeps up.
    pub in_sync: Vec<i32>,
    /// The leader's clock, microseconds.
    pub clock: i64,
}

const VERSION: u8 = 1;

impl Card {
    /// The card's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let bytes = vec![VERSION];
        postcard::to_extend(self, bytes)
            .expect("a card is plain data; encoding to memory cannot fail")
    }

    /// Reads a card; `None` for bytes that are none.
    pub fn decode(bytes: &[u8]) -> Option<Card> {
        let (version, rest) = bytes.split_first()?;
        (*version == VERSION)
            .then(|| postcard::from_bytes(rest).ok())
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_come_back_and_damage_never_panics() {
        let card = Card {
            id: 3,
            peers: vec![1, 2, 3],
            kafka_host: "h".into(),
            rack: Some("r".into()),
            clock: -5,
            ..Card::default()
        };
        let bytes = card.encode();
        assert_eq!(Card::decode(&bytes), Some(card));
        for end in 0..bytes.len() {
            // A shorter card may still be one by chance; it must only not panic.
            let _ = Card::decode(&bytes[..end]);
        }
        assert_eq!(Card::decode(&[9]), None);
    }
}
