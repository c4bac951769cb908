//! Three nodes over real sockets and files: forming, writing, losing the leader, coming back.

mod common;
mod trio;

use std::time::{Duration, Instant};

use common::*;
use queen_engine::cluster::ClusterChange;
use queen_engine::command::Command;
use queen_engine::config::Origin;
use queen_engine::outcome::{Outcome, Reject};
use queen_engine::port::{Broker, Failure};
use queen_raft::Node;
use trio::{Trio, until};

fn numbered(n: u64) -> queen_engine::port::PushItem {
    item_with_id(
        "q",
        &format!("lane-{}", n % 5),
        &n.to_string(),
        &n.to_string(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_form_in_any_order_and_hold_the_same() {
    for order in [[1, 2, 3], [3, 1, 2]] {
        let mut trio = Trio::new();
        trio.start(order[0]).await;
        trio.start(order[1]).await;
        let alone = trio.nodes[&order[0]].clone();
        let waits = || alone.cluster().waits_for.unwrap_or_default();
        let missing = format!("peer {} at ", order[2]);
        until("it says whom it waits for", || {
            waits().starts_with(&missing)
        })
        .await;
        assert!(!alone.node().ready);
        trio.start(order[2]).await;
        for id in order {
            trio.ready(id).await;
        }
        let leader = trio.led().await;
        for n in 0..40 {
            trio.push(numbered(n)).await;
        }
        trio.agree().await;
        let ids: Vec<String> = trio
            .nodes
            .values()
            .map(|node| node.node().cluster_id)
            .collect();
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        until("all know all", || {
            trio.nodes.values().all(|node| {
                let node = node.node();
                node.leader == Some(leader)
                    && node.replicas == [1, 2, 3]
                    && node.in_sync == [1, 2, 3]
            })
        })
        .await;
        let follower = trio.follower();
        let refused = trio.nodes[&follower].push(vec![numbered(1)]).await;
        assert_eq!(
            refused.unwrap_err(),
            Failure::NotLeader {
                leader: Some(leader)
            }
        );
        for id in order {
            trio.stop(id).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_takes_nothing_with_it() {
    let mut trio = Trio::formed().await;
    let mut n = 0;
    for round in 0..4 {
        let leader = trio.led().await;
        for _ in 0..25 {
            let pushed = trio.push(numbered(n)).await;
            assert_eq!(pushed.number, n / 5, "round {round}");
            n += 1;
        }
        trio.kill(leader).await;
        for _ in 0..25 {
            trio.push(numbered(n)).await;
            n += 1;
        }
        trio.start(leader).await;
        trio.ready(leader).await;
    }
    trio.agree().await;
    let answer = pop_all(&trio, n).await;
    let expected: Vec<u64> = (0..n).collect();
    assert_eq!(answer, expected);
}

/// Everything in the queue, by number.
async fn pop_all(trio: &Trio, wanted: u64) -> Vec<u64> {
    let leader = trio.led().await;
    let node = &trio.nodes[&leader];
    let mut got: Vec<u64> = Vec::new();
    while (got.len() as u64) < wanted {
        let answer = pop(node, "q", "g", 1000).await;
        assert!(!answer.claims.is_empty(), "{} of {wanted}", got.len());
        got.extend(
            payloads(node, &answer)
                .iter()
                .map(|p| p.parse::<u64>().unwrap()),
        );
        ack(node, "g", &answer).await;
    }
    got.sort_unstable();
    got
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_outlives_its_leader_and_is_held_once() {
    let mut trio = Trio::formed().await;
    for n in 0..5 {
        trio.push(numbered(n)).await;
    }
    let first = trio.led().await;
    let held = pop(&trio.nodes[&first], "q", "g", 0).await;
    assert_eq!(held.claims.len(), 5);
    trio.kill(first).await;
    let second = trio.led().await;
    let node = trio.nodes[&second].clone();
    assert!(
        pop(&node, "q", "g", 0).await.claims.is_empty(),
        "held twice"
    );
    let acked = ack(&node, "g", &held).await;
    assert!(
        acked.iter().all(|result| result.rejected.is_none()),
        "{acked:?}"
    );
    trio.push(numbered(5)).await;
    let next = pop(&node, "q", "g", 2000).await;
    assert_eq!(payloads(&node, &next), ["5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_nothing_is_acknowledged_and_with_it_again() {
    let mut trio = Trio::formed().await;
    trio.push(numbered(0)).await;
    let leader = trio.led().await;
    let others: Vec<i32> = [1, 2, 3].into_iter().filter(|id| *id != leader).collect();
    for id in &others {
        trio.kill(*id).await;
    }
    let node = trio.nodes[&leader].clone();
    let late = tokio::spawn({
        let node = node.clone();
        async move { node.push(vec![numbered(1)]).await }
    });
    until("it no longer serves", || !node.node().ready).await;
    assert!(!late.is_finished() || late.await.unwrap().is_err());
    drop(node);
    trio.start(others[0]).await;
    trio.ready(others[0]).await;
    let pushed = trio.push(numbered(1)).await;
    assert_eq!(pushed.number, 0);
    trio.start(others[1]).await;
    trio.ready(others[1]).await;
    trio.agree().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_hands_over_first() {
    let mut trio = Trio::formed().await;
    trio.push(numbered(0)).await;
    let leader = trio.led().await;
    let others: Vec<_> = trio
        .nodes
        .iter()
        .filter(|(id, _)| **id != leader)
        .map(|(_, node)| node.clone())
        .collect();
    trio.stop(leader).await;
    // Handed over before it was gone: no election had to be waited for.
    let leads = |node: &std::sync::Arc<Node>| node.node().leader.is_some_and(|id| id != leader);
    assert!(others.iter().any(leads));
    trio.push(numbered(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_goes_where_it_is_told() {
    let trio = Trio::formed().await;
    let from = trio.led().await;
    let to = trio.follower();
    let change = ClusterChange::Transfer { to: Some(to) };
    let node = trio.nodes[&from].clone();
    node.change_cluster(change.clone()).await.unwrap();
    until("the other leads", || trio.leader() == Some(to)).await;
    assert!(
        node.change_cluster(change).await.is_err(),
        "it leads no more"
    );
    trio.push(numbered(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_voter_is_refused_until_it_is_taken_in_again() {
    let mut trio = Trio::formed().await;
    trio.push(numbered(0)).await;
    let leader = trio.led().await;
    let wiped = trio.follower();
    trio.stop(wiped).await;
    std::fs::remove_dir_all(trio.dir(wiped)).unwrap();
    let node = trio.start(wiped).await;
    until("it hears why", || {
        let waits = node.cluster().waits_for.unwrap_or_default();
        waits.contains("queen cluster")
    })
    .await;
    assert!(!node.node().ready);
    trio.push(numbered(1)).await;
    let admin = trio.nodes[&leader].clone();
    let remove = ClusterChange::Remove { id: wiped };
    admin.change_cluster(remove).await.unwrap();
    let raft_address = trio.peers[&wiped].clone();
    let add = ClusterChange::Add {
        id: wiped,
        raft_address,
    };
    admin.change_cluster(add).await.unwrap();
    trio.ready(wiped).await;
    trio.push(numbered(2)).await;
    trio.agree().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_gets_nothing() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut trio = Trio::formed().await;
    trio.push(numbered(0)).await;
    for hello in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 200], b"QNPEER1\0"] {
        let mut socket = tokio::net::TcpStream::connect(&trio.peers[&1])
            .await
            .unwrap();
        socket.write_all(hello).await.unwrap();
        socket.shutdown().await.unwrap();
        let mut answer = Vec::new();
        // Reset or closed: either way nothing came.
        let _ = socket.read_to_end(&mut answer).await;
        assert!(answer.is_empty(), "{answer:?}");
    }
    let follower = trio.follower();
    trio.stop(follower).await;
    trio.secret = "another".to_string();
    let node = trio.start(follower).await;
    trio.push(numbered(1)).await;
    assert_eq!(node.node().applied, query_applied(&node));
    until("the others are not heard", || {
        let waits = node.cluster().waits_for.unwrap_or_default();
        waits.contains("not heard")
    })
    .await;
    assert!(!node.node().ready);
}

fn query_applied(node: &Node) -> u64 {
    queen_engine::port::query(node, |view| view.engine.applied())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_may_move() {
    let mut trio = Trio::formed().await;
    trio.push(numbered(0)).await;
    let moved = trio.follower();
    trio.stop(moved).await;
    let elsewhere = trio::address().to_string();
    trio.peers.insert(moved, elsewhere.clone());
    trio.start(moved).await;
    trio.ready(moved).await;
    until("all know where it is", || {
        trio.nodes.values().all(|node| {
            let cluster = node.cluster();
            cluster
                .member(moved)
                .is_some_and(|member| member.raft_address == elsewhere)
        })
    })
    .await;
    trio.push(numbered(1)).await;
    trio.agree().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_reaches_the_leader_from_everywhere() {
    let trio = Trio::formed().await;
    let create = |name: &str| Command::CreateTopic {
        name: name.to_string(),
        uuid: 7,
        partitions: 2,
        kafka: Default::default(),
        origin: Origin::Kafka,
    };
    for (id, node) in &trio.nodes {
        let name = format!("topic-{id}");
        let made = node.submit(create(&name)).await.unwrap();
        assert!(matches!(made, Outcome::Topic(_)), "{made:?}");
        // Whoever was asked knows it at once.
        assert!(queen_engine::port::query(&**node, |view| {
            view.engine.topics.named(&name).is_some()
        }));
        let again = node.submit(create(&name)).await.unwrap();
        assert_eq!(again, Outcome::Rejected(Reject::TopicExists));
    }
    trio.agree().await;
}

/// Writes and deletes until a node has let go of entries up to and including `index`.
async fn reclaim_beyond(trio: &Trio, index: u64) {
    let big = "x".repeat(200_000);
    let deadline = Instant::now() + PATIENCE;
    for n in 0.. {
        let id = format!("big-{index}-{n}");
        trio.push(item_with_id("big", "lane", &format!("\"{big}\""), &id))
            .await;
        let leader = trio.led().await;
        let node = &trio.nodes[&leader];
        let delete = Command::DeleteTopic {
            name: "big".to_string(),
        };
        node.submit(delete).await.unwrap();
        if figure(node, "log_first_index") > index as f64 {
            return;
        }
        assert!(Instant::now() < deadline, "the log is never reclaimed");
        // A node that is away is waited for, for a moment.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_lacks_what_is_gone_gets_files() {
    let mut trio = Trio::new();
    trio.image_log_bytes_min = 1 << 20;
    trio.form().await;
    trio.push(item_with_id("big", "lane", "1", "first")).await;
    let away = trio.follower();
    let had = trio.settled().await;
    trio.stop(away).await;
    reclaim_beyond(&trio, had + 10).await;
    for n in 0..40 {
        trio.push(numbered(n)).await;
    }
    trio.start(away).await;
    until("it has the files", || trio.restarts.lock().contains(&away)).await;
    trio.stop(away).await;
    trio.start(away).await;
    trio.ready(away).await;
    trio.push(numbered(40)).await;
    trio.agree().await;
    // It holds the records too, not only the state.
    let others: Vec<i32> = trio
        .nodes
        .keys()
        .copied()
        .filter(|id| *id != away)
        .collect();
    let leader = trio.led().await;
    if leader != away {
        let to = ClusterChange::Transfer { to: Some(away) };
        trio.nodes[&leader].change_cluster(to).await.unwrap();
    }
    until("it leads", || trio.leader() == Some(away)).await;
    assert_eq!(pop_all(&trio, 41).await, (0..41).collect::<Vec<u64>>());
    trio.kill(others[0]).await;
    trio.push(numbered(41)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_node_is_taken_in_when_the_log_has_been_reclaimed() {
    let mut trio = Trio::new();
    trio.image_log_bytes_min = 1 << 20;
    trio.form().await;
    reclaim_beyond(&trio, 10).await;
    for n in 0..20 {
        trio.push(numbered(n)).await;
    }
    let new = 4;
    let raft_address = trio::address().to_string();
    trio.peers.insert(new, raft_address.clone());
    let node = trio.start(new).await;
    let leader = trio.led().await;
    let admin = trio.nodes[&leader].clone();
    let adding = tokio::spawn(async move {
        let add = ClusterChange::Add {
            id: new,
            raft_address,
        };
        admin.change_cluster(add).await
    });
    drop(node);
    until("it has the files", || trio.restarts.lock().contains(&new)).await;
    trio.stop(new).await;
    trio.start(new).await;
    trio.ready(new).await;
    adding.await.unwrap().unwrap();
    let voters = trio.nodes[&leader].node().replicas;
    assert_eq!(voters, [1, 2, 3, 4]);
    trio.agree().await;
}

/// The files of a node's log, largest first.
fn log_files(trio: &Trio, id: i32, dir: &str, suffix: &str) -> Vec<std::path::PathBuf> {
    let listed = std::fs::read_dir(trio.dir(id).join("log").join(dir)).unwrap();
    let mut files: Vec<_> = listed.map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.to_string_lossy().ends_with(suffix));
    files.sort();
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_log_is_mended_from_the_leader() {
    let mut trio = Trio::formed().await;
    for n in 0..30 {
        let payload = format!("\"{}\"", "y".repeat(90_000));
        trio.push(item_with_id("big", "lane", &payload, &format!("b{n}")))
            .await;
        trio.push(numbered(n)).await;
    }
    for damage in ["flip", "cut", "lose", "image"] {
        let hurt = trio.follower();
        trio.settled().await;
        // An image is written by an orderly stop.
        trio.stop(hurt).await;
        let segments = log_files(&trio, hurt, "segments", ".seg");
        let segment = &segments[0];
        match damage {
            "flip" => {
                let mut bytes = std::fs::read(segment).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle..middle + 64]
                    .iter_mut()
                    .for_each(|byte| *byte ^= 0xff);
                std::fs::write(segment, bytes).unwrap();
            }
            "cut" => {
                let file = std::fs::OpenOptions::new()
                    .write(true)
                    .open(segment)
                    .unwrap();
                file.set_len(5000).unwrap();
            }
            "lose" => std::fs::remove_file(&segments[1]).unwrap(),
            // The log ends before its own state image.
            _ => {
                let newest = segments.last().unwrap();
                let file = std::fs::OpenOptions::new()
                    .write(true)
                    .open(newest)
                    .unwrap();
                let len = file.metadata().unwrap().len();
                file.set_len(4096.min(len)).unwrap();
                file.set_len(len).unwrap();
            }
        }
        trio.start(hurt).await;
        trio.ready(hurt).await;
        let mended = trio.agree().await;
        assert!(mended.contains("big"), "{damage}");
        let leader = trio.led().await;
        let to = ClusterChange::Transfer { to: Some(hurt) };
        trio.nodes[&leader].change_cluster(to).await.unwrap();
        until("it leads", || trio.leader() == Some(hurt)).await;
        assert_eq!(read_all(&trio.nodes[&hurt]), 30, "{damage}");
    }
}

/// Records of the queue that can be read.
fn read_all(node: &Node) -> usize {
    let lanes = queen_engine::port::query(node, |view| {
        let topic = view.engine.topics.named("q").unwrap();
        let next = |lane: &queen_engine::ids::LaneId| view.engine.lanes.get(*lane).unwrap().next;
        topic
            .lanes
            .iter()
            .map(|lane| (*lane, next(lane)))
            .collect::<Vec<_>>()
    });
    let read = |(lane, next)| {
        queen_engine::message::read_lane(node, lane, 0, next)
            .unwrap()
            .len()
    };
    lanes.into_iter().map(read).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_node_waits_for_a_leader_and_helps_nobody_to_become_one() {
    let mut trio = Trio::formed().await;
    for n in 0..30 {
        let payload = format!("\"{}\"", "y".repeat(90_000));
        trio.push(item_with_id("big", "lane", &payload, &format!("b{n}")))
            .await;
    }
    let leader = trio.led().await;
    let hurt = trio.follower();
    trio.settled().await;
    trio.stop(hurt).await;
    let other = trio.follower();
    trio.kill(leader).await;
    let segment = &log_files(&trio, hurt, "segments", ".seg")[0];
    std::fs::OpenOptions::new()
        .write(true)
        .open(segment)
        .unwrap()
        .set_len(5000)
        .unwrap();
    let config = trio.config(hurt);
    let starting = tokio::task::spawn_blocking(|| Node::start(config));
    // With the damaged one there would be a majority of votes, but not of what was acknowledged.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!starting.is_finished());
    assert!(trio.leader().is_none());
    assert!(!trio.nodes[&other].node().ready);
    trio.start(leader).await;
    let node = starting.await.unwrap().unwrap();
    trio.nodes.insert(hurt, node);
    trio.ready(hurt).await;
    trio.agree().await;
}
