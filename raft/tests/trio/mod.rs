//! Three nodes in one process, each on a loopback address of its own, that can be stopped, dropped
//! as if they had been killed, and started again.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use queen_engine::port::{Broker, Failure, PushItem, Pushed, query};
use queen_raft::{ClusterConfig, Fatal, Node, NodeConfig};

use crate::common::PATIENCE;

/// Nodes that find each other.
pub struct Trio {
    pub root: tempfile::TempDir,
    pub peers: BTreeMap<i32, String>,
    pub nodes: BTreeMap<i32, Arc<Node>>,
    pub secret: String,
    /// Bytes of log before a state image is due.
    pub image_log_bytes_min: u64,
    /// Nodes that asked to be started again.
    pub restarts: Arc<parking_lot::Mutex<Vec<i32>>>,
    fatal: Arc<AtomicBool>,
}

/// An address of this machine that no other test uses: all of 127/8 is its own.
pub fn address() -> SocketAddr {
    let [a, b, c]: [u8; 3] = rand::random();
    let ip = std::net::Ipv4Addr::new(127, a.clamp(1, 254), b, c.clamp(1, 254));
    SocketAddr::from((ip, 7632))
}

impl Trio {
    /// Three nodes, none of them started.
    pub fn new() -> Trio {
        // `RUST_LOG=info` shows what the nodes say; a second test has it already.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_ansi(false)
            .with_test_writer()
            .try_init();
        let peers = (1..=3).map(|id| (id, address().to_string())).collect();
        Trio {
            root: tempfile::tempdir().unwrap(),
            peers,
            nodes: BTreeMap::new(),
            secret: "s3cret".to_string(),
            image_log_bytes_min: 1 << 30,
            restarts: Arc::default(),
            fatal: Arc::default(),
        }
    }

    /// Three nodes that have formed their cluster.
    pub async fn formed() -> Trio {
        let mut trio = Trio::new();
        trio.form().await;
        trio
    }

    /// Starts all three and waits until they serve.
    pub async fn form(&mut self) {
        for id in [1, 2, 3] {
            self.start(id).await;
        }
        for id in [1, 2, 3] {
            self.ready(id).await;
        }
    }

    pub fn dir(&self, id: i32) -> PathBuf {
        self.root.path().join(format!("node-{id}"))
    }

    /// How a node is run.
    pub fn config(&self, id: i32) -> NodeConfig {
        let listen: SocketAddr = self.peers[&id].parse().unwrap();
        let fatal = self.fatal.clone();
        let restarts = self.restarts.clone();
        NodeConfig {
            segment_bytes: 1 << 20,
            default_partitions: 4,
            image_log_bytes_min: self.image_log_bytes_min,
            cluster: ClusterConfig {
                peers: self.peers.clone(),
                listen: Some(listen),
                address: self.peers[&id].clone(),
                secret: self.secret.clone(),
            },
            fatal: Fatal::new(move |reason| {
                fatal.store(true, Ordering::SeqCst);
                panic!("node {id} stopped: {reason}");
            }),
            restart: Fatal::new(move |_| restarts.lock().push(id)),
            ..NodeConfig::new(id, self.dir(id))
        }
    }

    /// Starts a node; does not wait until it serves.
    pub async fn start(&mut self, id: i32) -> Arc<Node> {
        let config = self.config(id);
        let node = tokio::task::spawn_blocking(|| Node::start(config))
            .await
            .unwrap()
            .unwrap();
        self.nodes.insert(id, node.clone());
        node
    }

    /// Waits until a node serves.
    pub async fn ready(&self, id: i32) {
        let ready = tokio::time::timeout(PATIENCE, self.nodes[&id].ready()).await;
        ready
            .unwrap_or_else(|_| panic!("node {id} does not serve: {:?}", self.nodes[&id].cluster()))
            .unwrap();
    }

    /// Ends a node as a kill does: nothing is flushed, written or said any more.
    pub async fn kill(&mut self, id: i32) {
        let node = self.nodes.remove(&id).unwrap();
        let gone = Arc::downgrade(&node);
        drop(node);
        until("the node is gone", || gone.strong_count() == 0).await;
        // Its port and its lock are free when its threads have ended.
        let config = self.config(id);
        let listen = config.cluster.listen.unwrap();
        until("the port is free", || {
            std::net::TcpListener::bind(listen).is_ok()
        })
        .await;
    }

    /// Stops a node in order.
    pub async fn stop(&mut self, id: i32) {
        self.nodes.remove(&id).unwrap().shutdown().await;
    }

    /// The node that leads and serves, when there is one.
    pub fn leader(&self) -> Option<i32> {
        let mut leaders = self.nodes.iter().filter(|(_, node)| node.is_leading());
        leaders.next().map(|(id, _)| *id)
    }

    /// Waits for a leader.
    pub async fn led(&self) -> i32 {
        until("there is a leader", || self.leader().is_some()).await;
        self.leader().unwrap()
    }

    /// Any node that does not lead.
    pub fn follower(&self) -> i32 {
        let leader = self.leader();
        let mut ids = self.nodes.keys().copied();
        ids.find(|id| Some(*id) != leader).unwrap()
    }

    /// Pushes at whoever leads until it is acknowledged. A message has an id, so that a push whose
    /// outcome is unknown can be repeated.
    pub async fn push(&self, item: PushItem) -> Pushed {
        assert!(item.transaction_id.is_some(), "cannot be repeated");
        let deadline = Instant::now() + PATIENCE;
        let mut last = None;
        while Instant::now() < deadline {
            for node in self.nodes.values().filter(|node| node.is_leading()) {
                match node.push(vec![item.clone()]).await {
                    Ok(mut pushed) => return pushed.remove(0).unwrap(),
                    Err(Failure::NotLeader { .. } | Failure::Timeout) => {}
                    Err(other) => last = Some(other),
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("no node took the push: {last:?}");
    }

    /// Waits until all running nodes have applied the same entry and nothing is on its way.
    pub async fn settled(&self) -> u64 {
        let applied = || -> Vec<u64> {
            let nodes = self.nodes.values();
            nodes.map(|node| node.node().applied).collect()
        };
        let last = || {
            let leader = self.leader()?;
            let cluster = self.nodes[&leader].cluster();
            cluster.member(leader)?.last_index
        };
        let same = || {
            let applied = applied();
            last().is_some_and(|last| applied.iter().all(|at| *at == last))
        };
        let deadline = Instant::now() + PATIENCE;
        while !same() {
            let clusters: Vec<_> = self.nodes.values().map(|node| node.cluster()).collect();
            assert!(Instant::now() < deadline, "not settled: {clusters:#?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        applied()[0]
    }

    /// Settles, then checks that all running nodes hold the same state.
    pub async fn agree(&self) -> String {
        self.settled().await;
        let mut states = self.nodes.iter().map(|(id, node)| (*id, digest(node)));
        let (first, state) = states.next().unwrap();
        for (id, other) in states {
            assert_eq!(state, other, "nodes {first} and {id} differ");
        }
        state
    }
}

impl Drop for Trio {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(!self.fatal.load(Ordering::SeqCst), "a node stopped itself");
        }
    }
}

/// The replicated state in words.
pub fn digest(node: &Node) -> String {
    query(node, |view| {
        let engine = view.engine;
        let topics: Vec<String> = engine.topics.iter().map(|t| format!("{t:?}")).collect();
        let groups: Vec<String> = engine.groups.iter().map(|g| format!("{g:?}")).collect();
        format!(
            "{topics:#?}\n{groups:#?}\nlanes {}, ids {}, kv {}, timers {}",
            engine.lanes.len(),
            engine.dedup_len(),
            engine.kv.len(),
            engine.timers.len()
        )
    })
}

/// Waits for a condition.
pub async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
