//! Turns pushed messages into record batches: one batch per topic and Kafka partition of a log
//! entry, whatever number of requests it came in (DESIGN section 5).

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::batch::{BatchBuilder, kafka_partition};
use crate::command::{AppendBatch, LaneHints, TopicRef};
use crate::config::Origin;
use crate::dedup::transaction_hash;
use crate::entry::EntryBuilder;
use crate::names;
use crate::outcome::Reject;
use crate::port::{PushItem, View};

/// Where a queue's messages go, as of one look at the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub topic: TopicRef,
    /// Number of Kafka partitions.
    pub width: u32,
    /// Whether repeats of different requests are duplicates (the dedup window is open).
    pub dedup: bool,
}

/// Looks up where pushes to `queue` go; `chance` becomes the topic id if it is made.
pub fn route(view: View<'_>, queue: &str, default_partitions: u32, chance: u128) -> Route {
    match view.engine.topics.named(queue) {
        Some(topic) => Route {
            topic: TopicRef::Id(topic.id),
            width: topic.width(),
            dedup: topic.options.dedup_window_seconds > 0,
        },
        None => Route {
            topic: TopicRef::Name {
                name: queue.to_string(),
                partitions: default_partitions,
                uuid: chance,
                origin: Origin::Push,
            },
            width: default_partitions,
            dedup: true,
        },
    }
}

/// Where one item landed in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landing {
    /// Index of its batch among the finished ones.
    pub batch: usize,
    /// Index of its record in that batch.
    pub record: u32,
    /// The same transaction id is in this call already; the record is the first one's.
    pub repeat: bool,
}

#[derive(Debug)]
struct Slot {
    topic: TopicRef,
    partition: u32,
    builder: BatchBuilder,
    names: Vec<Vec<u8>>,
    name_at: HashMap<Vec<u8>, u32>,
    lane_of: Vec<u32>,
    dedup: Vec<(u32, u128)>,
}

/// Collects pushes into batches.
#[derive(Debug)]
pub struct BatchPlan {
    timestamp_ms: i64,
    slots: Vec<Slot>,
    place: BTreeMap<(String, u32), usize>,
    /// Transaction ids of the present call: queue, lane, hash.
    seen: HashMap<(String, String, u128), Landing>,
}

impl BatchPlan {
    /// An empty plan; records are stamped `timestamp_ms`.
    pub fn new(timestamp_ms: i64) -> BatchPlan {
        BatchPlan {
            timestamp_ms,
            slots: Vec::new(),
            place: BTreeMap::new(),
            seen: HashMap::new(),
        }
    }

    /// Starts another call: repeats are collapsed inside a call only (semantics DED-5), those of
    /// different calls are judged by apply.
    pub fn next_call(&mut self) {
        self.seen.clear();
    }

    /// Bytes of records so far, roughly.
    pub fn bytes(&self) -> usize {
        self.slots.iter().map(|slot| slot.builder.bytes()).sum()
    }

    /// Whether nothing was pushed.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Adds one message.
    pub fn push(&mut self, route: &Route, item: &PushItem) -> Result<Landing, Reject> {
        if item.queue.len() + item.lane.len() > names::NAME_BYTES_MAX {
            return Err(Reject::NameTooLong);
        }
        let transaction_id = item.transaction_id.as_deref();
        if transaction_id.is_some_and(|id| id.len() > names::TRANSACTION_ID_BYTES_MAX) {
            return Err(Reject::NameTooLong);
        }
        let hash = transaction_id.map(|id| transaction_hash(id.as_bytes()));
        if let Some(hash) = hash {
            let id = (item.queue.clone(), item.lane.clone(), hash);
            if let Some(first) = self.seen.get(&id) {
                return Ok(Landing {
                    repeat: true,
                    ..*first
                });
            }
        }
        let lane = item.lane.as_bytes();
        let partition = kafka_partition(lane, route.width);
        let batch = self.slot(route, &item.queue, partition);
        let slot = &mut self.slots[batch];
        let record = u32::try_from(slot.lane_of.len()).map_err(|_| Reject::Malformed)?;
        let fields = [
            (names::HEADER_TRANSACTION_ID, &item.transaction_id),
            (names::HEADER_MESSAGE_ID, &item.message_id),
            (names::HEADER_TRACE_ID, &item.trace_id),
            (names::HEADER_PRODUCER_SUB, &item.producer_sub),
        ];
        let headers: Vec<(&[u8], Option<&[u8]>)> = fields
            .iter()
            .filter_map(|(name, value)| {
                value
                    .as_ref()
                    .map(|value| (name.as_bytes(), Some(value.as_bytes())))
            })
            .collect();
        let key = (item.lane != names::DEFAULT_LANE).then_some(lane);
        slot.builder
            .push(self.timestamp_ms, key, Some(&item.payload), &headers);
        let name = match slot.name_at.get(lane) {
            Some(name) => *name,
            None => {
                let name = u32::try_from(slot.names.len()).map_err(|_| Reject::Malformed)?;
                slot.names.push(lane.to_vec());
                slot.name_at.insert(lane.to_vec(), name);
                name
            }
        };
        slot.lane_of.push(name);
        let landing = Landing {
            batch,
            record,
            repeat: false,
        };
        if let Some(hash) = hash {
            slot.dedup.push((record, hash));
            self.seen
                .insert((item.queue.clone(), item.lane.clone(), hash), landing);
        }
        Ok(landing)
    }

    fn slot(&mut self, route: &Route, queue: &str, partition: u32) -> usize {
        let next = self.slots.len();
        let at = *self
            .place
            .entry((queue.to_string(), partition))
            .or_insert(next);
        if at == next {
            self.slots.push(Slot {
                topic: route.topic.clone(),
                partition,
                builder: BatchBuilder::new(self.timestamp_ms),
                names: Vec::new(),
                name_at: HashMap::new(),
                lane_of: Vec::new(),
                dedup: Vec::new(),
            });
        }
        at
    }

    /// Puts the batches into the entry; what to append, in the order landings count.
    pub fn finish(self, entry: &mut EntryBuilder) -> Vec<AppendBatch> {
        let timestamp = self.timestamp_ms;
        let append = |slot: Slot| {
            let records = u32::try_from(slot.lane_of.len()).unwrap_or(u32::MAX);
            AppendBatch {
                topic: slot.topic,
                partition: slot.partition,
                span: entry.batch(slot.builder.finish()),
                records,
                max_timestamp: timestamp,
                producer: None,
                lanes: LaneHints::from_names(&slot.names, &slot.lane_of),
                dedup: slot.dedup,
                verdicts: true,
            }
        };
        self.slots.into_iter().map(append).collect()
    }
}
