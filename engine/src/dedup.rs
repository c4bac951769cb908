//! Transaction ids already used (semantics 4.2): exact inside the window, per lane. Owns the
//! memory; the window itself is a queue option.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::ids::{LaneId, TimeUs, TopicId};

/// Where a transaction id was first used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    pub number: u64,
    pub time: TimeUs,
}

/// The 128-bit hash under which a transaction id is remembered.
pub fn transaction_hash(transaction_id: &[u8]) -> u128 {
    xxh3_128(transaction_id)
}

fn key(lane: LaneId, hash: u128) -> u128 {
    hash.wrapping_add(u128::from(lane.0).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct TopicMemory {
    seen: HashMap<u128, Seen>,
    order: VecDeque<(TimeUs, u128)>,
}

/// All remembered transaction ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dedup {
    topics: BTreeMap<TopicId, TopicMemory>,
}

impl Dedup {
    /// Where the id was used, whatever the window.
    pub fn find(&self, topic: TopicId, lane: LaneId, hash: u128) -> Option<Seen> {
        self.topics.get(&topic)?.seen.get(&key(lane, hash)).copied()
    }

    /// Ids remembered.
    pub fn len(&self) -> usize {
        self.topics.values().map(|topic| topic.seen.len()).sum()
    }

    /// Whether none is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn remember(&mut self, topic: TopicId, lane: LaneId, hash: u128, seen: Seen) {
        let memory = self.topics.entry(topic).or_default();
        let key = key(lane, hash);
        memory.seen.insert(key, seen);
        memory.order.push_back((seen.time, key));
    }

    /// Forgets ids used before `before`, at most `rows_max` of them; how many.
    pub(crate) fn forget(&mut self, topic: TopicId, before: TimeUs, rows_max: usize) -> usize {
        let Some(memory) = self.topics.get_mut(&topic) else {
            return 0;
        };
        let mut forgotten = 0;
        while forgotten < rows_max
            && let Some((time, key)) = memory.order.front().copied()
            && time < before
        {
            memory.order.pop_front();
            // The same id may have been used again since.
            if memory.seen.get(&key).is_some_and(|seen| seen.time <= time) {
                memory.seen.remove(&key);
            }
            forgotten += 1;
        }
        forgotten
    }

    pub(crate) fn forget_topic(&mut self, topic: TopicId) {
        self.topics.remove(&topic);
    }

    /// Whether an id used before `before` is still remembered, for the topic.
    pub(crate) fn oldest(&self, topic: TopicId) -> Option<TimeUs> {
        self.topics
            .get(&topic)?
            .order
            .front()
            .map(|(time, _)| *time)
    }
}
