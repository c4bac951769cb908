//! JoinGroup, key 11, versions 0-9.
//!
//! * v0 has no rebalance time-out: the session time-out serves (case GR-4).
//! * v4+ newcomers get MEMBER_ID_REQUIRED and come back with their id (KIP-394); v5+ static
//!   members (KIP-345); v9+ the leader of an unchanged static group may skip assigning (KIP-814).
//! * Protocol type and metadata are opaque. The answer comes when the rebalance completes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::{JoinGroupRequest, JoinGroupResponse};

use crate::api::coordinator_term;
use crate::context::Context;
use crate::dispatch::{Call, Handler};
use crate::group::member::{Join, JoinRefused, Joined};
use crate::names::text;

pub(crate) struct JoinGroup;

impl Handler for JoinGroup {
    type Request = JoinGroupRequest;
    type Response = JoinGroupResponse;

    async fn answer(
        context: Arc<Context>,
        call: Call,
        request: JoinGroupRequest,
    ) -> JoinGroupResponse {
        let version = call.version;
        let refused = |error, member_id: &str| JoinRefused {
            error,
            member_id: member_id.to_owned(),
        };
        let join = match join_of(&context, &call, &request) {
            Ok(join) => join,
            Err(error) => return refusal(version, &refused(error, &request.member_id)),
        };
        let term = match coordinator_term(&context, &request.group_id) {
            Ok(term) => term,
            Err(error) => return refusal(version, &refused(error, &request.member_id)),
        };
        let answer = context.groups.join(term, &request.group_id, &join);
        let answer = tokio::select! {
            answer = answer => answer,
            () = context.stopped() => {
                let error = ResponseError::CoordinatorNotAvailable;
                return refusal(version, &refused(error, &request.member_id));
            }
        };
        match answer {
            Ok(Ok(joined)) => success(joined),
            Ok(Err(error)) => refusal(version, &error),
            // The group's memory is gone: another node coordinates it.
            Err(_) => refusal(
                version,
                &refused(ResponseError::NotCoordinator, &request.member_id),
            ),
        }
    }

    fn failed(response: &JoinGroupResponse) -> bool {
        response.error_code != 0
    }
}

fn join_of(
    context: &Context,
    call: &Call,
    request: &JoinGroupRequest,
) -> Result<Join, ResponseError> {
    let session = u64::try_from(request.session_timeout_ms)
        .map(Duration::from_millis)
        .ok()
        .filter(|session| {
            (context.config.group_session_min..=context.config.group_session_max).contains(session)
        })
        .ok_or(ResponseError::InvalidSessionTimeout)?;
    let rebalance = match u64::try_from(request.rebalance_timeout_ms) {
        Ok(ms) if call.version >= 1 => Duration::from_millis(ms),
        _ => session,
    };
    // Copies: members outlive the frame's buffer.
    let protocols = request
        .protocols
        .iter()
        .map(|p| (p.name.to_string(), Bytes::copy_from_slice(&p.metadata)))
        .collect();
    Ok(Join {
        member_id: request.member_id.to_string(),
        instance_id: request.group_instance_id.as_ref().map(ToString::to_string),
        client_id: call
            .client_id
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        client_host: call.peer.to_string(),
        session_timeout: session,
        rebalance_timeout: rebalance,
        protocol_type: request.protocol_type.to_string(),
        protocols,
        id_required: call.version >= 4,
        can_skip: call.version >= 9,
    })
}

fn success(joined: Joined) -> JoinGroupResponse {
    let member = |m: crate::group::member::JoinedMember| {
        JoinGroupResponseMember::default()
            .with_member_id(text(&m.id))
            .with_group_instance_id(m.instance_id.as_deref().map(text))
            .with_metadata(m.metadata)
    };
    JoinGroupResponse::default()
        .with_generation_id(joined.generation)
        .with_protocol_type(Some(text(&joined.protocol_type)))
        .with_protocol_name(Some(text(&joined.protocol)))
        .with_leader(text(&joined.leader))
        .with_skip_assignment(joined.skip_assignment)
        .with_member_id(text(&joined.member_id))
        .with_members(joined.members.into_iter().map(member).collect())
}

fn refusal(version: i16, refused: &JoinRefused) -> JoinGroupResponse {
    JoinGroupResponse::default()
        .with_error_code(refused.error.code())
        .with_generation_id(-1)
        // Null is a name only from v7 on.
        .with_protocol_name(if version >= 7 { None } else { Some(text("")) })
        .with_member_id(text(&refused.member_id))
}
