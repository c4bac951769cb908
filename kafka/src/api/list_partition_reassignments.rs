//! ListPartitionReassignments, key 46, version 0: every topic is on every node, so nothing is ever
//! being moved. Served because the shell tools ask.

use std::sync::Arc;

use kafka_protocol::messages::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use crate::context::Context;
use crate::dispatch::{Call, Handler};

pub(crate) struct ListPartitionReassignments;

impl Handler for ListPartitionReassignments {
    type Request = ListPartitionReassignmentsRequest;
    type Response = ListPartitionReassignmentsResponse;

    async fn answer(
        _context: Arc<Context>,
        _call: Call,
        _request: ListPartitionReassignmentsRequest,
    ) -> ListPartitionReassignmentsResponse {
        ListPartitionReassignmentsResponse::default()
    }
}
