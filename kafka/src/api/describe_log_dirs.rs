//! DescribeLogDirs, key 35, versions 1-4: one directory, and per partition the bytes appended to
//! it. There is one log for all partitions, so the size is what was written, not what is on disk.
//! Total and usable bytes (v4) are unknown to the listener: -1.

use std::sync::Arc;

use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use queen_engine::topic::Topic;

use crate::context::{Context, wire_offset};
use crate::dispatch::{Call, Handler};
use crate::names::{is_legal_topic, text, topic_name};

pub(crate) struct DescribeLogDirs;

impl Handler for DescribeLogDirs {
    type Request = DescribeLogDirsRequest;
    type Response = DescribeLogDirsResponse;

    async fn answer(
        context: Arc<Context>,
        _call: Call,
        request: DescribeLogDirsRequest,
    ) -> DescribeLogDirsResponse {
        let topics = context.look(|view| match &request.topics {
            None => {
                let listed = view
                    .engine
                    .topics
                    .iter()
                    .filter(|t| is_legal_topic(&t.name));
                listed.map(|topic| describe(topic, None)).collect()
            }
            Some(wanted) => wanted
                .iter()
                .filter_map(|wanted| {
                    let topic = view.engine.topics.named(&wanted.topic)?;
                    Some(describe(topic, Some(&wanted.partitions)))
                })
                .collect(),
        });
        let result = DescribeLogDirsResult::default()
            .with_log_dir(text("log"))
            .with_topics(topics)
            .with_total_bytes(-1)
            .with_usable_bytes(-1);
        DescribeLogDirsResponse::default().with_results(vec![result])
    }
}

fn describe(topic: &Topic, only: Option<&[i32]>) -> DescribeLogDirsTopic {
    let all = (0i32..).zip(&topic.partitions);
    let chosen = all.filter(|(index, _)| only.is_none_or(|only| only.contains(index)));
    let rows = chosen.map(|(index, partition)| {
        DescribeLogDirsPartition::default()
            .with_partition_index(index)
            .with_partition_size(wire_offset(partition.bytes_appended))
    });
    DescribeLogDirsTopic::default()
        .with_name(topic_name(&topic.name))
        .with_partitions(rows.collect())
}
