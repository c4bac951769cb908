//! DescribeProducers, key 61, version 0: the idempotent producers each partition remembers.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::{DescribeProducersRequest, DescribeProducersResponse, ProducerId};
use queen_engine::topic::ProducerWindow;

use crate::context::Context;
use crate::dispatch::{Call, Handler};

pub(crate) struct DescribeProducers;

impl Handler for DescribeProducers {
    type Request = DescribeProducersRequest;
    type Response = DescribeProducersResponse;

    async fn answer(
        context: Arc<Context>,
        _call: Call,
        request: DescribeProducersRequest,
    ) -> DescribeProducersResponse {
        let is_leader = context.node().is_leader;
        let topics = context.look(|view| {
            let topics = request.topics.iter().map(|wanted| {
                let topic = view.engine.topics.named(&wanted.name);
                let rows = wanted.partition_indexes.iter().map(|index| {
                    let row = PartitionResponse::default().with_partition_index(*index);
                    let found = u32::try_from(*index).ok().and_then(|i| topic?.partition(i));
                    match found {
                        Some(partition) if is_leader => row.with_active_producers(
                            partition
                                .producers
                                .iter()
                                .map(|(id, w)| state(*id, w))
                                .collect(),
                        ),
                        Some(_) => row.with_error_code(ResponseError::NotLeaderOrFollower.code()),
                        None => row.with_error_code(ResponseError::UnknownTopicOrPartition.code()),
                    }
                });
                TopicResponse::default()
                    .with_name(wanted.name.clone())
                    .with_partitions(rows.collect())
            });
            topics.collect()
        });
        DescribeProducersResponse::default().with_topics(topics)
    }
}

fn state(id: i64, window: &ProducerWindow) -> ProducerState {
    let last_sequence = window
        .batches
        .back()
        .map_or(-1, |batch| batch.last_sequence);
    ProducerState::default()
        .with_producer_id(ProducerId(id))
        .with_producer_epoch(i32::from(window.epoch))
        .with_last_sequence(last_sequence)
        .with_last_timestamp(window.last_time.millis())
        .with_coordinator_epoch(-1)
        .with_current_txn_start_offset(-1)
}
