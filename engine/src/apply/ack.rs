//! Acknowledgements (semantics 6): all items of one lane under one lease are judged together; the
//! lowest message that comes back stops the cursor, and a message nobody named is never finished
//! because of a failure above it.

use std::collections::BTreeMap;

use super::Applying;
use crate::command::{AckItem, AckStatus};
use crate::group::{Exception, Released};
use crate::ids::{LaneId, LeaseId, TopicId};
use crate::outcome::{AckReject, AckResult, DeadLetter};

/// Error text of a dead letter whose acks gave none.
const RETRIES_EXHAUSTED: &str = "Retries exhausted";

/// What one set of acks does to its lane.
struct Verdict {
    exception: Exception,
    /// Numbers to dead-letter, with the item that says so.
    dead: Vec<(u64, usize)>,
    /// Numbers dropped because dead-lettering is off.
    released: bool,
}

impl Applying<'_> {
    /// Applies acks; one result per item, in order.
    pub(super) fn ack(&mut self, items: &[AckItem]) -> Vec<AckResult> {
        let mut results = vec![AckResult::default(); items.len()];
        for set in sets(items) {
            match self.judge_set(items, &set, true) {
                Err(all) => {
                    for (at, result) in set.into_iter().zip(all) {
                        results[at] = result;
                    }
                }
                Ok((judged, verdict)) => {
                    for (at, result) in judged {
                        results[at] = result;
                    }
                    if let Some(verdict) = verdict {
                        self.carry_out(items, &set, verdict, &mut results);
                    }
                }
            }
        }
        results
    }

    /// The first item that would be refused, and why: what a transaction checks beforehand. Here a
    /// repeat under a released lease is refused, so that a bundle sent twice has one effect
    /// (semantics TXN-23).
    pub(super) fn first_refused_ack(&self, items: &[AckItem]) -> Option<(usize, AckReject)> {
        let mut first: Option<(usize, AckReject)> = None;
        for set in sets(items) {
            let results: Vec<(usize, AckResult)> = match self.judge_set(items, &set, false) {
                Err(all) => set.into_iter().zip(all).collect(),
                Ok((judged, _)) => judged,
            };
            for (at, result) in results {
                if let Some(reject) = result.rejected
                    && first.is_none_or(|(lowest, _)| at < lowest)
                {
                    first = Some((at, reject));
                }
            }
        }
        first
    }

    /// Judges one set without changing anything: a result for every item, or results for those
    /// that need no change and the change for the rest.
    #[allow(clippy::type_complexity)] // results by item, and the change: spelled out above
    fn judge_set(
        &self,
        items: &[AckItem],
        set: &[usize],
        answer_repeats: bool,
    ) -> Result<(Vec<(usize, AckResult)>, Option<Verdict>), Vec<AckResult>> {
        let first = &items[set[0]];
        let all = |reject| vec![rejected(reject); set.len()];
        let Some(row) = self.engine.lanes.get(first.lane) else {
            return Err(all(AckReject::Unresolvable));
        };
        let Some(state) = self.engine.groups.on(&first.group, row.topic) else {
            return Err(all(AckReject::UnknownConsumer));
        };
        let known = state.exceptions.get(&first.lane).copied();
        let start = first.first_pending;
        let exception = known.unwrap_or(Exception {
            cursor: start,
            passed: start,
            ..Exception::default()
        });
        let lease = exception.live_lease(self.now).copied();
        if let Some(id) = first.lease
            && lease.is_none_or(|lease| lease.id != id)
        {
            // A repeat of the ack that ended this lease is answered like the first (ACK-9).
            let again = |at: &usize| {
                let item = &items[*at];
                state
                    .released(item.lane, id, item.number)
                    .filter(|_| answer_repeats)
                    .unwrap_or(rejected(AckReject::LeaseLost))
            };
            return Err(set.iter().map(again).collect());
        }
        let (low, high) = match (first.lease, lease) {
            (Some(_), Some(lease)) => (lease.from, lease.to),
            _ => (0, row.next),
        };
        let mut judged = Vec::new();
        let mut valid = Vec::new();
        for at in set {
            let item = &items[*at];
            let result =
                if item.number < low.min(exception.cursor) || item.number < exception.cursor {
                    match item.status {
                        AckStatus::Completed => AckResult {
                            noop: true,
                            ..AckResult::default()
                        },
                        _ => rejected(AckReject::AlreadyCommitted),
                    }
                } else if item.number >= high {
                    rejected(AckReject::Unresolvable)
                } else {
                    valid.push(*at);
                    AckResult::default()
                };
            judged.push((*at, result));
        }
        if valid.is_empty() {
            return Ok((judged, None));
        }
        let limit = self
            .engine
            .topics
            .get(row.topic)
            .map_or(0, |t| t.options.retry_limit);
        let verdict = decide(items, &valid, exception, limit, self.now, || {
            self.engine
                .topics
                .get(row.topic)
                .and_then(|t| t.options.retry_delay)
                .unwrap_or(0)
        });
        Ok((judged, Some(verdict)))
    }

    fn carry_out(
        &mut self,
        items: &[AckItem],
        set: &[usize],
        verdict: Verdict,
        results: &mut [AckResult],
    ) {
        let first = &items[set[0]];
        let Some(topic) = self.engine.lanes.get(first.lane).map(|row| row.topic) else {
            return;
        };
        let keep = self
            .engine
            .topics
            .get(topic)
            .is_some_and(|t| t.options.dead_letters());
        let Some(group) = self.engine.groups.by_name.get_mut(&first.group) else {
            return;
        };
        let Some(state) = group.topics.get_mut(&topic) else {
            return;
        };
        let before = state.exceptions.get(&first.lane).copied();
        let conflates = state.registration.as_ref().is_some_and(|r| r.conflation);
        let cursor_before = before.map_or(first.first_pending, |e| e.cursor);
        state.exceptions.insert(first.lane, verdict.exception);
        for at in set {
            let result = &mut results[*at];
            if result.rejected.is_some() || result.noop {
                continue;
            }
            result.lease_released = verdict.released;
            if conflates && items[*at].status == AckStatus::Completed {
                result.conflated = items[*at].number.saturating_sub(cursor_before);
            }
            result.dead_lettered = keep
                && verdict
                    .dead
                    .iter()
                    .any(|(number, _)| *number == items[*at].number);
            if verdict.released
                && let Some(lease) = before.and_then(|e| e.lease)
            {
                state.remember_release(Released {
                    lane: first.lane,
                    lease: lease.id,
                    from: items[*at].number,
                    to: items[*at].number + 1,
                    result: *result,
                });
            }
        }
        state.settle(first.lane);
        self.effects
            .touch_lanes(&first.group, topic, vec![first.lane]);
        if keep {
            for (number, at) in verdict.dead {
                let retries = before.map_or(0, |e| e.retries);
                self.bury(items, set, topic, number, &items[at], retries);
            }
        }
    }

    fn bury(
        &mut self,
        items: &[AckItem],
        set: &[usize],
        topic: TopicId,
        number: u64,
        item: &AckItem,
        retries: u32,
    ) {
        let any = || set.iter().find_map(|at| items[*at].error.clone());
        let error = item.error.clone().or_else(any);
        self.file_dead_letter(DeadLetter {
            id: 0,
            topic,
            group: item.group.clone(),
            lane: item.lane,
            number,
            transaction_id: item.transaction_id.clone(),
            error: error.unwrap_or_else(|| RETRIES_EXHAUSTED.to_string()),
            retries,
            created: item.created,
            failed: self.now,
            payload: item.payload.clone(),
        });
    }
}

fn rejected(reject: AckReject) -> AckResult {
    AckResult {
        rejected: Some(reject),
        ..AckResult::default()
    }
}

/// Indexes of items that are judged together: same lane, group and lease; in order of appearance.
fn sets(items: &[AckItem]) -> Vec<Vec<usize>> {
    let mut order: Vec<Vec<usize>> = Vec::new();
    let mut place: BTreeMap<(LaneId, &str, Option<LeaseId>), usize> = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        let slot = *place
            .entry((item.lane, &item.group, item.lease))
            .or_insert_with(|| {
                order.push(Vec::new());
                order.len() - 1
            });
        order[slot].push(at);
    }
    order
}

/// Strength of a signal at one number: dlq beats failed beats retry beats completed.
fn strength(status: AckStatus) -> u8 {
    match status {
        AckStatus::Completed => 0,
        AckStatus::Retry => 1,
        AckStatus::Failed => 2,
        AckStatus::Dlq => 3,
    }
}

/// The effect of a set of valid acks on a lane (semantics 6.3; http-api 5.6).
fn decide(
    items: &[AckItem],
    valid: &[usize],
    mut exception: Exception,
    retry_limit: i64,
    now: crate::ids::TimeUs,
    retry_delay_ms: impl Fn() -> i64,
) -> Verdict {
    // One signal per number.
    let mut signals: BTreeMap<u64, usize> = BTreeMap::new();
    for at in valid {
        let item = &items[*at];
        let slot = signals.entry(item.number).or_insert(*at);
        if strength(item.status) > strength(items[*slot].status) {
            *slot = *at;
        }
    }
    let status = |at: &usize| items[*at].status;
    let failed = signals
        .iter()
        .find(|(_, at)| status(at) == AckStatus::Failed);
    let failed = failed.map(|(number, at)| (*number, *at));
    // The counter belongs to the message that was charged.
    let spent = match failed {
        Some((number, _)) if exception.charged == number => exception.retries,
        _ => 0,
    };
    let exhausted = failed.filter(|_| i64::from(spent) >= retry_limit);

    let mut returning: Option<u64> = signals
        .iter()
        .filter(|(number, at)| match status(at) {
            AckStatus::Retry => true,
            AckStatus::Failed => exhausted.is_none_or(|(spared, _)| spared != **number),
            _ => false,
        })
        .map(|(number, _)| *number)
        .next();
    // Messages to give up, lowest first.
    let mut giving_up: Vec<(u64, usize)> = signals
        .iter()
        .filter(|(number, at)| {
            status(at) == AckStatus::Dlq || exhausted.is_some_and(|(n, _)| n == **number)
        })
        .map(|(number, at)| (*number, *at))
        .collect();
    let below = |number: u64, stop: Option<u64>| stop.is_none_or(|stop| number < stop);
    let completed_to = |stop: Option<u64>| {
        signals
            .iter()
            .filter(|(number, at)| status(at) == AckStatus::Completed && below(**number, stop))
            .map(|(number, _)| *number + 1)
            .max()
            .unwrap_or(0)
    };
    let mut cursor = exception.cursor.max(completed_to(returning));
    let mut dead = Vec::new();
    giving_up.retain(|(number, _)| below(*number, returning));
    for (number, at) in giving_up {
        if number > cursor {
            // Messages below it were not named: they come back first, and it with them.
            returning = Some(returning.map_or(number, |stop| stop.min(number)));
            break;
        }
        dead.push((number, at));
        cursor = cursor.max(number + 1);
    }

    let moved = cursor > exception.cursor;
    exception.cursor = cursor;
    if exception.retries > 0 && cursor > exception.charged {
        exception.retries = 0;
    }
    let charged = failed.filter(|f| exhausted.is_none() && f.0 >= cursor);
    if let Some((number, _)) = charged {
        exception.retries = spent + 1;
        exception.charged = number;
    }
    if charged.is_some() && retry_delay_ms() > 0 {
        exception.not_before = now.plus_millis(retry_delay_ms());
    }
    let held = exception.lease;
    let finished = held.is_none_or(|lease| cursor >= lease.to);
    let gave_up_failed = exhausted.is_some_and(|(n, _)| dead.iter().any(|(d, _)| *d == n));
    let released = returning.is_some() || finished || gave_up_failed;
    if released {
        exception.lease = None;
    }
    if returning.is_some() || !finished {
        // What is left of the batch has been delivered before (semantics ATT-2).
        if moved {
            exception.head = cursor;
        }
    } else {
        exception.attempt = 0;
        exception.retries = 0;
    }
    if gave_up_failed && returning.is_none() {
        exception.attempt = 0;
        exception.retries = 0;
    }
    Verdict {
        exception,
        dead,
        released: released && held.is_some(),
    }
}
