//! A one-node world without a node: entries are built, "logged" to memory, applied and indexed as
//! the real node does it, and pops go through the real scheduler.

#![allow(dead_code)] // each test uses its own part of it

use bytes::Bytes;
use queen_engine::command::{AckItem, AckStatus, Claim, Command};
use queen_engine::entry::{Entry, EntryBuilder};
use queen_engine::group::first_pending;
use queen_engine::ids::{LaneId, LeaseId, TimeUs};
use queen_engine::index::RecordIndex;
use queen_engine::outcome::{AckResult, Appended, Claimed, Outcome};
use queen_engine::port::{PopRequest, PopTarget, PushItem, Subscription, View};
use queen_engine::schedule::build::{BatchPlan, Landing, route};
use queen_engine::schedule::{Ask, Plan, Scheduler};
use queen_engine::{Effects, Engine};

pub struct World {
    pub engine: Engine,
    pub index: RecordIndex,
    pub scheduler: Scheduler,
    pub log: Vec<Bytes>,
    pub sealed: Vec<Bytes>,
    pub now: TimeUs,
    pub chance: u128,
    pub partitions: u32,
}

/// A claimed run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub lease: LeaseId,
    pub lane: LaneId,
    pub name: String,
    pub from: u64,
    pub to: u64,
    pub attempt: u32,
}

pub fn pop(queue: &str, group: &str, batch: u32, lanes: u32) -> PopRequest {
    PopRequest {
        target: PopTarget::Queue(queue.into()),
        group: group.into(),
        batch,
        lanes,
        wait_ms: 0,
        lease_ms: None,
        subscription: Subscription {
            mode: Some("all".into()),
            from: None,
        },
        commit: false,
        conflation: false,
    }
}

pub fn item(queue: &str, lane: &str, payload: &str, transaction_id: Option<&str>) -> PushItem {
    PushItem {
        queue: queue.into(),
        lane: lane.into(),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        transaction_id: transaction_id.map(Into::into),
        ..PushItem::default()
    }
}

impl World {
    pub fn new() -> World {
        World {
            engine: Engine::new(),
            index: RecordIndex::new(),
            scheduler: Scheduler::new(),
            log: Vec::new(),
            sealed: Vec::new(),
            now: TimeUs(1_700_000_000_000_000),
            chance: 1,
            partitions: 4,
        }
    }

    pub fn view(&self) -> View<'_> {
        View {
            engine: &self.engine,
            index: &self.index,
        }
    }

    pub fn chance(&mut self) -> u128 {
        self.chance = self
            .chance
            .wrapping_mul(0x2545_f491_4f6c_dd1d)
            .wrapping_add(1);
        self.chance
    }

    pub fn sleep_ms(&mut self, ms: i64) {
        self.now = self.now.plus_millis(ms);
    }

    pub fn commit(&mut self, entry: EntryBuilder) -> Vec<Outcome> {
        self.now = TimeUs(self.now.0 + 1);
        let payload = Bytes::from(entry.finish(self.now).concat());
        self.log.push(payload.clone());
        let index = self.log.len() as u64;
        let entry = Entry::decode(payload).unwrap();
        let mut effects = Effects::default();
        let outcomes = self
            .engine
            .apply(index, 1, &entry, &mut self.index, &mut effects);
        let view = View {
            engine: &self.engine,
            index: &self.index,
        };
        self.scheduler.note(view, self.now, &effects);
        outcomes
    }

    pub fn submit(&mut self, command: Command) -> Outcome {
        let mut entry = EntryBuilder::new();
        entry.command(command);
        self.commit(entry).remove(0)
    }

    /// Pushes in one call; per item (lane number, duplicate).
    pub fn push(&mut self, items: &[PushItem]) -> Vec<(LaneId, u64, bool)> {
        let (landings, appended) = self.push_raw(items);
        landings
            .iter()
            .map(|landing| {
                let verdict = appended[landing.batch].verdicts[landing.record as usize];
                (
                    verdict.lane,
                    verdict.number,
                    verdict.duplicate || landing.repeat,
                )
            })
            .collect()
    }

    pub fn push_raw(&mut self, items: &[PushItem]) -> (Vec<Landing>, Vec<Appended>) {
        let mut plan = BatchPlan::new(self.now.millis());
        let mut landings = Vec::new();
        for item in items {
            let chance = self.chance();
            let route = route(self.view(), &item.queue, self.partitions, chance);
            landings.push(plan.push(&route, item).unwrap());
        }
        let mut entry = EntryBuilder::new();
        for batch in plan.finish(&mut entry) {
            entry.command(Command::Append(batch));
        }
        let outcomes = self.commit(entry);
        let appended = outcomes
            .into_iter()
            .map(|outcome| match outcome {
                Outcome::Appended(appended) => appended,
                other => panic!("push: {other:?}"),
            })
            .collect();
        (landings, appended)
    }

    pub fn plan(&mut self, request: &PopRequest) -> Plan {
        let ask = Ask {
            now: self.now,
            since: self.now,
            chance: self.chance(),
            default_partitions: self.partitions,
            deadline: self.now.plus_seconds(30),
        };
        let view = View {
            engine: &self.engine,
            index: &self.index,
        };
        self.scheduler.plan(view, ask, request)
    }

    pub fn settle(&mut self, claim: &Claim, outcome: &Outcome) {
        let view = View {
            engine: &self.engine,
            index: &self.index,
        };
        let applied = matches!(outcome, Outcome::Claimed(_));
        self.scheduler.settled(view, self.now, claim, applied);
    }

    /// Pops until something is claimed or nothing is claimable.
    pub fn pop(&mut self, request: &PopRequest) -> Vec<Run> {
        for _ in 0..1000 {
            match self.plan(request) {
                Plan::Nothing { .. } => return Vec::new(),
                Plan::Submit(command) => {
                    self.submit(*command);
                }
                Plan::Claim(claim) => {
                    let outcome = self.submit(Command::Claim((*claim).clone()));
                    self.settle(&claim, &outcome);
                    if let Outcome::Claimed(claimed) = outcome
                        && !claimed.is_empty()
                    {
                        return self.runs(&claim, &claimed);
                    }
                }
            }
        }
        panic!("pop does not come to an end: {request:?}");
    }

    pub fn runs(&self, claim: &Claim, claimed: &[Claimed]) -> Vec<Run> {
        claimed
            .iter()
            .map(|c| Run {
                lease: claim.lease,
                lane: c.lane,
                name: String::from_utf8_lossy(self.engine.lanes.name(c.lane).unwrap()).into(),
                from: c.from,
                to: c.to,
                attempt: c.attempt,
            })
            .collect()
    }

    pub fn ack_item(
        &self,
        group: &str,
        lane: LaneId,
        number: u64,
        status: AckStatus,
        lease: Option<LeaseId>,
    ) -> AckItem {
        let topic = self.engine.lanes.get(lane).unwrap().topic;
        let first = self.engine.groups.on(group, topic).map_or(0, |state| {
            first_pending(&self.engine, &self.index, state, lane)
        });
        AckItem {
            lane,
            group: group.into(),
            number,
            status,
            lease,
            error: None,
            first_pending: first,
            created: self.now,
            transaction_id: String::new(),
            payload: None,
        }
    }

    pub fn ack(&mut self, items: Vec<AckItem>) -> Vec<AckResult> {
        match self.submit(Command::Ack { items }) {
            Outcome::Acked(results) => results,
            other => panic!("ack: {other:?}"),
        }
    }

    /// Seals the active part of the index, as happens at the end of a log segment.
    pub fn seal(&mut self) {
        if !self.index.active_is_empty() {
            let bytes = self.index.seal().encode();
            // The writer of the sidecar may be done at once, or not before the next seal.
            if self.log.len().is_multiple_of(2) {
                self.index.replace_sealed(bytes.clone()).unwrap();
            }
            self.sealed.push(bytes);
        }
    }

    /// Replaces state and index by their own images, as a restart does.
    pub fn restart(&mut self) {
        let image = self.engine.image().concat();
        self.engine = Engine::from_image(&image).unwrap();
        let mut index = RecordIndex::new();
        for bytes in &self.sealed {
            index.load_sealed(bytes.clone()).unwrap();
        }
        index.load_active(self.index.active_bytes().into()).unwrap();
        self.index = index;
        self.scheduler = Scheduler::new();
    }
}
