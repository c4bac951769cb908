//! Fetch, key 1, versions 4-18.
//!
//! * Whole batches as stored, from the one that holds the offset on; the first non-empty partition
//!   gives at least one batch whatever the limits (KIP-74), the rest keep the total below the
//!   request's maximum.
//! * Waits until `min_bytes` are there or `max_wait_ms` is over; an error, or news of a session,
//!   answers at once.
//! * The high watermark is the last stable offset is the end of the log, since only committed
//!   entries are applied and there are no transactions yet. An offset outside
//!   `[log start, end]` is OFFSET_OUT_OF_RANGE, or OFFSET_NOT_AVAILABLE while a new leader has not
//!   applied everything yet.
//! * v11+ a client that names its rack is sent to an in-sync follower in that rack when the leader is
//!   in another (KIP-392); a follower that serves answers such clients from what it has applied, and
//!   OFFSET_NOT_AVAILABLE beyond that. Older versions read from the leader only.
//! * v7+ sessions (KIP-227), v12+ the current leader in the answer, v13+ topics by id, v16+ the
//!   leader's address (KIP-951). Records are never null (KAFKA-18646).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::FetchRequest;
use kafka_protocol::protocol::HeaderVersion;
use queen_engine::batch::{self, HEADER_LEN};
use queen_engine::ids::TopicId;
use queen_engine::index::BatchRow;
use queen_engine::limits::BATCH_DECOMPRESSED_BYTES_MAX;
use queen_engine::port::{NodeView, View};
use queen_engine::topic::Topic;
use tracing::error;
use uuid::Uuid;

use crate::context::{Context, leader_epoch, wire_offset};
use crate::dispatch::{Call, Pending, Reply};
use crate::fetch_encode::{self, Endpoint, FetchAnswer, PartitionAnswer, Records, TopicAnswer};
use crate::fetch_session::{Plan, Told, TopicKey, Wanted};
use crate::limits;
use crate::wire::body::{self, MalformedBody};
use crate::wire::error_code::NONE;

/// `isolation_level` of a client that wants no records of open or aborted transactions.
const READ_COMMITTED: i8 = 1;

/// The first version with the client's rack and a preferred replica.
const RACK_VERSION: i16 = 11;

pub(crate) fn header_version(version: i16) -> i16 {
    FetchRequest::header_version(version)
}

pub(crate) fn start(
    context: Arc<Context>,
    call: Call,
    body: Bytes,
) -> Result<Pending, MalformedBody> {
    let request: FetchRequest = body::decode(body, call.version)?;
    // Session epochs count requests, so they are taken in arrival order.
    let plan = context.sessions.begin(&request, call.version);
    context
        .metrics
        .fetch_sessions
        .set(context.sessions.len() as f64);
    Ok(Box::pin(async move {
        let (answer, failed) = match plan {
            Ok(plan) => answer(&context, call.version, &request, &plan).await,
            Err(error) => {
                let error = error.code();
                (
                    FetchAnswer {
                        error,
                        ..FetchAnswer::default()
                    },
                    true,
                )
            }
        };
        let frame = fetch_encode::encode(call.correlation_id, call.version, &answer);
        Reply::Answer { frame, failed }
    }))
}

/// Whether a client's idea of the leader epoch is ours (KIP-320); -1 is none.
pub(crate) fn check_epoch(node: &NodeView, client: i32) -> Result<(), ResponseError> {
    match client {
        ..=-1 => Ok(()),
        epoch if epoch < leader_epoch(node) => Err(ResponseError::FencedLeaderEpoch),
        epoch if epoch > leader_epoch(node) => Err(ResponseError::UnknownLeaderEpoch),
        _ => Ok(()),
    }
}

/// A look at one partition.
struct Found {
    error: Option<ResponseError>,
    high_watermark: i64,
    log_start: i64,
    /// Batches to send, and the records of each that are hidden.
    rows: Vec<(BatchRow, Vec<u32>)>,
}

impl Found {
    fn failed(error: ResponseError) -> Found {
        Found {
            error: Some(error),
            high_watermark: -1,
            log_start: -1,
            rows: Vec::new(),
        }
    }
}

async fn answer(
    context: &Arc<Context>,
    version: i16,
    request: &FetchRequest,
    plan: &Plan,
) -> (FetchAnswer, bool) {
    let node = context.node();
    let reader = Reader {
        by_rack: version >= RACK_VERSION,
        closest: closest(&node, version, request),
    };
    let found = wait(context, request, plan, &node, reader).await;
    let mut failed = false;
    let mut rows = Vec::with_capacity(found.len());
    let mut told = Vec::with_capacity(found.len());
    for (wanted, found) in plan.wanted.iter().zip(found) {
        let mut row = render(context, &node, wanted, found);
        row.preferred_replica = reader.closest.filter(|_| row.error == NONE);
        row.aborted_known |= request.isolation_level == READ_COMMITTED && row.error == NONE;
        failed |= row.error != NONE;
        told.push(Told {
            high_watermark: row.high_watermark,
            log_start: row.log_start,
            // Either must reach the client, whatever its session knows.
            error: row.error != NONE || row.preferred_replica.is_some(),
            has_records: !row.records.is_empty(),
        });
        rows.push(row);
    }
    let bytes: usize = rows.iter().map(|row| row.records.len()).sum();
    context.metrics.fetched_bytes.increment(bytes as u64);
    let news = context.sessions.finish(plan, &told);
    let misled = rows.iter().any(|row| row.leader.is_some());
    let mut topics: Vec<TopicAnswer> = Vec::new();
    for ((wanted, row), news) in plan.wanted.iter().zip(rows).zip(news) {
        if news {
            push_row(&mut topics, &wanted.topic, row);
        }
    }
    let endpoint = if misled && version >= 16 {
        leader_endpoint(&node)
    } else {
        None
    };
    (
        FetchAnswer {
            error: NONE,
            session: plan.session,
            topics,
            endpoint,
        },
        failed,
    )
}

/// How a request may be served.
#[derive(Clone, Copy)]
struct Reader {
    /// Its version knows of reading from followers.
    by_rack: bool,
    /// The follower it is sent to.
    closest: Option<i32>,
}

/// The follower that a client should read from (KIP-392): in sync and in the client's rack, which is
/// not the leader's.
fn closest(node: &NodeView, version: i16, request: &FetchRequest) -> Option<i32> {
    let rack = request.rack_id.as_str();
    if version < RACK_VERSION || rack.is_empty() || !node.is_leader {
        return None;
    }
    let mut near = node
        .brokers
        .iter()
        .filter(|broker| broker.rack.as_deref() == Some(rack))
        .map(|broker| broker.id);
    if near.clone().any(|id| id == node.id) {
        return None;
    }
    near.find(|id| node.in_sync.contains(id))
}

/// Adds a row under its topic; rows of one topic that follow each other share an entry.
fn push_row(topics: &mut Vec<TopicAnswer>, key: &TopicKey, row: PartitionAnswer) {
    let (name, id) = match key {
        TopicKey::Name(name) => (name.as_str(), Uuid::nil()),
        TopicKey::Id(id) => ("", *id),
    };
    match topics
        .iter_mut()
        .rev()
        .find(|topic| topic.name == name && topic.id == id)
    {
        Some(topic) => topic.partitions.push(row),
        None => topics.push(TopicAnswer {
            name: name.to_owned(),
            id,
            partitions: vec![row],
        }),
    }
}

/// Looks until there is enough, an error, or no time left.
async fn wait(
    context: &Arc<Context>,
    request: &FetchRequest,
    plan: &Plan,
    node: &NodeView,
    reader: Reader,
) -> Vec<Found> {
    let wait_ms = request.max_wait_ms.clamp(0, limits::FETCH_WAIT_MS_MAX);
    let deadline = tokio::time::sleep(Duration::from_millis(u64::from(wait_ms.unsigned_abs())));
    let mut deadline = std::pin::pin!(deadline);
    let mut stopped = std::pin::pin!(context.stopped());
    let bytes_min = usize::try_from(request.min_bytes).unwrap_or(0);
    let bytes_max = usize::try_from(request.max_bytes)
        .unwrap_or(0)
        .min(limits::FETCH_BYTES_MAX);
    let topics = context.look(|view| topics_of(context, view, plan));
    let mut last = reader.closest.is_some();
    loop {
        // Registered before looking, so that an append in between is not missed.
        let appended = context.broker.appended(&topics);
        let (found, bytes, failed) =
            context.look(|view| look(context, view, plan, node, reader, bytes_max));
        if last || failed || bytes >= bytes_min || wait_ms == 0 || plan.wanted.is_empty() {
            return found;
        }
        tokio::select! {
            () = appended => {}
            () = &mut deadline => last = true,
            () = &mut stopped => last = true,
        }
    }
}

fn topic_of<'a>(context: &Context, view: View<'a>, key: &TopicKey) -> Option<&'a Topic> {
    match key {
        TopicKey::Name(name) => view.engine.topics.named(name),
        TopicKey::Id(id) => context.topic_with_id(view, *id),
    }
}

fn topics_of(context: &Context, view: View<'_>, plan: &Plan) -> Vec<TopicId> {
    let found = plan
        .wanted
        .iter()
        .filter_map(|w| topic_of(context, view, &w.topic));
    let mut topics: Vec<TopicId> = found.map(|topic| topic.id).collect();
    topics.sort_unstable();
    topics.dedup();
    topics
}

/// One look at all partitions: what can be sent, its size, and whether any failed.
fn look(
    context: &Context,
    view: View<'_>,
    plan: &Plan,
    node: &NodeView,
    reader: Reader,
    bytes_max: usize,
) -> (Vec<Found>, usize, bool) {
    let mut bytes = 0;
    let mut failed = false;
    let mut all = Vec::with_capacity(plan.wanted.len());
    for wanted in &plan.wanted {
        let found = look_at(context, view, wanted, node, reader, bytes, bytes_max)
            .unwrap_or_else(Found::failed);
        failed |= found.error.is_some();
        bytes += found
            .rows
            .iter()
            .map(|(row, _)| row.at.len as usize)
            .sum::<usize>();
        all.push(found);
    }
    (all, bytes, failed)
}

fn look_at(
    context: &Context,
    view: View<'_>,
    wanted: &Wanted,
    node: &NodeView,
    reader: Reader,
    taken: usize,
    bytes_max: usize,
) -> Result<Found, ResponseError> {
    let unknown = match wanted.topic {
        TopicKey::Name(_) => ResponseError::UnknownTopicOrPartition,
        TopicKey::Id(_) => ResponseError::UnknownTopicId,
    };
    let topic = topic_of(context, view, &wanted.topic).ok_or(unknown)?;
    let index =
        u32::try_from(wanted.partition).map_err(|_| ResponseError::UnknownTopicOrPartition)?;
    let partition = topic
        .partition(index)
        .ok_or(ResponseError::UnknownTopicOrPartition)?;
    let serves = node.is_leader || (reader.by_rack && node.ready);
    if !serves {
        return Err(ResponseError::NotLeaderOrFollower);
    }
    check_epoch(node, wanted.leader_epoch)?;
    let mut found = Found {
        error: None,
        high_watermark: wire_offset(partition.next_offset),
        log_start: wire_offset(partition.log_start),
        rows: Vec::new(),
    };
    let offset = match u64::try_from(wanted.offset) {
        Ok(offset) if (partition.log_start..=partition.next_offset).contains(&offset) => offset,
        _ => {
            // One that has not applied everything yet must not send clients back: a new leader, or a
            // follower that is asked for what it has not got.
            let may_come = wanted.offset > found.high_watermark;
            return Err(if node.ready && (node.is_leader || !may_come) {
                ResponseError::OffsetOutOfRange
            } else {
                ResponseError::OffsetNotAvailable
            });
        }
    };
    if offset == partition.next_offset || reader.closest.is_some() {
        return Ok(found);
    }
    let room = bytes_max
        .saturating_sub(taken)
        .min(usize::try_from(wanted.bytes_max).unwrap_or(0));
    let mut bytes = 0;
    for row in view.index.batches(topic.id, index, offset) {
        bytes += row.at.len as usize;
        let is_first_of_all = taken == 0 && found.rows.is_empty();
        if bytes > room && !is_first_of_all {
            break;
        }
        let hidden = view.index.dropped(&row);
        found.rows.push((row, hidden));
    }
    Ok(found)
}

/// Reads the batches found, and makes of them the partition's answer.
fn render(context: &Context, node: &NodeView, wanted: &Wanted, found: Found) -> PartitionAnswer {
    let mut row = PartitionAnswer {
        index: wanted.partition,
        error: found.error.map_or(NONE, |error| error.code()),
        high_watermark: found.high_watermark,
        last_stable_offset: found.high_watermark,
        log_start: found.log_start,
        leader: None,
        preferred_replica: None,
        records: Records::default(),
        aborted_known: matches!(
            found.error,
            Some(ResponseError::UnknownTopicOrPartition | ResponseError::UnknownTopicId)
        ),
    };
    if matches!(
        found.error,
        Some(ResponseError::NotLeaderOrFollower | ResponseError::FencedLeaderEpoch)
    ) {
        row.leader = node.leader.map(|leader| (leader, leader_epoch(node)));
    }
    for (batch, hidden) in &found.rows {
        match read(context, batch, hidden) {
            Ok((header, rest)) => row.records.push(header, rest),
            // What was read before it is sent; the client meets the error at the damaged batch.
            Err(_) if !row.records.is_empty() => break,
            Err(problem) => {
                error!(
                    topic = batch.topic.0,
                    partition = batch.partition,
                    offset = batch.base_offset,
                    problem,
                    "stored batch cannot be read"
                );
                row.error = ResponseError::KafkaStorageError.code();
                break;
            }
        }
    }
    row
}

type HeaderAndRest = ([u8; HEADER_LEN], Bytes);

fn read(context: &Context, row: &BatchRow, hidden: &[u32]) -> Result<HeaderAndRest, String> {
    let mut bytes = context
        .broker
        .read(row.at)
        .map_err(|failure| failure.to_string())?;
    if !hidden.is_empty() {
        bytes = batch::without(&bytes, hidden, BATCH_DECOMPRESSED_BYTES_MAX)
            .map_err(|error| error.to_string())?;
    }
    let epoch = i32::try_from(row.epoch).unwrap_or(i32::MAX);
    let header = batch::patched_header(&bytes, wire_offset(row.base_offset), epoch)
        .map_err(|error| error.to_string())?;
    Ok((header, bytes.slice(HEADER_LEN..)))
}

fn leader_endpoint(node: &NodeView) -> Option<Endpoint> {
    let leader = node.leader?;
    let address = node.brokers.iter().find(|broker| broker.id == leader)?;
    Some(Endpoint {
        id: leader,
        host: address.kafka_host.clone(),
        port: i32::from(address.kafka_port),
        rack: address.rack.clone(),
    })
}
