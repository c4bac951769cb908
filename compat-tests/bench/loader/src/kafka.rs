//! The Kafka loaders, on librdkafka: produce, consume, and both at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{Value, json};

use crate::payload::{self, Book, Lanes, Pace, Payloads};
use crate::report::{self, Latency};

#[derive(Args, Clone)]
pub struct Load {
    #[arg(long)]
    pub brokers: String,
    #[arg(long)]
    pub topic: String,
    #[arg(long, default_value_t = 16)]
    pub partitions: i32,
    #[arg(long)]
    pub messages: u64,
    #[arg(long, default_value_t = 256)]
    pub size: usize,
    #[arg(long, default_value_t = 10_000)]
    pub lanes: u64,
    /// Connections that wrote the topic (1 for the Kafka loader); says which lane a message belongs to.
    #[arg(long, default_value_t = 1)]
    pub writers: u64,
    /// Messages per second; 0 is as fast as possible.
    #[arg(long, default_value_t = 0.0)]
    pub rate: f64,
    #[arg(long, default_value = "none")]
    pub codec: String,
    #[arg(long, default_value = "5")]
    pub linger_ms: String,
    /// First message number, for a topic that is filled in several goes.
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    /// Seconds after which the run is given up.
    #[arg(long, default_value_t = 120)]
    pub limit_s: u64,
}

#[derive(Default)]
struct Acks {
    acked: AtomicU64,
    failed: AtomicU64,
    latency: Option<Mutex<Latency>>,
}

struct Context_(Arc<Acks>);
impl ClientContext for Context_ {}
impl ProducerContext for Context_ {
    type DeliveryOpaque = usize;
    fn delivery(&self, result: &DeliveryResult<'_>, due: usize) {
        match result {
            Ok(_) => {
                self.0.acked.fetch_add(1, Relaxed);
                if let Some(latency) = &self.0.latency {
                    latency.lock().unwrap().note(due as u64);
                }
            }
            Err(_) => {
                self.0.failed.fetch_add(1, Relaxed);
            }
        }
    }
}

fn producer(load: &Load, acks: Arc<Acks>) -> Result<ThreadedProducer<Context_>> {
    Ok(ClientConfig::new()
        .set("bootstrap.servers", &load.brokers)
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("compression.codec", &load.codec)
        .set("linger.ms", &load.linger_ms)
        .set("partitioner", "murmur2_random")
        .set("queue.buffering.max.messages", "200000")
        .set("queue.buffering.max.kbytes", "262144")
        .create_with_context(Context_(acks))?)
}

/// Sends everything and waits for the answers.
fn send_all(load: &Load, acks: &Arc<Acks>, started: Instant) -> Result<f64> {
    let producer = producer(load, acks.clone())?;
    // The first connection and the topic are no part of the figure.
    make_topic(load, started)?;
    producer.client().fetch_metadata(Some(&load.topic), Duration::from_secs(20))?;
    let payloads = Payloads::new(load.size);
    let lanes = Lanes { lanes: load.lanes, writers: load.writers };
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let began = Instant::now();
    let pace = Pace::new(load.rate);
    for index in 0..load.messages {
        let due = pace.due(index);
        if pace.open() {
            Pace::wait(due);
        }
        let n = load.first + index;
        payload::lane_name(&mut key, lanes.of(n));
        value.clear();
        payloads.write(&mut value, n, due);
        let mut record = BaseRecord::with_opaque_to(&load.topic, due as usize).key(&key).payload(&value);
        loop {
            match producer.send(record) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    record = back;
                    std::thread::sleep(Duration::from_millis(1));
                    if payload::past(started, load.limit_s) {
                        bail!("gave up at message {n}");
                    }
                }
                Err((error, _)) => bail!("send: {error}"),
            }
        }
    }
    producer.flush(Duration::from_secs(load.limit_s))?;
    while acks.acked.load(Relaxed) + acks.failed.load(Relaxed) < load.messages {
        if payload::past(started, load.limit_s) {
            bail!("{} of {} answered", acks.acked.load(Relaxed), load.messages);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Reads from the beginning until `messages` have come; then looks a moment longer for what should not be there.
fn read_all(
    load: &Load, messages: u64, started: Instant, latency: Option<&mut Latency>, ready: &AtomicBool,
) -> Result<(Book, f64)> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &load.brokers)
        .set("group.id", "bench-reader")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "false")
        .set("check.crcs", "false")
        .set("auto.offset.reset", "earliest")
        .set("queued.max.messages.kbytes", "131072")
        .create()?;
    let mut list = TopicPartitionList::new();
    for partition in 0..load.partitions {
        list.add_partition_offset(&load.topic, partition, Offset::Beginning)?;
    }
    consumer.assign(&list)?;
    ready.store(true, Relaxed);
    let mut book = Book::new(Lanes { lanes: load.lanes, writers: load.writers }, messages);
    let mut latency = latency;
    let (mut began, mut ended) = (None, Instant::now());
    while book.count < messages {
        if payload::past(started, load.limit_s) {
            bail!("{} of {messages} delivered within {} s", book.count, load.limit_s);
        }
        match consumer.poll(Duration::from_millis(100)) {
            None => {}
            Some(Err(error)) => bail!("poll: {error}"),
            Some(Ok(message)) => {
                began.get_or_insert_with(Instant::now);
                let due = book.note(message.key().unwrap_or_default(), message.payload().unwrap_or_default());
                if let (Some(latency), Some(due)) = (latency.as_deref_mut(), due) {
                    latency.note(due);
                }
            }
        }
        ended = Instant::now();
    }
    let grace = Instant::now();
    while grace.elapsed() < Duration::from_millis(200) {
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(50)) {
            book.note(message.key().unwrap_or_default(), message.payload().unwrap_or_default());
        }
    }
    let seconds = (ended - began.unwrap_or(ended)).as_secs_f64();
    Ok((book, seconds))
}

pub fn produce(load: &Load) -> Result<Value> {
    let acks = Arc::new(Acks::default());
    let seconds = send_all(load, &acks, Instant::now())?;
    let (acked, failed) = (acks.acked.load(Relaxed), acks.failed.load(Relaxed));
    Ok(json!({"sent": load.messages, "acked": acked, "failed": failed, "seconds": seconds,
        "per_second": acked as f64 / seconds, "ok": failed == 0 && acked == load.messages}))
}

pub fn consume(load: &Load) -> Result<Value> {
    let (book, seconds) = read_all(load, load.messages, Instant::now(), None, &AtomicBool::new(false))?;
    Ok(report::of_book(&book, load.messages, seconds))
}

/// Asks for the topic until it is there: both brokers make one that is asked for.
fn make_topic(load: &Load, started: Instant) -> Result<()> {
    let asker: BaseProducer = ClientConfig::new().set("bootstrap.servers", &load.brokers).create()?;
    loop {
        let metadata = asker.client().fetch_metadata(Some(&load.topic), Duration::from_secs(20))?;
        let there = |topic: &rdkafka::metadata::MetadataTopic| topic.error().is_none() && topic.partitions().len() as i32 == load.partitions;
        if metadata.topics().iter().any(there) {
            return Ok(());
        }
        if payload::past(started, 20) {
            bail!("no topic {} with {} partitions", load.topic, load.partitions);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Produces at a rate and reads at the same time. Latency is from the moment a message was due to the moment it was read.
pub fn both(load: &Load) -> Result<Value> {
    let started = Instant::now();
    make_topic(load, started)?;
    let acks = Arc::new(Acks { latency: Some(Mutex::new(Latency::new())), ..Acks::default() });
    let ready = AtomicBool::new(false);
    let mut latency = Latency::new();
    let (sent, read) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_all(load, load.messages, started, Some(&mut latency), &ready));
        while !ready.load(Relaxed) && !reader.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Fetch sessions are set up before the first message is due.
        std::thread::sleep(Duration::from_millis(500));
        let sent = send_all(load, &acks, started);
        (sent, reader.join())
    });
    let seconds = sent?;
    let (book, _) = read.ok().context("the reader panicked")??;
    let failed = acks.failed.load(Relaxed);
    let mut answer = report::of_book(&book, load.messages, seconds);
    answer["acked"] = json!(acks.acked.load(Relaxed));
    answer["e2e"] = latency.json();
    answer["ack"] = acks.latency.as_ref().unwrap().lock().unwrap().json();
    answer["ok"] = json!(answer["ok"] == json!(true) && failed == 0);
    Ok(answer)
}

