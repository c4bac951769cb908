//! OffsetCommit, key 8, versions 2-9.
//!
//! * A commit sets the group's base in each partition and drops the lanes' exceptions and leases
//!   there; a lower offset stands as well (case GR-7). v2-4 carry a retention time, which means
//!   nothing here.
//! * Without a generation the group must have no members (row 108); members must be of the
//!   present generation, and may not commit between join and sync (row 109).
//! * A negative offset is accepted, as in Kafka, and forgets the position: read back it is -1.
//! * Metadata up to 4096 bytes, else OFFSET_METADATA_TOO_LARGE for that partition alone.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestPartition;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse};
use queen_engine::command::{Command, CommitOffset};
use queen_engine::ids::TopicId;
use queen_engine::outcome::Outcome;

use crate::api::coordinator_term;
use crate::context::Context;
use crate::dispatch::{Call, Handler};
use crate::limits;
use crate::wire::error_code::{self, NONE, Surface};

pub(crate) struct OffsetCommit;

impl Handler for OffsetCommit {
    type Request = OffsetCommitRequest;
    type Response = OffsetCommitResponse;

    async fn answer(
        context: Arc<Context>,
        _call: Call,
        request: OffsetCommitRequest,
    ) -> OffsetCommitResponse {
        let (mut offsets, mut forgotten) = (Vec::new(), Vec::new());
        let admitted = admit(&context, &request);
        let mut topics = Vec::with_capacity(request.topics.len());
        for topic in &request.topics {
            let known = context.look(|view| {
                view.engine
                    .topics
                    .named(&topic.name)
                    .map(|found| (found.id, found.width()))
            });
            let rows = topic.partitions.iter().map(|partition| {
                let code = match (&admitted, check(known, partition)) {
                    (Err(error), _) => error.code(),
                    (Ok(_), Err(error)) => error.code(),
                    (Ok(_), Ok(Change::Commit(offset))) => {
                        offsets.push(offset);
                        NONE
                    }
                    (Ok(_), Ok(Change::Forget(topic, partition))) => {
                        forgotten.push((topic, partition));
                        NONE
                    }
                };
                OffsetCommitResponsePartition::default()
                    .with_partition_index(partition.partition_index)
                    .with_error_code(code)
            });
            let rows = rows.collect();
            topics.push(
                OffsetCommitResponseTopic::default()
                    .with_name(topic.name.clone())
                    .with_partitions(rows),
            );
        }
        let done = match admitted {
            Ok(protocol_type) => {
                change(&context, &request, offsets, forgotten, protocol_type).await
            }
            // Stands in every row already.
            Err(_) => Ok(()),
        };
        if let Err(error) = done {
            let rows = topics.iter_mut().flat_map(|topic| &mut topic.partitions);
            for row in rows.filter(|row| row.error_code == NONE) {
                row.error_code = error.code();
            }
        }
        OffsetCommitResponse::default().with_topics(topics)
    }

    fn failed(response: &OffsetCommitResponse) -> bool {
        let mut rows = response.topics.iter().flat_map(|topic| &topic.partitions);
        rows.any(|row| row.error_code != NONE)
    }
}

/// Whether this client may commit; the protocol type to keep with the group.
fn admit(context: &Context, request: &OffsetCommitRequest) -> Result<String, ResponseError> {
    let term = coordinator_term(context, &request.group_id)?;
    context.groups.check_commit(
        term,
        &request.group_id,
        &request.member_id,
        request.group_instance_id.as_deref(),
        request.generation_id_or_member_epoch,
    )
}

/// What a partition's row asks for.
enum Change {
    Commit(CommitOffset),
    /// A negative offset: no position, which is what clients make of one they read back.
    Forget(TopicId, u32),
}

fn check(
    topic: Option<(TopicId, u32)>,
    partition: &OffsetCommitRequestPartition,
) -> Result<Change, ResponseError> {
    let (topic, width) = topic.ok_or(ResponseError::UnknownTopicOrPartition)?;
    let index = u32::try_from(partition.partition_index)
        .ok()
        .filter(|index| *index < width)
        .ok_or(ResponseError::UnknownTopicOrPartition)?;
    let metadata = partition.committed_metadata.as_deref().unwrap_or_default();
    if metadata.len() > limits::COMMIT_METADATA_BYTES_MAX {
        return Err(ResponseError::OffsetMetadataTooLarge);
    }
    let Ok(offset) = u64::try_from(partition.committed_offset) else {
        return Ok(Change::Forget(topic, index));
    };
    Ok(Change::Commit(CommitOffset {
        topic,
        partition: index,
        offset,
        leader_epoch: partition.committed_leader_epoch,
        metadata: metadata.to_owned(),
    }))
}

async fn change(
    context: &Context,
    request: &OffsetCommitRequest,
    offsets: Vec<CommitOffset>,
    forgotten: Vec<(TopicId, u32)>,
    protocol_type: String,
) -> Result<(), ResponseError> {
    let group = request.group_id.to_string();
    if !offsets.is_empty() {
        let group = group.clone();
        let command = Command::CommitOffsets {
            group,
            offsets,
            protocol_type,
        };
        submit(context, command).await?;
    }
    let is_stored = context.look(|view| view.engine.groups.get(&group).is_some());
    if !forgotten.is_empty() && is_stored {
        let partitions = forgotten;
        submit(context, Command::ForgetOffsets { group, partitions }).await?;
    }
    Ok(())
}

async fn submit(context: &Context, command: Command) -> Result<(), ResponseError> {
    match context.broker.submit(command).await {
        Ok(Outcome::Rejected(reject)) => Err(error_code::of_reject(&reject)),
        Ok(_) => Ok(()),
        Err(failure) => Err(error_code::of_failure(&failure, Surface::Group)),
    }
}
