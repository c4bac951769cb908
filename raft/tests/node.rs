//! A node on a real directory: what was answered is there after a restart.

mod common;

use common::*;
use queen_engine::port::{Broker, Failure, query};

#[tokio::test(flavor = "multi_thread")]
async fn the_thinnest_line() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(config(dir.path())).await;
    let pushed = push(
        &node,
        vec![
            item("q", "a", "1"),
            item("q", "b", "2"),
            item("q", "a", "3"),
        ],
    )
    .await;
    assert_eq!(
        pushed.iter().map(|p| p.number).collect::<Vec<_>>(),
        [0, 0, 1]
    );
    let answer = pop(&node, "q", "g", 0).await;
    let mut got = payloads(&node, &answer);
    got.sort();
    assert_eq!(got, ["1", "2", "3"]);
    let acked = ack(&node, "g", &answer).await;
    assert!(
        acked.iter().all(|result| result.rejected.is_none()),
        "{acked:?}"
    );
    assert!(pop(&node, "q", "g", 0).await.claims.is_empty());
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut before = Vec::new();
    for round in 0..3 {
        let node = start(config(dir.path())).await;
        if round > 0 {
            assert_eq!(state_without_leader_entry(&node), before, "round {round}");
        }
        for i in 0..50 {
            let lane = format!("lane-{}", i % 7);
            push(
                &node,
                vec![item_with_id(
                    "q",
                    &lane,
                    &format!("{i}"),
                    &format!("{round}-{i}"),
                )],
            )
            .await;
        }
        let answer = pop(&node, "q", "g", 0).await;
        assert!(!answer.claims.is_empty());
        before = state_without_leader_entry(&node);
        node.shutdown().await;
        assert_eq!(push_after_stop(&node).await, Failure::Stopping);
    }
}

async fn push_after_stop(node: &queen_raft::Node) -> Failure {
    node.push(vec![item("q", "a", "late")]).await.unwrap_err()
}

/// What the state says, without the number of its newest entry, which a new leader raises.
fn state_without_leader_entry(node: &queen_raft::Node) -> Vec<String> {
    query(node, |view| {
        let mut lines: Vec<String> = view
            .engine
            .topics
            .iter()
            .map(|topic| format!("{topic:?}"))
            .collect();
        lines.extend(
            view.engine
                .groups
                .iter()
                .map(|(name, group)| format!("{name} {group:?}")),
        );
        lines.push(format!(
            "{} lanes, {} ids",
            view.engine.lanes.len(),
            view.engine.dedup_len()
        ));
        lines
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_id_is_a_duplicate_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(config(dir.path())).await;
    let first = push(&node, vec![item_with_id("q", "a", "1", "id")]).await;
    let entries = figure(&node, "log_entries");
    let again = push(&node, vec![item_with_id("q", "a", "1", "id")]).await;
    assert_eq!(
        figure(&node, "log_entries"),
        entries,
        "a known duplicate is not logged"
    );
    assert!(!first[0].duplicate && again[0].duplicate);
    assert_eq!(again[0].message_id, first[0].message_id);
    node.shutdown().await;
    let node = start(config(dir.path())).await;
    let after = push(&node, vec![item_with_id("q", "a", "1", "id")]).await;
    assert!(after[0].duplicate);
    assert_eq!(after[0].number, first[0].number);
    node.shutdown().await;
}
