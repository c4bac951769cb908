//! DeleteRecords, key 21, versions 0-2: raises log starts. Offset -1 is the high watermark; above
//! it OFFSET_OUT_OF_RANGE; below the log start nothing happens. A topic that is only compacted is
//! POLICY_VIOLATION. Answers the new log start.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_records_request::DeleteRecordsPartition;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse, TopicName};
use queen_engine::command::Command;
use queen_engine::outcome::Outcome;

use crate::context::{Context, wire_offset};
use crate::dispatch::{Call, Handler};
use crate::wire::error_code::{self, Surface};

pub(crate) struct DeleteRecords;

impl Handler for DeleteRecords {
    type Request = DeleteRecordsRequest;
    type Response = DeleteRecordsResponse;

    async fn answer(
        context: Arc<Context>,
        _call: Call,
        request: DeleteRecordsRequest,
    ) -> DeleteRecordsResponse {
        let mut topics = Vec::with_capacity(request.topics.len());
        for topic in &request.topics {
            let mut rows = Vec::with_capacity(topic.partitions.len());
            for wanted in &topic.partitions {
                let row = DeleteRecordsPartitionResult::default()
                    .with_partition_index(wanted.partition_index);
                rows.push(match trim(&context, &topic.name, wanted).await {
                    Ok(start) => row.with_low_watermark(wire_offset(start)),
                    Err(error) => row.with_low_watermark(-1).with_error_code(error.code()),
                });
            }
            topics.push(
                DeleteRecordsTopicResult::default()
                    .with_name(topic.name.clone())
                    .with_partitions(rows),
            );
        }
        DeleteRecordsResponse::default().with_topics(topics)
    }
}

async fn trim(
    context: &Context,
    name: &TopicName,
    wanted: &DeleteRecordsPartition,
) -> Result<u64, ResponseError> {
    let index = u32::try_from(wanted.partition_index)
        .map_err(|_| ResponseError::UnknownTopicOrPartition)?;
    let found = context.look(|view| {
        let topic = view.engine.topics.named(name)?;
        let next = topic.partition(index)?.next_offset;
        Some((topic.id, next, topic.kafka.deletes()))
    });
    let (topic, next, deletes) = found.ok_or(ResponseError::UnknownTopicOrPartition)?;
    if !deletes {
        return Err(ResponseError::PolicyViolation);
    }
    let before = match wanted.offset {
        -1 => next,
        offset => u64::try_from(offset).map_err(|_| ResponseError::OffsetOutOfRange)?,
    };
    match context
        .broker
        .submit(Command::Trim {
            topic,
            before: vec![(index, before)],
        })
        .await
    {
        Ok(Outcome::Trimmed(starts)) => starts
            .first()
            .copied()
            .ok_or(ResponseError::UnknownServerError),
        Ok(Outcome::Rejected(reject)) => Err(error_code::of_reject(&reject)),
        Ok(_) => Err(ResponseError::UnknownServerError),
        Err(failure) => Err(error_code::of_failure(&failure, Surface::Data)),
    }
}
