//! Heartbeat, key 12, versions 0-4 (v3+ instance ids). The answer tells a member whether to join
//! again: REBALANCE_IN_PROGRESS only while the group prepares a rebalance (kafka.md row 105).

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{HeartbeatRequest, HeartbeatResponse};

use crate::api::coordinator_term;
use crate::context::Context;
use crate::dispatch::{Call, Handler};

pub(crate) struct Heartbeat;

impl Handler for Heartbeat {
    type Request = HeartbeatRequest;
    type Response = HeartbeatResponse;

    async fn answer(
        context: Arc<Context>,
        _call: Call,
        request: HeartbeatRequest,
    ) -> HeartbeatResponse {
        let code = match beat(&context, &request) {
            Ok(()) => 0,
            Err(error) => error.code(),
        };
        HeartbeatResponse::default().with_error_code(code)
    }

    fn failed(response: &HeartbeatResponse) -> bool {
        response.error_code != 0
    }
}

fn beat(context: &Context, request: &HeartbeatRequest) -> Result<(), ResponseError> {
    let term = coordinator_term(context, &request.group_id)?;
    context.groups.heartbeat(
        term,
        &request.group_id,
        &request.member_id,
        request.group_instance_id.as_deref(),
        request.generation_id,
    )
}
