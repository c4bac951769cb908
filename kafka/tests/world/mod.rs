//! An in-memory broker over the real engine, and a client made of the codec crate's other half.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::RequestHeader;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use parking_lot::Mutex;
use queen_engine::Effects;
use queen_engine::Engine;
use queen_engine::batch::DecodedBatch;
use queen_engine::cluster::{ClusterChange, ClusterRefusal, ClusterView};
use queen_engine::command::{AppendBatch, Command, ProducerStamp, TopicRef};
use queen_engine::entry::{Entry, EntryBuilder, slice};
use queen_engine::ids::{BatchRef, TimeUs, TopicId};
use queen_engine::index::RecordIndex;
use queen_engine::outcome::{Appended, Outcome, Reject};
use queen_engine::port::*;
use queen_kafka::KafkaConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

pub struct MemoryBroker {
    state: Mutex<State>,
    appended: watch::Sender<u64>,
    pub port: u16,
    pub failing: Mutex<Option<Failure>>,
    pub ready: AtomicBool,
}

#[derive(Default)]
struct State {
    engine: Engine,
    index: RecordIndex,
    entries: Vec<Bytes>,
}

impl MemoryBroker {
    fn log(&self, builder: EntryBuilder) -> Vec<Outcome> {
        let mut payload = BytesMut::new();
        for part in builder.finish(self.now()) {
            payload.extend_from_slice(&part);
        }
        let payload = payload.freeze();
        let entry = Entry::decode(payload.clone()).unwrap();
        let mut state = self.state.lock();
        let State {
            engine,
            index,
            entries,
        } = &mut *state;
        entries.push(payload);
        let mut effects = Effects::default();
        let outcomes = engine.apply(entries.len() as u64, 1, &entry, index, &mut effects);
        drop(state);
        self.appended.send_modify(|count| *count += 1);
        outcomes
    }
}

impl Broker for MemoryBroker {
    fn node(&self) -> NodeView {
        let broker = BrokerAddress {
            id: 1,
            kafka_host: "127.0.0.1".into(),
            kafka_port: self.port,
            rack: None,
        };
        NodeView {
            id: 1,
            cluster_id: "test-cluster".into(),
            default_partitions: 3,
            brokers: vec![broker],
            replicas: vec![1],
            in_sync: vec![1],
            leader_http: None,
            leader: Some(1),
            is_leader: true,
            term: 1,
            applied: 0,
            committed: 0,
            ready: self.ready.load(Ordering::Relaxed),
            storage_full: false,
        }
    }

    fn is_leading(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    fn leader_changed(&self) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }

    fn cluster(&self) -> ClusterView {
        ClusterView {
            node_id: 1,
            leader: Some(1),
            term: 1,
            quorum: true,
            ..ClusterView::default()
        }
    }

    fn change_cluster(&self, _: ClusterChange) -> BoxFuture<Result<(), ClusterRefusal>> {
        let text = "this node is alone".to_owned();
        Box::pin(std::future::ready(Err(ClusterRefusal::Invalid(text))))
    }

    fn now(&self) -> TimeUs {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        TimeUs(i64::try_from(since.as_micros()).unwrap())
    }

    fn view(&self, look: &mut dyn FnMut(View<'_>)) {
        let state = self.state.lock();
        look(View {
            engine: &state.engine,
            index: &state.index,
        });
    }

    fn read(&self, at: BatchRef) -> Result<Bytes, Failure> {
        let state = self.state.lock();
        let payload = &state.entries[usize::try_from(at.index).unwrap() - 1];
        slice(payload, at).ok_or_else(|| Failure::Storage("no such batch".into()))
    }

    fn decoded(&self, at: BatchRef) -> Result<Arc<DecodedBatch>, Failure> {
        let batch = DecodedBatch::decode(self.read(at)?, 1 << 27);
        batch
            .map(Arc::new)
            .map_err(|error| Failure::Storage(error.to_string()))
    }

    fn appended(&self, _topics: &[TopicId]) -> BoxFuture<()> {
        let mut appended = self.appended.subscribe();
        Box::pin(async move {
            let _ = appended.changed().await;
        })
    }

    fn barrier(&self) -> BoxFuture<Result<(), Failure>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn submit(&self, command: Command) -> BoxFuture<Result<Outcome, Failure>> {
        let mut entry = EntryBuilder::new();
        entry.command(command);
        let outcome = self.log(entry).remove(0);
        Box::pin(std::future::ready(Ok(outcome)))
    }

    fn produce(
        &self,
        batches: Vec<ProduceBatch>,
    ) -> BoxFuture<Result<Vec<Result<Appended, Reject>>, Failure>> {
        if let Some(failure) = self.failing.lock().clone() {
            return Box::pin(std::future::ready(Err(failure)));
        }
        let mut entry = EntryBuilder::new();
        for batch in batches {
            let span = entry.batch(batch.bytes);
            let header = batch.header;
            entry.command(Command::Append(AppendBatch {
                topic: TopicRef::Id(batch.topic),
                partition: batch.partition,
                span,
                records: u32::try_from(header.records).unwrap(),
                max_timestamp: header.max_timestamp,
                producer: (header.producer_id >= 0).then_some(ProducerStamp {
                    id: header.producer_id,
                    epoch: header.producer_epoch,
                    base_sequence: header.base_sequence,
                }),
                lanes: batch.lanes,
                dedup: batch.dedup,
                verdicts: false,
            }));
        }
        let outcomes = self.log(entry).into_iter().map(|outcome| match outcome {
            Outcome::Appended(appended) => Ok(appended),
            Outcome::Rejected(reject) => Err(reject),
            other => panic!("{other:?}"),
        });
        Box::pin(std::future::ready(Ok(outcomes.collect())))
    }

    fn push(&self, _: Vec<PushItem>) -> BoxFuture<Result<Vec<Result<Pushed, Reject>>, Failure>> {
        Box::pin(std::future::ready(Err(Failure::Stopping)))
    }

    fn transact(
        &self,
        _: Bundle,
    ) -> BoxFuture<Result<Result<BundleDone, BundleRollback>, Failure>> {
        Box::pin(std::future::ready(Err(Failure::Stopping)))
    }

    fn replay(&self, _: u64, _: PushItem) -> BoxFuture<Result<Result<Pushed, Reject>, Failure>> {
        Box::pin(std::future::ready(Err(Failure::Stopping)))
    }

    fn pop(&self, _: PopRequest) -> BoxFuture<Result<PopAnswer, Failure>> {
        Box::pin(std::future::ready(Err(Failure::Stopping)))
    }

    fn unclaim(&self, _: String, _: PopAnswer) {}

    fn figures(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }
}

/// A listener over an in-memory broker, stopped when dropped.
pub struct World {
    pub broker: Arc<MemoryBroker>,
    pub port: u16,
    pub stop: Option<oneshot::Sender<()>>,
    pub served: tokio::task::JoinHandle<()>,
}

impl World {
    pub async fn start() -> World {
        let config = KafkaConfig {
            group_initial_delay: Duration::from_millis(50),
            ..KafkaConfig::default()
        };
        World::start_with(config, 0).await
    }

    pub async fn start_with(config: KafkaConfig, port: u16) -> World {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let broker = Arc::new(MemoryBroker {
            state: Mutex::default(),
            appended: watch::channel(0).0,
            port,
            failing: Mutex::default(),
            ready: AtomicBool::new(true),
        });
        let (stop, stopped) = oneshot::channel();
        let shutdown = async move {
            let _ = stopped.await;
        };
        let served = tokio::spawn(queen_kafka::serve(
            listener,
            broker.clone(),
            config,
            shutdown,
        ));
        World {
            broker,
            port,
            stop: Some(stop),
            served,
        }
    }

    pub async fn client(&self) -> Client {
        let socket = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        socket.set_nodelay(true).unwrap();
        Client {
            socket,
            next: 0,
            behind: 0,
        }
    }
}

/// One connection.
pub struct Client {
    pub socket: TcpStream,
    next: i32,
    /// Bytes that stand behind the body of every request.
    pub behind: usize,
}

impl Client {
    /// Sends a request; its correlation id.
    pub async fn send<R: Request>(&mut self, version: i16, request: &R) -> i32 {
        self.next += 1;
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.next)
            .with_client_id(Some(StrBytes::from_static_str("test")));
        let mut frame = BytesMut::new();
        header
            .encode(&mut frame, <R as HeaderVersion>::header_version(version))
            .unwrap();
        request.encode(&mut frame, version).unwrap();
        frame.resize(frame.len() + self.behind, 1);
        self.send_raw(&frame).await;
        self.next
    }

    pub async fn send_raw(&mut self, frame: &[u8]) {
        self.socket
            .write_i32(i32::try_from(frame.len()).unwrap())
            .await
            .unwrap();
        self.socket.write_all(frame).await.unwrap();
    }

    /// The next frame; `None` at the end of the connection.
    pub async fn receive_raw(&mut self) -> Option<Bytes> {
        let read = async {
            let len = self.socket.read_i32().await.ok()?;
            let mut frame = vec![0; usize::try_from(len).unwrap()];
            self.socket.read_exact(&mut frame).await.ok()?;
            Some(Bytes::from(frame))
        };
        tokio::time::timeout(Duration::from_secs(20), read)
            .await
            .expect("no answer in time")
    }

    /// Reads the answer to request `id`.
    pub async fn receive<R: Request>(&mut self, version: i16, id: i32) -> R::Response {
        let mut frame = self.receive_raw().await.expect("connection closed");
        assert_eq!(
            bytes::Buf::try_get_i32(&mut frame).unwrap(),
            id,
            "answers in order"
        );
        if <R::Response as HeaderVersion>::header_version(version) >= 1 {
            assert_eq!(bytes::Buf::try_get_u8(&mut frame).unwrap(), 0);
        }
        let response = R::Response::decode(&mut frame, version)
            .unwrap_or_else(|error| panic!("key {} version {version}: {error}", R::KEY));
        assert!(
            frame.is_empty(),
            "key {} version {version}: bytes left over",
            R::KEY
        );
        response
    }

    pub async fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        let id = self.send(version, request).await;
        self.receive::<R>(version, id).await
    }
}
