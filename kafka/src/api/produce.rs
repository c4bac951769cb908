//! Produce, key 0, versions 3-13; 0-2 are listed for old librdkafka and refused.
//!
//! * One record batch of format 2 per partition, checked before anything is stored: size, CRC,
//!   base offset 0, count, no control bit (kafka.md 4.3 rows 49-51). The batch is stored as sent.
//! * What is wrong: bytes that are no whole batch, or of format 0 or 1, are INVALID_RECORD; an
//!   unknown format, length or checksum CORRUPT_MESSAGE. A refusal for what the batch says tells
//!   the start of the log.
//! * Keys are walked once, for the lanes; `queen.lanes=off` leaves the records unread.
//! * acks: -1, 0 and 1 all wait for the majority's disk; 0 gets no answer, and an error closes the
//!   connection. Batches of one connection are handed over in arrival order.
//! * v7+ zstd. v8+ record errors. v10+ the new leader beside NOT_LEADER_OR_FOLLOWER (KIP-951).
//!   v13 topics by id; an id that is gone is UNKNOWN_TOPIC_ID and never looked up by name.
//! * Transactional batches are refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED for now.

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse,
    TopicProduceResponse,
};
use kafka_protocol::messages::{BrokerId, ProduceRequest, ProduceResponse};
use kafka_protocol::protocol::HeaderVersion;
use queen_engine::batch::{self, BatchHeader, Codec, DecodedBatch};
use queen_engine::command::LaneHints;
use queen_engine::dedup::transaction_hash;
use queen_engine::ids::TopicId;
use queen_engine::limits::BATCH_DECOMPRESSED_BYTES_MAX;
use queen_engine::outcome::{Appended, Reject};
use queen_engine::port::{BoxFuture, Failure, ProduceBatch};
use queen_engine::topic::Topic;

use crate::context::{Context, leader_epoch, wire_offset};
use crate::dispatch::{self, Call, Pending, Reply};
use crate::names::text;
use crate::wire::body::{self, MalformedBody};
use crate::wire::error_code::{self, Surface};

pub(crate) fn header_version(version: i16) -> i16 {
    ProduceRequest::header_version(version)
}

/// Decodes, checks and hands the batches to the node; the future only waits and renders.
pub(crate) fn start(
    context: Arc<Context>,
    call: Call,
    body: Bytes,
) -> Result<Pending, MalformedBody> {
    let request: ProduceRequest = body::decode(body, call.version)?;
    let acks = request.acks;
    let mut batches = Vec::new();
    let topics = prepare(&context, &call, request, &mut batches);
    let appends = (!batches.is_empty()).then(|| context.broker.produce(batches));
    Ok(Box::pin(finish(context, call, acks, topics, appends)))
}

/// What is known of one partition's batch before the append.
enum Checked {
    /// The batch with this index among those handed over, and the time it was stamped with.
    Sent {
        append: usize,
        log_append_time: i64,
    },
    Refused(Refused),
}

struct Refused {
    error: ResponseError,
    message: Option<String>,
    records: Vec<(i32, String)>,
    /// Start of the partition's log, told when what is wrong is what the batch says and not how it
    /// is framed, as Kafka does; else -1.
    log_start: i64,
}

impl Refused {
    fn with_message(error: ResponseError, message: impl Into<String>) -> Refused {
        Refused {
            message: Some(message.into()),
            ..error.into()
        }
    }

    fn at(mut self, log_start: u64) -> Refused {
        let tells = matches!(
            self.error,
            ResponseError::InvalidRecord | ResponseError::InvalidTimestamp
        );
        if tells {
            self.log_start = wire_offset(log_start);
        }
        self
    }
}

impl From<ResponseError> for Refused {
    fn from(error: ResponseError) -> Refused {
        Refused {
            error,
            message: None,
            records: Vec::new(),
            log_start: -1,
        }
    }
}

struct CheckedTopic {
    /// Name and id as the client sent them.
    sent: TopicProduceData,
    topic: Option<TopicId>,
    partitions: Vec<(i32, Checked)>,
}

/// The settings of a topic that a batch is judged by.
struct Rules {
    topic: TopicId,
    width: u32,
    bytes_max: usize,
    log_append_time: bool,
    lanes: bool,
    compacts: bool,
    after_max_ms: i64,
    before_max_ms: i64,
}

impl Rules {
    fn of(topic: &Topic) -> Rules {
        let number = |name| {
            topic
                .kafka
                .get(name)
                .and_then(|text| text.parse().ok())
                .unwrap_or(i64::MAX)
        };
        Rules {
            topic: topic.id,
            width: topic.width(),
            bytes_max: topic.kafka.max_message_bytes(),
            log_append_time: topic.kafka.log_append_time(),
            lanes: topic.kafka.get("queen.lanes") != Some("off"),
            compacts: topic.kafka.compacts(),
            after_max_ms: number("message.timestamp.after.max.ms"),
            before_max_ms: number("message.timestamp.before.max.ms"),
        }
    }
}

fn prepare(
    context: &Context,
    call: &Call,
    request: ProduceRequest,
    batches: &mut Vec<ProduceBatch>,
) -> Vec<CheckedTopic> {
    let now_ms = context.broker.now().millis();
    let refused_all = if !(-1..=1).contains(&request.acks) {
        Some(ResponseError::InvalidRequiredAcks)
    } else if request
        .transactional_id
        .as_ref()
        .is_some_and(|id| !id.is_empty())
    {
        Some(ResponseError::TransactionalIdAuthorizationFailed)
    } else {
        None
    };
    let mut topics = Vec::with_capacity(request.topic_data.len());
    for mut sent in request.topic_data {
        let rules = match refused_all {
            Some(error) => Err(error),
            None => rules(context, call, &sent),
        };
        let data = std::mem::take(&mut sent.partition_data);
        let mut partitions = Vec::with_capacity(data.len());
        for partition in data {
            let index = partition.index;
            let checked = match &rules {
                Err(error) => Checked::Refused((*error).into()),
                Ok(rules) => match check(context, call.version, rules, partition, now_ms) {
                    Err(refused) => Checked::Refused(refused),
                    Ok(batch) => {
                        batches.push(batch);
                        let log_append_time = if rules.log_append_time { now_ms } else { -1 };
                        Checked::Sent {
                            append: batches.len() - 1,
                            log_append_time,
                        }
                    }
                },
            };
            partitions.push((index, checked));
        }
        let topic = rules.ok().map(|rules| rules.topic);
        topics.push(CheckedTopic {
            sent,
            topic,
            partitions,
        });
    }
    topics
}

fn rules(context: &Context, call: &Call, sent: &TopicProduceData) -> Result<Rules, ResponseError> {
    context.look(|view| {
        if call.version >= 13 {
            let topic = context.topic_with_id(view, sent.topic_id);
            topic.map(Rules::of).ok_or(ResponseError::UnknownTopicId)
        } else {
            let topic = view.engine.topics.named(&sent.name);
            topic
                .map(Rules::of)
                .ok_or(ResponseError::UnknownTopicOrPartition)
        }
    })
}

/// Checks one partition's records and makes of them what the node appends.
fn check(
    context: &Context,
    version: i16,
    rules: &Rules,
    data: PartitionProduceData,
    now_ms: i64,
) -> Result<ProduceBatch, Refused> {
    let partition = u32::try_from(data.index)
        .ok()
        .filter(|index| *index < rules.width)
        .ok_or(ResponseError::UnknownTopicOrPartition)?;
    let bytes = data.records.unwrap_or_default();
    check_frame(&bytes)?;
    check_content(version, rules, partition, bytes, now_ms).map_err(|refused| {
        refused.at(log_start(context, rules.topic, partition).unwrap_or_default())
    })
}

/// Start of a partition's log; `None` when it is gone.
fn log_start(context: &Context, topic: TopicId, partition: u32) -> Option<u64> {
    context.look(|view| {
        let topic = view.engine.topics.get(topic)?;
        Some(topic.partition(partition)?.log_start)
    })
}

/// Checks what the batch says.
fn check_content(
    version: i16,
    rules: &Rules,
    partition: u32,
    mut bytes: Bytes,
    now_ms: i64,
) -> Result<ProduceBatch, Refused> {
    let mut header = check_batch(version, rules, &bytes)?;
    if rules.log_append_time {
        bytes = batch::with_append_time(&bytes, now_ms).map_err(|e| error_code::of_batch(&e))?;
        header = BatchHeader::parse(&bytes).map_err(|e| error_code::of_batch(&e))?;
    } else {
        check_time(rules, &header, now_ms)?;
    }
    let (mut lanes, mut dedup) = (LaneHints::default(), Vec::new());
    if rules.lanes || rules.compacts {
        let decoded = DecodedBatch::decode(bytes.clone(), BATCH_DECOMPRESSED_BYTES_MAX)
            .map_err(|error| refusal_of(&error))?;
        if rules.compacts {
            check_keys(&decoded)?;
        }
        if rules.lanes {
            let keys = batch::lane_keys(&decoded, partition);
            lanes = LaneHints::from_names(&keys.names, &keys.lane_of);
            let hash = |(record, id): &(u32, Bytes)| (*record, transaction_hash(id));
            dedup = keys.dedup.iter().map(hash).collect();
        }
    }
    Ok(ProduceBatch {
        topic: rules.topic,
        partition,
        bytes,
        header,
        lanes,
        dedup,
    })
}

fn refusal_of(error: &batch::BatchError) -> Refused {
    Refused {
        error: error_code::of_batch(error),
        message: Some(error.to_string()),
        records: Vec::new(),
        log_start: -1,
    }
}

/// Checks that the bytes are one whole batch of a format that is stored.
fn check_frame(bytes: &Bytes) -> Result<(), Refused> {
    let invalid = |message| Refused::with_message(ResponseError::InvalidRecord, message);
    if bytes.is_empty() {
        return Err(invalid("the partition has no records"));
    }
    let first = BatchHeader::parse(bytes).map_err(|error| refusal_of(&error))?;
    if first.total_len() > bytes.len() {
        return Err(invalid("the record batch is cut short"));
    }
    if first.total_len() < bytes.len() {
        return Err(invalid("a partition takes exactly one record batch"));
    }
    Ok(())
}

fn check_batch(version: i16, rules: &Rules, bytes: &Bytes) -> Result<BatchHeader, Refused> {
    if bytes.len() > rules.bytes_max {
        return Err(ResponseError::MessageTooLarge.into());
    }
    let header = batch::check(bytes).map_err(|error| refusal_of(&error))?;
    if version < 7 && header.codec().is_ok_and(|codec| codec == Codec::Zstd) {
        return Err(ResponseError::UnsupportedCompressionType.into());
    }
    if header.is_transactional() {
        return Err(ResponseError::TransactionalIdAuthorizationFailed.into());
    }
    Ok(header)
}

/// Kafka's bounds on producers' clocks (KIP-937); records without a time are let through.
fn check_time(rules: &Rules, header: &BatchHeader, now_ms: i64) -> Result<(), Refused> {
    let too_late = header.max_timestamp.saturating_sub(now_ms) > rules.after_max_ms;
    let too_early = header.base_timestamp >= 0
        && now_ms.saturating_sub(header.base_timestamp) > rules.before_max_ms;
    if too_late || too_early {
        return Err(Refused::with_message(
            ResponseError::InvalidTimestamp,
            "record time is out of the topic's bounds",
        ));
    }
    Ok(())
}

fn check_keys(batch: &DecodedBatch) -> Result<(), Refused> {
    let keyless = (0i32..)
        .zip(batch.iter())
        .filter(|(_, record)| record.key.is_none());
    let records: Vec<(i32, String)> = keyless
        .map(|(index, _)| (index, "a compacted topic needs a key".to_string()))
        .collect();
    if records.is_empty() {
        return Ok(());
    }
    Err(Refused {
        error: ResponseError::InvalidRecord,
        message: Some("a compacted topic takes no record without a key".into()),
        records,
        log_start: -1,
    })
}

type Appends = BoxFuture<Result<Vec<Result<Appended, Reject>>, Failure>>;

async fn finish(
    context: Arc<Context>,
    call: Call,
    acks: i16,
    topics: Vec<CheckedTopic>,
    appends: Option<Appends>,
) -> Reply {
    let mut appended: Vec<Result<Appended, ResponseError>> = Vec::new();
    let mut failure = None;
    match appends {
        None => {}
        Some(appends) => match appends.await {
            Ok(results) => {
                let code = |result: Result<Appended, Reject>| {
                    result.map_err(|reject| error_code::of_reject(&reject))
                };
                appended = results.into_iter().map(code).collect();
            }
            Err(error) => failure = Some(error_code::of_failure(&error, Surface::Data)),
        },
    }
    let mut failed = false;
    let mut leader = None;
    let mut responses = Vec::with_capacity(topics.len());
    for topic in topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for (index, checked) in topic.partitions {
            let mut row = render(index, checked, &appended, failure);
            if is_of_sequence(row.error_code)
                && let (Some(topic), Ok(index)) = (topic.topic, u32::try_from(index))
                && let Some(start) = log_start(&context, topic, index)
            {
                row.log_start_offset = wire_offset(start);
            }
            failed |= row.error_code != 0;
            partitions.push(row);
        }
        responses.push(
            TopicProduceResponse::default()
                .with_name(topic.sent.name)
                .with_topic_id(topic.sent.topic_id)
                .with_partition_responses(partitions),
        );
    }
    if acks == 0 {
        return if failed {
            Reply::Close("a produce without acks failed")
        } else {
            Reply::Silent
        };
    }
    if call.version >= 10 && failure == Some(ResponseError::NotLeaderOrFollower) {
        leader = name_leader(&context, &mut responses);
    }
    let mut response = ProduceResponse::default().with_responses(responses);
    response.node_endpoints.extend(leader);
    dispatch::reply(
        call.api,
        call.version,
        call.correlation_id,
        &response,
        failed,
    )
}

/// Whether a refusal concerns an idempotent producer's numbering; it tells the start of the log,
/// by which the client knows whether its batches may have been deleted meanwhile.
fn is_of_sequence(code: i16) -> bool {
    code == ResponseError::OutOfOrderSequenceNumber.code()
        || code == ResponseError::InvalidProducerEpoch.code()
}

fn render(
    index: i32,
    checked: Checked,
    appended: &[Result<Appended, ResponseError>],
    failure: Option<ResponseError>,
) -> PartitionProduceResponse {
    let row = PartitionProduceResponse::default()
        .with_index(index)
        .with_base_offset(-1)
        .with_log_append_time_ms(-1)
        .with_log_start_offset(-1);
    match checked {
        Checked::Sent {
            append,
            log_append_time,
        } => match appended.get(append) {
            Some(Ok(done)) => row
                .with_base_offset(wire_offset(done.base_offset))
                .with_log_start_offset(wire_offset(done.log_start))
                .with_log_append_time_ms(match (log_append_time, done.repeat) {
                    (-1, _) => -1,
                    (_, true) => done.time.millis(),
                    (time, false) => time,
                }),
            Some(Err(error)) => row.with_error_code(error.code()),
            None => {
                let error = failure.unwrap_or(ResponseError::NotEnoughReplicas);
                row.with_error_code(error.code())
            }
        },
        Checked::Refused(refused) => {
            let record = |(index, message): (i32, String)| {
                BatchIndexAndErrorMessage::default()
                    .with_batch_index(index)
                    .with_batch_index_error_message(Some(text(&message)))
            };
            row.with_error_code(refused.error.code())
                .with_log_start_offset(refused.log_start)
                .with_error_message(refused.message.as_deref().map(text))
                .with_record_errors(refused.records.into_iter().map(record).collect())
        }
    }
}

/// Writes the present leader into the partitions that failed for want of it.
fn name_leader(context: &Context, topics: &mut [TopicProduceResponse]) -> Option<NodeEndpoint> {
    let node = context.node();
    let leader = node.leader.filter(|leader| *leader != node.id)?;
    let address = node.brokers.iter().find(|broker| broker.id == leader)?;
    for topic in topics {
        for row in &mut topic.partition_responses {
            if row.error_code == ResponseError::NotLeaderOrFollower.code() {
                row.current_leader = LeaderIdAndEpoch::default()
                    .with_leader_id(BrokerId(leader))
                    .with_leader_epoch(leader_epoch(&node));
            }
        }
    }
    Some(
        NodeEndpoint::default()
            .with_node_id(BrokerId(leader))
            .with_host(text(&address.kafka_host))
            .with_port(i32::from(address.kafka_port))
            .with_rack(address.rack.as_deref().map(text)),
    )
}
