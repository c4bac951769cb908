//! Any node serves any call: what does not lead hands on, waits for a leader, and says what is known
//! of the outcome.

mod support;

use std::time::{Duration, Instant};

use queen_engine::port::Failure;
use serde_json::json;
use support::client::Served;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A follower and the leader it knows.
async fn pair() -> (Served, Served) {
    let (leader, follower) = (Served::start().await, Served::start().await);
    leader.broker.lead();
    follower.broker.follow(Some(leader.address.to_string()));
    (leader, follower)
}

#[tokio::test]
async fn a_follower_answers_as_the_leader_does() {
    let (leader, follower) = pair().await;
    let pushed = follower.push("q", "p", json!({"n": 1}), "t").await;
    assert_eq!(pushed["status"], "queued");
    let popped = follower.get("/api/v1/pop/queue/q?batch=10").await;
    assert_eq!(popped.status, 200);
    let message = popped.json()["messages"][0].clone();
    assert_eq!(message["data"], json!({"n": 1}));
    let ack = json!({"transactionId": "t", "partitionId": message["partitionId"],
        "leaseId": message["leaseId"]});
    let acked = follower.post("/api/v1/ack", ack).await;
    let success = acked.json()[0]["success"].clone();
    assert_eq!((acked.status, success), (200, json!(true)));
    assert_eq!(follower.get("/api/v1/pop/queue/q").await.status, 204);
    // Refusals come through as they are, with their hints.
    leader.broker.fail_with(Some(Failure::Overloaded));
    let refused = follower.post(
        "/api/v1/push",
        json!({"items": [{"queue": "q", "payload": 1}]}),
    );
    let refused = refused.await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(refused.json()["code"], "overloaded");
}

#[tokio::test]
async fn health_metrics_and_the_cluster_are_each_nodes_own() {
    let (leader, follower) = pair().await;
    drop(leader);
    for path in [
        "/health",
        "/metrics",
        "/metrics/prometheus",
        "/api/v1/cluster",
    ] {
        assert_eq!(follower.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_call_waits_for_a_leader_and_is_then_carried_out() {
    let (leader, follower) = (Served::start().await, Served::start().await);
    leader.broker.lead();
    follower.broker.follow(None);
    let broker = follower.broker.clone();
    let address = leader.address.to_string();
    let elected = async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        broker.follow(Some(address));
    };
    let (pushed, ()) = tokio::join!(follower.push("q", "p", json!(1), "t"), elected);
    assert_eq!(pushed["status"], "queued");
    // It may also be this node that leads next.
    follower.broker.follow(None);
    let broker = follower.broker.clone();
    let elected = async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        broker.lead();
    };
    let (pushed, ()) = tokio::join!(follower.push("q", "p", json!(1), "u"), elected);
    assert_eq!(pushed["status"], "queued");
}

#[tokio::test]
async fn without_a_leader_a_write_is_refused_and_a_pop_finds_nothing() {
    let follower = Served::start().await;
    follower.broker.follow(None);
    let begun = Instant::now();
    let body = json!({"items": [{"queue": "q", "payload": 1}]});
    let refused = follower.post("/api/v1/push", body).await;
    assert_eq!(
        (refused.status, refused.json()["code"].clone()),
        (503, json!("retry"))
    );
    assert_eq!(refused.headers["retry-after"], "1");
    assert!(begun.elapsed() >= Duration::from_secs(3));
    let begun = Instant::now();
    let popped = follower
        .get("/api/v1/pop/queue/q?wait=true&timeout=700")
        .await;
    assert_eq!(popped.status, 204);
    assert!((700..2500).contains(&begun.elapsed().as_millis()));
}

#[tokio::test]
async fn a_call_is_handed_on_once() {
    // Two followers that take each other for the leader.
    let (a, b) = (Served::start().await, Served::start().await);
    a.broker.follow(Some(b.address.to_string()));
    b.broker.follow(Some(a.address.to_string()));
    let refused = a.post("/api/v1/configure", json!({"queue": "q"})).await;
    assert_eq!(
        (refused.status, refused.json()["code"].clone()),
        (503, json!("retry"))
    );
}

#[tokio::test]
async fn a_leader_that_dies_with_a_write_leaves_its_outcome_unknown() {
    // Reads the call and closes: it may have applied it.
    let dying = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = dying.local_addr().unwrap();
    let calls = tokio::spawn(async move {
        let mut calls = 0;
        loop {
            let (mut socket, _) = dying.accept().await.unwrap();
            let mut head = [0; 16];
            let read = socket.read(&mut head).await.unwrap();
            calls += u32::from(head[..read].starts_with(b"POST /api/v1/ack"));
            socket.shutdown().await.unwrap();
            if calls > 1 {
                return;
            }
        }
    });
    let follower = Served::start().await;
    follower.broker.follow(Some(address.to_string()));
    let push = json!({"items": [{"queue": "q", "payload": 1}]});
    let unknown = follower.post("/api/v1/push", push).await;
    assert_eq!(
        (unknown.status, unknown.json()["code"].clone()),
        (503, json!("timeout"))
    );
    let ack = json!({"transactionId": "t", "partitionId": "1", "leaseId": "1"});
    let unknown = follower.post("/api/v1/ack", ack).await;
    let code = unknown.json()["code"].clone();
    assert_eq!((unknown.status, code), (503, json!("outcome_unknown")));
    // A read goes on to the next leader.
    let leader = Served::start().await;
    leader.broker.lead();
    leader.push("q", "p", json!(7), "t").await;
    let broker = follower.broker.clone();
    let next = leader.address.to_string();
    let elected = async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        broker.follow(Some(next));
    };
    let path = "/api/v1/pop/queue/q?wait=true&timeout=5000";
    let (popped, ()) = tokio::join!(follower.get(path), elected);
    assert_eq!(popped.json()["messages"][0]["data"], json!(7));
    assert!(!calls.is_finished(), "a write was sent twice");
    calls.abort();
}
