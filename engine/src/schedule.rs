//! The leader's memory: which lane is ready, what has been proposed and not yet seen applied, what
//! to propose next. Rebuilt from the state after a leader change; nothing here is replicated, and
//! a plan that lost a race is simply refused by apply. Pure: time and chance are arguments.

pub mod build;
mod desk;
mod housekeep;

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::apply::Effects;
use crate::command::{Claim, Command, Register, StartAt, TopicRef};
use crate::config::Origin;
use crate::ids::{LeaseId, TimeUs, TopicId};
use crate::names;
use crate::outcome::Claimed;
use crate::port::{PopAnswer, PopClaim, PopRequest, PopTarget, View};
use crate::topic::Topic;

use desk::{Desk, Found};

pub use housekeep::Chores;

/// What a pop should do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing is claimable. Plan again at `wake_at`, or when one of the topics gains records or
    /// the group changes there.
    Nothing {
        wake_at: Option<TimeUs>,
        watch: Vec<TopicId>,
    },
    /// Submit this first (it makes the queue or registers the group), then plan again.
    Submit(Box<Command>),
    /// Propose this. It may lease nothing and only walk on: then plan again.
    Claim(Box<Claim>),
}

/// What the node hands to a plan beside the request.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub now: TimeUs,
    /// Fresh random bits, for a lease id or a topic id.
    pub chance: u128,
    /// Width of a topic the plan makes.
    pub default_partitions: u32,
    /// When the caller gives up; goes into the claim.
    pub deadline: TimeUs,
    /// When the pop began.
    pub since: TimeUs,
}

/// The leader's memory over all groups.
#[derive(Debug, Default)]
pub struct Scheduler {
    desks: BTreeMap<TopicId, BTreeMap<String, Desk>>,
    /// When a group first asked for any queue with some labels: queues born later are read from
    /// their first message.
    discoverers: BTreeMap<String, TimeUs>,
}

/// Most groups remembered as discoverers.
const DISCOVERERS_MAX: usize = 100_000;

impl Scheduler {
    /// An empty memory.
    pub fn new() -> Scheduler {
        Scheduler::default()
    }

    /// Forgets everything: leadership changed.
    pub fn reset(&mut self) {
        self.desks.clear();
        self.discoverers.clear();
    }

    /// Plans a pop. Lanes of a returned claim are reserved until [`Scheduler::settled`].
    pub fn plan(&mut self, view: View<'_>, ask: Ask, pop: &PopRequest) -> Plan {
        match &pop.target {
            PopTarget::Queue(queue) => self.plan_named(view, ask, pop, queue, None),
            PopTarget::Lane { queue, lane } => {
                self.plan_named(view, ask, pop, queue, Some(lane.as_bytes()))
            }
            PopTarget::Labels { namespace, task } => {
                let fits = |topic: &&Topic| {
                    let options = &topic.options;
                    namespace.as_ref().is_none_or(|n| *n == options.namespace)
                        && task.as_ref().is_none_or(|t| *t == options.task)
                };
                let mut topics: Vec<&Topic> = view.engine.topics.iter().filter(fits).collect();
                // Higher priority first; among equals the one that has waited longest.
                topics.sort_by_key(|t| (-t.options.priority, self.last_served(t.id, &pop.group)));
                let mut watch = Vec::new();
                let since = self.discovers_since(view, ask, &pop.group);
                let mut earliest = None;
                for topic in topics {
                    match self.plan_topic(view, ask, pop, topic, None, since) {
                        Plan::Nothing { wake_at, .. } => {
                            watch.push(topic.id);
                            earliest = sooner(earliest, wake_at);
                        }
                        plan => return plan,
                    }
                }
                Plan::Nothing {
                    wake_at: earliest,
                    watch,
                }
            }
        }
    }

    fn last_served(&self, topic: TopicId, group: &str) -> TimeUs {
        let desk = self.desks.get(&topic).and_then(|groups| groups.get(group));
        desk.map_or(TimeUs(0), |desk| desk.last_served)
    }

    fn plan_named(
        &mut self,
        view: View<'_>,
        ask: Ask,
        pop: &PopRequest,
        queue: &str,
        lane: Option<&[u8]>,
    ) -> Plan {
        let Some(topic) = view.engine.topics.named(queue) else {
            // A pop makes the queue and registers its group (semantics QUE-3).
            let topic = TopicRef::Name {
                name: queue.to_string(),
                partitions: ask.default_partitions,
                uuid: ask.chance,
                origin: Origin::Push,
            };
            return Plan::Submit(Box::new(Command::Register(first_contact(
                view, pop, topic, None,
            ))));
        };
        self.plan_topic(view, ask, pop, topic, lane, TimeUs(i64::MAX))
    }

    /// Since when the group has been looking for queues by their labels, as far as this leader and
    /// its registrations tell.
    fn discovers_since(&mut self, view: View<'_>, ask: Ask, group: &str) -> TimeUs {
        let known = view.engine.groups.get(group).map(|group| group.created);
        let since = match self.discoverers.get(group) {
            Some(since) => *since,
            None => {
                if self.discoverers.len() < DISCOVERERS_MAX {
                    self.discoverers.insert(group.to_string(), ask.since);
                }
                ask.since
            }
        };
        known.map_or(since, |known| known.min(since))
    }

    fn plan_topic(
        &mut self,
        view: View<'_>,
        ask: Ask,
        pop: &PopRequest,
        topic: &Topic,
        lane: Option<&[u8]>,
        since: TimeUs,
    ) -> Plan {
        let state = view.engine.groups.on(&pop.group, topic.id);
        let Some(state) = state.filter(|state| state.registration.is_some()) else {
            let mut register = first_contact(view, pop, TopicRef::Id(topic.id), Some(topic));
            if topic.created >= since {
                register.start = StartAt::Beginning;
            }
            return Plan::Submit(Box::new(Command::Register(register)));
        };
        let groups = self.desks.entry(topic.id).or_default();
        let desk = groups.entry(pop.group.clone()).or_default();
        desk.refresh(view, topic, state, ask.now);
        let found = match lane {
            Some(name) => match view.engine.lanes.find(topic.id, name) {
                Some(lane) => desk.find_one(view, topic, state, ask.now, pop, lane),
                None => Found::default(),
            },
            None => desk.find(view, topic, state, ask.now, pop),
        };
        if found.lanes.is_empty() && found.advance.is_empty() {
            return Plan::Nothing {
                wake_at: found.wake_at,
                watch: vec![topic.id],
            };
        }
        if !found.lanes.is_empty() {
            desk.last_served = ask.now;
        }
        Plan::Claim(Box::new(Claim {
            topic: topic.id,
            group: pop.group.clone(),
            epoch: state.epoch,
            advance: found.advance,
            lanes: found.lanes,
            lease: LeaseId(uuid_v4(ask.chance)),
            lease_ms: pop
                .lease_ms
                .unwrap_or(topic.options.lease_time.saturating_mul(1000))
                .max(1),
            commit: pop.commit,
            deadline: ask.deadline,
        }))
    }

    /// A claim's outcome is known: its reservations end. `applied` is false when it was refused
    /// or never reached the log.
    pub fn settled(&mut self, view: View<'_>, now: TimeUs, claim: &Claim, applied: bool) {
        let desks = self.desks.get_mut(&claim.topic);
        let Some(desk) = desks.and_then(|groups| groups.get_mut(&claim.group)) else {
            return;
        };
        let state = view.engine.groups.on(&claim.group, claim.topic);
        desk.settled(view, state, now, claim, applied);
    }

    /// Takes note of an applied entry.
    pub fn note(&mut self, view: View<'_>, now: TimeUs, effects: &Effects) {
        for touch in &effects.groups {
            let desks = self.desks.get_mut(&touch.topic);
            let Some(desk) = desks.and_then(|groups| groups.get_mut(&touch.group)) else {
                continue;
            };
            let state = view.engine.groups.on(&touch.group, touch.topic);
            match (&touch.lanes, state) {
                (Some(lanes), Some(state)) => {
                    lanes
                        .iter()
                        .for_each(|lane| desk.classify(view, state, now, *lane));
                }
                _ => desk.stale = true,
            }
        }
        for topic in &effects.configured {
            for desk in self
                .desks
                .get_mut(topic)
                .into_iter()
                .flat_map(BTreeMap::values_mut)
            {
                desk.stale = true;
            }
        }
        if effects.topics {
            self.desks
                .retain(|topic, _| view.engine.topics.get(*topic).is_some());
        }
    }

    /// Lanes known to be ready, over all groups: a figure for metrics.
    pub fn ready(&self) -> usize {
        self.desks
            .values()
            .flat_map(BTreeMap::values)
            .map(Desk::ready)
            .sum()
    }

    /// The answer of a claim that leased `claimed`.
    pub fn answer(view: View<'_>, claim: &Claim, claimed: &[Claimed]) -> PopAnswer {
        let state = view.engine.groups.on(&claim.group, claim.topic);
        let conflation = state
            .and_then(|s| s.registration.as_ref())
            .is_some_and(|r| r.conflation);
        let queue = view
            .engine
            .topics
            .get(claim.topic)
            .map_or("", |topic| topic.name.as_str());
        let claims: Vec<PopClaim> = claimed
            .iter()
            .map(|c| PopClaim {
                topic: claim.topic,
                queue: queue.to_string(),
                lane: c.lane,
                name: Bytes::copy_from_slice(view.engine.lanes.name(c.lane).unwrap_or_default()),
                from: c.from,
                to: c.to,
                deliver_from: if conflation { c.to - 1 } else { c.from },
                attempt: c.attempt,
                expires: c.expires,
            })
            .collect();
        let lease = (!claims.is_empty() && !claim.commit).then_some(claim.lease);
        PopAnswer {
            lease,
            claims,
            conflation,
            conflict: false,
        }
    }

    /// An answer without messages, with what it must say about conflation.
    pub fn empty_answer(view: View<'_>, pop: &PopRequest) -> PopAnswer {
        PopAnswer {
            conflation: conflates(view, pop).unwrap_or(false),
            ..PopAnswer::default()
        }
        .with_conflict(view, pop)
    }
}

impl PopAnswer {
    /// Notes whether the request asked for another policy than the stored one (http-api 5.3).
    pub fn with_conflict(mut self, view: View<'_>, pop: &PopRequest) -> PopAnswer {
        self.conflict =
            conflates(view, pop).is_some_and(|stored| pop.conflation && stored != pop.conflation);
        self
    }
}

/// The stored policy of the pop's group on its queue.
fn conflates(view: View<'_>, pop: &PopRequest) -> Option<bool> {
    let queue = match &pop.target {
        PopTarget::Queue(queue) | PopTarget::Lane { queue, .. } => queue,
        PopTarget::Labels { .. } => return None,
    };
    let topic = view.engine.topics.named(queue)?;
    let state = view.engine.groups.on(&pop.group, topic.id)?;
    state
        .registration
        .as_ref()
        .map(|registration| registration.conflation)
}

/// Where a group begins on a topic it has not read before (semantics SUB-1 to SUB-4, QMD-1).
fn first_contact(
    view: View<'_>,
    pop: &PopRequest,
    topic: TopicRef,
    known: Option<&Topic>,
) -> Register {
    let queue_mode = pop.group == names::QUEUE_MODE_GROUP;
    let mode = match &pop.subscription.mode {
        _ if queue_mode => "all",
        Some(mode) => mode.as_str(),
        None => "new",
    };
    let timestamp = pop.subscription.from.filter(|_| !queue_mode);
    let start = match timestamp {
        Some(time) => {
            StartAt::Offsets(known.map_or(Vec::new(), |topic| offsets_at(view, topic, time)))
        }
        None if mode == "new" => StartAt::End,
        None => StartAt::Beginning,
    };
    Register {
        topic,
        group: pop.group.clone(),
        start,
        mode: mode.to_string(),
        timestamp,
        conflation: pop.conflation,
    }
}

/// Per partition the offset of the first record appended at or after `time`; the next offset when
/// there is none.
pub fn offsets_at(view: View<'_>, topic: &Topic, time: TimeUs) -> Vec<u64> {
    (0u32..)
        .zip(&topic.partitions)
        .map(|(p, partition)| {
            view.index
                .find_append_time(topic.id, p, partition.log_start, time)
                .map_or(partition.next_offset, |row| {
                    row.base_offset.max(partition.log_start)
                })
        })
        .collect()
}

/// The earlier of two times.
fn sooner(a: Option<TimeUs>, b: Option<TimeUs>) -> Option<TimeUs> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Random bits with the version and variant of a random UUID.
fn uuid_v4(bits: u128) -> u128 {
    (bits & !(0xf << 76) & !(0b11 << 62)) | (0x4 << 76) | (0b10 << 62)
}
