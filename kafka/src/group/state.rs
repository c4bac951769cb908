//! One classic group as a state machine: joins, syncs, heartbeats and leaves go in with the time,
//! answers come out through waiters. Knows no clock, socket or lock. Phases: Empty →
//! PreparingRebalance → CompletingRebalance → Stable. Joining is here; what members of a
//! generation do, and what time does to them, is in `state/generation.rs`.
//!
//! kafka.md 4.6 rows 95 to 109 are its rules; protocol types and metadata are opaque (row 106).

mod generation;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::ResponseError;

pub(crate) use generation::Sync;

use super::Rules;
use super::member::{Join, JoinAnswer, JoinRefused, Joined, JoinedMember, Member, Waiter};
use crate::limits;

/// Where a group stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Empty,
    PreparingRebalance,
    CompletingRebalance,
    Stable,
}

impl Phase {
    /// Kafka's name of the state.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::Empty => "Empty",
            Phase::PreparingRebalance => "PreparingRebalance",
            Phase::CompletingRebalance => "CompletingRebalance",
            Phase::Stable => "Stable",
        }
    }
}

/// The wait of a group that was empty for more members to come.
#[derive(Clone, Copy, Debug)]
struct InitialDelay {
    /// How much longer it may be prolonged.
    remaining: Duration,
    member_came: bool,
}

/// One group.
#[derive(Debug)]
pub(crate) struct Group {
    /// Raft term in which this memory began; of another term it is worthless.
    pub(crate) term: u64,
    pub(crate) phase: Phase,
    pub(crate) generation: i32,
    pub(crate) protocol_type: String,
    pub(crate) protocol: Option<String>,
    leader: Option<String>,
    pub(crate) members: BTreeMap<String, Member>,
    /// Member ids by group instance id.
    statics: HashMap<String, String>,
    /// Ids handed out with MEMBER_ID_REQUIRED, and until when they are good.
    pending: HashMap<String, Instant>,
    join_deadline: Option<Instant>,
    initial: Option<InitialDelay>,
    sync_deadline: Option<Instant>,
    next_order: u64,
    emptied: Instant,
    /// When the timer will look at the group next.
    pub(crate) scheduled: Option<Instant>,
}

/// How long an empty group's memory is kept, so that late members learn what became of them.
const EMPTY_KEPT: Duration = Duration::from_secs(600);

impl Group {
    pub(crate) fn new(term: u64, now: Instant) -> Group {
        Group {
            term,
            phase: Phase::Empty,
            generation: 0,
            protocol_type: String::new(),
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            statics: HashMap::new(),
            pending: HashMap::new(),
            join_deadline: None,
            initial: None,
            sync_deadline: None,
            next_order: 0,
            emptied: now,
            scheduled: None,
        }
    }

    /// Takes a JoinGroup in; the answer may come now or when the rebalance completes.
    pub(crate) fn join(
        &mut self,
        now: Instant,
        rules: &Rules,
        join: &Join,
        waiter: Waiter<JoinAnswer>,
    ) {
        if let Err((error, waiter)) = self.try_join(now, rules, join, waiter) {
            let _ = waiter.send(Err(error));
        }
    }

    fn try_join(
        &mut self,
        now: Instant,
        rules: &Rules,
        join: &Join,
        waiter: Waiter<JoinAnswer>,
    ) -> Result<(), (JoinRefused, Waiter<JoinAnswer>)> {
        let refuse = |error, waiter| {
            Err((
                JoinRefused {
                    error,
                    member_id: join.member_id.clone(),
                },
                waiter,
            ))
        };
        if !self.accepts(join) {
            return refuse(ResponseError::InconsistentGroupProtocol, waiter);
        }
        let full = self.members.len() + self.pending.len() >= rules.members_max;
        if let Some(instance) = &join.instance_id {
            match self.statics.get(instance).cloned() {
                Some(old) if join.member_id.is_empty() => {
                    self.replace_static(now, instance, &old, join, waiter);
                }
                Some(known) if known == join.member_id => {
                    self.rejoin(now, rules, join, waiter);
                }
                Some(_) => return refuse(ResponseError::FencedInstanceId, waiter),
                None if full => return refuse(ResponseError::GroupMaxSizeReached, waiter),
                // An id of before our restart: the instance proves who it is (case GR-13).
                None if !join.member_id.is_empty() => {
                    self.add(now, rules, join.member_id.clone(), join, waiter);
                }
                None => self.add(now, rules, new_id(instance), join, waiter),
            }
            return Ok(());
        }
        if join.member_id.is_empty() {
            if full {
                return refuse(ResponseError::GroupMaxSizeReached, waiter);
            }
            let id = new_id(&join.client_id);
            if join.id_required {
                self.pending.insert(id.clone(), now + join.session_timeout);
                let error = ResponseError::MemberIdRequired;
                return Err((
                    JoinRefused {
                        error,
                        member_id: id,
                    },
                    waiter,
                ));
            }
            self.add(now, rules, id, join, waiter);
        } else if self.pending.remove(&join.member_id).is_some() {
            self.add(now, rules, join.member_id.clone(), join, waiter);
        } else if self.members.contains_key(&join.member_id) {
            self.rejoin(now, rules, join, waiter);
        } else {
            return refuse(ResponseError::UnknownMemberId, waiter);
        }
        Ok(())
    }

    /// Whether a joiner's type and protocols go together with the other members'.
    fn accepts(&self, join: &Join) -> bool {
        if join.protocol_type.is_empty() || join.protocols.is_empty() {
            return false;
        }
        let replaced = join
            .instance_id
            .as_ref()
            .and_then(|instance| self.statics.get(instance));
        let others: Vec<&Member> = self
            .members
            .values()
            .filter(|m| m.id != join.member_id && Some(&m.id) != replaced)
            .collect();
        if others.is_empty() {
            return true;
        }
        self.protocol_type == join.protocol_type
            && join.protocols.iter().any(|(name, _)| {
                others
                    .iter()
                    .all(|m| m.protocols.iter().any(|(other, _)| other == name))
            })
    }

    fn add(
        &mut self,
        now: Instant,
        rules: &Rules,
        id: String,
        join: &Join,
        waiter: Waiter<JoinAnswer>,
    ) {
        if self.members.is_empty() {
            self.protocol_type.clone_from(&join.protocol_type);
        }
        if let Some(instance) = &join.instance_id {
            self.statics.insert(instance.clone(), id.clone());
        }
        let member = Member {
            id: id.clone(),
            instance_id: join.instance_id.clone(),
            client_id: join.client_id.clone(),
            client_host: join.client_host.clone(),
            session_timeout: join.session_timeout,
            rebalance_timeout: join.rebalance_timeout,
            protocols: join.protocols.clone(),
            assignment: Bytes::new(),
            deadline: now + Duration::from_millis(limits::NEW_MEMBER_JOIN_MS),
            order: self.next_order,
            is_new: true,
            synced: false,
            joining: Some(waiter),
            syncing: None,
        };
        self.next_order += 1;
        self.members.insert(id, member);
        if let Some(initial) = &mut self.initial {
            initial.member_came = true;
        }
        self.rebalance(now, rules);
    }

    fn rejoin(&mut self, now: Instant, rules: &Rules, join: &Join, waiter: Waiter<JoinAnswer>) {
        let is_leader = self.leader.as_deref() == Some(&join.member_id);
        let phase = self.phase;
        let Some(member) = self.members.get_mut(&join.member_id) else {
            return;
        };
        let same = member.protocols == join.protocols;
        let stands = match phase {
            Phase::CompletingRebalance => same,
            Phase::Stable => same && !is_leader,
            Phase::Empty | Phase::PreparingRebalance => false,
        };
        member.update(join);
        member.refresh(now);
        if stands {
            // It may have missed the answer: this generation stands.
            let answer = self.joined(&join.member_id);
            let _ = waiter.send(Ok(answer));
            return;
        }
        member.joining = Some(waiter);
        self.rebalance(now, rules);
    }

    /// A static member came back without its id: the newcomer takes its place (KIP-345), and its
    /// assignment at once if nothing changed (KIP-814).
    fn replace_static(
        &mut self,
        now: Instant,
        instance: &str,
        old_id: &str,
        join: &Join,
        waiter: Waiter<JoinAnswer>,
    ) {
        let Some(mut member) = self.members.remove(old_id) else {
            return;
        };
        let id = new_id(instance);
        member.dismiss(ResponseError::FencedInstanceId);
        member.id.clone_from(&id);
        let same = member.protocols == join.protocols;
        member.update(join);
        member.refresh(now);
        self.statics.insert(instance.to_owned(), id.clone());
        let was_leader = self.leader.as_deref() == Some(old_id);
        if was_leader {
            self.leader = Some(id.clone());
        }
        if self.phase == Phase::Stable && same {
            self.members.insert(id.clone(), member);
            let mut answer = self.joined(&id);
            answer.skip_assignment = was_leader && join.can_skip;
            if was_leader && !join.can_skip {
                // A client that cannot skip must not believe it leads, or it would assign anew.
                answer.leader = old_id.to_owned();
                answer.members.clear();
            }
            let _ = waiter.send(Ok(answer));
            return;
        }
        member.joining = Some(waiter);
        self.members.insert(id, member);
        self.prepare(now, self.longest_rebalance());
    }

    /// Starts a rebalance, or goes on with the present one.
    fn rebalance(&mut self, now: Instant, rules: &Rules) {
        let longest = self.longest_rebalance();
        if self.phase == Phase::Empty {
            let delay = rules.initial_delay.min(longest);
            let remaining = longest - delay;
            self.initial = Some(InitialDelay {
                remaining,
                member_came: false,
            });
            self.prepare(now, delay);
        } else {
            self.prepare(now, longest);
        }
    }

    fn prepare(&mut self, now: Instant, wait: Duration) {
        if self.phase != Phase::PreparingRebalance {
            for member in self.members.values_mut() {
                if let Some(waiter) = member.syncing.take() {
                    let _ = waiter.send(Err(ResponseError::RebalanceInProgress));
                    member.refresh(now);
                }
                if self.phase == Phase::CompletingRebalance {
                    member.assignment = Bytes::new();
                }
            }
            self.phase = Phase::PreparingRebalance;
            self.sync_deadline = None;
            self.join_deadline = Some(now + wait);
        }
        self.complete_when_all_joined(now);
    }

    fn longest_rebalance(&self) -> Duration {
        self.members
            .values()
            .map(|m| m.rebalance_timeout)
            .max()
            .unwrap_or_default()
    }

    fn complete_when_all_joined(&mut self, now: Instant) {
        let all = self.pending.is_empty() && self.members.values().all(|m| m.joining.is_some());
        if self.phase == Phase::PreparingRebalance && self.initial.is_none() && all {
            self.complete_join(now);
        }
    }

    /// Ends the joining: who did not join is out (static members stay until their session ends),
    /// the rest form the next generation.
    fn complete_join(&mut self, now: Instant) {
        self.initial = None;
        self.join_deadline = None;
        let late: Vec<String> = self
            .members
            .values()
            .filter(|m| m.joining.is_none() && m.instance_id.is_none())
            .map(|m| m.id.clone())
            .collect();
        for id in late {
            self.forget(&id, ResponseError::UnknownMemberId);
        }
        if self.members.is_empty() {
            self.generation = self.generation.wrapping_add(1).max(0);
            self.phase = Phase::Empty;
            self.protocol = None;
            self.leader = None;
            self.emptied = now;
            return;
        }
        let has_joined = |m: &&Member| m.joining.is_some();
        let oldest = self
            .members
            .values()
            .filter(has_joined)
            .min_by_key(|m| m.order);
        let Some(oldest) = oldest.map(|m| m.id.clone()) else {
            // Only static members, and none came back yet: wait on.
            self.join_deadline = Some(now + self.longest_rebalance());
            return;
        };
        let leads = |id: &String| self.members.get(id).is_some_and(|m| m.joining.is_some());
        if !self.leader.as_ref().is_some_and(leads) {
            self.leader = Some(oldest);
        }
        self.generation = self.generation.wrapping_add(1).max(1);
        self.protocol = self.select_protocol();
        self.phase = Phase::CompletingRebalance;
        self.sync_deadline = Some(now + self.longest_rebalance());
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let answer = self.joined(&id);
            let Some(member) = self.members.get_mut(&id) else {
                continue;
            };
            member.synced = true;
            if let Some(waiter) = member.joining.take() {
                member.synced = false;
                member.is_new = false;
                member.refresh(now);
                let _ = waiter.send(Ok(answer));
            }
        }
    }

    /// The protocol that most members like best among those all support.
    fn select_protocol(&self) -> Option<String> {
        let common = |name: &str| {
            self.members
                .values()
                .all(|m| m.protocols.iter().any(|(other, _)| other == name))
        };
        let mut votes: Vec<(&str, usize)> = Vec::new();
        for member in self.members.values() {
            let choice = member.protocols.iter().find(|(name, _)| common(name));
            let Some((choice, _)) = choice else { continue };
            match votes.iter_mut().find(|(name, _)| name == choice) {
                Some((_, count)) => *count += 1,
                None => votes.push((choice, 1)),
            }
        }
        votes
            .iter()
            .max_by_key(|(_, count)| *count)
            .map(|(name, _)| (*name).to_owned())
    }

    /// The present generation as a member is told of it.
    fn joined(&self, id: &str) -> Joined {
        let protocol = self.protocol.clone().unwrap_or_default();
        let leader = self.leader.clone().unwrap_or_default();
        let described = |m: &Member| JoinedMember {
            id: m.id.clone(),
            instance_id: m.instance_id.clone(),
            metadata: m.metadata(&protocol),
        };
        let members = if leader == id {
            self.members.values().map(described).collect()
        } else {
            Vec::new()
        };
        Joined {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol,
            leader,
            skip_assignment: false,
            member_id: id.to_owned(),
            members,
        }
    }

    fn forget(&mut self, id: &str, error: ResponseError) {
        let Some(mut member) = self.members.remove(id) else {
            return;
        };
        member.dismiss(error);
        if let Some(instance) = &member.instance_id {
            self.statics.remove(instance);
        }
        if self.leader.as_deref() == Some(id) {
            let oldest = self.members.values().min_by_key(|m| m.order);
            self.leader = oldest.map(|m| m.id.clone());
        }
    }
}

/// A member id: what the client calls itself, and a part that cannot be guessed or repeated.
fn new_id(prefix: &str) -> String {
    format!("{prefix}-{}", uuid::Uuid::new_v4())
}

#[cfg(test)]
mod tests;
