//! The judge: applies one entry to the state, command by command, and says what came of each.
//! Total and deterministic; a command that cannot be carried out is an outcome, never an error.

mod ack;
mod append;
mod claim;
mod groups;
mod tick;
mod transaction;

use crate::Engine;
use crate::command::{Command, TopicRef};
use crate::config::{KafkaConfig, Origin, QueueOptions};
use crate::entry::Entry;
use crate::ids::{LaneId, TimeUs, TopicId};
use crate::index::RecordIndex;
use crate::outcome::{Outcome, Reject};

/// What an applied entry changed that somebody may wait for. Helps the leader to wake and to
/// plan; the state does not depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Topics that gained records.
    pub appended: Vec<TopicId>,
    /// Positions or leases that changed.
    pub groups: Vec<GroupTouch>,
    /// A timer was set or removed.
    pub timers: bool,
    /// A topic was made, changed or deleted.
    pub topics: bool,
    /// Queues whose options changed: what was delayed by them may no longer be.
    pub configured: Vec<TopicId>,
}

/// What changed of one group on one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupTouch {
    pub group: String,
    pub topic: TopicId,
    /// The lanes whose exception changed; `None` when anything may have.
    pub lanes: Option<Vec<LaneId>>,
}

impl Effects {
    fn touch_topic(&mut self, topic: TopicId) {
        if self.appended.last() != Some(&topic) {
            self.appended.push(topic);
        }
    }

    fn touch_group(&mut self, group: &str, topic: TopicId) {
        self.groups.push(GroupTouch {
            group: group.to_string(),
            topic,
            lanes: None,
        });
    }

    fn touch_lanes(&mut self, group: &str, topic: TopicId, lanes: Vec<LaneId>) {
        self.groups.push(GroupTouch {
            group: group.to_string(),
            topic,
            lanes: Some(lanes),
        });
    }
}

/// One entry being applied.
struct Applying<'a> {
    engine: &'a mut Engine,
    index: &'a mut RecordIndex,
    effects: &'a mut Effects,
    entry: &'a Entry,
    at: u64,
    term: u64,
    now: TimeUs,
}

impl Engine {
    /// Applies an entry: one outcome per command, in order. `index` and `term` are the entry's
    /// place in the log; entries are applied once each, in order.
    pub fn apply(
        &mut self,
        index: u64,
        term: u64,
        entry: &Entry,
        records: &mut RecordIndex,
        effects: &mut Effects,
    ) -> Vec<Outcome> {
        assert!(index > self.applied, "entry {index} was applied already");
        // A stamp never goes back, whatever a new leader's clock says.
        self.now = self.now.max(entry.time);
        self.applied = index;
        let now = self.now;
        let mut applying = Applying {
            engine: self,
            index: records,
            effects,
            entry,
            at: index,
            term,
            now,
        };
        entry
            .commands
            .iter()
            .map(|command| applying.command(command))
            .collect()
    }

    /// Takes note of an entry that holds no commands (a leader's blank entry, a membership).
    pub fn apply_blank(&mut self, index: u64) {
        self.applied = index;
    }
}

fn outcome(result: Result<Outcome, Reject>) -> Outcome {
    result.unwrap_or_else(Outcome::Rejected)
}

impl Applying<'_> {
    fn command(&mut self, command: &Command) -> Outcome {
        match command {
            Command::CreateTopic {
                name,
                uuid,
                partitions,
                kafka,
                origin,
            } => {
                let kafka = KafkaConfig(kafka.clone());
                let (uuid, partitions, origin) = (*uuid, *partitions, *origin);
                let now = self.now;
                let made = self
                    .engine
                    .topics
                    .create(name, uuid, partitions, origin, kafka, now);
                self.effects.topics |= made.is_ok();
                outcome(made.map(Outcome::Topic))
            }
            Command::Configure {
                topic,
                patch,
                replace,
            } => {
                let id = match self.topic(topic) {
                    Ok(id) => id,
                    Err(reject) => return Outcome::Rejected(reject),
                };
                if let Some(topic) = self.engine.topics.get_mut(id) {
                    let defaults = QueueOptions::initial(Origin::Configure, &topic.name);
                    if *replace {
                        topic.options = defaults.clone();
                    }
                    topic.options.merge(patch.clone(), &defaults);
                    self.effects.topics = true;
                    self.effects.configured.push(id);
                    self.effects.touch_topic(id);
                }
                Outcome::Topic(id)
            }
            Command::DeleteTopic { name } => self.delete_topic(name),
            Command::Widen { topic, partitions } => outcome(self.widen(*topic, *partitions)),
            Command::AlterConfig {
                topic,
                set,
                replace,
            } => {
                let Some(topic) = self.engine.topics.get_mut(*topic) else {
                    return Outcome::Rejected(Reject::UnknownTopic);
                };
                if *replace {
                    topic.kafka.0.clear();
                }
                for (name, value) in set {
                    match value {
                        Some(value) => topic.kafka.0.insert(name.clone(), value.clone()),
                        None => topic.kafka.0.remove(name),
                    };
                }
                self.effects.topics = true;
                Outcome::Topic(topic.id)
            }
            Command::Trim { topic, before } => outcome(self.trim(*topic, before)),
            Command::Append(batch) => outcome(self.append(batch).map(Outcome::Appended)),
            Command::Register(register) => outcome(self.register(register)),
            Command::Claim(claim) => outcome(self.claim(claim)),
            Command::Ack { items } => Outcome::Acked(self.ack(items)),
            Command::Extend { lease, seconds } => self.extend(*lease, *seconds),
            Command::Unclaim {
                topic,
                group,
                lease,
            } => self.unclaim(*topic, group, *lease),
            Command::Seek(seek) => outcome(self.seek(seek)),
            Command::CommitOffsets {
                group,
                offsets,
                protocol_type,
            } => self.commit_offsets(group, offsets, protocol_type),
            Command::ForgetOffsets { group, partitions } => self.forget_offsets(group, partitions),
            Command::DeleteGroup {
                group,
                topic,
                keep_start,
            } => self.delete_group(group, *topic, *keep_start),
            Command::Resubscribe {
                group,
                offsets,
                timestamp,
            } => self.resubscribe(group, offsets, *timestamp),
            Command::InitProducer { known } => self.init_producer(*known),
            Command::Kv { ops } => {
                if let Some(loss) = self.engine.kv.first_loss(ops, self.now) {
                    return Outcome::Kv(Err(loss));
                }
                Outcome::Kv(Ok(self.engine.kv.apply(ops, self.now)))
            }
            Command::Timers { ops } => {
                self.effects.timers = true;
                Outcome::Timers(self.engine.timers.apply(ops, self.now))
            }
            Command::FireTimer {
                queue,
                key,
                version,
                append,
            } => outcome(self.fire_timer(queue, key, *version, append)),
            Command::Transaction(transaction) => match self.transaction(transaction) {
                Ok(done) => Outcome::Committed(done),
                Err(rollback) => Outcome::RolledBack(rollback),
            },
            Command::ReplayDeadLetter { id, append } => {
                outcome(self.replay_dead_letter(*id, append))
            }
            Command::DeleteDeadLetters { ids } => {
                let gone = ids
                    .iter()
                    .filter(|id| self.engine.dead_letters.remove(id).is_some());
                Outcome::Deleted(gone.count() as u64)
            }
            Command::Tick => self.tick(),
        }
    }

    /// The topic a command names, created if it may be.
    fn topic(&mut self, topic: &TopicRef) -> Result<TopicId, Reject> {
        match topic {
            TopicRef::Id(id) => self
                .engine
                .topics
                .get(*id)
                .map(|topic| topic.id)
                .ok_or(Reject::UnknownTopic),
            TopicRef::Name {
                name,
                partitions,
                uuid,
                origin,
            } => {
                if let Some(topic) = self.engine.topics.named(name) {
                    return Ok(topic.id);
                }
                self.effects.topics = true;
                let kafka = KafkaConfig::default();
                let (partitions, uuid, origin) = (*partitions, *uuid, *origin);
                self.engine
                    .topics
                    .create(name, uuid, partitions, origin, kafka, self.now)
            }
        }
    }

    fn delete_topic(&mut self, name: &str) -> Outcome {
        let Some(topic) = self.engine.topics.delete(name) else {
            return Outcome::Deleted(0);
        };
        for lane in &topic.lanes {
            self.engine.lanes.remove(*lane);
        }
        self.engine.dedup.forget_topic(topic.id);
        self.engine
            .dead_letters
            .retain(|_, letter| letter.topic != topic.id);
        let groups = &mut self.engine.groups;
        for group in groups.by_name.values_mut() {
            group.topics.remove(&topic.id);
        }
        groups.leases.retain(|_, lease| lease.topic != topic.id);
        groups.by_name.retain(|_, group| !group.topics.is_empty());
        self.effects.topics = true;
        self.effects.touch_topic(topic.id);
        Outcome::Deleted(1)
    }

    fn widen(&mut self, topic: TopicId, partitions: u32) -> Result<Outcome, Reject> {
        let topic = self
            .engine
            .topics
            .get_mut(topic)
            .ok_or(Reject::UnknownTopic)?;
        if partitions <= topic.width() || partitions > crate::limits::PARTITIONS_MAX {
            return Err(Reject::InvalidPartitions);
        }
        topic
            .partitions
            .resize(partitions as usize, crate::topic::Partition::default());
        self.effects.topics = true;
        Ok(Outcome::Topic(topic.id))
    }

    fn trim(&mut self, topic: TopicId, before: &[(u32, u64)]) -> Result<Outcome, Reject> {
        let state = self
            .engine
            .topics
            .get_mut(topic)
            .ok_or(Reject::UnknownTopic)?;
        for (partition, offset) in before {
            let partition = state
                .partition(*partition)
                .ok_or(Reject::UnknownPartition)?;
            if *offset > partition.next_offset {
                return Err(Reject::OffsetOutOfRange);
            }
        }
        let starts = before.iter().map(|(partition, offset)| {
            let partition = &mut state.partitions[*partition as usize];
            partition.log_start = partition.log_start.max(*offset);
            partition.log_start
        });
        let starts = starts.collect();
        self.effects.touch_topic(topic);
        Ok(Outcome::Trimmed(starts))
    }

    fn init_producer(&mut self, known: Option<(i64, i16)>) -> Outcome {
        match known {
            Some((id, epoch)) if epoch < i16::MAX - 1 && id < self.engine.next_producer => {
                Outcome::Producer {
                    id,
                    epoch: epoch + 1,
                }
            }
            _ => {
                let id = self.engine.next_producer;
                self.engine.next_producer += 1;
                Outcome::Producer { id, epoch: 0 }
            }
        }
    }
}
