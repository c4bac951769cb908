//! SyncGroup, key 14, versions 0-5.
//!
//! * The leader's assignments reach every member byte for byte; followers wait for them.
//! * v3+ instance ids; v5+ protocol type and name, which must be the group's.

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{SyncGroupRequest, SyncGroupResponse};

use crate::api::coordinator_term;
use crate::context::Context;
use crate::dispatch::{Call, Handler};
use crate::group::member::SyncAnswer;
use crate::group::state::Sync;
use crate::names::text;

pub(crate) struct SyncGroup;

impl Handler for SyncGroup {
    type Request = SyncGroupRequest;
    type Response = SyncGroupResponse;

    async fn answer(
        context: Arc<Context>,
        _call: Call,
        request: SyncGroupRequest,
    ) -> SyncGroupResponse {
        match wait(&context, &request).await {
            Ok(synced) => SyncGroupResponse::default()
                .with_protocol_type(Some(text(&synced.protocol_type)))
                .with_protocol_name(Some(text(&synced.protocol)))
                .with_assignment(synced.assignment),
            Err(error) => SyncGroupResponse::default().with_error_code(error.code()),
        }
    }

    fn failed(response: &SyncGroupResponse) -> bool {
        response.error_code != 0
    }
}

async fn wait(context: &Context, request: &SyncGroupRequest) -> SyncAnswer {
    let term = coordinator_term(context, &request.group_id)?;
    let assignments = request
        .assignments
        .iter()
        .map(|a| {
            (
                a.member_id.to_string(),
                Bytes::copy_from_slice(&a.assignment),
            )
        })
        .collect();
    let sync = Sync {
        member_id: request.member_id.to_string(),
        instance_id: request.group_instance_id.as_ref().map(ToString::to_string),
        generation: request.generation_id,
        protocol_type: request.protocol_type.as_ref().map(ToString::to_string),
        protocol: request.protocol_name.as_ref().map(ToString::to_string),
        assignments,
    };
    let answer = context.groups.sync(term, &request.group_id, &sync);
    tokio::select! {
        answer = answer => answer.unwrap_or(Err(ResponseError::NotCoordinator)),
        () = context.stopped() => Err(ResponseError::CoordinatorNotAvailable),
    }
}
