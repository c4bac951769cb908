//! One node: starts its parts in order, holds them together, stops them in reverse.
//!
//! Threads: the log's own, `queen-apply`, `queen-checkpoint`, and `queen-raft`, whose
//! single-threaded runtime carries consensus, the proposer and the leader's chores, so that no
//! listener can delay a heartbeat.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::RwLock;
use queen_engine::Effects;
use queen_engine::command::Command;
use queen_engine::ids::TimeUs;
use queen_engine::port::{BrokerAddress, Failure, View};
use queen_log::{Log, LogConfig, LogError, Recovered};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::apply::{Applier, SharedState, State, Watcher};
use crate::batcher::{Batcher, Proposer, Reply, Request};
use crate::cache::DecodedCache;
use crate::catch_up::{self, fetch::Fetcher, source::Source};
use crate::checkpoint::{Checkpoints, Cutter, ImageFigures, boot};
use crate::clock::{Clock, SystemTimeSource};
use crate::cluster::{Cluster, ClusterConfig, Links, forming, gossip, listener};
use crate::consensus::{self, Foundation};
use crate::error::{Fatal, StartError};
use crate::identity::Identity;
use crate::leader::Leader;
use crate::local::LocalReplicator;
use crate::peers::Desk;
use crate::replicator::{ONLY_GROUP, Position, Replicator};
use crate::{driver, limits, metrics, reclaim};

/// How to run a node.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Id in the cluster, as clients see it.
    pub node_id: i32,
    pub data_dir: PathBuf,
    /// Wait for the disk before answering.
    pub fsync: bool,
    /// Size of a log segment.
    pub segment_bytes: u64,
    /// Kafka partitions of a topic made without a width.
    pub default_partitions: u32,
    /// Where Kafka clients are told to connect; may be set later ([`Node::set_kafka_address`]).
    pub kafka_host: String,
    pub kafka_port: u16,
    pub rack: Option<String>,
    /// Log bytes after which a state image is due, at least.
    pub image_log_bytes_min: u64,
    /// How it finds its peers; by default it has none.
    pub cluster: ClusterConfig,
    /// What to do when the node cannot go on.
    pub fatal: Fatal,
    /// What to do when the node must start again, with files it got from a peer.
    pub restart: Fatal,
}

impl NodeConfig {
    /// The defaults for a node and its directory.
    pub fn new(node_id: i32, data_dir: impl Into<PathBuf>) -> NodeConfig {
        NodeConfig {
            node_id,
            data_dir: data_dir.into(),
            fsync: true,
            segment_bytes: queen_log::limits::SEGMENT_BYTES_DEFAULT,
            default_partitions: 1,
            kafka_host: "127.0.0.1".to_string(),
            kafka_port: 9092,
            rack: None,
            image_log_bytes_min: limits::IMAGE_LOG_BYTES_MIN,
            cluster: ClusterConfig::default(),
            fatal: Fatal::default(),
            restart: Fatal::restart(),
        }
    }
}

/// A running node.
pub struct Node {
    pub(crate) inner: Arc<Inner>,
    stopping: tokio::sync::Mutex<Option<Stopping>>,
}

/// What ends with the node.
struct Stopping {
    /// Ends the `queen-raft` thread.
    stop: oneshot::Sender<()>,
    raft: JoinHandle<()>,
    apply: JoinHandle<()>,
    /// Absent for a node in memory.
    checkpoints: Option<Arc<Checkpoints>>,
    log: Option<Arc<Log>>,
}

/// What the parts of a node share.
pub(crate) struct Inner {
    pub(crate) node_id: i32,
    pub(crate) cluster_id: String,
    pub(crate) default_partitions: u32,
    pub(crate) kafka: RwLock<BrokerAddress>,
    pub(crate) replicator: Arc<dyn Replicator>,
    pub(crate) applier: Applier,
    pub(crate) state: SharedState,
    pub(crate) clock: Arc<Clock>,
    pub(crate) batcher: Batcher,
    pub(crate) leader: Arc<Leader>,
    pub(crate) decoded: DecodedCache,
    pub(crate) images: Option<Arc<ImageFigures>>,
    /// Where HTTP clients reach this node, `HOST:PORT`; empty until it is told.
    pub(crate) http: RwLock<String>,
    /// Absent for a node in memory.
    pub(crate) data_dir: Option<PathBuf>,
    /// Absent for a node that is alone.
    pub(crate) cluster: Option<Arc<Cluster>>,
    pub(crate) links: Option<Arc<Links>>,
    /// Bytes of files fetched from peers.
    pub(crate) fetched: Arc<AtomicU64>,
}

impl Inner {
    /// Looks at the applied state.
    pub(crate) fn look<R>(&self, look: impl FnOnce(View<'_>) -> R) -> R {
        look(self.state.read().view())
    }

    /// Queues a request and waits for its answer.
    pub(crate) async fn ask<T>(
        &self,
        make: impl FnOnce(Reply<T>) -> Request,
    ) -> Result<T, Failure> {
        self.batcher.ask(make).await
    }

    /// Queues a request.
    pub(crate) async fn enter(&self, request: Request) -> Result<(), Failure> {
        self.batcher.enter(request).await
    }

    /// Queues a command nobody waits for.
    pub(crate) fn give_back(&self, command: Command) {
        let (reply, _) = oneshot::channel();
        self.batcher.enter_now(Request::Command {
            command: Box::new(command),
            reply,
        });
    }

    /// Fails unless this node leads and is up to date.
    pub(crate) fn must_lead(&self) -> Result<(), Failure> {
        if self.leader.is_leading() {
            return Ok(());
        }
        let role = self.replicator.role();
        match role.stopped {
            Some(_) => Err(Failure::Stopping),
            None => Err(Failure::NotLeader {
                leader: role.leader.filter(|id| *id != self.node_id),
            }),
        }
    }

    /// When the clock will show `at`.
    pub(crate) fn instant_of(&self, at: TimeUs) -> Instant {
        Instant::now() + driver::ahead(self.clock.now(), at)
    }
}

/// Tells checkpoints and the leader's desk of applied entries.
struct NodeWatcher {
    leader: Arc<Leader>,
    cutter: Option<Cutter>,
}

impl Watcher for NodeWatcher {
    fn before(&mut self, at: Position, bytes: usize, state: &mut State) {
        if let Some(cutter) = &mut self.cutter {
            cutter.before(at, bytes, state);
        }
    }

    fn after(&mut self, at: Position, state: &State, effects: &Effects) {
        self.leader.note(state, effects);
        if let Some(cutter) = &mut self.cutter {
            cutter.after(at, state);
        }
    }

    fn wake(&mut self, effects: &Effects) {
        self.leader.wake(effects);
    }
}

/// The parts below consensus.
struct Ground {
    config: NodeConfig,
    identity: Identity,
    state: SharedState,
    clock: Arc<Clock>,
    leader: Arc<Leader>,
    applier: Applier,
    checkpoints: Option<Arc<Checkpoints>>,
    peering: Option<Peering>,
}

/// What a node with peers needs beside consensus.
struct Peering {
    listener: std::net::TcpListener,
    links: Arc<Links>,
    log: Arc<Log>,
    images: Arc<ImageFigures>,
}

/// A log and the state it stands for.
struct Opened {
    installed: Option<catch_up::install::Installed>,
    log: Log,
    recovered: Recovered,
    booted: boot::Booted,
}

impl Node {
    /// Starts a node on its data directory. Blocks until the log and the state are recovered and
    /// consensus runs; [`Node::ready`] tells when it serves.
    pub fn start(config: NodeConfig) -> Result<Arc<Node>, StartError> {
        Node::start_on(config, Log::open)
    }

    /// As [`Node::start`], with a log that `open` opens: on another disk, say.
    pub fn start_on(
        config: NodeConfig,
        open: impl Fn(LogConfig) -> Result<(Log, Recovered), LogError>,
    ) -> Result<Arc<Node>, StartError> {
        let dir = config.data_dir.clone();
        std::fs::create_dir_all(&dir).map_err(|source| StartError::File {
            what: "cannot create",
            path: dir.clone(),
            source,
        })?;
        let alone = config.cluster.listen.is_none();
        let identity = Identity::open(&dir, config.node_id, ONLY_GROUP.0, alone)?;
        let links = match config.cluster.listen {
            None => None,
            Some(_) => {
                let cluster = Cluster::new(config.cluster.clone(), Some(dir.clone()), identity);
                Some(Links::new(cluster))
            }
        };
        let listener = match config.cluster.listen {
            None => None,
            Some(address) => Some(listen(address)?),
        };
        let log_config = LogConfig {
            fsync: config.fsync,
            segment_bytes: config.segment_bytes,
            // The batcher bounds what is in flight; the log must not hold back consensus.
            in_flight_bytes_max: 4 * limits::ENTRY_BYTES_MAX as u64,
            ..LogConfig::new(dir.join("log"), identity.group)
        };
        let open = || -> Result<Opened, StartError> {
            let installed = catch_up::install::run(&dir).map_err(|source| StartError::File {
                what: "cannot put fetched files in place in",
                path: dir.clone(),
                source,
            })?;
            let (log, recovered) = open(log_config.clone()).map_err(StartError::from)?;
            Ok(Opened {
                booted: boot::load(&log)?,
                installed,
                log,
                recovered,
            })
        };
        let opened = match (open(), &links) {
            (Err(damage), Some(links)) if damage.is_repairable() && identity.cluster != 0 => {
                catch_up::repair::run(&dir, links, &damage.to_string())?;
                open()
            }
            (opened, _) => opened,
        };
        let Opened {
            installed,
            log,
            recovered,
            booted,
        } = opened?;
        let fatal = config.fatal.clone();
        log.on_fatal(Box::new(move |error| fatal.stop(&error.to_string())));
        let log = Arc::new(log);
        let state: SharedState = Arc::new(RwLock::new(booted.state));
        let checkpoints = Checkpoints::start(
            log.clone(),
            state.clone(),
            booted.image,
            config.image_log_bytes_min,
            config.segment_bytes,
        )
        .map_err(StartError::Thread)?;
        let peering = match (listener, &links) {
            (Some(listener), Some(links)) => Some(Peering {
                listener,
                links: links.clone(),
                log: log.clone(),
                images: checkpoints.figures(),
            }),
            _ => None,
        };
        let (mut ground, apply) = lay_ground(config, identity, state, Some(checkpoints.clone()))?;
        ground.peering = peering;
        let foundation = Foundation {
            log: log.clone(),
            vote: recovered.vote,
            applier: ground.applier.clone(),
            images: checkpoints.figures(),
            identity,
            fsync: ground.config.fsync,
            links,
            begins_behind: installed.as_ref().and_then(|new| new.begins_behind),
            fatal: ground.config.fatal.clone(),
        };
        let consensus = move || async move {
            let consensus = consensus::start(foundation).await?;
            if installed.is_some() {
                catch_up::install::finish(&dir).map_err(|source| StartError::File {
                    what: "cannot remove fetched files from",
                    path: dir,
                    source,
                })?;
            }
            Ok(consensus as Arc<dyn Replicator>)
        };
        raise(ground, apply, consensus, Some(checkpoints), Some(log))
    }

    /// Starts a node that keeps everything in memory and is the only one of its cluster.
    pub fn start_local(config: NodeConfig) -> Result<Arc<Node>, StartError> {
        let identity = Identity {
            node_id: config.node_id,
            group: ONLY_GROUP.0,
            cluster: 0,
            generation: 0,
        };
        let state = SharedState::default();
        let (ground, apply) = lay_ground(config, identity, state, None)?;
        let (node_id, applier) = (identity.node_id, ground.applier.clone());
        let consensus = move || async move {
            Ok(LocalReplicator::start(node_id, applier).await as Arc<dyn Replicator>)
        };
        raise(ground, apply, consensus, None, None)
    }

    /// Waits until this node serves: alone, until it leads; among peers, until it leads or follows,
    /// however long the others take to come.
    pub async fn ready(&self) -> Result<(), Failure> {
        if self.inner.cluster.is_some() {
            while !self.inner.serves() {
                if self.inner.replicator.role().stopped.is_some() {
                    return Err(Failure::Stopping);
                }
                tokio::time::sleep(limits::LOOK).await;
            }
            return Ok(());
        }
        let deadline = Instant::now() + limits::OUTCOME_WAIT;
        let mut applied = self.inner.applier.applied();
        let mut roles = self.inner.replicator.roles();
        while !self.inner.leader.is_leading() {
            let waited = async {
                tokio::select! {
                    changed = applied.changed() => changed.is_ok(),
                    changed = roles.changed() => changed.is_ok(),
                    // The driver takes its own moment to see the change.
                    () = tokio::time::sleep(Duration::from_millis(1)) => true,
                }
            };
            match tokio::time::timeout_at(deadline, waited).await {
                Ok(true) => {}
                Ok(false) => return Err(Failure::Stopping),
                Err(_) => return Err(Failure::Timeout),
            }
        }
        Ok(())
    }

    /// Sets where Kafka clients are told to connect.
    pub fn set_kafka_address(&self, host: &str, port: u16) {
        let mut kafka = self.inner.kafka.write();
        kafka.kafka_host = host.to_string();
        kafka.kafka_port = port;
    }

    /// Sets where HTTP clients and the listeners of other nodes are told to connect.
    pub fn set_http_address(&self, address: &str) {
        *self.inner.http.write() = address.to_string();
    }

    /// Hands leadership to another voter, if this node leads and there is one.
    pub async fn hand_over(&self) {
        self.inner.replicator.hand_over().await;
    }

    /// Stops: hands leadership over, refuses new work, finishes what is in flight, writes a state image, closes the log.
    pub async fn shutdown(&self) {
        let Some(stopping) = self.stopping.lock().await.take() else {
            return;
        };
        let Stopping {
            stop,
            raft,
            apply,
            checkpoints,
            log,
        } = stopping;
        self.inner.replicator.hand_over().await;
        self.inner.batcher.stop();
        self.inner.leader.waiters.wake_all();
        let deadline = Instant::now() + limits::STOP_WAIT;
        while self.inner.batcher.load().0 > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.inner.leader.set_leading(None);
        self.inner.replicator.stop().await;
        // The thread may have ended by itself.
        let _ = stop.send(());
        self.inner.applier.stop().await;
        let state = self.inner.state.clone();
        let ended = tokio::task::spawn_blocking(move || {
            join(raft, "queen-raft");
            join(apply, "queen-apply");
            if let Some(checkpoints) = checkpoints {
                checkpoints.finish(&state);
            }
            match log.map(Arc::try_unwrap) {
                Some(Ok(log)) => log.close(),
                Some(Err(_)) => tracing::warn!("the log is still in use"),
                None => {}
            }
        });
        if ended.await.is_err() {
            tracing::warn!("shutdown panicked");
        }
    }

    /// Counters and gauges by name.
    pub(crate) fn collect(&self) -> BTreeMap<String, f64> {
        let inner = &self.inner;
        let mut figures = BTreeMap::new();
        inner.replicator.figures(&mut figures);
        let (entries, bytes, queued) = inner.batcher.load();
        let mut put = |name: &str, value: f64| figures.insert(name.to_string(), value);
        let role = inner.replicator.role();
        put("raft_term", role.term as f64);
        put(
            "raft_leading",
            f64::from(u8::from(inner.leader.is_leading())),
        );
        put("raft_committed_index", role.committed as f64);
        put("serves", f64::from(u8::from(inner.serves())));
        put("log_first_index", inner.replicator.first_index() as f64);
        put("in_flight_entries", entries as f64);
        put("in_flight_bytes", bytes as f64);
        put("queued_requests", queued as f64);
        put("parked_pops", inner.leader.waiters.parked() as f64);
        put("ready_lanes", inner.leader.ready_lanes() as f64);
        put("decoded_cache_bytes", inner.decoded.bytes() as f64);
        put(
            "clock_ahead_seconds",
            inner.clock.ahead_of_wall() as f64 / 1e6,
        );
        if let Some(images) = &inner.images {
            put("image_index", images.index() as f64);
            put("image_bytes", images.bytes() as f64);
        }
        inner.look(|view| {
            let engine = view.engine;
            put("topics", engine.topics.len() as f64);
            put("lanes", engine.lanes.len() as f64);
            put("dedup_ids", engine.dedup_len() as f64);
            put("timers", engine.timers.len() as f64);
            put("dead_letters", engine.dead_letters.len() as f64);
            put("leased_lanes", engine.groups.leased_lanes() as f64);
            put("kv_rows", engine.kv.len() as f64);
            put("groups", engine.groups.iter().count() as f64);
            put("applied_index", engine.applied() as f64);
            put("index_active_records", view.index.active_records() as f64);
        });
        metrics::figures(&figures);
        let view = inner.cluster_view();
        let others = view.members.iter().filter(|peer| peer.id != view.node_id);
        others.for_each(|peer| metrics::peer(peer, view.committed));
        figures
    }
}

/// Resolves when one of the tasks panics; a task that just ends is no matter.
async fn first_panic(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if ended.is_err_and(|error| error.is_panic()) {
            return;
        }
    }
    std::future::pending::<()>().await;
}

fn join(thread: JoinHandle<()>, name: &str) {
    if thread.join().is_err() {
        tracing::warn!(name, "thread panicked");
    }
}

/// Starts everything below consensus.
fn lay_ground(
    config: NodeConfig,
    identity: Identity,
    state: SharedState,
    checkpoints: Option<Arc<Checkpoints>>,
) -> Result<(Ground, JoinHandle<()>), StartError> {
    let clock = Arc::new(Clock::new(Box::new(SystemTimeSource::default())));
    clock.start_after(state.read().engine.now());
    let leader = Leader::new(state.clone(), clock.clone());
    let cutter = checkpoints.clone().map(Cutter::new);
    let watcher = NodeWatcher {
        leader: leader.clone(),
        cutter,
    };
    let (applier, apply) =
        Applier::start(state.clone(), watcher, config.fatal.clone()).map_err(StartError::Thread)?;
    Ok((
        Ground {
            config,
            identity,
            state,
            clock,
            leader,
            applier,
            checkpoints,
            peering: None,
        },
        apply,
    ))
}

/// Starts consensus on its own thread, then the proposer and the leader's chores beside it.
fn raise<F, C>(
    ground: Ground,
    apply: JoinHandle<()>,
    consensus: C,
    checkpoints: Option<Arc<Checkpoints>>,
    log: Option<Arc<Log>>,
) -> Result<Arc<Node>, StartError>
where
    C: FnOnce() -> F + Send + 'static,
    F: Future<Output = Result<Arc<dyn Replicator>, StartError>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("queen-raft-blocking")
        .max_blocking_threads(4)
        .build()
        .map_err(StartError::Thread)?;
    let (stop, stopped) = oneshot::channel();
    let (started, outcome) = std::sync::mpsc::sync_channel(1);
    let raft = std::thread::Builder::new()
        .name("queen-raft".to_string())
        .spawn(move || {
            runtime.block_on(async move {
                let replicator = match consensus().await {
                    Ok(replicator) => replicator,
                    Err(error) => {
                        // The one who started the node waits for exactly this.
                        let _ = started.send(Err(error));
                        return;
                    }
                };
                let fatal = ground.config.fatal.clone();
                let restart = ground.config.restart.clone();
                let mut ground = ground;
                let peering = ground.peering.take();
                let inner = assemble(ground, replicator, peering.as_ref());
                let peers = peering.map(|peering| peer(&inner, peering, restart));
                let mut peers = match peers.transpose() {
                    Ok(peers) => peers.unwrap_or_default(),
                    Err(error) => {
                        let _ = started.send(Err(StartError::Thread(error)));
                        return;
                    }
                };
                let proposer = Proposer {
                    node_id: inner.node_id,
                    leader: inner.leader.clone(),
                    replicator: inner.replicator.clone(),
                    state: inner.state.clone(),
                    clock: inner.clock.clone(),
                    default_partitions: inner.default_partitions,
                };
                let mut tasks = JoinSet::new();
                tasks.spawn(driver::follow_role(inner.clone()));
                tasks.spawn(driver::run(inner.clone()));
                tasks.spawn(reclaim::run(inner.clone()));
                tasks.spawn(inner.batcher.clone().run(proposer));
                let _ = started.send(Ok(inner));
                // A task that panics leaves a node that looks alive and is not.
                tokio::select! {
                    // A node that is dropped stops as one that is told to.
                    _ = stopped => {}
                    () = first_panic(&mut tasks) => {
                        fatal.stop("a task of the node panicked");
                    }
                    Some(ended) = peers.join_next() => {
                        // None of them ends by itself.
                        tracing::error!(?ended, "a task for peers has ended");
                        fatal.stop("a task for peers has ended");
                    }
                }
                peers.shutdown().await;
                tasks.shutdown().await;
            });
            runtime.shutdown_timeout(Duration::from_millis(200));
        })
        .map_err(StartError::Thread)?;
    let inner = match outcome.recv() {
        Ok(inner) => inner?,
        Err(_) => return Err(StartError::Consensus("its thread panicked".to_string())),
    };
    let stopping = Stopping {
        stop,
        raft,
        apply,
        checkpoints,
        log,
    };
    Ok(Arc::new(Node {
        inner,
        stopping: tokio::sync::Mutex::new(Some(stopping)),
    }))
}

/// Starts what a node with peers does beside consensus.
fn peer(inner: &Arc<Inner>, peering: Peering, restart: Fatal) -> std::io::Result<JoinSet<()>> {
    let Peering {
        listener,
        links,
        log,
        images,
    } = peering;
    let mut tasks = JoinSet::new();
    let (Some(served), Some(dir)) = (inner.replicator.served(), inner.data_dir.clone()) else {
        return Ok(tasks);
    };
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let source = Source {
        dir: dir.join("log"),
        log,
        images,
        served: served.clone(),
    };
    let fetcher = Fetcher {
        data_dir: dir,
        links: links.clone(),
        replicator: inner.replicator.clone(),
        restart,
        busy: AtomicBool::new(false),
        fetched: inner.fetched.clone(),
    };
    let desk = Arc::new(Desk {
        inner: inner.clone(),
        cluster: links.cluster.clone(),
        served,
        source: Arc::new(source),
        fetcher: Arc::new(fetcher),
    });
    tasks.spawn(listener::run(listener, links.cluster.clone(), desk));
    tasks.spawn(gossip::run(inner.clone(), links.clone()));
    tasks.spawn(forming::run(inner.clone(), links));
    Ok(tasks)
}

fn listen(address: std::net::SocketAddr) -> Result<std::net::TcpListener, StartError> {
    let listener = std::net::TcpListener::bind(address);
    let listener = listener.and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|source| StartError::Listen { address, source })
}

fn assemble(
    ground: Ground,
    replicator: Arc<dyn Replicator>,
    peering: Option<&Peering>,
) -> Arc<Inner> {
    let Ground {
        config,
        identity,
        state,
        clock,
        leader,
        applier,
        checkpoints,
        peering: _,
    } = ground;
    Arc::new(Inner {
        node_id: config.node_id,
        cluster_id: identity.cluster_text(),
        default_partitions: config.default_partitions,
        kafka: RwLock::new(BrokerAddress {
            id: config.node_id,
            kafka_host: config.kafka_host,
            kafka_port: config.kafka_port,
            rack: config.rack,
        }),
        replicator,
        applier,
        state,
        clock,
        batcher: Batcher::default(),
        leader,
        decoded: DecodedCache::new(limits::DECODED_BYTES_MAX),
        data_dir: checkpoints.is_some().then_some(config.data_dir),
        images: checkpoints.map(|checkpoints| checkpoints.figures()),
        http: RwLock::default(),
        cluster: peering.map(|peering| peering.links.cluster.clone()),
        links: peering.map(|peering| peering.links.clone()),
        fetched: Arc::default(),
    })
}

impl Drop for Node {
    fn drop(&mut self) {
        // Without a shutdown the node ends as if it had been killed, but lets go of its threads.
        if let Some(stopping) = self.stopping.get_mut().take() {
            self.inner.batcher.stop();
            let _ = stopping.stop.send(());
            if let Some(checkpoints) = stopping.checkpoints {
                checkpoints.abandon();
            }
        }
    }
}
