//! DescribeGroups, key 15, versions 0-6.
//!
//! * Groups with members come from the coordinator's memory; those the engine alone knows (no
//!   members, or a Queen group) are Empty. Unknown: Dead up to v5, GROUP_ID_NOT_FOUND in v6
//!   (KIP-1043).

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse, GroupId};

use crate::api::{coordinator_term, operations};
use crate::context::Context;
use crate::dispatch::{Call, Handler};
use crate::group::MemberView;
use crate::group::state::Phase;
use crate::names::text;
use crate::wire::error_code::NONE;

pub(crate) struct DescribeGroups;

impl Handler for DescribeGroups {
    type Request = DescribeGroupsRequest;
    type Response = DescribeGroupsResponse;

    async fn answer(
        context: Arc<Context>,
        call: Call,
        request: DescribeGroupsRequest,
    ) -> DescribeGroupsResponse {
        let asked = request.include_authorized_operations;
        let rows = request.groups.iter().map(|group| {
            let mut row = describe(&context, call.version, group);
            let is_told = asked && row.error_code == NONE;
            row.authorized_operations = operations::field(is_told, operations::GROUP);
            row
        });
        DescribeGroupsResponse::default().with_groups(rows.collect())
    }
}

fn describe(context: &Context, version: i16, group: &GroupId) -> DescribedGroup {
    let row = DescribedGroup::default().with_group_id(group.clone());
    let term = match coordinator_term(context, group) {
        Ok(term) => term,
        Err(error) => return row.with_error_code(error.code()),
    };
    let stored = context.look(|view| {
        view.engine
            .groups
            .get(group)
            .map(|stored| stored.protocol_type.clone())
    });
    match context.groups.view(term, group) {
        Some(view) if view.phase != Phase::Empty || stored.is_none() => row
            .with_group_state(text(view.phase.name()))
            .with_protocol_type(text(&view.protocol_type))
            .with_protocol_data(text(&view.protocol))
            .with_members(view.members.into_iter().map(member).collect()),
        _ => match stored {
            Some(protocol_type) => row
                .with_group_state(text(Phase::Empty.name()))
                .with_protocol_type(text(&protocol_type)),
            None if version >= 6 => row
                .with_error_code(ResponseError::GroupIdNotFound.code())
                .with_error_message(Some(text(&format!("group {} not found", group.as_str()))))
                .with_group_state(text("Dead")),
            None => row.with_group_state(text("Dead")),
        },
    }
}

fn member(member: MemberView) -> DescribedGroupMember {
    DescribedGroupMember::default()
        .with_member_id(text(&member.id))
        .with_group_instance_id(member.instance_id.as_deref().map(text))
        .with_client_id(text(&member.client_id))
        .with_client_host(text(&member.client_host))
        .with_member_metadata(member.metadata)
        .with_member_assignment(member.assignment)
}
