//! A broker of one node in memory, without a log or a network below it: the engine and its
//! scheduler behind the listeners' door, and switches to make it fail. With it an HTTP client that
//! speaks to a real socket, so that tests see bytes as clients do.

#![allow(dead_code)] // each test file uses its part

pub mod client;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use queen_engine::batch::DecodedBatch;
use queen_engine::cluster::{ClusterChange, ClusterRefusal, ClusterView};
use queen_engine::command::{AppendBatch, Command, Transaction};
use queen_engine::entry::{Entry, EntryBuilder, slice};
use queen_engine::ids::{BatchRef, TimeUs, TopicId};
use queen_engine::index::RecordIndex;
use queen_engine::message::message_id;
use queen_engine::outcome::{Appended, Outcome, Reject, Rollback};
use queen_engine::port::*;
use queen_engine::schedule::build::{BatchPlan, Landing, route};
use queen_engine::schedule::{Ask, Plan, Scheduler};
use queen_engine::{Effects, Engine};
use tokio::sync::watch;

struct State {
    engine: Engine,
    index: RecordIndex,
    scheduler: Scheduler,
    log: HashMap<u64, Bytes>,
    chance: u128,
}

/// The broker.
pub struct Local {
    state: Mutex<State>,
    version: watch::Sender<u64>,
    clock: AtomicI64,
    /// What every write answers, when set.
    pub failure: Mutex<Option<Failure>>,
    pub unclaimed: AtomicUsize,
    pub submitted: AtomicUsize,
    /// Set when it is one of several nodes: whether it leads, and where the leader listens.
    pub follows: Mutex<Option<Follows>>,
}

/// What a broker among others is.
#[derive(Clone, Default)]
pub struct Follows {
    pub leads: bool,
    pub leader_http: Option<String>,
}

/// Where the clock of a test begins.
pub const BEGIN: TimeUs = TimeUs(1_791_290_494_021_000);

impl Local {
    pub fn new() -> Arc<Local> {
        Arc::new(Local {
            state: Mutex::new(State {
                engine: Engine::new(),
                index: RecordIndex::new(),
                scheduler: Scheduler::new(),
                log: HashMap::new(),
                chance: 0x4000_8000_0000_0000_0000,
            }),
            version: watch::Sender::new(0),
            clock: AtomicI64::new(BEGIN.0),
            failure: Mutex::new(None),
            unclaimed: AtomicUsize::new(0),
            submitted: AtomicUsize::new(0),
            follows: Mutex::default(),
        })
    }

    /// Makes it one of several nodes that does not lead.
    pub fn follow(&self, leader_http: Option<String>) {
        *self.follows.lock().unwrap() = Some(Follows {
            leads: false,
            leader_http,
        });
    }

    /// Makes it the leader of several nodes.
    pub fn lead(&self) {
        *self.follows.lock().unwrap() = Some(Follows {
            leads: true,
            leader_http: None,
        });
    }

    /// Lets time pass.
    pub fn pass(&self, millis: i64) {
        self.clock.fetch_add(millis * 1000, Ordering::Relaxed);
        self.version.send_modify(|version| *version += 1);
    }

    /// Loses every stored record, as a damaged disk would.
    pub fn lose_log(&self) {
        self.lock().log.clear();
    }

    pub fn fail_with(&self, failure: Option<Failure>) {
        *self.failure.lock().unwrap() = failure;
    }

    pub fn now(&self) -> TimeUs {
        TimeUs(self.clock.load(Ordering::Relaxed))
    }

    fn read(&self, at: BatchRef) -> Result<Bytes, Failure> {
        let payload = self.lock().log.get(&at.index).cloned();
        payload
            .and_then(|payload| slice(&payload, at))
            .ok_or_else(|| Failure::Storage("no such entry".to_owned()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn check(&self) -> Result<(), Failure> {
        match self.failure.lock().unwrap().clone() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    fn apply(&self, build: impl FnOnce(&mut State, &mut EntryBuilder)) -> Vec<Outcome> {
        self.submitted.fetch_add(1, Ordering::Relaxed);
        let now = self.now();
        let mut guard = self.lock();
        let state = &mut *guard;
        let mut builder = EntryBuilder::new();
        build(state, &mut builder);
        let parts = builder.finish(now);
        let payload = Bytes::from(parts.concat());
        let at = state.engine.applied() + 1;
        state.log.insert(at, payload.clone());
        let entry = Entry::decode(payload).unwrap();
        let mut effects = Effects::default();
        let outcomes = state
            .engine
            .apply(at, 1, &entry, &mut state.index, &mut effects);
        let view = View {
            engine: &state.engine,
            index: &state.index,
        };
        state.scheduler.note(view, now, &effects);
        drop(guard);
        self.version.send_modify(|version| *version += 1);
        outcomes
    }

    fn one(&self, command: Command) -> Outcome {
        self.apply(|_, builder| {
            builder.command(command);
        })
        .remove(0)
    }

    fn plan(
        state: &mut State,
        now: TimeUs,
        items: &[PushItem],
        builder: &mut EntryBuilder,
    ) -> (Vec<AppendBatch>, Vec<Result<Landing, Reject>>) {
        let view = View {
            engine: &state.engine,
            index: &state.index,
        };
        let mut plan = BatchPlan::new(now.millis());
        let landings = items
            .iter()
            .map(|item| {
                state.chance += 1;
                plan.push(&route(view, &item.queue, 4, state.chance), item)
            })
            .collect();
        (plan.finish(builder), landings)
    }

    fn pushed(&self, appended: &Appended, landing: &Landing, item: &PushItem) -> Pushed {
        let verdict = appended.verdicts[landing.record as usize];
        let derived = message_id(verdict.lane, verdict.number, verdict.time);
        Pushed {
            topic: appended.topic,
            lane: verdict.lane,
            number: verdict.number,
            time: verdict.time,
            duplicate: verdict.duplicate || landing.repeat,
            message_id: item.message_id.clone().unwrap_or(derived),
        }
    }

    fn push_now(&self, items: Vec<PushItem>) -> Vec<Result<Pushed, Reject>> {
        let now = self.now();
        let mut landings = Vec::new();
        let outcomes = self.apply(|state, builder| {
            let (batches, landed) = Local::plan(state, now, &items, builder);
            landings = landed;
            for batch in batches {
                builder.command(Command::Append(batch));
            }
        });
        let verdict = |(landing, item): (&Result<Landing, Reject>, &PushItem)| {
            let landing = landing.clone()?;
            match &outcomes[landing.batch] {
                Outcome::Appended(appended) => Ok(self.pushed(appended, &landing, item)),
                Outcome::Rejected(reject) => Err(reject.clone()),
                other => panic!("{other:?}"),
            }
        };
        landings.iter().zip(&items).map(verdict).collect()
    }

    fn transact_now(&self, bundle: Bundle) -> Result<BundleDone, BundleRollback> {
        let now = self.now();
        let items = bundle.pushes;
        let mut landings = Vec::new();
        let outcome = self
            .apply(|state, builder| {
                let (pushes, landed) = Local::plan(state, now, &items, builder);
                landings = landed.into_iter().map(Result::unwrap).collect::<Vec<_>>();
                builder.command(Command::Transaction(Transaction {
                    acks: bundle.acks,
                    pushes,
                    positions: bundle.positions,
                    kv: bundle.kv,
                    timers: bundle.timers,
                }));
            })
            .remove(0);
        match outcome {
            Outcome::Committed(done) => Ok(BundleDone {
                acks: done.acks,
                pushes: landings
                    .iter()
                    .zip(&items)
                    .map(|(landing, item)| self.pushed(&done.pushes[landing.batch], landing, item))
                    .collect(),
                kv: done.kv,
                timers: done.timers,
            }),
            Outcome::RolledBack(Rollback::Duplicate { batch, record }) => {
                let push = landings
                    .iter()
                    .position(|l| l.batch == batch && l.record == record);
                Err(BundleRollback::Duplicate {
                    push: push.unwrap(),
                })
            }
            Outcome::RolledBack(rollback) => Err(BundleRollback::Other(rollback)),
            other => panic!("{other:?}"),
        }
    }

    /// One round of a pop: an answer, or when to look again.
    fn try_pop(&self, pop: &PopRequest) -> Option<PopAnswer> {
        loop {
            let now = self.now();
            let plan = {
                let mut guard = self.lock();
                let state = &mut *guard;
                state.chance += 1;
                let ask = Ask {
                    since: now,
                    now,
                    chance: state.chance,
                    default_partitions: 4,
                    deadline: TimeUs(i64::MAX),
                };
                let view = View {
                    engine: &state.engine,
                    index: &state.index,
                };
                state.scheduler.plan(view, ask, pop)
            };
            match plan {
                Plan::Nothing { .. } => return None,
                Plan::Submit(command) => {
                    self.one(*command);
                }
                Plan::Claim(claim) => {
                    let outcome = self.one(Command::Claim((*claim).clone()));
                    let mut guard = self.lock();
                    let state = &mut *guard;
                    let view = View {
                        engine: &state.engine,
                        index: &state.index,
                    };
                    let applied = matches!(outcome, Outcome::Claimed(_));
                    state.scheduler.settled(view, now, &claim, applied);
                    if let Outcome::Claimed(claimed) = outcome
                        && !claimed.is_empty()
                    {
                        let answer = Scheduler::answer(view, &claim, &claimed);
                        return Some(answer.with_conflict(view, pop));
                    }
                }
            }
        }
    }
}

/// The door to a [`Local`], which its futures share.
pub struct Door(pub Arc<Local>);

impl Broker for Door {
    fn node(&self) -> NodeView {
        let applied = self.0.lock().engine.applied();
        let follows = self.0.follows.lock().unwrap().clone();
        NodeView {
            id: 1,
            cluster_id: "test".to_owned(),
            default_partitions: 4,
            brokers: Vec::new(),
            replicas: if follows.is_some() {
                vec![1, 2, 3]
            } else {
                vec![1]
            },
            in_sync: vec![1],
            leader_http: follows
                .as_ref()
                .and_then(|follows| follows.leader_http.clone()),
            leader: Some(1),
            is_leader: follows.is_none_or(|follows| follows.leads),
            term: 1,
            applied,
            committed: applied,
            ready: self.0.failure.lock().unwrap().is_none(),
            storage_full: false,
        }
    }

    fn is_leading(&self) -> bool {
        let follows = self.0.follows.lock().unwrap();
        follows.as_ref().is_none_or(|follows| follows.leads)
    }

    fn leader_changed(&self) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }

    fn cluster(&self) -> ClusterView {
        ClusterView {
            node_id: 1,
            leader: Some(1),
            term: 1,
            quorum: true,
            ..ClusterView::default()
        }
    }

    fn change_cluster(&self, _: ClusterChange) -> BoxFuture<Result<(), ClusterRefusal>> {
        let text = "this node is alone".to_owned();
        Box::pin(std::future::ready(Err(ClusterRefusal::Invalid(text))))
    }

    fn now(&self) -> TimeUs {
        self.0.now()
    }

    fn view(&self, look: &mut dyn FnMut(View<'_>)) {
        let state = self.0.lock();
        look(View {
            engine: &state.engine,
            index: &state.index,
        });
    }

    fn read(&self, at: BatchRef) -> Result<Bytes, Failure> {
        self.0.read(at)
    }

    fn decoded(&self, at: BatchRef) -> Result<Arc<DecodedBatch>, Failure> {
        let bytes = self.0.read(at)?;
        let decoded = DecodedBatch::decode(bytes, 1 << 27);
        decoded
            .map(Arc::new)
            .map_err(|error| Failure::Storage(error.to_string()))
    }

    fn appended(&self, _: &[TopicId]) -> BoxFuture<()> {
        let mut version = self.0.version.subscribe();
        Box::pin(async move {
            let _ = version.changed().await;
        })
    }

    fn barrier(&self) -> BoxFuture<Result<(), Failure>> {
        let checked = self.0.check();
        Box::pin(async move { checked })
    }

    fn submit(&self, command: Command) -> BoxFuture<Result<Outcome, Failure>> {
        let answer = self.0.check().map(|()| self.0.one(command));
        Box::pin(async move { answer })
    }

    fn produce(
        &self,
        _: Vec<ProduceBatch>,
    ) -> BoxFuture<Result<Vec<Result<Appended, Reject>>, Failure>> {
        unimplemented!("the HTTP listener produces nothing")
    }

    fn push(
        &self,
        items: Vec<PushItem>,
    ) -> BoxFuture<Result<Vec<Result<Pushed, Reject>>, Failure>> {
        let answer = self.0.check().map(|()| self.0.push_now(items));
        Box::pin(async move { answer })
    }

    fn transact(
        &self,
        bundle: Bundle,
    ) -> BoxFuture<Result<Result<BundleDone, BundleRollback>, Failure>> {
        let answer = self.0.check().map(|()| self.0.transact_now(bundle));
        Box::pin(async move { answer })
    }

    fn replay(
        &self,
        id: u64,
        copy: PushItem,
    ) -> BoxFuture<Result<Result<Pushed, Reject>, Failure>> {
        let now = self.0.now();
        let answer = self.0.check().map(|()| {
            let items = [copy];
            let mut landing = None;
            let outcome = self
                .0
                .apply(|state, builder| {
                    let (mut batches, landed) = Local::plan(state, now, &items, builder);
                    landing = landed.into_iter().next();
                    let append = batches.remove(0);
                    builder.command(Command::ReplayDeadLetter { id, append });
                })
                .remove(0);
            match outcome {
                Outcome::Appended(appended) => {
                    Ok(self
                        .0
                        .pushed(&appended, &landing.unwrap().unwrap(), &items[0]))
                }
                Outcome::Rejected(reject) => Err(reject),
                other => panic!("{other:?}"),
            }
        });
        Box::pin(async move { answer })
    }

    fn pop(&self, pop: PopRequest) -> BoxFuture<Result<PopAnswer, Failure>> {
        let broker = self.0.clone();
        let mut version = self.0.version.subscribe();
        let checked = self.0.check();
        Box::pin(async move {
            checked?;
            let deadline = tokio::time::Instant::now() + Duration::from_millis(pop.wait_ms);
            loop {
                version.borrow_and_update();
                if let Some(answer) = broker.try_pop(&pop) {
                    return Ok(answer);
                }
                if pop.wait_ms == 0 || tokio::time::Instant::now() >= deadline {
                    let state = broker.lock();
                    let view = View {
                        engine: &state.engine,
                        index: &state.index,
                    };
                    return Ok(Scheduler::empty_answer(view, &pop));
                }
                tokio::select! {
                    _ = version.changed() => {}
                    () = tokio::time::sleep_until(deadline) => {}
                }
            }
        })
    }

    fn unclaim(&self, group: String, answer: PopAnswer) {
        self.0.unclaimed.fetch_add(1, Ordering::Relaxed);
        let Some(lease) = answer.lease else { return };
        let mut topics: Vec<TopicId> = answer.claims.iter().map(|claim| claim.topic).collect();
        topics.dedup();
        for topic in topics {
            self.0.one(Command::Unclaim {
                topic,
                group: group.clone(),
                lease,
            });
        }
    }

    fn figures(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }
}
