//! What the node tests share: nodes in temporary directories, short ways to push and pop.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use queen_engine::command::{AckItem, AckStatus, Command};
use queen_engine::outcome::{AckResult, Outcome};
use queen_engine::port::{
    Broker, PopAnswer, PopRequest, PopTarget, PushItem, Pushed, Subscription, query,
};
use queen_raft::{Fatal, Node, NodeConfig};

/// Longest wait for anything a test waits for.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A configuration whose fatal errors are panics of the thread that meets them.
pub fn config(dir: &Path) -> NodeConfig {
    NodeConfig {
        segment_bytes: 1 << 20,
        default_partitions: 4,
        fatal: Fatal::new(|reason| panic!("node stopped: {reason}")),
        ..NodeConfig::new(1, dir)
    }
}

/// Starts a node and waits until it serves.
pub async fn start(config: NodeConfig) -> Arc<Node> {
    let node = tokio::task::spawn_blocking(|| Node::start(config))
        .await
        .unwrap()
        .unwrap();
    node.ready().await.unwrap();
    node
}

/// A node in memory that serves.
pub async fn start_local() -> Arc<Node> {
    let config = config(Path::new("unused"));
    let node = tokio::task::spawn_blocking(|| Node::start_local(config))
        .await
        .unwrap()
        .unwrap();
    node.ready().await.unwrap();
    node
}

pub fn item(queue: &str, lane: &str, payload: &str) -> PushItem {
    PushItem {
        queue: queue.to_string(),
        lane: lane.to_string(),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        ..PushItem::default()
    }
}

pub fn item_with_id(queue: &str, lane: &str, payload: &str, id: &str) -> PushItem {
    PushItem {
        transaction_id: Some(id.to_string()),
        ..item(queue, lane, payload)
    }
}

pub async fn push(node: &Node, items: Vec<PushItem>) -> Vec<Pushed> {
    let results = node.push(items).await.unwrap();
    results.into_iter().map(|result| result.unwrap()).collect()
}

pub fn pop_request(queue: &str, group: &str, wait_ms: u64) -> PopRequest {
    PopRequest {
        target: PopTarget::Queue(queue.to_string()),
        group: group.to_string(),
        batch: 10,
        lanes: 10,
        wait_ms,
        lease_ms: Some(60_000),
        subscription: Subscription {
            mode: Some("all".to_string()),
            from: None,
        },
        commit: false,
        conflation: false,
    }
}

pub async fn pop(node: &Node, queue: &str, group: &str, wait_ms: u64) -> PopAnswer {
    node.pop(pop_request(queue, group, wait_ms)).await.unwrap()
}

/// Acks the last message of every claimed run, which acks the run.
pub async fn ack(node: &Node, group: &str, answer: &PopAnswer) -> Vec<AckResult> {
    let items = answer
        .claims
        .iter()
        .map(|claim| AckItem {
            lane: claim.lane,
            group: group.to_string(),
            number: claim.to - 1,
            status: AckStatus::Completed,
            lease: answer.lease,
            error: None,
            first_pending: claim.from,
            created: node.now(),
            transaction_id: String::new(),
            payload: None,
        })
        .collect();
    match node.submit(Command::Ack { items }).await.unwrap() {
        Outcome::Acked(results) => results,
        other => panic!("an ack came to {other:?}"),
    }
}

/// The payloads of a pop's messages, in order.
pub fn payloads(node: &Node, answer: &PopAnswer) -> Vec<String> {
    let mut payloads = Vec::new();
    for claim in &answer.claims {
        let records =
            queen_engine::message::read_lane(node, claim.lane, claim.deliver_from, claim.to);
        for record in records.unwrap() {
            let value = record.get().unwrap().value.unwrap().to_vec();
            payloads.push(String::from_utf8(value).unwrap());
        }
    }
    payloads
}

/// The state as bytes, to compare.
pub fn state_bytes(node: &Node) -> Vec<u8> {
    query(node, |view| view.engine.image().concat())
}

pub fn figure(node: &Node, name: &str) -> f64 {
    *node
        .figures()
        .get(name)
        .unwrap_or_else(|| panic!("no figure {name}"))
}

/// Looks until `look` is true.
pub async fn eventually(what: &str, mut look: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !look() {
        assert!(tokio::time::Instant::now() < deadline, "in vain: {what}");
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
