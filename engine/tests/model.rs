//! The state machine and the scheduler against a naive oracle: random pushes, pops, acks, time,
//! restarts. The oracle keeps every lane as a plain list and judges acks item by item.

mod world;

use std::collections::BTreeMap;

use proptest::prelude::*;
use queen_engine::command::{AckStatus, Command, CommitOffset};
use queen_engine::group::committed_offset;
use queen_engine::ids::{LaneId, LeaseId, TimeUs};
use queen_engine::outcome::AckReject;
use world::{World, item, pop};

const QUEUE: &str = "q";
const LANES: u8 = 6;
const GROUPS: u8 = 2;
const LEASE_MS: i64 = 60_000;
const RETRY_LIMIT: i64 = 3;

#[derive(Clone, Debug)]
enum Step {
    Push {
        lanes: Vec<(u8, Option<u8>)>,
    },
    Pop {
        group: u8,
        batch: u8,
        lanes: u8,
    },
    PopLane {
        group: u8,
        lane: u8,
        batch: u8,
    },
    /// Acks part of a held run: which run, and a status per message (`None`: not named).
    Ack {
        run: u8,
        statuses: Vec<Option<u8>>,
        fenced: bool,
    },
    Sleep {
        seconds: u8,
    },
    Restart,
    Seal,
    Unclaim {
        run: u8,
    },
    Housekeep,
    Widen,
    Commit {
        group: u8,
        partition: u8,
        back: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let status = prop_oneof![
        6 => Just(Some(0u8)), 2 => Just(Some(1)), 2 => Just(Some(2)), 1 => Just(Some(3)),
        2 => Just(None)
    ];
    prop_oneof![
        5 => proptest::collection::vec((0..LANES, proptest::option::of(0..20u8)), 1..8)
            .prop_map(|lanes| Step::Push { lanes }),
        6 => (0..GROUPS, 1..6u8, 1..4u8)
            .prop_map(|(group, batch, lanes)| Step::Pop { group, batch, lanes }),
        2 => (0..GROUPS, 0..LANES, 1..6u8)
            .prop_map(|(group, lane, batch)| Step::PopLane { group, lane, batch }),
        7 => (any::<u8>(), proptest::collection::vec(status, 1..6), proptest::bool::weighted(0.8))
            .prop_map(|(run, statuses, fenced)| Step::Ack { run, statuses, fenced }),
        1 => (1..90u8).prop_map(|seconds| Step::Sleep { seconds }),
        1 => Just(Step::Restart),
        1 => Just(Step::Seal),
        1 => any::<u8>().prop_map(|run| Step::Unclaim { run }),
        1 => Just(Step::Housekeep),
        1 => Just(Step::Widen),
    ]
}

fn kafka_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => step(),
        1 => (0..GROUPS, 0..4u8, 0..5u8)
            .prop_map(|(group, partition, back)| Step::Commit { group, partition, back }),
    ]
}

#[derive(Clone, Debug, Default)]
struct Cursor {
    cursor: u64,
    lease: Option<(LeaseId, u64, u64, TimeUs)>,
    attempt: u32,
    head: u64,
    retries: i64,
    charged: u64,
}

#[derive(Clone, Debug)]
struct Held {
    group: u8,
    lane: u8,
    id: LaneId,
    lease: LeaseId,
    from: u64,
    to: u64,
}

#[derive(Default)]
struct Oracle {
    /// Per lane the transaction ids in order.
    lanes: BTreeMap<u8, Vec<Option<u8>>>,
    cursors: BTreeMap<(u8, u8), Cursor>,
    dead: usize,
}

impl Oracle {
    fn next(&self, lane: u8) -> u64 {
        self.lanes.get(&lane).map_or(0, |l| l.len() as u64)
    }

    fn claimable(&mut self, group: u8, lane: u8, now: TimeUs) -> bool {
        let next = self.next(lane);
        let c = self.cursors.entry((group, lane)).or_default();
        c.cursor < next && c.lease.is_none_or(|(_, _, _, end)| now >= end)
    }

    fn claim(&mut self, group: u8, lane: u8, lease: LeaseId, to: u64, end: TimeUs) -> u32 {
        let c = self.cursors.get_mut(&(group, lane)).unwrap();
        c.attempt = if c.attempt > 0 && c.head == c.cursor {
            c.attempt + 1
        } else {
            1
        };
        c.head = c.cursor;
        c.lease = Some((lease, c.cursor, to, end));
        c.attempt
    }

    /// Acks in one set; `signals` by number. The new cursor by the rules of semantics 6.3.
    fn ack(&mut self, group: u8, lane: u8, signals: &BTreeMap<u64, AckStatus>) {
        let c = self.cursors.get_mut(&(group, lane)).unwrap();
        let failed = signals
            .iter()
            .find(|(_, s)| **s == AckStatus::Failed)
            .map(|(n, _)| *n);
        let spent = if Some(c.charged) == failed {
            c.retries
        } else {
            0
        };
        let exhausted = failed.filter(|_| spent >= RETRY_LIMIT);
        let comes_back = |n: u64, s: AckStatus| match s {
            AckStatus::Retry => true,
            AckStatus::Failed => Some(n) != exhausted,
            _ => false,
        };
        let mut stop = signals
            .iter()
            .find(|(n, s)| comes_back(**n, **s))
            .map(|(n, _)| *n);
        let mut cursor = c.cursor;
        for (n, s) in signals {
            if stop.is_none_or(|stop| *n < stop) && *s == AckStatus::Completed {
                cursor = cursor.max(n + 1);
            }
        }
        let mut gave_up = false;
        for (n, s) in signals {
            let gives_up = *s == AckStatus::Dlq || Some(*n) == exhausted;
            if !gives_up || stop.is_some_and(|stop| *n >= stop) {
                continue;
            }
            if *n > cursor {
                stop = Some(stop.map_or(*n, |s| s.min(*n)));
                break;
            }
            self.dead += 1;
            gave_up |= Some(*n) == exhausted;
            cursor = cursor.max(n + 1);
        }
        let moved = cursor > c.cursor;
        c.cursor = cursor;
        if cursor > c.charged {
            c.retries = 0;
        }
        if let Some(n) = failed
            && exhausted.is_none()
            && n >= cursor
        {
            c.retries = spent + 1;
            c.charged = n;
        }
        let finished = c.lease.is_none_or(|(_, _, to, _)| cursor >= to);
        if stop.is_some() || finished || gave_up {
            c.lease = None;
        }
        if stop.is_none() && (finished || gave_up) {
            c.attempt = 0;
            c.retries = 0;
        } else if moved {
            c.head = cursor;
        }
    }
}

fn lane_name(lane: u8) -> String {
    format!("lane-{lane}")
}

fn group_name(group: u8) -> String {
    format!("group-{group}")
}

fn status(code: u8) -> AckStatus {
    [
        AckStatus::Completed,
        AckStatus::Failed,
        AckStatus::Retry,
        AckStatus::Dlq,
    ][code as usize]
}

struct Run {
    world: World,
    oracle: Oracle,
    held: Vec<Held>,
    /// A Kafka commit happened: the oracle no longer knows the positions, only order and
    /// exclusivity are checked.
    loose: bool,
}

impl Run {
    fn new() -> Run {
        let mut world = World::new();
        world.push(&[item(QUEUE, &lane_name(0), "0", None)]);
        let mut oracle = Oracle::default();
        oracle.lanes.insert(0, vec![None]);
        for group in 0..GROUPS {
            let runs = world.pop(&pop(QUEUE, &group_name(group), 1, 1));
            assert_eq!(runs.len(), 1);
            let item = world.ack_item(
                &group_name(group),
                runs[0].lane,
                0,
                AckStatus::Completed,
                None,
            );
            world.ack(vec![item]);
            oracle.cursors.insert(
                (group, 0),
                Cursor {
                    cursor: 1,
                    ..Cursor::default()
                },
            );
        }
        Run {
            world,
            oracle,
            held: Vec::new(),
            loose: false,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Push { lanes } => self.push(lanes),
            Step::Pop {
                group,
                batch,
                lanes,
            } => self.pop(*group, None, *batch, *lanes),
            Step::PopLane { group, lane, batch } => self.pop(*group, Some(*lane), *batch, 1),
            Step::Ack {
                run,
                statuses,
                fenced,
            } => self.ack(*run, statuses, *fenced),
            Step::Sleep { seconds } => self.world.sleep_ms(i64::from(*seconds) * 1000),
            Step::Restart => self.world.restart(),
            Step::Seal => self.world.seal(),
            Step::Unclaim { run } => self.unclaim(*run),
            Step::Housekeep => self.housekeep(),
            Step::Widen => {
                let topic = self.world.engine.topics.named(QUEUE).unwrap();
                let (topic, partitions) = (topic.id, topic.width() + 3);
                self.world.submit(Command::Widen { topic, partitions });
                self.world.partitions = partitions;
            }
            Step::Commit {
                group,
                partition,
                back,
            } => {
                let topic = self.world.engine.topics.named(QUEUE).unwrap();
                let partition = u32::from(*partition);
                let next = topic.partition(partition).unwrap().next_offset;
                let commit = CommitOffset {
                    topic: topic.id,
                    partition,
                    offset: next.saturating_sub(u64::from(*back)),
                    leader_epoch: -1,
                    metadata: String::new(),
                };
                let group = group_name(*group);
                let (offsets, protocol_type) = (vec![commit], String::new());
                self.world.submit(Command::CommitOffsets {
                    group,
                    offsets,
                    protocol_type,
                });
                self.loose = true;
            }
        }
        self.check();
    }

    fn push(&mut self, lanes: &[(u8, Option<u8>)]) {
        let items: Vec<_> = lanes
            .iter()
            .map(|(lane, id)| {
                let id = id.map(|id| format!("t{id}"));
                item(QUEUE, &lane_name(*lane), "{}", id.as_deref())
            })
            .collect();
        let verdicts = self.world.push(&items);
        for ((lane, id), (_, number, duplicate)) in lanes.iter().zip(verdicts) {
            let list = self.oracle.lanes.entry(*lane).or_default();
            match id.and_then(|id| list.iter().position(|seen| *seen == Some(id))) {
                Some(first) => assert_eq!((number, duplicate), (first as u64, true)),
                None => {
                    assert_eq!((number, duplicate), (list.len() as u64, false));
                    list.push(*id);
                }
            }
        }
    }

    fn pop(&mut self, group: u8, lane: Option<u8>, batch: u8, lanes: u8) {
        let mut request = pop(QUEUE, &group_name(group), batch.into(), lanes.into());
        if let Some(lane) = lane {
            request.target = queen_engine::port::PopTarget::Lane {
                queue: QUEUE.into(),
                lane: lane_name(lane),
            };
        }
        request.lease_ms = Some(LEASE_MS);
        let before = self.world.now;
        let runs = self.world.pop(&request);
        let now = self.world.now;
        let total: u64 = runs.iter().map(|r| r.to - r.from).sum();
        assert!(total <= u64::from(batch) && runs.len() <= usize::from(lanes));
        for run in &runs {
            let name: u8 = run.name.strip_prefix("lane-").unwrap().parse().unwrap();
            assert!(lane.is_none_or(|lane| lane == name));
            if self.loose {
                let c = self.oracle.cursors.entry((group, name)).or_default();
                *c = Cursor {
                    cursor: run.from,
                    ..Cursor::default()
                };
            }
            assert!(
                self.oracle.claimable(group, name, now),
                "{run:?} was not claimable"
            );
            let cursor = self.oracle.cursors[&(group, name)].cursor;
            assert_eq!(run.from, cursor, "a run begins at the cursor");
            assert!(run.to <= self.oracle.next(name));
            let end = now.plus_millis(LEASE_MS);
            let attempt = self.oracle.claim(group, name, run.lease, run.to, end);
            assert!(
                self.loose || run.attempt == attempt,
                "{run:?} is attempt {attempt}"
            );
            self.held.push(Held {
                group,
                lane: name,
                id: run.lane,
                lease: run.lease,
                from: run.from,
                to: run.to,
            });
        }
        if runs.is_empty() && !self.loose {
            let all = 0..LANES;
            for l in all.filter(|l| lane.is_none_or(|only| only == *l)) {
                assert!(
                    !self.oracle.claimable(group, l, before),
                    "lane {l} was left out"
                );
            }
        }
    }

    fn ack(&mut self, run: u8, statuses: &[Option<u8>], fenced: bool) {
        if self.held.is_empty() {
            return;
        }
        let held = self.held[usize::from(run) % self.held.len()].clone();
        let group = group_name(held.group);
        let mut items = Vec::new();
        for (number, code) in (held.from..held.to).zip(statuses) {
            if let Some(code) = code {
                let lease = fenced.then_some(held.lease);
                items.push(
                    self.world
                        .ack_item(&group, held.id, number, status(*code), lease),
                );
            }
        }
        if items.is_empty() {
            return;
        }
        let results = self.world.ack(items.clone());
        assert_eq!(results.len(), items.len());
        if self.loose {
            return;
        }
        let now = self.world.now;
        let c = self.oracle.cursors[&(held.group, held.lane)].clone();
        let live = c.lease.filter(|(_, _, _, end)| now < *end);
        if fenced && live.is_none_or(|(id, ..)| id != held.lease) {
            // Refused, or answered as before; either way nothing moves.
            for result in &results {
                assert!(result.lease_released || result.rejected == Some(AckReject::LeaseLost));
            }
            return;
        }
        let mut signals = BTreeMap::new();
        for (item, result) in items.iter().zip(&results) {
            if item.number < c.cursor {
                match item.status {
                    AckStatus::Completed => assert!(result.noop),
                    _ => assert_eq!(result.rejected, Some(AckReject::AlreadyCommitted)),
                }
            } else if fenced && live.is_some_and(|(_, _, to, _)| item.number >= to) {
                assert_eq!(result.rejected, Some(AckReject::Unresolvable));
            } else {
                assert_eq!(result.rejected, None, "{item:?}");
                signals.insert(item.number, item.status);
            }
        }
        if !signals.is_empty() {
            self.oracle.ack(held.group, held.lane, &signals);
        }
        assert_eq!(self.world.engine.dead_letters.len(), self.oracle.dead);
    }

    fn unclaim(&mut self, run: u8) {
        if self.held.is_empty() {
            return;
        }
        let held = self.held[usize::from(run) % self.held.len()].clone();
        let topic = self.world.engine.topics.named(QUEUE).unwrap().id;
        let group = group_name(held.group);
        self.world.submit(Command::Unclaim {
            topic,
            group,
            lease: held.lease,
        });
        let same: Vec<Held> = self
            .held
            .iter()
            .filter(|h| h.lease == held.lease)
            .cloned()
            .collect();
        for h in same {
            let c = self.oracle.cursors.get_mut(&(h.group, h.lane)).unwrap();
            let now = self.world.now;
            if c.lease
                .is_some_and(|(id, _, _, end)| id == h.lease && now < end)
            {
                c.lease = None;
                c.attempt = c.attempt.saturating_sub(1);
            }
        }
    }

    fn housekeep(&mut self) {
        let view = queen_engine::port::View {
            engine: &self.world.engine,
            index: &self.world.index,
        };
        let chores = self.world.scheduler.housekeep(view, self.world.now);
        for claim in chores.claims {
            let outcome = self.world.submit(Command::Claim(claim.clone()));
            self.world.settle(&claim, &outcome);
        }
        for command in chores.commands {
            self.world.submit(command);
        }
    }

    /// What must hold after every step.
    fn check(&mut self) {
        let world = &self.world;
        let topic = world.engine.topics.named(QUEUE).unwrap();
        for lane in topic.lanes.iter().copied() {
            let next = world.engine.lanes.get(lane).unwrap().next;
            for number in 0..next {
                assert!(
                    world.index.locate(lane, number).is_some(),
                    "{lane:?} {number}"
                );
            }
            assert!(world.index.locate(lane, next).is_none());
        }
        if self.loose {
            return;
        }
        for group in 0..GROUPS {
            let state = world
                .engine
                .groups
                .on(&group_name(group), topic.id)
                .unwrap();
            for (p, partition) in (0u32..).zip(&topic.partitions) {
                let mut lowest = partition.next_offset;
                for (lane, list) in &self.oracle.lanes {
                    let name = lane_name(*lane);
                    let Some(id) = world.engine.lanes.find(topic.id, name.as_bytes()) else {
                        continue;
                    };
                    let cursor = self
                        .oracle
                        .cursors
                        .get(&(group, *lane))
                        .map_or(0, |c| c.cursor);
                    for number in cursor..list.len() as u64 {
                        let place = world.index.locate(id, number).unwrap();
                        if place.row.partition == p {
                            lowest = lowest.min(place.offset());
                        }
                    }
                }
                let said = committed_offset(&world.engine, &world.index, state, p).unwrap();
                assert!(
                    said <= lowest,
                    "group {group} partition {p}: {said} is past {lowest}"
                );
            }
        }
    }

    /// Acks everything as it comes; afterwards nothing may be left.
    fn drain(&mut self) {
        self.world.sleep_ms(LEASE_MS * 2);
        for group in 0..GROUPS {
            loop {
                let runs = self.world.pop(&pop(QUEUE, &group_name(group), 100, 64));
                if runs.is_empty() {
                    break;
                }
                let items = runs
                    .iter()
                    .map(|r| {
                        let (group, done) = (group_name(group), AckStatus::Completed);
                        self.world
                            .ack_item(&group, r.lane, r.to - 1, done, Some(r.lease))
                    })
                    .collect();
                for result in self.world.ack(items) {
                    assert!(result.lease_released, "{result:?}");
                }
            }
        }
        self.housekeep();
        let topic = self.world.engine.topics.named(QUEUE).unwrap();
        for group in 0..GROUPS {
            let state = self
                .world
                .engine
                .groups
                .on(&group_name(group), topic.id)
                .unwrap();
            if !self.loose {
                assert!(
                    state.exceptions.is_empty(),
                    "idle lanes cost nothing: {state:?}"
                );
            }
            for (p, partition) in (0u32..).zip(&topic.partitions) {
                let said =
                    committed_offset(&self.world.engine, &self.world.index, state, p).unwrap();
                assert!(said >= partition.next_offset || self.loose);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("QUEEN_MODEL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1000),
        max_shrink_iters: 5000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn queue_against_oracle(steps in proptest::collection::vec(step(), 1..60)) {
        let mut run = Run::new();
        steps.iter().for_each(|step| run.step(step));
        run.drain();
    }

    #[test]
    fn kafka_commits(steps in proptest::collection::vec(kafka_step(), 1..60)) {
        let mut run = Run::new();
        steps.iter().for_each(|step| run.step(step));
        run.drain();
    }
}
