//! Many callers at once: one flush serves many of them, and nobody is forgotten.

mod common;

use common::*;
use futures_util::future::join_all;
use queen_engine::port::{Broker, query};

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_pushes_share_few_flushes() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(config(dir.path())).await;
    push(&node, vec![item("q", "first", "0")]).await;
    let before = figure(&node, "log_fsyncs");
    let pushes = (0..1000).map(|i| {
        let node = node.clone();
        tokio::spawn(async move {
            push(
                &node,
                vec![item("q", &format!("lane-{}", i % 100), &format!("{i}"))],
            )
            .await
        })
    });
    let pushed = join_all(pushes).await;
    let fsyncs = figure(&node, "log_fsyncs") - before;
    assert!(fsyncs < 200.0, "{fsyncs} flushes for 1000 pushes");
    let mut places: Vec<_> = pushed
        .into_iter()
        .map(|one| one.unwrap()[0].clone())
        .map(|p| (p.lane, p.number))
        .collect();
    places.sort();
    places.dedup();
    assert_eq!(places.len(), 1000);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_id_at_the_same_time_is_stored_once() {
    let node = start_local().await;
    let pushes = (0..200).map(|i| {
        let node = node.clone();
        tokio::spawn(async move {
            push(
                &node,
                vec![item_with_id("q", "a", "x", &format!("id-{}", i % 5))],
            )
            .await
        })
    });
    let pushed: Vec<_> = join_all(pushes)
        .await
        .into_iter()
        .map(|one| one.unwrap())
        .collect();
    let originals = pushed.iter().filter(|one| !one[0].duplicate).count();
    assert_eq!(originals, 5);
    let stored = query(&*node, |view| {
        view.engine
            .topics
            .named("q")
            .unwrap()
            .partitions
            .iter()
            .map(|p| p.next_offset)
            .sum::<u64>()
    });
    assert_eq!(stored, 5, "duplicates do not enter the log");
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_larger_than_an_entry_is_refused() {
    let node = start_local().await;
    let large = "x".repeat(65 * 1024 * 1024);
    let refused = node.push(vec![item("q", "a", &large)]).await;
    assert_eq!(refused, Err(queen_engine::port::Failure::TooLarge));
    let fits = "x".repeat(20 * 1024 * 1024);
    assert_eq!(push(&node, vec![item("q", "a", &fits)]).await.len(), 1);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pushed_message_is_popped_once() {
    let node = start_local().await;
    let workers: Vec<_> = (0..16)
        .map(|_| {
            let node = node.clone();
            tokio::spawn(async move {
                let mut got = Vec::new();
                loop {
                    let answer = pop(&node, "q", "g", 300).await;
                    if answer.claims.is_empty() {
                        return got;
                    }
                    got.extend(payloads(&node, &answer));
                    ack(&node, "g", &answer).await;
                }
            })
        })
        .collect();
    for i in 0..500 {
        push(
            &node,
            vec![item("q", &format!("lane-{}", i % 37), &format!("{i}"))],
        )
        .await;
    }
    let mut got = Vec::new();
    for worker in workers {
        got.extend(worker.await.unwrap());
    }
    let mut numbers: Vec<u32> = got.iter().map(|text| text.parse().unwrap()).collect();
    numbers.sort();
    assert_eq!(numbers, (0..500).collect::<Vec<_>>());
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_item_does_not_hold_its_id() {
    let node = start_local().await;
    let long = "x".repeat(500);
    for _ in 0..3 {
        let refused = node
            .push(vec![item_with_id("q", &long, "1", "id")])
            .await
            .unwrap();
        assert_eq!(refused[0], Err(queen_engine::outcome::Reject::NameTooLong));
    }
    node.shutdown().await;
}
