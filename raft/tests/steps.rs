//! What is more than a push or a pop: producers' batches, transactions, dead letters.

mod common;

use bytes::Bytes;
use common::*;
use queen_engine::batch::{BatchBuilder, BatchHeader, DecodedBatch, lane_keys};
use queen_engine::command::{AckItem, AckStatus, Command, LaneHints};
use queen_engine::config::Origin;
use queen_engine::outcome::{Outcome, Reject};
use queen_engine::port::{Broker, Bundle, BundleRollback, ProduceBatch, query};
use queen_raft::Node;

async fn make_topic(node: &Node, name: &str) -> queen_engine::ids::TopicId {
    let create = Command::CreateTopic {
        name: name.to_string(),
        uuid: 7,
        partitions: 2,
        kafka: Default::default(),
        origin: Origin::Kafka,
    };
    match node.submit(create).await.unwrap() {
        Outcome::Topic(topic) => topic,
        other => panic!("{other:?}"),
    }
}

fn produced(topic: queen_engine::ids::TopicId, sequence: i32, values: &[&str]) -> ProduceBatch {
    let mut builder = BatchBuilder::new(1_000).with_producer(9, 0, sequence);
    for value in values {
        builder.push(1_000, Some(b"key"), Some(value.as_bytes()), &[]);
    }
    let bytes = builder.finish();
    let header = BatchHeader::parse(&bytes).unwrap();
    let decoded = DecodedBatch::decode(bytes.clone(), 1 << 20).unwrap();
    let keys = lane_keys(&decoded, 1);
    let names = &keys.names;
    let lanes = LaneHints::from_names(names, &keys.lane_of);
    ProduceBatch {
        topic,
        partition: 1,
        bytes,
        header,
        lanes,
        dedup: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producers_batch_lies_as_it_was_sent_and_its_repeat_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(config(dir.path())).await;
    let topic = make_topic(&node, "t").await;
    let first = produced(topic, 0, &["a", "b"]);
    let sent = first.bytes.clone();
    let answers = node
        .produce(vec![first, produced(topic, 2, &["c"])])
        .await
        .unwrap();
    let offsets: Vec<u64> = answers
        .iter()
        .map(|one| one.as_ref().unwrap().base_offset)
        .collect();
    assert_eq!(offsets, [0, 2]);
    let row = query(&*node, |view| view.index.find(topic, 1, 0)).unwrap();
    assert_eq!(node.read(row.at).unwrap(), sent);
    let again = node
        .produce(vec![produced(topic, 2, &["c"])])
        .await
        .unwrap();
    let again = again[0].as_ref().unwrap();
    assert!(again.repeat);
    assert_eq!(again.base_offset, 2);
    let gap = node
        .produce(vec![produced(topic, 9, &["z"])])
        .await
        .unwrap();
    assert_eq!(gap[0], Err(Reject::OutOfOrderSequence));
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_is_one_entry_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(config(dir.path())).await;
    push(&node, vec![item("in", "a", "1")]).await;
    let work = pop(&node, "in", "g", 0).await;
    let claim = &work.claims[0];
    let step = Bundle {
        acks: vec![AckItem {
            lane: claim.lane,
            group: "g".to_string(),
            number: claim.from,
            status: AckStatus::Completed,
            lease: work.lease,
            error: None,
            first_pending: claim.from,
            created: node.now(),
            transaction_id: String::new(),
            payload: None,
        }],
        pushes: vec![
            item_with_id("out", "x", "2", "step"),
            item("out", "y", "3"),
            item_with_id("out", "x", "2", "step"),
        ],
        ..Bundle::default()
    };
    let entries = figure(&node, "log_entries");
    let done = node.transact(step.clone()).await.unwrap().unwrap();
    assert_eq!(figure(&node, "log_entries"), entries + 1.0);
    assert_eq!(done.acks.len(), 1);
    assert!(done.acks[0].rejected.is_none());
    let duplicates: Vec<bool> = done.pushes.iter().map(|pushed| pushed.duplicate).collect();
    assert_eq!(duplicates, [false, false, true]);
    assert_eq!(done.pushes[0].number, done.pushes[2].number);
    let other = Bundle {
        acks: Vec::new(),
        ..step
    };
    let again = node.transact(other).await.unwrap();
    assert_eq!(again.unwrap_err(), BundleRollback::Duplicate { push: 0 });
    let stored = query(&*node, |view| {
        let topic = view.engine.topics.named("out").unwrap();
        topic
            .partitions
            .iter()
            .map(|partition| partition.next_offset)
            .sum::<u64>()
    });
    assert_eq!(stored, 2, "a rolled-back step stores nothing");
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_replayed_once() {
    let node = start_local().await;
    push(&node, vec![item("q", "a", "\"bad\"")]).await;
    let work = pop(&node, "q", "g", 0).await;
    let claim = &work.claims[0];
    let bury = AckItem {
        lane: claim.lane,
        group: "g".to_string(),
        number: claim.from,
        status: AckStatus::Dlq,
        lease: work.lease,
        error: Some("no".to_string()),
        first_pending: claim.from,
        created: node.now(),
        transaction_id: "t".to_string(),
        payload: Some(Bytes::from_static(b"\"bad\"")),
    };
    node.submit(Command::Ack { items: vec![bury] })
        .await
        .unwrap();
    let id = query(&*node, |view| {
        *view.engine.dead_letters.keys().next().unwrap()
    });
    let copy = item("q", "a", "\"bad\"");
    assert!(node.replay(id, copy.clone()).await.unwrap().is_ok());
    assert_eq!(
        node.replay(id, copy).await.unwrap(),
        Err(Reject::UnknownDeadLetter)
    );
    let again = pop(&node, "q", "g", 0).await;
    assert_eq!(payloads(&node, &again), ["\"bad\""]);
    node.shutdown().await;
}
