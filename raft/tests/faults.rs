//! A hostile disk under a whole node: nothing that was answered is lost, and a full disk refuses
//! writes while reads go on.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::*;
use futures_util::future::join_all;
use parking_lot::Mutex;
use queen_engine::command::Command;
use queen_engine::port::{Broker, Failure, query};
use queen_log::Log;
use queen_log::storage::evil::EvilStorage;
use queen_raft::{Fatal, Node, NodeConfig, StartError};

/// Small segments and frequent images, so that every file is written in every run.
fn small(dir: &Path) -> NodeConfig {
    NodeConfig {
        segment_bytes: 32 << 10,
        image_log_bytes_min: 48 << 10,
        // The disk is meant to fail; the node is dropped by the test.
        fatal: Fatal::new(|_| {}),
        ..config(dir)
    }
}

async fn try_start(config: NodeConfig, disk: &EvilStorage) -> Result<Arc<Node>, StartError> {
    let disk = Arc::new(disk.clone());
    let start = move || Node::start_on(config, |config| Log::open_with(config, disk.clone()));
    tokio::task::spawn_blocking(start).await.unwrap()
}

async fn start_on(config: NodeConfig, disk: &EvilStorage) -> Arc<Node> {
    let node = try_start(config, disk).await.unwrap();
    node.ready().await.unwrap();
    node
}

/// Every payload of the queue, in lane order.
fn stored(node: &Node) -> Vec<String> {
    let lanes = query(node, |view| {
        let Some(topic) = view.engine.topics.named("q") else {
            return Vec::new();
        };
        let next = |lane| view.engine.lanes.get(lane).map_or(0, |row| row.next);
        topic
            .lanes
            .iter()
            .map(|lane| (*lane, next(*lane)))
            .collect()
    });
    let mut payloads = Vec::new();
    for (lane, next) in lanes {
        for record in queen_engine::message::read_lane(node, lane, 0, next).unwrap() {
            let value = record.get().unwrap().value.unwrap();
            payloads.push(String::from_utf8(value[..8].to_vec()).unwrap());
        }
    }
    payloads.sort();
    payloads
}

fn numbered(i: usize) -> String {
    format!("{i:08}{}", "x".repeat(900))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_survives_a_power_cut() {
    for seed in 0..5u64 {
        let dir = tempfile::tempdir().unwrap();
        let graves = tempfile::tempdir_in(dir.path()).unwrap();
        let disk = EvilStorage::new(graves.path());
        let answered = Arc::new(Mutex::new(Vec::new()));
        for life in 0..3u64 {
            let node = start_on(small(dir.path()), &disk).await;
            let found = stored(&node);
            for payload in answered.lock().iter() {
                assert!(
                    found.binary_search(payload).is_ok(),
                    "seed {seed} life {life}: {payload}"
                );
            }
            disk.die_after(20 + seed * 23 + life * 61);
            let pushes = (0..300).map(|i| {
                let (node, answered) = (node.clone(), answered.clone());
                let number = usize::try_from(life).unwrap() * 1000 + i;
                tokio::spawn(async move {
                    let pushed =
                        node.push(vec![item("q", &format!("{}", i % 5), &numbered(number))]);
                    let soon = tokio::time::timeout(std::time::Duration::from_secs(1), pushed);
                    if let Ok(Ok(_)) = soon.await {
                        answered.lock().push(format!("{number:08}"));
                    }
                })
            });
            // In waves, so that the disk dies somewhere between them.
            for push in join_all(pushes).await {
                push.unwrap();
            }
            node.shutdown().await;
            drop(node);
            disk.lose_unsynced(seed * 31 + life).unwrap();
        }
        assert!(!answered.lock().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_writes_and_recovers_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let graves = tempfile::tempdir_in(dir.path()).unwrap();
    let disk = EvilStorage::new(graves.path());
    let node = start_on(small(dir.path()), &disk).await;
    push(&node, vec![item("q", "a", &numbered(1))]).await;
    disk.set_space(Some(0));
    let mut written = 1;
    let refused = loop {
        match node
            .push(vec![item("q", "a", &numbered(written + 1))])
            .await
        {
            Ok(_) => written += 1,
            Err(failure) => break failure,
        }
        assert!(written < 1000, "the disk never fills");
    };
    assert_eq!(refused, Failure::StorageFull);
    assert!(node.node().storage_full);
    assert_eq!(stored(&node).len(), written, "reads go on");
    disk.set_space(None);
    push(&node, vec![item("q", "a", &numbered(written + 1))]).await;
    assert!(!node.node().storage_full);
    assert_eq!(stored(&node).len(), written + 1);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn images_and_sidecars_restart_a_node() {
    let dir = tempfile::tempdir().unwrap();
    let graves = tempfile::tempdir_in(dir.path()).unwrap();
    let disk = EvilStorage::new(graves.path());
    let node = start_on(small(dir.path()), &disk).await;
    for i in 0..700 {
        push(&node, vec![item("q", &format!("{}", i % 7), &numbered(i))]).await;
    }
    eventually("an image is written", || figure(&node, "image_index") > 0.0).await;
    assert!(figure(&node, "log_segments") > 17.0);
    let all = stored(&node);
    assert_eq!(all.len(), 700);
    node.shutdown().await;
    drop(node);
    // From the newest image, then with one sidecar gone: the log itself still has everything.
    for broken in [None, Some(".index"), Some(".img"), Some("every image")] {
        match broken {
            Some("every image") => while remove_one(dir.path(), ".img") {},
            Some(suffix) => assert!(remove_one(dir.path(), suffix)),
            None => {}
        }
        let node = start_on(small(dir.path()), &disk).await;
        assert_eq!(stored(&node), all, "without one {broken:?}");
        node.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trimmed_segments_are_reclaimed_and_an_image_is_needed_then() {
    let dir = tempfile::tempdir().unwrap();
    let graves = tempfile::tempdir_in(dir.path()).unwrap();
    let disk = EvilStorage::new(graves.path());
    let node = start_on(small(dir.path()), &disk).await;
    let mut pushed = 0;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while first_index(dir.path()) {
        for _ in 0..50 {
            push(&node, vec![item("q", "a", &numbered(pushed))]).await;
            pushed += 1;
        }
        let (topic, before) = query(&*node, |view| {
            let topic = view.engine.topics.named("q").unwrap();
            let starts = (0u32..).zip(&topic.partitions);
            (
                topic.id,
                starts.map(|(p, part)| (p, part.next_offset)).collect(),
            )
        });
        node.submit(Command::Trim { topic, before }).await.unwrap();
        assert!(
            tokio::time::Instant::now() < deadline,
            "nothing is reclaimed"
        );
    }
    push(&node, vec![item("q", "a", &numbered(7))]).await;
    node.shutdown().await;
    drop(node);
    let node = start_on(small(dir.path()), &disk).await;
    assert_eq!(query(&*node, |view| view.engine.lanes.len()), 1);
    node.shutdown().await;
    drop(node);
    while remove_one(dir.path(), ".img") {}
    let refused = match try_start(small(dir.path()), &disk).await {
        Ok(_) => panic!("it starts without its state"),
        Err(error) => error.to_string(),
    };
    assert!(refused.contains("no image"), "{refused}");
}

/// Whether the log still has its first segment.
fn first_index(dir: &Path) -> bool {
    dir.join("log/segments/0000000000000001.seg").exists()
}

/// Removes the newest file of the log with this ending.
fn remove_one(dir: &Path, suffix: &str) -> bool {
    let mut found = Vec::new();
    for part in ["log/segments", "log/images"] {
        for file in std::fs::read_dir(dir.join(part)).unwrap() {
            let path = file.unwrap().path();
            if path.to_string_lossy().ends_with(suffix) {
                found.push(path);
            }
        }
    }
    found.sort();
    match found.pop() {
        Some(path) => std::fs::remove_file(path).is_ok(),
        None => false,
    }
}
