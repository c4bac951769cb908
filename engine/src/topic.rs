//! Topics and their Kafka partitions: names, widths, offsets, idempotent producers. Owns the
//! catalogue; lanes and groups refer to a topic by id.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::command::ProducerStamp;
use crate::config::{KafkaConfig, Origin, QueueOptions};
use crate::ids::{LaneId, TimeUs, TopicId};
use crate::limits;
use crate::outcome::Reject;

/// One batch an idempotent producer appended (KIP-98).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProducedBatch {
    pub first_sequence: i32,
    pub last_sequence: i32,
    pub base_offset: u64,
    pub time: TimeUs,
}

/// What a partition remembers of one idempotent producer: its epoch and last five batches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProducerWindow {
    pub epoch: i16,
    pub batches: VecDeque<ProducedBatch>,
    pub last_time: TimeUs,
}

/// How a batch relates to its producer's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sequence {
    New,
    Repeat(ProducedBatch),
}

/// The next sequence after `sequence` (it wraps to 0 behind 2^31 - 1).
fn sequence_after(sequence: i32, count: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(count);
    i32::try_from(sum % (1 << 31)).unwrap_or(0)
}

/// One of a topic's numbered sequences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Offset of the next record; the high watermark, since only committed entries are applied.
    pub next_offset: u64,
    /// Lowest offset still readable.
    pub log_start: u64,
    /// Bytes of all batches ever appended.
    pub bytes_appended: u64,
    /// Idempotent producers by id.
    pub producers: BTreeMap<i64, ProducerWindow>,
}

impl Partition {
    /// Judges a batch's sequence (kafka.md 4.3 rows 39 to 43).
    pub(crate) fn judge(&self, stamp: ProducerStamp, records: u32) -> Result<Sequence, Reject> {
        let Some(window) = self.producers.get(&stamp.id) else {
            return Ok(Sequence::New);
        };
        if stamp.epoch < window.epoch {
            return Err(Reject::InvalidProducerEpoch);
        }
        if stamp.epoch > window.epoch {
            return if stamp.base_sequence == 0 {
                Ok(Sequence::New)
            } else {
                Err(Reject::OutOfOrderSequence)
            };
        }
        let count = i32::try_from(records).unwrap_or(i32::MAX);
        let last = sequence_after(stamp.base_sequence, count - 1);
        let repeat = window
            .batches
            .iter()
            .find(|b| b.first_sequence == stamp.base_sequence && b.last_sequence == last);
        if let Some(batch) = repeat {
            return Ok(Sequence::Repeat(*batch));
        }
        match window.batches.back() {
            Some(newest) if sequence_after(newest.last_sequence, 1) != stamp.base_sequence => {
                Err(Reject::OutOfOrderSequence)
            }
            _ => Ok(Sequence::New),
        }
    }

    /// Remembers an appended batch.
    pub(crate) fn remember(&mut self, stamp: ProducerStamp, records: u32, at: u64, now: TimeUs) {
        let count = i32::try_from(records).unwrap_or(i32::MAX);
        let window = self
            .producers
            .entry(stamp.id)
            .or_insert_with(|| ProducerWindow {
                epoch: stamp.epoch,
                batches: VecDeque::new(),
                last_time: now,
            });
        if window.epoch != stamp.epoch {
            window.epoch = stamp.epoch;
            window.batches.clear();
        }
        window.last_time = now;
        window.batches.push_back(ProducedBatch {
            first_sequence: stamp.base_sequence,
            last_sequence: sequence_after(stamp.base_sequence, count - 1),
            base_offset: at,
            time: now,
        });
        while window.batches.len() > limits::PRODUCER_BATCHES {
            window.batches.pop_front();
        }
    }
}

/// A topic: what HTTP calls a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topic {
    pub id: TopicId,
    /// Kafka's topic id; a new one at each creation.
    pub uuid: u128,
    pub name: String,
    pub partitions: Vec<Partition>,
    pub options: QueueOptions,
    pub kafka: KafkaConfig,
    pub origin: Origin,
    pub created: TimeUs,
    /// Its lanes in order of creation.
    pub lanes: Vec<LaneId>,
    /// Time of its newest append.
    pub last_append: TimeUs,
}

impl Topic {
    /// Number of Kafka partitions (W).
    pub fn width(&self) -> u32 {
        u32::try_from(self.partitions.len()).unwrap_or(u32::MAX)
    }

    /// The partition numbered `index`.
    pub fn partition(&self, index: u32) -> Option<&Partition> {
        self.partitions.get(index as usize)
    }
}

/// The catalogue of topics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topics {
    by_id: BTreeMap<TopicId, Topic>,
    by_name: BTreeMap<String, TopicId>,
    next: u32,
}

impl Topics {
    /// The topic with this id, if it still exists.
    pub fn get(&self, id: TopicId) -> Option<&Topic> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: TopicId) -> Option<&mut Topic> {
        self.by_id.get_mut(&id)
    }

    /// The topic with this name.
    pub fn named(&self, name: &str) -> Option<&Topic> {
        self.by_name.get(name).and_then(|id| self.by_id.get(id))
    }

    /// The topic with this Kafka topic id.
    pub fn with_uuid(&self, uuid: u128) -> Option<&Topic> {
        self.by_id.values().find(|topic| topic.uuid == uuid)
    }

    /// All topics by id, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Topic> {
        self.by_id.values()
    }

    /// All topics, mutable, oldest first.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Topic> {
        self.by_id.values_mut()
    }

    /// Number of topics.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(crate) fn create(
        &mut self,
        name: &str,
        uuid: u128,
        partitions: u32,
        origin: Origin,
        kafka: KafkaConfig,
        now: TimeUs,
    ) -> Result<TopicId, Reject> {
        if self.by_name.contains_key(name) {
            return Err(Reject::TopicExists);
        }
        if partitions == 0 || partitions > limits::PARTITIONS_MAX {
            return Err(Reject::InvalidPartitions);
        }
        if name.len() > crate::names::NAME_BYTES_MAX {
            return Err(Reject::NameTooLong);
        }
        let id = TopicId(self.next);
        self.next += 1;
        let topic = Topic {
            id,
            uuid,
            name: name.to_string(),
            partitions: vec![Partition::default(); partitions as usize],
            options: QueueOptions::initial(origin, name),
            kafka,
            origin,
            created: now,
            lanes: Vec::new(),
            last_append: TimeUs(0),
        };
        self.by_id.insert(id, topic);
        self.by_name.insert(name.to_string(), id);
        Ok(id)
    }

    pub(crate) fn delete(&mut self, name: &str) -> Option<Topic> {
        let id = self.by_name.remove(name)?;
        self.by_id.remove(&id)
    }
}
