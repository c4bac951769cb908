//! DescribeCluster, key 60, versions 0-2: the nodes and the controller, which is the Raft leader.
//! Controllers as endpoints (v1+) are no listeners here: UNSUPPORTED_ENDPOINT_TYPE.

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::{BrokerId, DescribeClusterRequest, DescribeClusterResponse};

use crate::api::operations;
use crate::context::{Context, told_leader};
use crate::dispatch::{Call, Handler};
use crate::names::text;

pub(crate) struct DescribeCluster;

const BROKERS: i8 = 1;

impl Handler for DescribeCluster {
    type Request = DescribeClusterRequest;
    type Response = DescribeClusterResponse;

    async fn answer(
        context: Arc<Context>,
        call: Call,
        request: DescribeClusterRequest,
    ) -> DescribeClusterResponse {
        if call.version >= 1 && request.endpoint_type != BROKERS {
            let error = ResponseError::UnsupportedEndpointType;
            return DescribeClusterResponse::default()
                .with_error_code(error.code())
                .with_error_message(Some(text(&error.to_string())));
        }
        let node = context.node();
        let broker = |broker: &queen_engine::port::BrokerAddress| {
            DescribeClusterBroker::default()
                .with_broker_id(BrokerId(broker.id))
                .with_host(text(&broker.kafka_host))
                .with_port(i32::from(broker.kafka_port))
                .with_rack(broker.rack.as_deref().map(text))
        };
        let asked = request.include_cluster_authorized_operations;
        DescribeClusterResponse::default()
            .with_cluster_authorized_operations(operations::field(asked, operations::CLUSTER))
            .with_cluster_id(text(&node.cluster_id))
            .with_controller_id(BrokerId(told_leader(&node).unwrap_or(-1)))
            .with_brokers(node.brokers.iter().map(broker).collect())
    }

    fn failed(response: &DescribeClusterResponse) -> bool {
        response.error_code != 0
    }
}
