//! Claims: the base walks on, lanes become exceptions, leases are granted; extension and the way
//! back of a claim nobody received.

use std::collections::BTreeSet;

use super::Applying;
use crate::command::{Advance, Claim, ClaimItem};
use crate::group::{Exception, GroupTopic, Lease, LeaseLanes};
use crate::ids::{LaneId, LeaseId, TimeUs, TopicId};
use crate::outcome::{Claimed, DeadLetter, Outcome, Reject};

/// Error text of a message whose workers died without a word too often.
const TOO_MANY_DELIVERIES: &str = "Deliveries exhausted";

impl Exception {
    /// Whether the base alone tells the lane's state again.
    pub(super) fn is_settled(&self) -> bool {
        self.lease.is_none() && self.cursor == self.passed && self.attempt == 0 && self.retries == 0
    }
}

impl GroupTopic {
    /// Drops the lane's exception if it says nothing any more.
    pub(super) fn settle(&mut self, lane: LaneId) {
        if self
            .exceptions
            .get(&lane)
            .is_some_and(Exception::is_settled)
        {
            self.exceptions.remove(&lane);
        }
    }

    /// Moves bases over the stretches a walk has passed; their lanes become exceptions. A lane's
    /// records may lie in several stretches, so nothing is settled before all are taken in.
    fn advance(&mut self, steps: &[Advance]) {
        let mut made = BTreeSet::new();
        for passed in steps.iter().flat_map(|step| &step.lanes) {
            let exception = self.exceptions.entry(passed.lane).or_insert_with(|| {
                made.insert(passed.lane);
                Exception {
                    cursor: passed.first,
                    passed: passed.first,
                    ..Exception::default()
                }
            });
            if made.contains(&passed.lane) {
                exception.cursor = exception.cursor.min(passed.first);
            }
            exception.passed = exception.passed.max(passed.end);
        }
        for step in steps {
            step.lanes
                .iter()
                .for_each(|passed| self.settle(passed.lane));
            self.set_base(step.partition, Some(step.to));
        }
    }
}

impl Applying<'_> {
    pub(super) fn claim(&mut self, claim: &Claim) -> Result<Outcome, Reject> {
        if self.now > claim.deadline {
            return Err(Reject::TooLate);
        }
        let group = self
            .engine
            .groups
            .by_name
            .get_mut(&claim.group)
            .ok_or(Reject::UnknownGroup)?;
        let state = group
            .topics
            .get_mut(&claim.topic)
            .ok_or(Reject::UnknownGroup)?;
        let fresh = claim.epoch == state.epoch
            && claim
                .advance
                .iter()
                .all(|a| state.base(a.partition) == Some(a.from));
        if !fresh {
            return Err(Reject::Stale);
        }
        state.advance(&claim.advance);
        let passed = claim
            .advance
            .iter()
            .flat_map(|step| step.lanes.iter().map(|p| p.lane));
        let touched = passed
            .chain(claim.lanes.iter().map(|item| item.lane))
            .collect();
        self.effects.touch_lanes(&claim.group, claim.topic, touched);
        let mut claimed = Vec::with_capacity(claim.lanes.len());
        for item in &claim.lanes {
            claimed.extend(self.claim_lane(claim, item));
        }
        if !claimed.is_empty() && !claim.commit {
            let lanes = LeaseLanes {
                topic: claim.topic,
                group: claim.group.clone(),
                lanes: claimed.iter().map(|c| c.lane).collect(),
                expires: self.now.plus_millis(claim.lease_ms),
            };
            self.engine.groups.leases.insert(claim.lease, lanes);
        }
        Ok(Outcome::Claimed(claimed))
    }

    /// Leases one run, if the lane is free and the run is really its next one.
    fn claim_lane(&mut self, claim: &Claim, item: &ClaimItem) -> Option<Claimed> {
        let now = self.now;
        let next = self
            .engine
            .lanes
            .get(item.lane)
            .filter(|row| row.topic == claim.topic)?
            .next;
        let most = self.engine.topics.get(claim.topic)?.options.max_deliveries;
        let group = self.engine.groups.by_name.get_mut(&claim.group)?;
        let state = group.topics.get_mut(&claim.topic)?;
        let known = state.exceptions.get(&item.lane).copied();
        let mut exception = known.unwrap_or(Exception {
            cursor: item.first_pending,
            passed: item.first_pending,
            ..Exception::default()
        });
        let free = exception.live_lease(now).is_none() && now >= exception.not_before;
        let fits = exception.cursor <= item.from && item.from < item.to && item.to <= next;
        if !free || !fits {
            return None;
        }
        // Numbers between cursor and start are gone by retention: finished, as far as the group
        // is concerned.
        exception.cursor = item.from;
        let again = exception.attempt > 0 && exception.head == exception.cursor;
        let attempt = if again { exception.attempt + 1 } else { 1 };
        let given_up = most > 0 && i64::from(attempt) > most;
        if given_up {
            exception.cursor += 1;
            exception.attempt = 0;
            exception.retries = 0;
            exception.lease = None;
        } else if claim.commit {
            exception.cursor = item.to;
            exception.attempt = 0;
            exception.lease = None;
        } else {
            exception.attempt = attempt;
            exception.head = item.from;
            exception.lease = Some(Lease {
                id: claim.lease,
                from: item.from,
                to: item.to,
                granted: now,
                expires: now.plus_millis(claim.lease_ms),
            });
        }
        state.exceptions.insert(item.lane, exception);
        state.settle(item.lane);
        if given_up {
            self.file_dead_letter(DeadLetter {
                id: 0,
                topic: claim.topic,
                group: claim.group.clone(),
                lane: item.lane,
                number: item.from,
                transaction_id: String::new(),
                error: TOO_MANY_DELIVERIES.to_string(),
                retries: attempt - 1,
                created: now,
                failed: now,
                payload: None,
            });
            return None;
        }
        let attempt = if claim.commit { 1 } else { attempt };
        let expires = now.plus_millis(if claim.commit { 0 } else { claim.lease_ms });
        Some(Claimed {
            lane: item.lane,
            from: item.from,
            to: item.to,
            attempt,
            expires,
        })
    }

    /// Files a dead letter under the next id.
    pub(super) fn file_dead_letter(&mut self, mut letter: DeadLetter) {
        letter.id = self.engine.next_dead_letter;
        self.engine.next_dead_letter += 1;
        self.engine.dead_letters.insert(letter.id, letter);
    }

    /// Lengthens every lease with this id to at least `seconds` from now (semantics LEA-2, LEA-4).
    pub(super) fn extend(&mut self, lease: LeaseId, seconds: i64) -> Outcome {
        let now = self.now;
        let wanted = now.plus_seconds(seconds.max(1));
        let groups = &mut self.engine.groups;
        let Some(lanes) = groups.leases.get_mut(&lease) else {
            return Outcome::Extended(0, None);
        };
        let state = groups
            .by_name
            .get_mut(&lanes.group)
            .and_then(|group| group.topics.get_mut(&lanes.topic));
        let Some(state) = state else {
            return Outcome::Extended(0, None);
        };
        let (mut extended, mut earliest) = (0, None::<TimeUs>);
        for lane in &lanes.lanes {
            let Some(exception) = state.exceptions.get_mut(lane) else {
                continue;
            };
            if let Some(held) = exception.lease.as_mut()
                && held.id == lease
                && now < held.expires
            {
                held.expires = held.expires.max(wanted);
                extended += 1;
                earliest = Some(earliest.map_or(held.expires, |e| e.min(held.expires)));
            }
        }
        lanes.expires = lanes.expires.max(wanted);
        self.effects
            .touch_lanes(&lanes.group, lanes.topic, lanes.lanes.clone());
        Outcome::Extended(extended, earliest)
    }

    /// Ends leases nobody received and takes the attempt back (semantics CLM-7).
    pub(super) fn unclaim(&mut self, topic: TopicId, group: &str, lease: LeaseId) -> Outcome {
        let now = self.now;
        let groups = &mut self.engine.groups;
        let Some(held) = groups.leases.remove(&lease) else {
            return Outcome::Done;
        };
        let state = groups
            .by_name
            .get_mut(group)
            .and_then(|g| g.topics.get_mut(&topic));
        let Some(state) = state else {
            return Outcome::Done;
        };
        for lane in &held.lanes {
            let Some(exception) = state.exceptions.get_mut(lane) else {
                continue;
            };
            if exception.live_lease(now).is_some_and(|l| l.id == lease) {
                exception.lease = None;
                exception.attempt = exception.attempt.saturating_sub(1);
                state.settle(*lane);
            }
        }
        self.effects.touch_lanes(group, topic, held.lanes);
        Outcome::Done
    }
}
