//! DescribeTopicPartitions, key 75, version 0 (KIP-966): Metadata by pages. Topics come in the
//! order of their names; the cursor names the first partition of the next page.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use kafka_protocol::messages::{
    BrokerId, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
};
use queen_engine::port::NodeView;
use queen_engine::topic::Topic;
use uuid::Uuid;

use crate::api::operations;
use crate::context::{Context, broker_ids, leader_epoch, told_leader};
use crate::dispatch::{Call, Handler};
use crate::limits;
use crate::names::{is_legal_topic, topic_name};

pub(crate) struct DescribeTopicPartitions;

impl Handler for DescribeTopicPartitions {
    type Request = DescribeTopicPartitionsRequest;
    type Response = DescribeTopicPartitionsResponse;

    async fn answer(
        context: Arc<Context>,
        _call: Call,
        request: DescribeTopicPartitionsRequest,
    ) -> DescribeTopicPartitionsResponse {
        let node = context.node();
        let limit = usize::try_from(request.response_partition_limit).unwrap_or(0);
        let mut left = limit.clamp(1, limits::DESCRIBE_PARTITIONS_MAX);
        let (from_name, from_partition) = match &request.cursor {
            Some(cursor) => (cursor.topic_name.to_string(), cursor.partition_index.max(0)),
            None => (String::new(), 0),
        };
        context.look(|view| {
            let mut names: Vec<String> = if request.topics.is_empty() {
                let listed = view
                    .engine
                    .topics
                    .iter()
                    .filter(|t| is_legal_topic(&t.name));
                listed.map(|topic| topic.name.clone()).collect()
            } else {
                request
                    .topics
                    .iter()
                    .map(|topic| topic.name.to_string())
                    .collect()
            };
            names.sort_unstable();
            names.dedup();
            names.retain(|name| *name >= from_name);
            let mut response = DescribeTopicPartitionsResponse::default();
            for name in names {
                let first = if name == from_name { from_partition } else { 0 };
                if left == 0 {
                    response.next_cursor = Some(cursor(&name, first));
                    break;
                }
                let Some(topic) = view.engine.topics.named(&name) else {
                    let error = if is_legal_topic(&name) {
                        ResponseError::UnknownTopicOrPartition
                    } else {
                        ResponseError::InvalidTopicException
                    };
                    response.topics.push(
                        DescribeTopicPartitionsResponseTopic::default()
                            .with_error_code(error.code())
                            .with_name(Some(topic_name(&name)))
                            .with_topic_authorized_operations(operations::TOPIC),
                    );
                    continue;
                };
                let width = i32::try_from(topic.width()).unwrap_or(i32::MAX);
                let room = i32::try_from(left).unwrap_or(i32::MAX);
                let end = width.min(first.saturating_add(room));
                response.topics.push(describe(topic, &node, first..end));
                left = left.saturating_sub(usize::try_from(end - first).unwrap_or(0));
                if end < width {
                    response.next_cursor = Some(cursor(&name, end));
                    break;
                }
            }
            response
        })
    }
}

fn cursor(name: &str, partition: i32) -> Cursor {
    Cursor::default()
        .with_topic_name(topic_name(name))
        .with_partition_index(partition)
}

fn describe(
    topic: &Topic,
    node: &NodeView,
    partitions: std::ops::Range<i32>,
) -> DescribeTopicPartitionsResponseTopic {
    let leader = told_leader(node);
    let (replicas, in_sync) = (broker_ids(&node.replicas), broker_ids(&node.in_sync));
    let error = if leader.is_some() {
        0
    } else {
        ResponseError::LeaderNotAvailable.code()
    };
    let row = |index: i32| {
        DescribeTopicPartitionsResponsePartition::default()
            .with_error_code(error)
            .with_partition_index(index)
            .with_leader_id(BrokerId(leader.unwrap_or(-1)))
            .with_leader_epoch(leader_epoch(node))
            .with_replica_nodes(replicas.clone())
            .with_isr_nodes(in_sync.clone())
            .with_eligible_leader_replicas(Some(Vec::new()))
            .with_last_known_elr(Some(Vec::new()))
    };
    DescribeTopicPartitionsResponseTopic::default()
        .with_name(Some(topic_name(&topic.name)))
        .with_topic_id(Uuid::from_u128(topic.uuid))
        .with_topic_authorized_operations(operations::TOPIC)
        .with_partitions(partitions.map(row).collect())
}
