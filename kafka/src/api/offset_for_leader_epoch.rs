//! OffsetForLeaderEpoch, key 23, versions 2-4: where the records of a leader epoch end.
//!
//! * Answers the largest epoch not above the one asked for, and the offset behind its last record;
//!   the present epoch ends at the end of the log. Only committed records are known here, so
//!   nothing a client was shown is ever truncated.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use queen_engine::port::NodeView;

use crate::api::fetch::check_epoch;
use crate::context::{Context, leader_epoch, wire_offset};
use crate::dispatch::{Call, Handler};

pub(crate) struct OffsetForLeaderEpoch;

impl Handler for OffsetForLeaderEpoch {
    type Request = OffsetForLeaderEpochRequest;
    type Response = OffsetForLeaderEpochResponse;

    async fn answer(
        context: Arc<Context>,
        _call: Call,
        request: OffsetForLeaderEpochRequest,
    ) -> OffsetForLeaderEpochResponse {
        let node = context.node();
        let mut topics = Vec::with_capacity(request.topics.len());
        for topic in request.topics {
            let rows = topic.partitions.iter().map(|wanted| {
                let row = EpochEndOffset::default().with_partition(wanted.partition);
                match find(&context, &node, &topic.topic, wanted) {
                    Ok((epoch, end)) => row.with_leader_epoch(epoch).with_end_offset(end),
                    Err(error) => row.with_error_code(error.code()),
                }
            });
            let rows = rows.collect();
            topics.push(
                OffsetForLeaderTopicResult::default()
                    .with_topic(topic.topic)
                    .with_partitions(rows),
            );
        }
        OffsetForLeaderEpochResponse::default().with_topics(topics)
    }
}

fn find(
    context: &Context,
    node: &NodeView,
    name: &str,
    wanted: &OffsetForLeaderPartition,
) -> Result<(i32, i64), ResponseError> {
    if !node.is_leader {
        return Err(ResponseError::NotLeaderOrFollower);
    }
    if !node.ready {
        // A new leader's end may still lie below what clients were shown.
        return Err(ResponseError::OffsetNotAvailable);
    }
    check_epoch(node, wanted.current_leader_epoch)?;
    let unknown = ResponseError::UnknownTopicOrPartition;
    let index = u32::try_from(wanted.partition).map_err(|_| unknown)?;
    let current = leader_epoch(node);
    context.look(|view| {
        let topic = view.engine.topics.named(name).ok_or(unknown)?;
        let partition = topic.partition(index).ok_or(unknown)?;
        if wanted.leader_epoch == current {
            return Ok((current, wire_offset(partition.next_offset)));
        }
        if wanted.leader_epoch > current || wanted.leader_epoch < 0 {
            return Ok((-1, -1));
        }
        // Epochs rise along the log: the first batch of a larger one ends the one asked for.
        let epoch_of = |offset: u64| {
            let row = view.index.find(topic.id, index, offset)?;
            Some((
                i32::try_from(row.epoch).unwrap_or(i32::MAX),
                row.base_offset,
                row.last_offset,
            ))
        };
        let (mut low, mut high) = (partition.log_start, partition.next_offset);
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            match epoch_of(middle) {
                Some((epoch, _, last)) if epoch <= wanted.leader_epoch => {
                    found = Some(epoch);
                    low = last + 1;
                }
                Some((_, base, _)) => high = base.min(middle),
                None => high = middle,
            }
        }
        Ok(match found {
            Some(epoch) => (epoch, wire_offset(low)),
            // Nothing of that age is kept: what is kept begins here.
            None => (wanted.leader_epoch, wire_offset(partition.log_start)),
        })
    })
}
