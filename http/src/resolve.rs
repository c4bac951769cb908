//! From the address a client acks by (partition id, transaction id) to a number in a lane.
//!
//! Everything here is looked up on this node and judged again when the ack is applied. Addresses
//! that lead nowhere never reach the log.

use std::collections::HashMap;

use bytes::Bytes;
use queen_engine::command::AckStatus;
use queen_engine::group::{GroupTopic, first_pending};
use queen_engine::ids::{LaneId, LeaseId, TimeUs};
use queen_engine::message::{message_id, parse_message_id, read_lane};
use queen_engine::port::{Broker, Failure, View, query};

use crate::limits;
use crate::shown::Shown;

/// What an ack says of its message.
#[derive(Clone, Debug)]
pub struct Address<'a> {
    pub partition_id: &'a str,
    pub transaction_id: &'a str,
    pub group: &'a str,
    pub lease: Option<LeaseId>,
}

/// Where the message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub lane: LaneId,
    pub number: u64,
    pub first_pending: u64,
    pub created: TimeUs,
    /// Whether one more failure exhausts the message's budget.
    pub last_try: bool,
}

/// What became of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolved {
    Found(Found),
    /// The lane exists and the group was never seen on its queue.
    NoConsumer,
    Unresolvable,
}

/// Reads a partition id: the decimal form of a lane id.
pub fn lane_id(text: &str) -> Option<LaneId> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok().map(LaneId)).flatten()
}

/// The state of a lane for a group, as far as resolving needs it.
#[derive(Clone, Copy)]
struct Scope {
    first_pending: u64,
    cursor: u64,
    next: u64,
    leased_to: Option<u64>,
    lease: Option<LeaseId>,
    last_try: bool,
}

enum Step {
    Done(Resolved),
    /// Not remembered, or maybe not the only one of that id: look through the lane; what is
    /// remembered counts if that finds nothing.
    Look(LaneId, Scope, Option<(u64, TimeUs)>),
}

/// Resolves addresses; what this node does not know yet is asked again behind a barrier, because
/// the message may have been popped through another node a moment ago.
pub async fn resolve(
    broker: &dyn Broker,
    addresses: &[Address<'_>],
) -> Result<Vec<Resolved>, Failure> {
    let resolved = resolve_here(broker, addresses)?;
    if resolved.iter().all(|one| matches!(one, Resolved::Found(_))) {
        return Ok(resolved);
    }
    broker.barrier().await?;
    resolve_here(broker, addresses)
}

fn resolve_here(broker: &dyn Broker, addresses: &[Address<'_>]) -> Result<Vec<Resolved>, Failure> {
    let steps: Vec<Step> = query(broker, |view| {
        let mut scopes = HashMap::new();
        addresses
            .iter()
            .map(|address| step(view, address, &mut scopes))
            .collect()
    });
    let mut searches = Searches::default();
    steps
        .into_iter()
        .zip(addresses)
        .map(|(step, address)| match step {
            Step::Done(resolved) => Ok(resolved),
            Step::Look(lane, scope, known) => searches.look(broker, lane, scope, known, address),
        })
        .collect()
}

fn step<'a>(
    view: View<'_>,
    address: &Address<'a>,
    scopes: &mut HashMap<(LaneId, &'a str), Option<Scope>>,
) -> Step {
    let lane = lane_id(address.partition_id).filter(|lane| view.engine.lanes.get(*lane).is_some());
    let Some(lane) = lane else {
        return Step::Done(Resolved::Unresolvable);
    };
    let scope = *scopes
        .entry((lane, address.group))
        .or_insert_with(|| scope_of(view, lane, address.group));
    let Some(scope) = scope else {
        return Step::Done(Resolved::NoConsumer);
    };
    match remembered(view, lane, address.transaction_id) {
        Some((number, created)) if !may_repeat(view, lane, &scope, number, created) => {
            Step::Done(Resolved::Found(scope.found(lane, number, created)))
        }
        known => Step::Look(lane, scope, known),
    }
}

/// Whether an earlier pending message of the lane may have the same transaction id: the memory
/// knows the newest one, and outside the dedup window an id may be used again (semantics DED-2).
fn may_repeat(view: View<'_>, lane: LaneId, scope: &Scope, number: u64, created: TimeUs) -> bool {
    if number <= scope.cursor {
        return false;
    }
    let topic = view
        .engine
        .lanes
        .get(lane)
        .and_then(|row| view.engine.topics.get(row.topic));
    let window = topic.map_or(0, |topic| topic.options.dedup_window_seconds);
    let first = view
        .index
        .locate(lane, scope.cursor)
        .map(|place| place.row.time);
    window <= 0 || first.is_none_or(|first| first.plus_seconds(window) <= created)
}

fn scope_of(view: View<'_>, lane: LaneId, group: &str) -> Option<Scope> {
    let row = view.engine.lanes.get(lane)?;
    let state = view.engine.groups.on(group, row.topic)?;
    let retry_limit = view
        .engine
        .topics
        .get(row.topic)
        .map_or(0, |topic| topic.options.retry_limit);
    let exception = state.exceptions.get(&lane);
    let pending = match exception {
        // The base's word counts only for lanes that are no exception.
        Some(exception) => exception.cursor,
        None => first_pending(view.engine, view.index, state, lane),
    };
    let lease = exception.and_then(|exception| exception.lease);
    let retries = exception.map_or(0, |exception| i64::from(exception.retries));
    Some(Scope {
        first_pending: pending,
        cursor: pending,
        next: row.next,
        leased_to: lease.map(|lease| lease.to),
        lease: lease.map(|lease| lease.id),
        last_try: retries + 1 > retry_limit,
    })
}

/// By the derived id, else by the memory of transaction ids.
fn remembered(view: View<'_>, lane: LaneId, transaction_id: &str) -> Option<(u64, TimeUs)> {
    if let Some((of, number)) = parse_message_id(transaction_id)
        && of == lane
        && let Some(place) = view.index.locate(lane, number)
        && message_id(lane, number, place.row.time) == transaction_id
    {
        return Some((number, place.row.time));
    }
    view.engine
        .find_transaction(lane, transaction_id)
        .map(|seen| (seen.number, seen.time))
}

impl Scope {
    fn found(&self, lane: LaneId, number: u64, created: TimeUs) -> Found {
        Found {
            lane,
            number,
            first_pending: self.first_pending,
            created,
            last_try: self.last_try,
        }
    }
}

/// Number and append time by transaction id.
type Ids = HashMap<String, (u64, TimeUs)>;

/// Searches through lanes, each stretch read once per request.
#[derive(Default)]
struct Searches {
    read: HashMap<(LaneId, u64, u64), Ids>,
}

impl Searches {
    fn look(
        &mut self,
        broker: &dyn Broker,
        lane: LaneId,
        scope: Scope,
        known: Option<(u64, TimeUs)>,
        address: &Address<'_>,
    ) -> Result<Resolved, Failure> {
        let own_lease = address.lease.is_some() && address.lease == scope.lease;
        let end = scope
            .leased_to
            .filter(|_| own_lease)
            .unwrap_or(scope.next)
            .min(scope.next);
        let ahead = (
            scope.cursor,
            end.min(scope.cursor.saturating_add(limits::RESOLVE_WINDOW)),
        );
        let behind = (
            scope.cursor.saturating_sub(limits::RESOLVE_WINDOW),
            scope.cursor,
        );
        for (from, to) in [ahead, behind] {
            if let Some((number, created)) = self
                .stretch(broker, lane, from, to)?
                .get(address.transaction_id)
            {
                return Ok(Resolved::Found(scope.found(lane, *number, *created)));
            }
        }
        Ok(known.map_or(Resolved::Unresolvable, |(number, created)| {
            Resolved::Found(scope.found(lane, number, created))
        }))
    }

    fn stretch(
        &mut self,
        broker: &dyn Broker,
        lane: LaneId,
        from: u64,
        to: u64,
    ) -> Result<&Ids, Failure> {
        use std::collections::hash_map::Entry;
        match self.read.entry((lane, from, to)) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let mut ids = Ids::new();
                for record in read_lane(broker, lane, from, to)? {
                    let Some(shown) = Shown::of(&record) else {
                        continue;
                    };
                    ids.entry(shown.transaction_id.into_owned())
                        .or_insert((record.number, record.row.time));
                }
                Ok(entry.insert(ids))
            }
        }
    }
}

/// The payload to send along when an ack may dead-letter its message.
pub fn payload_for(
    broker: &dyn Broker,
    found: &Found,
    status: AckStatus,
) -> Result<Option<Bytes>, Failure> {
    let wanted = match status {
        AckStatus::Completed | AckStatus::Retry => false,
        AckStatus::Failed => found.last_try,
        AckStatus::Dlq => true,
    };
    if !wanted {
        return Ok(None);
    }
    let records = read_lane(broker, found.lane, found.number, found.number + 1)?;
    let value = |record: &queen_engine::message::LaneRecord| {
        record
            .get()
            .and_then(|stored| stored.value.map(Bytes::copy_from_slice))
    };
    Ok(records.first().and_then(value))
}

/// The lowest retained number of a lane; its next number when nothing is retained.
pub fn lane_start(view: View<'_>, lane: LaneId) -> u64 {
    // A group that has finished nothing: what is pending for it is what is retained.
    first_pending(view.engine, view.index, &GroupTopic::default(), lane)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_ids_are_plain_decimals() {
        assert_eq!(lane_id("4"), Some(LaneId(4)));
        for text in ["", "-1", "+4", " 4", "0x4", "four", "4294967296", "4.0"] {
            assert_eq!(lane_id(text), None, "{text}");
        }
    }
}
