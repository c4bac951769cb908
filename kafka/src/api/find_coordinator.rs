//! FindCoordinator, key 10, versions 0-6.
//!
//! * The Raft leader coordinates every group. Without one: COORDINATOR_NOT_AVAILABLE.
//! * v1+ key types; transactions (1) are answered alike, so that clients meet the proper refusal
//!   at InitProducerId; v4+ several keys, each with its own error; v6 share groups are unknown.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{BrokerId, FindCoordinatorRequest, FindCoordinatorResponse};
use kafka_protocol::protocol::StrBytes;
use queen_engine::port::NodeView;

use crate::context::Context;
use crate::dispatch::{Call, Handler};
use crate::names::text;

pub(crate) struct FindCoordinator;

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

impl Handler for FindCoordinator {
    type Request = FindCoordinatorRequest;
    type Response = FindCoordinatorResponse;

    async fn answer(
        context: Arc<Context>,
        call: Call,
        request: FindCoordinatorRequest,
    ) -> FindCoordinatorResponse {
        let node = context.node();
        if call.version >= 4 {
            let keys = request.coordinator_keys.iter();
            let found = keys.map(|key| find(&node, request.key_type, key)).collect();
            return FindCoordinatorResponse::default().with_coordinators(found);
        }
        let found = find(&node, request.key_type, &request.key);
        FindCoordinatorResponse::default()
            .with_error_code(found.error_code)
            .with_error_message(found.error_message)
            .with_node_id(found.node_id)
            .with_host(found.host)
            .with_port(found.port)
    }

    fn failed(response: &FindCoordinatorResponse) -> bool {
        response.error_code != 0
    }
}

fn find(node: &NodeView, key_type: i8, key: &StrBytes) -> Coordinator {
    let row = Coordinator::default().with_key(key.clone());
    let fail = |row: Coordinator, error: ResponseError| {
        row.with_error_code(error.code())
            .with_error_message(Some(text(&error.to_string())))
            .with_node_id(BrokerId(-1))
            .with_port(-1)
    };
    if !matches!(key_type, GROUP | TRANSACTION) {
        return fail(row, ResponseError::InvalidRequest);
    }
    if key.is_empty() && key_type == GROUP {
        return fail(row, ResponseError::InvalidGroupId);
    }
    let leader = node
        .brokers
        .iter()
        .find(|broker| Some(broker.id) == node.leader);
    match leader {
        Some(broker) => row
            .with_node_id(BrokerId(broker.id))
            .with_host(text(&broker.kafka_host))
            .with_port(i32::from(broker.kafka_port)),
        None => fail(row, ResponseError::CoordinatorNotAvailable),
    }
}
