//! ListOffsets, key 2, versions 1-10.
//!
//! * -1 latest: the high watermark, which is also the last stable offset while there are no
//!   transactions. -2 earliest. -3 (v7) offset of the largest record time. -4 (v8) earliest local:
//!   the same as -2. -5 (v9) latest tiered: none. -6 (v11) is not listed. Below its version a
//!   special time is UNSUPPORTED_VERSION, for that partition alone.
//! * A time: the first record at or after it, by the records' own times, not the batch header's
//!   alone. Nothing found is offset -1, time -1.
//! * v4+ leader epochs: checked when sent, answered when known.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};
use queen_engine::ids::TopicId;
use queen_engine::index::BatchRow;
use queen_engine::port::NodeView;

use crate::api::fetch::check_epoch;
use crate::context::{Context, leader_epoch, wire_offset};
use crate::dispatch::{Call, Handler};
use crate::wire::error_code::{self, Surface};

pub(crate) struct ListOffsets;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;

impl Handler for ListOffsets {
    type Request = ListOffsetsRequest;
    type Response = ListOffsetsResponse;

    async fn answer(
        context: Arc<Context>,
        call: Call,
        request: ListOffsetsRequest,
    ) -> ListOffsetsResponse {
        let node = context.node();
        let mut topics = Vec::with_capacity(request.topics.len());
        for topic in request.topics {
            let rows = topic.partitions.iter().map(|wanted| {
                let row = ListOffsetsPartitionResponse::default()
                    .with_partition_index(wanted.partition_index)
                    .with_offset(-1)
                    .with_timestamp(-1);
                match find(&context, &node, call.version, &topic.name, wanted) {
                    Ok(found) => row
                        .with_offset(found.offset)
                        .with_timestamp(found.timestamp)
                        // Not to be said before v4.
                        .with_leader_epoch(if call.version >= 4 { found.epoch } else { -1 }),
                    Err(error) => row.with_error_code(error.code()),
                }
            });
            let partitions = rows.collect();
            topics.push(
                ListOffsetsTopicResponse::default()
                    .with_name(topic.name)
                    .with_partitions(partitions),
            );
        }
        ListOffsetsResponse::default().with_topics(topics)
    }
}

struct Found {
    offset: i64,
    timestamp: i64,
    epoch: i32,
}

const NOTHING: Found = Found {
    offset: -1,
    timestamp: -1,
    epoch: -1,
};

/// The first version that knows a special time; `None` for one that no version served here knows.
fn special_since(time: i64) -> Option<i16> {
    match time {
        LATEST | EARLIEST => Some(1),
        MAX_TIMESTAMP => Some(7),
        EARLIEST_LOCAL => Some(8),
        LATEST_TIERED => Some(9),
        _ => None,
    }
}

fn find(
    context: &Context,
    node: &NodeView,
    version: i16,
    name: &str,
    wanted: &ListOffsetsPartition,
) -> Result<Found, ResponseError> {
    if wanted.timestamp < 0 && special_since(wanted.timestamp).is_none_or(|since| version < since) {
        return Err(ResponseError::UnsupportedVersion);
    }
    if !node.is_leader {
        return Err(ResponseError::NotLeaderOrFollower);
    }
    if !node.ready {
        // A new leader's end may still lie below what clients were shown.
        return Err(ResponseError::OffsetNotAvailable);
    }
    check_epoch(node, wanted.current_leader_epoch)?;
    let index = u32::try_from(wanted.partition_index)
        .map_err(|_| ResponseError::UnknownTopicOrPartition)?;
    let (topic, start, next) = context
        .look(|view| {
            let topic = view.engine.topics.named(name)?;
            let partition = topic.partition(index)?;
            Some((topic.id, partition.log_start, partition.next_offset))
        })
        .ok_or(ResponseError::UnknownTopicOrPartition)?;
    let at = |offset: u64| Found {
        offset: wire_offset(offset),
        timestamp: -1,
        epoch: leader_epoch(node),
    };
    match wanted.timestamp {
        LATEST => Ok(at(next)),
        EARLIEST | EARLIEST_LOCAL => Ok(at(start)),
        LATEST_TIERED => Ok(NOTHING),
        MAX_TIMESTAMP => {
            let row = context.look(|view| view.index.max_timestamp(topic, index, start));
            let Some(row) = row else { return Ok(NOTHING) };
            let newest = newest_record(context, &row, start)?;
            Ok(newest.unwrap_or(NOTHING))
        }
        time if time >= 0 => by_time(context, topic, index, start, time),
        _ => Err(ResponseError::UnsupportedVersion),
    }
}

/// The first record at or after `time`.
fn by_time(
    context: &Context,
    topic: TopicId,
    partition: u32,
    start: u64,
    time: i64,
) -> Result<Found, ResponseError> {
    let mut from = start;
    // A batch may be found by a record that is dropped or below the start; then look further.
    while let Some(row) =
        context.look(|view| view.index.find_timestamp(topic, partition, from, time))
    {
        let found = records(context, &row, from)?
            .into_iter()
            .find(|(_, at)| *at >= time);
        if let Some((offset, timestamp)) = found {
            return Ok(Found {
                offset: wire_offset(offset),
                timestamp,
                epoch: epoch(&row),
            });
        }
        from = row.last_offset + 1;
    }
    Ok(NOTHING)
}

/// The record of the batch with the largest time; the first of equals.
fn newest_record(
    context: &Context,
    row: &BatchRow,
    start: u64,
) -> Result<Option<Found>, ResponseError> {
    let mut best: Option<(u64, i64)> = None;
    for (offset, timestamp) in records(context, row, start)? {
        if best.is_none_or(|(_, newest)| timestamp > newest) {
            best = Some((offset, timestamp));
        }
    }
    Ok(best.map(|(offset, timestamp)| Found {
        offset: wire_offset(offset),
        timestamp,
        epoch: epoch(row),
    }))
}

/// Offsets and times of a batch's visible records at or above `from`.
fn records(context: &Context, row: &BatchRow, from: u64) -> Result<Vec<(u64, i64)>, ResponseError> {
    let dropped = context.look(|view| view.index.dropped(row));
    let batch = context
        .broker
        .decoded(row.at)
        .map_err(|failure| error_code::of_failure(&failure, Surface::Data))?;
    let records = (0u32..).zip(batch.iter()).filter_map(|(index, record)| {
        let delta = u64::try_from(record.offset_delta).ok()?;
        let offset = row.base_offset + delta;
        let visible = offset >= from && dropped.binary_search(&index).is_err();
        visible.then_some((offset, record.timestamp))
    });
    Ok(records.collect())
}

fn epoch(row: &BatchRow) -> i32 {
    i32::try_from(row.epoch).unwrap_or(i32::MAX)
}
