//! DeleteGroups, key 42, versions 0-2: NON_EMPTY_GROUP while it has members, GROUP_ID_NOT_FOUND
//! when nobody knows it. Deletes a Queen group of that name alike: there is one namespace.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse, GroupId};
use queen_engine::command::Command;
use queen_engine::outcome::Outcome;

use crate::api::coordinator_term;
use crate::context::Context;
use crate::dispatch::{Call, Handler};
use crate::wire::error_code::{self, Surface};

pub(crate) struct DeleteGroups;

impl Handler for DeleteGroups {
    type Request = DeleteGroupsRequest;
    type Response = DeleteGroupsResponse;

    async fn answer(
        context: Arc<Context>,
        _call: Call,
        request: DeleteGroupsRequest,
    ) -> DeleteGroupsResponse {
        let mut results = Vec::with_capacity(request.groups_names.len());
        for group in request.groups_names {
            let code = match delete(&context, &group).await {
                Ok(()) => 0,
                Err(error) => error.code(),
            };
            results.push(
                DeletableGroupResult::default()
                    .with_group_id(group)
                    .with_error_code(code),
            );
        }
        DeleteGroupsResponse::default().with_results(results)
    }
}

async fn delete(context: &Context, group: &GroupId) -> Result<(), ResponseError> {
    let term = coordinator_term(context, group)?;
    let was_known = context.groups.delete(term, group)?
        || context.look(|view| view.engine.groups.get(group).is_some());
    if !was_known {
        return Err(ResponseError::GroupIdNotFound);
    }
    let command = Command::DeleteGroup {
        group: group.to_string(),
        topic: None,
        keep_start: false,
    };
    match context.broker.submit(command).await {
        Ok(Outcome::Rejected(reject)) => Err(error_code::of_reject(&reject)),
        Ok(_) => Ok(()),
        Err(failure) => Err(error_code::of_failure(&failure, Surface::Group)),
    }
}
