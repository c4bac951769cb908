//! Classic consumer groups: who is a member, who leads, who has which assignment. In the leader's
//! memory only, as in Kafka; a new leader starts with none and members join again. Committed
//! offsets are the engine's.
//!
//! `state.rs` is the machine of one group, `member.rs` a member; here are the table of groups and
//! the timer that lets time pass in them. A group's lock is held for one step of its machine and
//! never across an await.

pub(crate) mod member;
pub(crate) mod state;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dashmap::DashMap;
use kafka_protocol::ResponseError;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::config::KafkaConfig;
use crate::context::Context;
use member::{Join, JoinAnswer, SyncAnswer};
use state::{Group, Phase, Sync};

/// The settings groups go by.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) initial_delay: Duration,
    pub(crate) members_max: usize,
}

/// A member as DescribeGroups shows it.
pub(crate) struct MemberView {
    pub(crate) id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) metadata: Bytes,
    pub(crate) assignment: Bytes,
}

/// A group as DescribeGroups and ListGroups show it.
pub(crate) struct GroupView {
    pub(crate) name: String,
    pub(crate) phase: Phase,
    pub(crate) protocol_type: String,
    pub(crate) protocol: String,
    pub(crate) members: Vec<MemberView>,
}

/// All groups this node coordinates.
pub(crate) struct Coordinator {
    groups: DashMap<String, Arc<Mutex<Group>>>,
    /// When to look at which group; may hold outdated times, which do no harm.
    deadlines: Mutex<BinaryHeap<Reverse<(Instant, String)>>>,
    sooner: Notify,
    rules: Rules,
}

impl Coordinator {
    pub(crate) fn new(config: &KafkaConfig) -> Coordinator {
        Coordinator {
            groups: DashMap::new(),
            deadlines: Mutex::default(),
            sooner: Notify::new(),
            rules: Rules {
                initial_delay: config.group_initial_delay,
                members_max: config.group_members_max,
            },
        }
    }

    /// The group's memory, if it is of this term.
    fn find(&self, term: u64, name: &str) -> Option<Arc<Mutex<Group>>> {
        let found = self.groups.get(name).map(|entry| entry.value().clone())?;
        let current = found.lock().term == term;
        if current {
            return Some(found);
        }
        // Another node may have coordinated the group since.
        self.groups
            .remove_if(name, |_, group| group.lock().term != term);
        None
    }

    fn find_or_make(&self, term: u64, name: &str, now: Instant) -> Arc<Mutex<Group>> {
        if let Some(found) = self.find(term, name) {
            return found;
        }
        let make = || Arc::new(Mutex::new(Group::new(term, now)));
        self.groups
            .entry(name.to_owned())
            .or_insert_with(make)
            .value()
            .clone()
    }

    /// One step of a group's machine, and its next deadline into the timer.
    fn step<R>(&self, name: &str, group: &Mutex<Group>, step: impl FnOnce(&mut Group) -> R) -> R {
        let mut group = group.lock();
        let result = step(&mut group);
        let next = group.next_deadline();
        if let Some(next) = next
            && group.scheduled.is_none_or(|scheduled| next < scheduled)
        {
            group.scheduled = Some(next);
            drop(group);
            self.schedule(next, name);
        }
        result
    }

    fn schedule(&self, at: Instant, name: &str) {
        let mut deadlines = self.deadlines.lock();
        let is_first = deadlines
            .peek()
            .is_none_or(|Reverse((first, _))| at < *first);
        deadlines.push(Reverse((at, name.to_owned())));
        drop(deadlines);
        if is_first {
            self.sooner.notify_one();
        }
    }

    /// A JoinGroup; the answer comes when the group's rebalance completes.
    pub(crate) fn join(&self, term: u64, name: &str, join: &Join) -> oneshot::Receiver<JoinAnswer> {
        let (waiter, answer) = oneshot::channel();
        let now = Instant::now();
        let knows_nobody = join.member_id.is_empty() || join.instance_id.is_some();
        let group = if knows_nobody {
            Some(self.find_or_make(term, name, now))
        } else {
            self.find(term, name)
        };
        match group {
            Some(group) => self.step(name, &group, |g| g.join(now, &self.rules, join, waiter)),
            None => {
                let error = ResponseError::UnknownMemberId;
                let member_id = join.member_id.clone();
                let _ = waiter.send(Err(member::JoinRefused { error, member_id }));
            }
        }
        answer
    }

    /// A SyncGroup; followers are answered after their leader.
    pub(crate) fn sync(&self, term: u64, name: &str, sync: &Sync) -> oneshot::Receiver<SyncAnswer> {
        let (waiter, answer) = oneshot::channel();
        match self.find(term, name) {
            Some(group) => {
                self.step(name, &group, |g| g.sync(Instant::now(), sync, waiter));
            }
            None => {
                let _ = waiter.send(Err(ResponseError::UnknownMemberId));
            }
        }
        answer
    }

    pub(crate) fn heartbeat(
        &self,
        term: u64,
        name: &str,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
    ) -> Result<(), ResponseError> {
        let group = self
            .find(term, name)
            .ok_or(ResponseError::UnknownMemberId)?;
        let now = Instant::now();
        self.step(name, &group, |g| {
            g.heartbeat(now, member_id, instance_id, generation)
        })
    }

    pub(crate) fn leave(
        &self,
        term: u64,
        name: &str,
        member_id: &str,
        instance_id: Option<&str>,
    ) -> Result<(), ResponseError> {
        let group = self
            .find(term, name)
            .ok_or(ResponseError::UnknownMemberId)?;
        let now = Instant::now();
        self.step(name, &group, |g| {
            g.leave(now, &self.rules, member_id, instance_id)
        })
    }

    /// Whether a commit may happen; the group's protocol type while it has members.
    pub(crate) fn check_commit(
        &self,
        term: u64,
        name: &str,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
    ) -> Result<String, ResponseError> {
        let Some(group) = self.find(term, name) else {
            // A group without members here takes commits from outside of any generation.
            return if generation < 0 {
                Ok(String::new())
            } else {
                Err(ResponseError::IllegalGeneration)
            };
        };
        let now = Instant::now();
        self.step(name, &group, |g| {
            g.check_commit(now, member_id, instance_id, generation)?;
            Ok(if g.members.is_empty() {
                String::new()
            } else {
                g.protocol_type.clone()
            })
        })
    }

    /// The group as it is in memory.
    pub(crate) fn view(&self, term: u64, name: &str) -> Option<GroupView> {
        let group = self.find(term, name)?;
        let group = group.lock();
        Some(view_of(name, &group))
    }

    /// All groups in memory.
    pub(crate) fn views(&self, term: u64) -> Vec<GroupView> {
        let mut views = Vec::new();
        for entry in &self.groups {
            let group = entry.value().lock();
            if group.term == term {
                views.push(view_of(entry.key(), &group));
            }
        }
        views
    }

    /// Forgets a group that has no members; whether it was in memory.
    pub(crate) fn delete(&self, term: u64, name: &str) -> Result<bool, ResponseError> {
        let Some(group) = self.find(term, name) else {
            return Ok(false);
        };
        if group.lock().phase != Phase::Empty {
            return Err(ResponseError::NonEmptyGroup);
        }
        let is_empty = |_: &String, group: &Arc<Mutex<Group>>| group.lock().phase == Phase::Empty;
        Ok(self.groups.remove_if(name, is_empty).is_some())
    }

    /// Members of all groups, for the gauge.
    pub(crate) fn members(&self) -> usize {
        self.groups
            .iter()
            .map(|entry| entry.value().lock().members.len())
            .sum()
    }

    /// Lets time pass in the groups that are due; when the next one is.
    fn tick(&self, now: Instant) -> Option<Instant> {
        loop {
            let name = {
                let mut deadlines = self.deadlines.lock();
                match deadlines.peek() {
                    Some(Reverse((at, _))) if *at <= now => {
                        deadlines.pop().map(|Reverse((_, name))| name)
                    }
                    Some(Reverse((at, _))) => return Some(*at),
                    None => return None,
                }
            };
            let name = name?;
            let group = self.groups.get(&name).map(|entry| entry.value().clone());
            let Some(group) = group else { continue };
            let dead = self.step(&name, &group, |g| {
                g.scheduled = None;
                g.tick(now, &self.rules);
                g.is_dead(now)
            });
            if dead {
                self.groups
                    .remove_if(&name, |_, group| group.lock().is_dead(now));
            }
        }
    }
}

fn view_of(name: &str, group: &Group) -> GroupView {
    let protocol = group.protocol.clone().unwrap_or_default();
    let member = |m: &member::Member| MemberView {
        id: m.id.clone(),
        instance_id: m.instance_id.clone(),
        client_id: m.client_id.clone(),
        client_host: m.client_host.clone(),
        // Between generations there is no protocol to speak of.
        metadata: if group.phase == Phase::Stable {
            m.metadata(&protocol)
        } else {
            Bytes::new()
        },
        assignment: m.assignment.clone(),
    };
    GroupView {
        name: name.to_owned(),
        phase: group.phase,
        protocol_type: group.protocol_type.clone(),
        protocol: if group.phase == Phase::Stable {
            protocol.clone()
        } else {
            String::new()
        },
        members: group.members.values().map(member).collect(),
    }
}

/// How often the members are counted at most.
const GAUGE_PERIOD: Duration = Duration::from_secs(1);

/// Lets time pass in all groups for as long as the listener runs.
pub(crate) async fn run_timers(context: Arc<Context>) {
    let groups = &context.groups;
    let mut counted = None;
    loop {
        let now = Instant::now();
        let next = groups.tick(now);
        // Counting walks all groups, so not at every deadline.
        if counted.is_none_or(|last| now.duration_since(last) > GAUGE_PERIOD) {
            counted = Some(now);
            context.metrics.group_members.set(groups.members() as f64);
        }
        match next {
            Some(at) => {
                tokio::select! {
                    () = tokio::time::sleep_until(at.into()) => {}
                    () = groups.sooner.notified() => {}
                }
            }
            None => groups.sooner.notified().await,
        }
    }
}
