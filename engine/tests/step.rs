//! Steps: a transaction is all or nothing, key-value state against a plain map, timers.

mod world;

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use queen_engine::Engine;
use queen_engine::command::{AckStatus, Command, Transaction};
use queen_engine::entry::EntryBuilder;
use queen_engine::ids::TimeUs;
use queen_engine::kv::{KvAction, KvOp, KvReason, KvResult, Lifetime};
use queen_engine::outcome::{AckReject, Outcome, Rollback};
use queen_engine::schedule::build::{BatchPlan, route};
use queen_engine::timer::{TimerAction, TimerOp, TimerStatus};
use world::{World, item, pop};

fn put(key: &str, value: &str, expect: Option<u64>, required: bool) -> KvOp {
    let action = KvAction::Put {
        value: value.into(),
        lifetime: Lifetime::Forever,
        expect,
    };
    KvOp {
        ns: "n".into(),
        key: key.into(),
        required,
        action,
    }
}

fn schedule(key: &str, delay_ms: i64) -> TimerOp {
    TimerOp {
        queue: "later".into(),
        key: key.into(),
        action: TimerAction::Schedule {
            partition: "p".into(),
            delay_ms,
            txn: format!("txn-{key}"),
            message_id: format!("id-{key}"),
            payload: Bytes::from_static(b"{}"),
            producer_sub: None,
        },
    }
}

/// Submits a transaction whose pushes are `items`.
fn transact(world: &mut World, mut parts: Transaction, items: &[(&str, &str, &str)]) -> Outcome {
    let mut entry = EntryBuilder::new();
    let mut plan = BatchPlan::new(world.now.millis());
    for (queue, lane, id) in items {
        let chance = world.chance();
        let to = route(world.view(), queue, world.partitions, chance);
        plan.push(&to, &item(queue, lane, "{}", Some(id))).unwrap();
    }
    parts.pushes = plan.finish(&mut entry);
    entry.command(Command::Transaction(parts));
    world.commit(entry).remove(0)
}

/// Everything a client can observe, as text.
fn observable(engine: &Engine) -> String {
    format!(
        "{:?} {:?} {:?} {:?} {:?} {}",
        engine.topics,
        engine.groups,
        engine.kv,
        engine.timers,
        engine.dead_letters,
        engine.dedup_len()
    )
}

/// A world with one message of lane `a` leased by group `g`, and a key `k` at some version.
fn prepared() -> (World, queen_engine::command::AckItem) {
    let mut world = World::new();
    world.push(&[
        item("in", "a", "1", Some("m1")),
        item("in", "a", "2", Some("m2")),
    ]);
    world.push(&[item("out", "a", "0", Some("taken"))]);
    let mut request = pop("in", "g", 2, 1);
    request.lease_ms = Some(10_000);
    let run = world.pop(&request).remove(0);
    world.submit(Command::Kv {
        ops: vec![put("k", "0", None, false)],
    });
    let ack = world.ack_item("g", run.lane, 1, AckStatus::Completed, Some(run.lease));
    (world, ack)
}

#[test]
fn a_committed_step_does_all_of_it() {
    let (mut world, ack) = prepared();
    let parts = Transaction {
        acks: vec![ack],
        kv: vec![put("k", "1", None, true)],
        timers: vec![schedule("t", 1000)],
        ..Transaction::default()
    };
    let done = transact(
        &mut world,
        parts,
        &[("out", "a", "new"), ("other", "b", "first")],
    );
    let Outcome::Committed(done) = done else {
        panic!("{done:?}")
    };
    assert!(done.acks[0].lease_released);
    assert_eq!(done.pushes.len(), 2);
    assert_eq!(done.timers[0].status, TimerStatus::Scheduled);
    assert_eq!(world.engine.kv.get("n", "k", world.now).unwrap().value, "1");
    assert!(world.pop(&pop("in", "g", 2, 1)).is_empty());
    assert!(world.engine.topics.named("other").is_some());
}

/// Every way to refuse, alone and with every later one: the first in the order acks, pushes,
/// positions, kv names the reason (semantics TXN-8), and nothing is left behind (TXN-9).
#[test]
fn a_refused_step_leaves_no_trace_and_the_first_refusal_names_the_reason() {
    for faults in 1..8u32 {
        let (mut world, mut ack) = prepared();
        let (bad_ack, bad_push, bad_kv) = (faults & 1 != 0, faults & 2 != 0, faults & 4 != 0);
        if bad_ack {
            world.sleep_ms(11_000);
        } else {
            ack.status = AckStatus::Completed;
        }
        let parts = Transaction {
            acks: vec![ack],
            kv: vec![
                put("new", "1", None, false),
                put("k", "1", bad_kv.then_some(99), true),
            ],
            timers: vec![schedule("t", 1000)],
            ..Transaction::default()
        };
        let id = if bad_push { "taken" } else { "fresh" };
        let before = observable(&world.engine);
        let outcome = transact(
            &mut world,
            parts,
            &[("out", "a", "also-new"), ("out", "a", id)],
        );
        let Outcome::RolledBack(reason) = outcome else {
            panic!("{faults}: {outcome:?}")
        };
        match reason {
            Rollback::Ack(0, AckReject::LeaseLost) => assert!(bad_ack),
            Rollback::Duplicate {
                batch: 0,
                record: 1,
            } => assert!(!bad_ack && bad_push),
            Rollback::Kv(loss) => {
                assert!(!bad_ack && !bad_push && bad_kv);
                assert_eq!((loss.index, loss.reason), (1, KvReason::Version));
                assert_eq!(loss.row.unwrap().value, "0");
            }
            other => panic!("{faults}: {other:?}"),
        }
        assert_eq!(observable(&world.engine), before, "faults {faults}");
    }
}

#[test]
fn a_repeated_step_is_refused_once_its_lease_is_released() {
    let (mut world, ack) = prepared();
    let parts = Transaction {
        acks: vec![ack],
        ..Transaction::default()
    };
    let first = transact(&mut world, parts.clone(), &[("out", "a", "receipt")]);
    assert!(matches!(first, Outcome::Committed(_)), "{first:?}");
    for id in ["receipt", "another"] {
        let again = transact(&mut world, parts.clone(), &[("out", "a", id)]);
        let refused = Outcome::RolledBack(Rollback::Ack(0, AckReject::LeaseLost));
        assert_eq!(again, refused);
    }
    // A plain ack sent again is answered like the first (semantics ACK-9).
    let results = world.ack(parts.acks);
    assert!(results[0].rejected.is_none() && results[0].lease_released);
}

#[test]
fn a_timer_fires_once_never_early_and_not_after_a_cancel() {
    let mut world = World::new();
    let outcome = world.submit(Command::Timers {
        ops: vec![schedule("a", 500), schedule("b", 0)],
    });
    let Outcome::Timers(results) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(results[0].deliver_at, Some(world.now.plus_millis(500)));
    let due: Vec<String> = world
        .engine
        .timers
        .due(world.now, 10)
        .iter()
        .map(|t| t.key.clone())
        .collect();
    assert_eq!(due, ["b"]);
    let version = world.engine.timers.get("later", "a").unwrap().version;
    let fire = |world: &mut World, key: &str, version: u64| {
        let mut entry = EntryBuilder::new();
        let mut plan = BatchPlan::new(world.now.millis());
        let to = route(world.view(), "later", world.partitions, 7);
        plan.push(&to, &item("later", "p", "{}", Some(&format!("txn-{key}"))))
            .unwrap();
        let append = plan.finish(&mut entry).remove(0);
        let (queue, key) = ("later".into(), key.into());
        entry.command(Command::FireTimer {
            queue,
            key,
            version,
            append,
        });
        world.commit(entry).remove(0)
    };
    assert!(
        matches!(fire(&mut world, "a", version), Outcome::Rejected(_)),
        "too early"
    );
    world.sleep_ms(500);
    assert!(matches!(
        fire(&mut world, "a", version),
        Outcome::Appended(_)
    ));
    assert!(
        matches!(fire(&mut world, "a", version), Outcome::Rejected(_)),
        "once"
    );
    let cancel = TimerOp {
        queue: "later".into(),
        key: "b".into(),
        action: TimerAction::Cancel { txn: None },
    };
    let version = world.engine.timers.get("later", "b").unwrap().version;
    world.submit(Command::Timers { ops: vec![cancel] });
    assert!(
        matches!(fire(&mut world, "b", version), Outcome::Rejected(_)),
        "cancelled"
    );
    let runs = world.pop(&pop("later", "g", 10, 10));
    assert_eq!(runs.iter().map(|r| r.to - r.from).sum::<u64>(), 1);
}

#[derive(Clone, Debug)]
enum Kv {
    Put {
        key: u8,
        value: u8,
        ttl: Option<u8>,
        expect: Option<u8>,
    },
    PutIfAbsent {
        key: u8,
        value: u8,
    },
    Delete {
        key: u8,
        expect: Option<u8>,
    },
    Incr {
        key: u8,
        delta: i8,
        max: Option<i8>,
    },
    Check {
        key: u8,
        expect: u8,
    },
    Get {
        key: u8,
    },
}

fn kv() -> impl Strategy<Value = (Kv, bool)> {
    let key = 0..4u8;
    let expect = proptest::option::of(0..4u8);
    let op = prop_oneof![
        (
            key.clone(),
            any::<u8>(),
            proptest::option::of(1..5u8),
            expect.clone()
        )
            .prop_map(|(key, value, ttl, expect)| Kv::Put {
                key,
                value,
                ttl,
                expect
            }),
        (key.clone(), any::<u8>()).prop_map(|(key, value)| Kv::PutIfAbsent { key, value }),
        (key.clone(), expect).prop_map(|(key, expect)| Kv::Delete { key, expect }),
        (key.clone(), -5..5i8, proptest::option::of(0..20i8))
            .prop_map(|(key, delta, max)| Kv::Incr { key, delta, max }),
        (key.clone(), 0..3u8).prop_map(|(key, expect)| Kv::Check { key, expect }),
        key.prop_map(|key| Kv::Get { key }),
    ];
    (op, proptest::bool::weighted(0.15))
}

#[derive(Clone)]
struct Row {
    value: String,
    version: u64,
    expires: Option<TimeUs>,
}

type Map = BTreeMap<u8, Row>;

/// An expectation chosen as 0 (absent), 1 (the present version) or a wrong one.
fn expectation(map: &Map, key: u8, choice: u8) -> u64 {
    match choice {
        0 => 0,
        1 => map.get(&key).map_or(12_345, |row| row.version),
        other => 1_000_000 + u64::from(other),
    }
}

fn expected_loss(map: &Map, key: u8, expect: Option<u64>) -> Option<KvReason> {
    match (map.get(&key), expect?) {
        (Some(_), 0) => Some(KvReason::Exists),
        (None, 0) => None,
        (None, _) => Some(KvReason::Absent),
        (Some(row), version) => (row.version != version).then_some(KvReason::Version),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None,
        ..ProptestConfig::default() })]

    /// Random calls of one operation each against a plain map, with time passing and restarts.
    #[test]
    fn kv_against_a_plain_map(steps in proptest::collection::vec((kv(), 0..3000i64), 1..80)) {
        let mut world = World::new();
        let mut map = Map::new();
        let mut newest = BTreeMap::new();
        for (at, ((op, required), pause)) in steps.into_iter().enumerate() {
            world.sleep_ms(pause);
            if at % 17 == 16 {
                world.restart();
                world.submit(Command::Tick);
            }
            // The entry is stamped a microsecond later.
            let now = TimeUs(world.now.0 + 1);
            map.retain(|_, row| row.expires.is_none_or(|end| now < end));
            let (key, action, loss, new): (u8, KvAction, Option<KvReason>, Option<Option<Row>>) =
                match op {
                    Kv::Get { key } => (key, KvAction::Get, None, None),
                    Kv::Check { key, expect } => {
                        let expect = expectation(&map, key, expect);
                        let loss = expected_loss(&map, key, Some(expect));
                        (key, KvAction::Check { expect }, loss, None)
                    }
                    Kv::Put { key, value, ttl, expect } => {
                        let expect = expect.map(|e| expectation(&map, key, e));
                        let lifetime =
                            ttl.map_or(Lifetime::Forever, |s| Lifetime::Seconds(s.into()));
                        let row = Row {
                            value: value.to_string(),
                            version: 0,
                            expires: ttl.map(|s| now.plus_seconds(s.into())),
                        };
                        let loss = expected_loss(&map, key, expect);
                        let value = value.to_string();
                        (key, KvAction::Put { value, lifetime, expect }, loss, Some(Some(row)))
                    }
                    Kv::PutIfAbsent { key, value } => {
                        let row = Row { value: value.to_string(), version: 0, expires: None };
                        let loss = expected_loss(&map, key, Some(0));
                        let (value, lifetime) = (value.to_string(), Lifetime::Forever);
                        (key, KvAction::PutIfAbsent { value, lifetime }, loss, Some(Some(row)))
                    }
                    Kv::Delete { key, expect } => {
                        let expect = expect.map(|e| expectation(&map, key, e));
                        let loss = match map.get(&key) {
                            None => Some(KvReason::Absent),
                            Some(_) => expected_loss(&map, key, expect),
                        };
                        (key, KvAction::Delete { expect }, loss, Some(None))
                    }
                    Kv::Incr { key, delta, max } => {
                        let old = map.get(&key).map_or(0, |row| row.value.parse::<i64>().unwrap());
                        let new = old + i64::from(delta);
                        let loss = max
                            .is_some_and(|max| new > i64::from(max))
                            .then_some(KvReason::Limit);
                        let expires = map.get(&key).and_then(|row| row.expires);
                        let row = Row { value: new.to_string(), version: 0, expires };
                        let action = KvAction::Incr {
                            delta: delta.into(),
                            min: None,
                            max: max.map(i64::from),
                            lifetime: Lifetime::Forever,
                        };
                        (key, action, loss, Some(Some(row)))
                    }
                };
            let name = format!("k{key}");
            let ops = vec![KvOp { ns: "n".into(), key: name.clone(), required, action }];
            let outcome = world.submit(Command::Kv { ops });
            match (outcome, loss) {
                (Outcome::Kv(Err(told)), Some(loss)) => {
                    prop_assert!(required);
                    prop_assert_eq!(told.reason, loss);
                }
                (Outcome::Kv(Ok(results)), loss) => match (&results[0], loss) {
                    (KvResult::Row(row), None) => {
                        let value = row.as_ref().map(|row| row.value.clone());
                        prop_assert_eq!(value, map.get(&key).map(|row| row.value.clone()));
                    }
                    (KvResult::Lost { reason, row }, Some(loss)) => {
                        prop_assert!(!required);
                        prop_assert_eq!(*reason, loss);
                        let value = row.as_ref().map(|row| row.value.clone());
                        prop_assert_eq!(value, map.get(&key).map(|row| row.value.clone()));
                    }
                    (KvResult::Applied { row }, None) => {
                        match new {
                            None => {}
                            Some(None) => {
                                map.remove(&key);
                            }
                            Some(Some(mut expected)) => {
                                let row = row.as_ref().unwrap();
                                prop_assert_eq!(&row.value, &expected.value);
                                // Versions rise per key, also across deletes (semantics KV-4).
                                let last = newest.insert(key, row.version).unwrap_or(0);
                                prop_assert!(row.version > last);
                                expected.version = row.version;
                                map.insert(key, expected);
                            }
                        }
                    }
                    (told, expected) => prop_assert!(false, "{:?} for {:?}", told, expected),
                },
                (told, expected) => prop_assert!(false, "{:?} for {:?}", told, expected),
            }
        }
        let (rows, more) = world.engine.kv.scan("n", "k", None, 100, world.now);
        prop_assert!(!more);
        map.retain(|_, row| row.expires.is_none_or(|end| world.now < end));
        let kept: Vec<String> = map.keys().map(|key| format!("k{key}")).collect();
        prop_assert_eq!(rows.into_iter().map(|row| row.key).collect::<Vec<_>>(), kept);
    }
}
