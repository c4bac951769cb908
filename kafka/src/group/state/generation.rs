//! What happens within a generation: syncs, heartbeats, leaves, commits, and time passing.

use std::time::Instant;

use bytes::Bytes;
use kafka_protocol::ResponseError;

use super::super::Rules;
use super::super::member::{SyncAnswer, Synced, Waiter};
use super::{EMPTY_KEPT, Group, Phase};

/// What a SyncGroup asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sync {
    pub(crate) member_id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) generation: i32,
    pub(crate) protocol_type: Option<String>,
    pub(crate) protocol: Option<String>,
    pub(crate) assignments: Vec<(String, Bytes)>,
}

impl Group {
    /// Checks that a request comes from a member of this generation.
    fn check(
        &self,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
    ) -> Result<(), ResponseError> {
        self.check_member(member_id, instance_id)?;
        if generation != self.generation {
            return Err(ResponseError::IllegalGeneration);
        }
        Ok(())
    }

    fn check_member(&self, id: &str, instance_id: Option<&str>) -> Result<(), ResponseError> {
        if let Some(instance) = instance_id {
            return match self.statics.get(instance) {
                None => Err(ResponseError::UnknownMemberId),
                Some(known) if known != id => Err(ResponseError::FencedInstanceId),
                Some(_) => Ok(()),
            };
        }
        if self.members.contains_key(id) {
            Ok(())
        } else {
            Err(ResponseError::UnknownMemberId)
        }
    }

    /// Takes a SyncGroup in; followers wait for their leader's.
    pub(crate) fn sync(&mut self, now: Instant, sync: &Sync, waiter: Waiter<SyncAnswer>) {
        if let Err(error) = self.check_sync(sync) {
            let _ = waiter.send(Err(error));
            return;
        }
        let Some(member) = self.members.get_mut(&sync.member_id) else {
            return;
        };
        member.synced = true;
        member.refresh(now);
        if self.phase == Phase::Stable {
            let assignment = member.assignment.clone();
            let _ = waiter.send(Ok(self.synced(assignment)));
        } else {
            member.syncing = Some(waiter);
            if self.leader.as_deref() == Some(&sync.member_id) {
                self.assign(now, &sync.assignments);
            }
        }
        if self.members.values().all(|m| m.synced) {
            self.sync_deadline = None;
        }
    }

    fn check_sync(&self, sync: &Sync) -> Result<(), ResponseError> {
        self.check(
            &sync.member_id,
            sync.instance_id.as_deref(),
            sync.generation,
        )?;
        let type_differs = sync
            .protocol_type
            .as_ref()
            .is_some_and(|given| *given != self.protocol_type);
        let name_differs = sync
            .protocol
            .as_ref()
            .is_some_and(|given| Some(given) != self.protocol.as_ref());
        if type_differs || name_differs {
            return Err(ResponseError::InconsistentGroupProtocol);
        }
        match self.phase {
            Phase::Empty => Err(ResponseError::UnknownMemberId),
            Phase::PreparingRebalance => Err(ResponseError::RebalanceInProgress),
            Phase::CompletingRebalance | Phase::Stable => Ok(()),
        }
    }

    fn synced(&self, assignment: Bytes) -> Synced {
        Synced {
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone().unwrap_or_default(),
            assignment,
        }
    }

    /// The leader has spoken: everyone gets its part.
    fn assign(&mut self, now: Instant, assignments: &[(String, Bytes)]) {
        self.phase = Phase::Stable;
        for member in self.members.values_mut() {
            let part = assignments.iter().find(|(id, _)| *id == member.id);
            member.assignment = part.map(|(_, bytes)| bytes.clone()).unwrap_or_default();
        }
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let Some(member) = self.members.get_mut(&id) else {
                continue;
            };
            let Some(waiter) = member.syncing.take() else {
                continue;
            };
            member.refresh(now);
            let assignment = member.assignment.clone();
            let _ = waiter.send(Ok(self.synced(assignment)));
        }
    }

    /// A heartbeat (row 105).
    pub(crate) fn heartbeat(
        &mut self,
        now: Instant,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
    ) -> Result<(), ResponseError> {
        self.check(member_id, instance_id, generation)?;
        if let Some(member) = self.members.get_mut(member_id) {
            member.refresh(now);
        }
        match self.phase {
            Phase::Empty => Err(ResponseError::UnknownMemberId),
            Phase::PreparingRebalance => Err(ResponseError::RebalanceInProgress),
            Phase::CompletingRebalance | Phase::Stable => Ok(()),
        }
    }

    /// A member leaves, by id, by instance, or before it ever joined.
    pub(crate) fn leave(
        &mut self,
        now: Instant,
        rules: &Rules,
        member_id: &str,
        instance_id: Option<&str>,
    ) -> Result<(), ResponseError> {
        let id = match instance_id {
            Some(instance) => match self.statics.get(instance) {
                None => return Err(ResponseError::UnknownMemberId),
                Some(known) if !member_id.is_empty() && known != member_id => {
                    return Err(ResponseError::FencedInstanceId);
                }
                Some(known) => known.clone(),
            },
            None => member_id.to_owned(),
        };
        if self.pending.remove(&id).is_some() {
            self.complete_when_all_joined(now);
            return Ok(());
        }
        if !self.members.contains_key(&id) {
            return Err(ResponseError::UnknownMemberId);
        }
        self.remove(now, rules, &id);
        Ok(())
    }

    fn remove(&mut self, now: Instant, rules: &Rules, id: &str) {
        self.forget(id, ResponseError::UnknownMemberId);
        match self.phase {
            Phase::Empty => {}
            Phase::PreparingRebalance => self.complete_when_all_joined(now),
            Phase::CompletingRebalance | Phase::Stable => self.rebalance(now, rules),
        }
    }

    /// Whether a commit may happen (rows 108 and 109).
    pub(crate) fn check_commit(
        &mut self,
        now: Instant,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
    ) -> Result<(), ResponseError> {
        if generation < 0 && self.phase == Phase::Empty {
            return Ok(());
        }
        self.check_member(member_id, instance_id)?;
        if generation != self.generation {
            return Err(ResponseError::IllegalGeneration);
        }
        if self.phase == Phase::CompletingRebalance {
            return Err(ResponseError::RebalanceInProgress);
        }
        if let Some(member) = self.members.get_mut(member_id) {
            member.refresh(now);
        }
        Ok(())
    }

    /// Lets time pass.
    pub(crate) fn tick(&mut self, now: Instant, rules: &Rules) {
        let before = self.pending.len();
        self.pending.retain(|_, deadline| *deadline > now);
        if self.pending.len() < before {
            self.complete_when_all_joined(now);
        }
        let expired = self.members.values().filter(|m| m.is_expired(now));
        let expired: Vec<String> = expired.map(|m| m.id.clone()).collect();
        for id in expired {
            self.remove(now, rules, &id);
        }
        if self.join_deadline.is_some_and(|deadline| deadline <= now) {
            self.end_of_join(now, rules);
        }
        if self.sync_deadline.is_some_and(|deadline| deadline <= now) {
            self.sync_deadline = None;
            let silent = self.members.values().filter(|m| !m.synced);
            let silent: Vec<String> = silent.map(|m| m.id.clone()).collect();
            for id in silent {
                self.remove(now, rules, &id);
            }
        }
    }

    fn end_of_join(&mut self, now: Instant, rules: &Rules) {
        match &mut self.initial {
            Some(initial) if initial.member_came && !initial.remaining.is_zero() => {
                let delay = rules.initial_delay.min(initial.remaining);
                initial.remaining -= delay;
                initial.member_came = false;
                self.join_deadline = Some(now + delay);
            }
            _ => self.complete_join(now),
        }
    }

    /// When `tick` has something to do next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let sessions = self
            .members
            .values()
            .filter(|m| !m.waits())
            .map(|m| m.deadline);
        let forgotten = self.is_idle().then(|| self.emptied + EMPTY_KEPT);
        sessions
            .chain(self.pending.values().copied())
            .chain(self.join_deadline)
            .chain(self.sync_deadline)
            .chain(forgotten)
            .min()
    }

    fn is_idle(&self) -> bool {
        self.phase == Phase::Empty && self.pending.is_empty()
    }

    /// Whether the memory of the group can go.
    pub(crate) fn is_dead(&self, now: Instant) -> bool {
        self.is_idle() && self.emptied + EMPTY_KEPT <= now
    }
}
