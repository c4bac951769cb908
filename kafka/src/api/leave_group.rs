//! LeaveGroup, key 13, versions 0-5.
//!
//! * v0-2 one member; v3+ several, by id or instance, each with its own error and none at the top
//!   (KIP-345). A member that never joined may leave, and the rebalance starts at once.

use std::sync::Arc;

use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{LeaveGroupRequest, LeaveGroupResponse};

use crate::api::coordinator_term;
use crate::context::Context;
use crate::dispatch::{Call, Handler};

pub(crate) struct LeaveGroup;

impl Handler for LeaveGroup {
    type Request = LeaveGroupRequest;
    type Response = LeaveGroupResponse;

    async fn answer(
        context: Arc<Context>,
        call: Call,
        request: LeaveGroupRequest,
    ) -> LeaveGroupResponse {
        let group = &request.group_id;
        let term = match coordinator_term(&context, group) {
            Ok(term) => term,
            Err(error) => return LeaveGroupResponse::default().with_error_code(error.code()),
        };
        let leave = |member_id: &str, instance: Option<&str>| {
            let left = context.groups.leave(term, group, member_id, instance);
            left.map_or_else(|error| error.code(), |()| 0)
        };
        if call.version < 3 {
            let code = leave(&request.member_id, None);
            return LeaveGroupResponse::default().with_error_code(code);
        }
        let members = request.members.iter().map(|member| {
            let code = leave(&member.member_id, member.group_instance_id.as_deref());
            MemberResponse::default()
                .with_member_id(member.member_id.clone())
                .with_group_instance_id(member.group_instance_id.clone())
                .with_error_code(code)
        });
        LeaveGroupResponse::default().with_members(members.collect())
    }

    fn failed(response: &LeaveGroupResponse) -> bool {
        response.error_code != 0
    }
}
