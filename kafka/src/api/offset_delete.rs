//! OffsetDelete, key 47, version 0: forgets committed offsets. A topic that live members subscribe
//! to is GROUP_SUBSCRIBED_TO_TOPIC (KIP-496); a live group whose protocol is not the consumers'
//! cannot be judged and is NON_EMPTY_GROUP.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::{
    ConsumerProtocolSubscription, OffsetDeleteRequest, OffsetDeleteResponse,
};
use queen_engine::command::Command;
use queen_engine::outcome::Outcome;

use crate::api::coordinator_term;
use crate::context::Context;
use crate::dispatch::{Call, Handler};
use crate::group::state::Phase;
use crate::wire::body;
use crate::wire::error_code::{self, NONE, Surface};

pub(crate) struct OffsetDelete;

impl Handler for OffsetDelete {
    type Request = OffsetDeleteRequest;
    type Response = OffsetDeleteResponse;

    async fn answer(
        context: Arc<Context>,
        _call: Call,
        request: OffsetDeleteRequest,
    ) -> OffsetDeleteResponse {
        match delete(&context, &request).await {
            Ok(topics) => OffsetDeleteResponse::default().with_topics(topics),
            Err(error) => OffsetDeleteResponse::default().with_error_code(error.code()),
        }
    }

    fn failed(response: &OffsetDeleteResponse) -> bool {
        response.error_code != NONE
    }
}

async fn delete(
    context: &Context,
    request: &OffsetDeleteRequest,
) -> Result<Vec<OffsetDeleteResponseTopic>, ResponseError> {
    let term = coordinator_term(context, &request.group_id)?;
    let subscribed = match context.groups.view(term, &request.group_id) {
        Some(view) if view.phase != Phase::Empty => {
            if view.protocol_type != "consumer" {
                return Err(ResponseError::NonEmptyGroup);
            }
            view.members
                .iter()
                .flat_map(|m| subscription(&m.metadata))
                .collect()
        }
        _ => BTreeSet::new(),
    };
    let is_stored = context.look(|view| view.engine.groups.get(&request.group_id).is_some());
    if !is_stored && subscribed.is_empty() {
        return Err(ResponseError::GroupIdNotFound);
    }
    let mut partitions = Vec::new();
    let mut topics = Vec::new();
    for topic in &request.topics {
        let known = context.look(|view| {
            view.engine
                .topics
                .named(&topic.name)
                .map(|found| (found.id, found.width()))
        });
        let rows = topic.partitions.iter().map(|partition| {
            let index = u32::try_from(partition.partition_index).unwrap_or(u32::MAX);
            let code = match known {
                _ if subscribed.contains(topic.name.as_str()) => {
                    ResponseError::GroupSubscribedToTopic.code()
                }
                Some((id, width)) if index < width => {
                    partitions.push((id, index));
                    NONE
                }
                _ => ResponseError::UnknownTopicOrPartition.code(),
            };
            OffsetDeleteResponsePartition::default()
                .with_partition_index(partition.partition_index)
                .with_error_code(code)
        });
        let rows = rows.collect();
        topics.push(
            OffsetDeleteResponseTopic::default()
                .with_name(topic.name.clone())
                .with_partitions(rows),
        );
    }
    if !partitions.is_empty() {
        let group = request.group_id.to_string();
        match context
            .broker
            .submit(Command::ForgetOffsets { group, partitions })
            .await
        {
            Ok(Outcome::Rejected(reject)) => return Err(error_code::of_reject(&reject)),
            Ok(_) => {}
            Err(failure) => return Err(error_code::of_failure(&failure, Surface::Group)),
        }
    }
    Ok(topics)
}

/// Topics of a consumer's subscription; none when it cannot be read.
fn subscription(metadata: &Bytes) -> Vec<String> {
    let mut metadata = metadata.clone();
    let Ok(version) = metadata.try_get_i16() else {
        return Vec::new();
    };
    let version = version.clamp(0, 3);
    match body::decode::<ConsumerProtocolSubscription>(metadata, version) {
        Ok(subscription) => subscription
            .topics
            .iter()
            .map(|topic| topic.to_string())
            .collect(),
        Err(_) => Vec::new(),
    }
}
