//! Messages pushed over HTTP on their way through an entry: recognised as duplicates before they
//! are logged, merged into one batch per topic and Kafka partition, answered one by one.

use std::collections::{HashMap, HashSet};

use queen_engine::command::{AppendBatch, Transaction};
use queen_engine::dedup::transaction_hash;
use queen_engine::entry::EntryBuilder;
use queen_engine::ids::TimeUs;
use queen_engine::message::message_id;
use queen_engine::outcome::{Appended, Outcome, Reject, Rollback};
use queen_engine::port::{Bundle, BundleDone, BundleRollback, PushItem, Pushed, View};
use queen_engine::schedule::build::{BatchPlan, Landing, Route, route};

use super::request::PushPart;
use crate::metrics;

/// How often a push is built again because the state moved on.
const ATTEMPTS_MAX: u32 = 3;

/// The pushes of one entry.
pub(super) struct Pushes<'a> {
    view: View<'a>,
    now: TimeUs,
    default_partitions: u32,
    routes: HashMap<String, Route>,
    plan: BatchPlan,
}

impl<'a> Pushes<'a> {
    pub(super) fn new(view: View<'a>, now: TimeUs, default_partitions: u32) -> Pushes<'a> {
        Pushes {
            view,
            now,
            default_partitions,
            routes: HashMap::new(),
            plan: BatchPlan::new(now.millis()),
        }
    }

    fn route(&mut self, queue: &str) -> Route {
        if let Some(known) = self.routes.get(queue) {
            return known.clone();
        }
        let route = route(self.view, queue, self.default_partitions, topic_uuid());
        self.routes.insert(queue.to_string(), route.clone());
        route
    }

    /// Adds a push. What is a duplicate already is answered here. Returns where the others landed,
    /// and the items that must wait because their transaction id is in flight.
    pub(super) fn add(
        &mut self,
        part: &PushPart,
        in_flight: &mut HashSet<u128>,
        ids: &mut Vec<u128>,
    ) -> (Vec<(usize, Landing)>, Vec<usize>) {
        let mut placed = Vec::with_capacity(part.items.len());
        let mut later = Vec::new();
        let mut of_this_call: HashSet<u128> = HashSet::new();
        self.plan.next_call();
        for at in &part.items {
            let Some(item) = part.job.items.get(*at) else {
                continue;
            };
            let route = self.route(&item.queue);
            if route.dedup
                && let Some(id) = item.transaction_id.as_deref()
            {
                if let Some(original) = self.original(item, id) {
                    metrics::duplicate_at_the_door();
                    part.job.answer(*at, Ok(original));
                    continue;
                }
                let key = flight_key(item, id);
                if !of_this_call.contains(&key) {
                    if !in_flight.insert(key) {
                        later.push(*at);
                        continue;
                    }
                    of_this_call.insert(key);
                    ids.push(key);
                }
            }
            match self.plan.push(&route, item) {
                Ok(landing) => placed.push((*at, landing)),
                Err(reject) => part.job.answer(*at, Err(reject)),
            }
        }
        (placed, later)
    }

    /// The message that used this transaction id inside the window, if it is applied.
    fn original(&self, item: &PushItem, id: &str) -> Option<Pushed> {
        let engine = self.view.engine;
        let topic = engine.topics.named(&item.queue)?.id;
        let lane = engine.lanes.find(topic, item.lane.as_bytes())?;
        let seen = engine.find_duplicate(lane, transaction_hash(id.as_bytes()), self.now)?;
        Some(Pushed {
            topic,
            lane,
            number: seen.number,
            time: seen.time,
            duplicate: true,
            message_id: message_id(lane, seen.number, seen.time),
        })
    }

    /// One message in a batch of its own.
    pub(super) fn alone(
        &mut self,
        item: &PushItem,
        entry: &mut EntryBuilder,
    ) -> Result<(AppendBatch, Landing), Reject> {
        let route = self.route(&item.queue);
        let mut plan = BatchPlan::new(self.now.millis());
        let landing = plan.push(&route, item)?;
        let append = plan.finish(entry).pop().ok_or(Reject::Malformed)?;
        Ok((append, landing))
    }

    /// Puts the merged batches into the entry.
    pub(super) fn finish(self, entry: &mut EntryBuilder) -> Vec<AppendBatch> {
        self.plan.finish(entry)
    }
}

/// A transaction of a bundle, its pushes in batches of their own.
pub(super) fn transaction(
    pushes: &mut Pushes<'_>,
    bundle: &Bundle,
    entry: &mut EntryBuilder,
) -> Result<(Transaction, Vec<Landing>), BundleRollback> {
    let mut plan = BatchPlan::new(pushes.now.millis());
    let mut landings = Vec::with_capacity(bundle.pushes.len());
    for (at, item) in bundle.pushes.iter().enumerate() {
        let route = pushes.route(&item.queue);
        let refused = |reject| BundleRollback::Other(Rollback::Push(at, reject));
        landings.push(plan.push(&route, item).map_err(refused)?);
    }
    let transaction = Transaction {
        acks: bundle.acks.clone(),
        pushes: plan.finish(entry),
        positions: bundle.positions.clone(),
        kv: bundle.kv.clone(),
        timers: bundle.timers.clone(),
    };
    Ok((transaction, landings))
}

/// The answer to a transaction, in terms of the bundle.
pub(super) fn bundle_answer(
    bundle: &Bundle,
    landings: &[Landing],
    outcome: Outcome,
) -> Result<BundleDone, BundleRollback> {
    match outcome {
        Outcome::Committed(done) => {
            let answer = |(item, landing): (&PushItem, &Landing)| {
                done.pushes
                    .get(landing.batch)
                    .and_then(|appended| pushed(item, appended, *landing).ok())
                    .expect("a committed transaction answers for each of its records")
            };
            let pushes = bundle.pushes.iter().zip(landings).map(answer).collect();
            Ok(BundleDone {
                acks: done.acks,
                pushes,
                kv: done.kv,
                timers: done.timers,
            })
        }
        Outcome::RolledBack(rollback) => Err(rolled_back(landings, rollback)),
        Outcome::Rejected(reject) => Err(BundleRollback::Other(Rollback::Push(0, reject))),
        other => unreachable!("a transaction came to {other:?}"),
    }
}

fn rolled_back(landings: &[Landing], rollback: Rollback) -> BundleRollback {
    match rollback {
        Rollback::Duplicate { batch, record } => {
            let push = landings
                .iter()
                .position(|l| l.batch == batch && l.record == record);
            BundleRollback::Duplicate {
                push: push.unwrap_or(0),
            }
        }
        Rollback::Push(batch, reject) => {
            let push = landings.iter().position(|landing| landing.batch == batch);
            BundleRollback::Other(Rollback::Push(push.unwrap_or(0), reject))
        }
        other @ (Rollback::Ack(..) | Rollback::Position(..) | Rollback::Kv(_)) => {
            BundleRollback::Other(other)
        }
    }
}

/// Answers the items of a push. Returns those that must be built again.
pub(super) fn deliver<'o>(
    part: &PushPart,
    placed: &[(usize, Landing)],
    outcome_of: &dyn Fn(Landing) -> Option<&'o Outcome>,
) -> Vec<usize> {
    let mut later = Vec::new();
    for (at, landing) in placed {
        let Some(item) = part.job.items.get(*at) else {
            continue;
        };
        let result = match outcome_of(*landing) {
            Some(Outcome::Appended(appended)) => pushed(item, appended, *landing),
            Some(Outcome::Rejected(reject)) => Err(reject.clone()),
            other => unreachable!("an append came to {other:?}"),
        };
        match result {
            Err(reject) if moved_on(&reject) && part.attempts < ATTEMPTS_MAX => later.push(*at),
            result => part.job.answer(*at, result),
        }
    }
    later
}

/// Whether a push was refused only because it was built for a state that has changed.
fn moved_on(reject: &Reject) -> bool {
    matches!(
        reject,
        Reject::Stale | Reject::StaleLane | Reject::UnknownTopic | Reject::UnknownPartition
    )
}

/// Where a record of an appended batch went.
pub(super) fn pushed(
    item: &PushItem,
    appended: &Appended,
    landing: Landing,
) -> Result<Pushed, Reject> {
    let verdict = appended
        .verdicts
        .get(landing.record as usize)
        .ok_or(Reject::Malformed)?;
    let derived = || message_id(verdict.lane, verdict.number, verdict.time);
    let promised = item.message_id.clone().filter(|_| !verdict.duplicate);
    Ok(Pushed {
        topic: appended.topic,
        lane: verdict.lane,
        number: verdict.number,
        time: verdict.time,
        duplicate: verdict.duplicate || landing.repeat,
        message_id: promised.unwrap_or_else(derived),
    })
}

/// The key of a transaction id while it is in flight.
fn flight_key(item: &PushItem, id: &str) -> u128 {
    let parts = [item.queue.as_str(), item.lane.as_str(), id];
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len() + 8).sum());
    for part in parts {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    transaction_hash(&bytes)
}

/// A random UUID for a topic that may have to be made.
fn topic_uuid() -> u128 {
    let bits: u128 = rand::random();
    (bits & !(0xf << 76) & !(0b11 << 62)) | (0x4 << 76) | (0b10 << 62)
}
