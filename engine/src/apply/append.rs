//! Appending a batch: sequence check, lanes, duplicates, offsets and numbers.

use super::Applying;
use crate::command::{AppendBatch, LaneHints, TopicRef};
use crate::dedup::Seen;
use crate::ids::{BatchRef, LaneId, TopicId};
use crate::index::{BatchRow, NewBatch};
use crate::outcome::{Appended, Outcome, RecordVerdict, Reject};
use crate::topic::Sequence;

impl Applying<'_> {
    /// Appends a batch, or says why not. Nothing has changed when it is refused, but that the topic
    /// may have been made.
    pub(super) fn append(&mut self, batch: &AppendBatch) -> Result<Appended, Reject> {
        self.check_push(batch)?;
        let at = self
            .entry
            .locate(self.at, batch.span)
            .ok_or(Reject::Malformed)?;
        let topic = self.topic(&batch.topic)?;
        let state = self.engine.topics.get(topic).ok_or(Reject::UnknownTopic)?;
        let partition = state
            .partition(batch.partition)
            .ok_or(Reject::UnknownPartition)?;
        if let Some(stamp) = batch.producer
            && let Sequence::Repeat(original) = partition.judge(stamp, batch.records)?
        {
            return Ok(Appended {
                topic,
                partition: batch.partition,
                base_offset: original.base_offset,
                log_start: partition.log_start,
                time: original.time,
                repeat: true,
                verdicts: Vec::new(),
            });
        }
        let lanes = self.lanes_of(topic, &batch.lanes)?;
        Ok(self.store(topic, batch, at, &lanes))
    }

    /// Everything that can be refused about a batch before anything is changed.
    pub(super) fn check_push(&self, batch: &AppendBatch) -> Result<(), Reject> {
        self.entry
            .locate(self.at, batch.span)
            .ok_or(Reject::Malformed)?;
        let hints = &batch.lanes;
        let with_lanes = !hints.lane_of.is_empty();
        if batch.records == 0 || with_lanes && hints.lane_of.len() != batch.records as usize {
            return Err(Reject::Malformed);
        }
        let topic = match &batch.topic {
            TopicRef::Id(id) => Some(self.engine.topics.get(*id).ok_or(Reject::UnknownTopic)?),
            TopicRef::Name { name, .. } => self.engine.topics.named(name),
        };
        if let Some(topic) = topic {
            topic
                .partition(batch.partition)
                .ok_or(Reject::UnknownPartition)?;
            if batch.verdicts && self.is_full(topic.id) {
                return Err(Reject::QueueFull);
            }
        }
        let names = hints.iter_names().count();
        for hint in &hints.lane_of {
            if hint & LaneHints::BY_NAME != 0 {
                if names <= (hint & !LaneHints::BY_NAME) as usize {
                    return Err(Reject::Malformed);
                }
            } else {
                let row = self
                    .engine
                    .lanes
                    .get(LaneId(*hint))
                    .ok_or(Reject::StaleLane)?;
                if topic.is_none_or(|topic| row.topic != topic.id) {
                    return Err(Reject::StaleLane);
                }
            }
        }
        Ok(())
    }

    /// Whether the queue's `maxSize` is reached: messages retained that some group, or nobody,
    /// has finished.
    fn is_full(&self, topic: TopicId) -> bool {
        let Some(state) = self.engine.topics.get(topic) else {
            return false;
        };
        let Ok(most @ 1..) = u64::try_from(state.options.max_size) else {
            return false;
        };
        let groups: Vec<_> = self
            .engine
            .groups
            .by_name
            .values()
            .filter_map(|g| g.topics.get(&topic))
            .collect();
        let depth: u64 = (0..)
            .zip(&state.partitions)
            .map(|(p, partition)| {
                let slowest = groups.iter().filter_map(|group| group.base(p)).min();
                let start = slowest.unwrap_or(0).max(partition.log_start);
                partition.next_offset.saturating_sub(start)
            })
            .sum();
        depth >= most
    }

    /// Turns hints, checked before, into lanes; makes those that are new.
    fn lanes_of(&mut self, topic: TopicId, hints: &LaneHints) -> Result<Vec<LaneId>, Reject> {
        let mut named: Vec<LaneId> = Vec::new();
        for name in hints.iter_names() {
            let (lane, new) = self.engine.lanes.intern(topic, name);
            if new && let Some(state) = self.engine.topics.get_mut(topic) {
                state.lanes.push(lane);
            }
            named.push(lane);
        }
        let lane = |hint: &u32| match hint & LaneHints::BY_NAME {
            0 => Some(LaneId(*hint)),
            _ => named.get((hint & !LaneHints::BY_NAME) as usize).copied(),
        };
        hints
            .lane_of
            .iter()
            .map(|hint| lane(hint).ok_or(Reject::Malformed))
            .collect()
    }

    /// The first record of `batch` whose transaction id is taken; looks lanes up, makes none.
    pub(super) fn first_duplicate(&self, batch: &AppendBatch) -> Option<u32> {
        let topic = match &batch.topic {
            TopicRef::Id(id) => *id,
            TopicRef::Name { name, .. } => self.engine.topics.named(name)?.id,
        };
        let names: Vec<&[u8]> = batch.lanes.iter_names().collect();
        batch.dedup.iter().find_map(|(record, hash)| {
            let hint = *batch.lanes.lane_of.get(*record as usize)?;
            let lane = match hint & LaneHints::BY_NAME {
                0 => LaneId(hint),
                _ => {
                    let name = names.get((hint & !LaneHints::BY_NAME) as usize)?;
                    self.engine.lanes.find(topic, name)?
                }
            };
            self.engine
                .find_duplicate(lane, *hash, self.now)
                .map(|_| *record)
        })
    }

    fn store(
        &mut self,
        topic: TopicId,
        batch: &AppendBatch,
        at: BatchRef,
        lanes: &[LaneId],
    ) -> Appended {
        let now = self.now;
        let mut placed: Vec<Option<(LaneId, u64)>> = Vec::with_capacity(lanes.len());
        let mut verdicts = Vec::new();
        let mut dropped = Vec::new();
        let mut ids = batch.dedup.iter().peekable();
        for (record, lane) in (0u32..).zip(lanes) {
            let hash = ids.next_if(|(at, _)| *at == record).map(|(_, hash)| *hash);
            let seen = hash.and_then(|hash| self.engine.find_duplicate(*lane, hash, now));
            let (number, time) = match seen {
                Some(seen) => {
                    dropped.push(record);
                    placed.push(None);
                    (seen.number, seen.time)
                }
                None => {
                    let number = self.engine.lanes.take_number(*lane, batch.partition, now);
                    if let Some(hash) = hash {
                        let seen = Seen { number, time: now };
                        self.engine.dedup.remember(topic, *lane, hash, seen);
                    }
                    placed.push(Some((*lane, number)));
                    (number, now)
                }
            };
            if batch.verdicts {
                let duplicate = seen.is_some();
                verdicts.push(RecordVerdict {
                    lane: *lane,
                    number,
                    time,
                    duplicate,
                });
            }
        }
        let state = self
            .engine
            .topics
            .get_mut(topic)
            .expect("append has looked the topic up");
        let partition = &mut state.partitions[batch.partition as usize];
        let base_offset = partition.next_offset;
        let log_start = partition.log_start;
        // A batch of nothing but duplicates leaves no trace, not even offsets.
        if dropped.len() < batch.records as usize {
            partition.next_offset += u64::from(batch.records);
            partition.bytes_appended += u64::from(at.len);
            if let Some(stamp) = batch.producer {
                partition.remember(stamp, batch.records, base_offset, now);
            }
            state.last_append = now;
            let row = BatchRow {
                topic,
                partition: batch.partition,
                base_offset,
                last_offset: base_offset + u64::from(batch.records) - 1,
                records: batch.records,
                has_dropped: !dropped.is_empty(),
                at,
                max_timestamp: batch.max_timestamp,
                time: now,
                epoch: u32::try_from(self.term).unwrap_or(u32::MAX),
            };
            self.index.add(&NewBatch {
                row,
                lanes: &placed,
                dropped: &dropped,
            });
            self.effects.touch_topic(topic);
        }
        let partition = batch.partition;
        Appended {
            topic,
            partition,
            base_offset,
            log_start,
            time: now,
            repeat: false,
            verdicts,
        }
    }

    pub(super) fn fire_timer(
        &mut self,
        queue: &str,
        key: &str,
        version: u64,
        append: &AppendBatch,
    ) -> Result<Outcome, Reject> {
        let timer = self
            .engine
            .timers
            .get(queue, key)
            .ok_or(Reject::UnknownTimer)?;
        if timer.version != version || timer.due > self.now {
            return Err(Reject::UnknownTimer);
        }
        let appended = self.append(append)?;
        self.engine.timers.remove(queue, key);
        self.effects.timers = true;
        Ok(Outcome::Appended(appended))
    }

    pub(super) fn replay_dead_letter(
        &mut self,
        id: u64,
        append: &AppendBatch,
    ) -> Result<Outcome, Reject> {
        if !self.engine.dead_letters.contains_key(&id) {
            return Err(Reject::UnknownDeadLetter);
        }
        if self.first_duplicate(append).is_some() {
            return Err(Reject::Duplicate);
        }
        let appended = self.append(append)?;
        self.engine.dead_letters.remove(&id);
        Ok(Outcome::Appended(appended))
    }
}
