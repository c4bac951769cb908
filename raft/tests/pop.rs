//! Pops that wait, and pops that are dropped.

mod common;

use std::time::Duration;

use common::*;
use futures_util::poll;
use queen_engine::command::Command;
use queen_engine::port::{Broker, query};
use tokio::time::{Instant, timeout};

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_pop_wakes_at_the_push() {
    let node = start_local().await;
    let waiting = {
        let node = node.clone();
        tokio::spawn(async move { pop(&node, "q", "g", 20_000).await })
    };
    eventually("the pop parks", || figure(&node, "parked_pops") == 1.0).await;
    let started = Instant::now();
    push(&node, vec![item("q", "a", "1")]).await;
    let answer = timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert_eq!(payloads(&node, &answer), ["1"]);
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "woken, not timed out"
    );
    assert_eq!(figure(&node, "parked_pops"), 0.0);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_pop_ends_empty_at_its_deadline() {
    let node = start_local().await;
    let started = Instant::now();
    let answer = pop(&node, "q", "g", 50).await;
    assert!(answer.claims.is_empty());
    assert!(started.elapsed() >= Duration::from_millis(50));
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_lease_wakes_a_parked_pop() {
    let node = start_local().await;
    push(&node, vec![item("q", "a", "1")]).await;
    let short = queen_engine::port::PopRequest {
        lease_ms: Some(100),
        ..pop_request("q", "g", 0)
    };
    let first = node.pop(short).await.unwrap();
    assert_eq!(first.claims.len(), 1);
    let again = pop(&node, "q", "g", 10_000).await;
    assert_eq!(again.claims.len(), 1);
    assert_eq!(again.claims[0].attempt, 2);
    node.shutdown().await;
}

/// Drops a pop at every point between its first poll and its answer: its lane must always be free
/// afterwards, with the attempt taken back.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_pop_gives_back() {
    let node = start_local().await;
    // The group is known, so a pop claims at once.
    assert!(pop(&node, "q", "g", 0).await.claims.is_empty());
    push(&node, vec![item("q", "a", "1")]).await;
    for polls in 1..40 {
        let mut dropped = node.pop(pop_request("q", "g", 0));
        let mut answered = None;
        for _ in 0..polls {
            if let std::task::Poll::Ready(answer) = poll!(&mut dropped) {
                answered = Some(answer.unwrap());
                break;
            }
            std::thread::yield_now();
        }
        drop(dropped);
        if let Some(answer) = answered {
            node.unclaim("g".to_string(), answer);
        }
        let answer = pop(&node, "q", "g", 10_000).await;
        assert_eq!(answer.claims.len(), 1, "after {polls} polls");
        assert_eq!(answer.claims[0].attempt, 1, "after {polls} polls");
        node.unclaim("g".to_string(), answer);
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_resolves_polls_that_were_made_before() {
    let node = start_local().await;
    push(&node, vec![item("q", "a", "1")]).await;
    let topic = query(&*node, |view| view.engine.topics.named("q").unwrap().id);
    let early = node.appended(&[topic]);
    push(&node, vec![item("q", "a", "2")]).await;
    timeout(PATIENCE, early).await.unwrap();
    let mut late = node.appended(&[topic]);
    assert!(poll!(&mut late).is_pending());
    node.barrier().await.unwrap();
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_fires() {
    use queen_engine::timer::{TimerAction, TimerOp};
    let node = start_local().await;
    let schedule = TimerOp {
        queue: "q".to_string(),
        key: "k".to_string(),
        action: TimerAction::Schedule {
            partition: "a".to_string(),
            delay_ms: 30,
            txn: "t".to_string(),
            message_id: "00000000-0000-4000-8000-000000000001".to_string(),
            payload: bytes::Bytes::from_static(b"\"later\""),
            producer_sub: None,
        },
    };
    node.submit(Command::Timers {
        ops: vec![schedule],
    })
    .await
    .unwrap();
    let answer = pop(&node, "q", "g", 10_000).await;
    assert_eq!(payloads(&node, &answer), ["\"later\""]);
    eventually("the timer is gone", || figure(&node, "timers") == 0.0).await;
    node.shutdown().await;
}
