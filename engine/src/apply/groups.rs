//! Positions of groups other than by acks: registration, seeks, Kafka commits, deletion.

use super::Applying;
use crate::command::{CommitOffset, Position, Register, Seek, StartAt};
use crate::group::{CommitNote, Exception, GroupTopic, Registration};
use crate::ids::{LaneId, TimeUs, TopicId};
use crate::lane::LaneTable;
use crate::names;
use crate::outcome::{Outcome, Reject};

impl GroupTopic {
    /// Forgets what exceptions say about lanes of one partition: leases end, positions are told
    /// by the base again.
    fn drop_exceptions(&mut self, lanes: &LaneTable, partition: u32) {
        self.exceptions.retain(|lane, _| {
            lanes
                .get(*lane)
                .is_some_and(|row| row.partition != partition && !row.several_partitions())
        });
    }
}

impl Applying<'_> {
    pub(super) fn register(&mut self, register: &Register) -> Result<Outcome, Reject> {
        let topic = self.topic(&register.topic)?;
        let state = self.engine.topics.get(topic).ok_or(Reject::UnknownTopic)?;
        if state.name.len() + register.group.len() > names::NAME_BYTES_MAX {
            return Err(Reject::NameTooLong);
        }
        let now = self.now;
        let group = self
            .engine
            .groups
            .by_name
            .entry(register.group.clone())
            .or_default();
        if group.topics.is_empty() {
            group.created = now;
        }
        let own = group.topics.entry(topic).or_default();
        if own.registration.is_some() {
            return Ok(Outcome::Topic(topic));
        }
        for (p, partition) in (0u32..).zip(&state.partitions) {
            // What a Kafka commit of the same name has said stands.
            if own.bases.get(p as usize).copied().flatten().is_some() {
                continue;
            }
            let start = match &register.start {
                StartAt::End => partition.next_offset,
                StartAt::Beginning => partition.log_start,
                StartAt::Offsets(offsets) => {
                    let asked = offsets.get(p as usize).copied().unwrap_or(0);
                    asked.clamp(partition.log_start, partition.next_offset)
                }
            };
            own.set_base(p, Some(start));
        }
        own.registration = Some(Registration {
            mode: register.mode.clone(),
            timestamp: register.timestamp,
            created: now,
            conflation: register.conflation,
        });
        own.epoch += 1;
        self.effects.touch_group(&register.group, topic);
        Ok(Outcome::Topic(topic))
    }

    pub(super) fn seek(&mut self, seek: &Seek) -> Result<Outcome, Reject> {
        let topic = self
            .engine
            .topics
            .get(seek.topic)
            .ok_or(Reject::UnknownTopic)?;
        let group = self
            .engine
            .groups
            .by_name
            .get_mut(&seek.group)
            .ok_or(Reject::UnknownGroup)?;
        let state = group
            .topics
            .get_mut(&seek.topic)
            .ok_or(Reject::UnknownGroup)?;
        for (p, partition) in (0u32..).zip(&topic.partitions) {
            if let Some(Some(offset)) = seek.offsets.get(p as usize) {
                let base = (*offset).clamp(partition.log_start, partition.next_offset);
                state.drop_exceptions(&self.engine.lanes, p);
                state.set_base(p, Some(base));
            }
        }
        if let Some((lane, number, first_pending)) = seek.lane {
            let next = self
                .engine
                .lanes
                .get(lane)
                .ok_or(Reject::UnknownPartition)?
                .next;
            move_lane(state, lane, number.min(next), first_pending);
        }
        state.epoch += 1;
        self.effects.touch_group(&seek.group, seek.topic);
        Ok(Outcome::Done)
    }

    pub(super) fn commit_offsets(
        &mut self,
        name: &str,
        offsets: &[CommitOffset],
        protocol_type: &str,
    ) -> Outcome {
        let now = self.now;
        let group = self
            .engine
            .groups
            .by_name
            .entry(name.to_string())
            .or_default();
        if group.topics.is_empty() {
            group.created = now;
        }
        if !protocol_type.is_empty() {
            group.protocol_type = protocol_type.to_string();
        }
        let mut kept = 0;
        for commit in offsets {
            let known = self.engine.topics.get(commit.topic);
            if known.is_none_or(|topic| commit.partition >= topic.width()) {
                continue;
            }
            let state = group.topics.entry(commit.topic).or_default();
            state.drop_exceptions(&self.engine.lanes, commit.partition);
            state.set_base(commit.partition, Some(commit.offset));
            state.epoch += 1;
            let note = CommitNote {
                leader_epoch: commit.leader_epoch,
                metadata: commit.metadata.clone(),
                time: now,
            };
            state.commits.insert(commit.partition, note);
            self.effects.touch_group(name, commit.topic);
            kept += 1;
        }
        if group.topics.is_empty() {
            self.engine.groups.by_name.remove(name);
        }
        if kept == offsets.len() {
            Outcome::Done
        } else {
            Outcome::Rejected(Reject::UnknownTopic)
        }
    }

    pub(super) fn forget_offsets(&mut self, name: &str, partitions: &[(TopicId, u32)]) -> Outcome {
        let Some(group) = self.engine.groups.by_name.get_mut(name) else {
            return Outcome::Rejected(Reject::UnknownGroup);
        };
        for (topic, partition) in partitions {
            let Some(state) = group.topics.get_mut(topic) else {
                continue;
            };
            state.drop_exceptions(&self.engine.lanes, *partition);
            state.set_base(*partition, None);
            state.commits.remove(partition);
            state.epoch += 1;
            if state.bases.iter().all(Option::is_none) && state.registration.is_none() {
                group.topics.remove(topic);
            }
            self.effects.touch_group(name, *topic);
        }
        if group.topics.is_empty() {
            self.engine.groups.by_name.remove(name);
        }
        Outcome::Done
    }

    pub(super) fn delete_group(
        &mut self,
        name: &str,
        topic: Option<TopicId>,
        keep_start: bool,
    ) -> Outcome {
        let groups = &mut self.engine.groups;
        let Some(group) = groups.by_name.get_mut(name) else {
            return Outcome::Deleted(0);
        };
        let chosen: Vec<TopicId> = group
            .topics
            .keys()
            .copied()
            .filter(|t| topic.is_none_or(|only| only == *t))
            .collect();
        for id in &chosen {
            let old = group.topics.remove(id);
            if keep_start
                && let Some(old) = old
                && let Some(registration) = old.registration
            {
                // The cursors go, the start stays: back to where the group began.
                let mut fresh = GroupTopic {
                    epoch: old.epoch + 1,
                    ..GroupTopic::default()
                };
                let width = self.engine.topics.get(*id).map_or(0, |t| t.width());
                for p in 0..width {
                    let begun = match registration.mode.as_str() {
                        "new" => old.bases.get(p as usize).copied().flatten(),
                        _ => None,
                    };
                    fresh.set_base(p, Some(begun.unwrap_or(0)));
                }
                fresh.registration = Some(registration);
                group.topics.insert(*id, fresh);
            }
            self.effects.touch_group(name, *id);
        }
        if group.topics.is_empty() {
            groups.by_name.remove(name);
        }
        groups.leases.retain(|_, lease| {
            lease.group != name || topic.is_some_and(|only| only != lease.topic)
        });
        Outcome::Deleted(chosen.len() as u64)
    }

    /// Changes a group's start: bases move, lanes it has touched keep their cursors (SUB-5).
    pub(super) fn resubscribe(
        &mut self,
        name: &str,
        offsets: &[(TopicId, Vec<u64>)],
        timestamp: TimeUs,
    ) -> Outcome {
        let Some(group) = self.engine.groups.by_name.get_mut(name) else {
            return Outcome::Deleted(0);
        };
        let mut changed = 0;
        for (topic, _) in offsets {
            let Some(state) = group.topics.get_mut(topic) else {
                continue;
            };
            if let Some(registration) = state.registration.as_mut() {
                registration.timestamp = Some(timestamp);
                changed += 1;
            }
        }
        Outcome::Deleted(changed)
    }

    /// The lane a position names, made if missing.
    pub(super) fn set_position(&mut self, position: &Position) -> Result<(), Reject> {
        let topic = self.topic(&position.topic)?;
        let (lane, new) = self.engine.lanes.intern(topic, &position.lane);
        if new && let Some(state) = self.engine.topics.get_mut(topic) {
            state.lanes.push(lane);
        }
        let next = self.engine.lanes.get(lane).map_or(0, |row| row.next);
        let group = self
            .engine
            .groups
            .by_name
            .entry(position.group.clone())
            .or_default();
        let state = group.topics.entry(topic).or_default();
        match position.number {
            None => {
                state.exceptions.remove(&lane);
            }
            Some(number) => move_lane(state, lane, number.min(next), position.first_pending),
        }
        state.epoch += 1;
        self.effects.touch_group(&position.group, topic);
        Ok(())
    }
}

/// Sets a lane's cursor by hand: its lease ends, its counters start anew.
fn move_lane(state: &mut GroupTopic, lane: LaneId, number: u64, first_pending: u64) {
    let passed = state
        .exceptions
        .get(&lane)
        .map_or(first_pending, |e| e.passed);
    let exception = Exception {
        cursor: number,
        passed,
        ..Exception::default()
    };
    state.exceptions.insert(lane, exception);
    state.settle(lane);
}
