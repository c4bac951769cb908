//! Which keys and versions are served, and by what: the one table that answers ApiVersions, checks
//! requests and names the metrics, so that none of them can drift.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};
use tracing::error;

use crate::api;
use crate::context::Context;
use crate::wire::body::{self, MalformedBody};
use crate::wire::{self, Frame, header};

/// What becomes of one request.
pub(crate) enum Reply {
    /// An answer; `failed` only feeds a metric.
    Answer { frame: Frame, failed: bool },
    /// No answer is due (acks=0).
    Silent,
    /// The connection must end, for the given reason.
    Close(&'static str),
}

/// A request under way.
pub(crate) type Pending = BoxFuture<'static, Reply>;

/// The head of one request.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) api: &'static Api,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
    pub(crate) client_id: Option<StrBytes>,
    /// Address of the client, for group descriptions.
    pub(crate) peer: Arc<str>,
}

type Start = fn(Arc<Context>, Call, Bytes) -> Result<Pending, MalformedBody>;

/// One served API.
pub(crate) struct Api {
    pub(crate) key: i16,
    pub(crate) name: &'static str,
    /// Lowest version listed; below `min` only for Produce, see there.
    pub(crate) listed_min: i16,
    pub(crate) min: i16,
    pub(crate) max: i16,
    header_version: fn(i16) -> i16,
    start: Start,
    decodes: fn(Bytes, i16) -> bool,
}

impl Api {
    /// Decodes the body and begins the work. What must happen in arrival order happens in here,
    /// before the future is polled.
    pub(crate) fn start(
        &self,
        context: Arc<Context>,
        call: Call,
        body: Bytes,
    ) -> Result<Pending, MalformedBody> {
        (self.start)(context, call, body)
    }

    /// Whether a body is well-formed.
    pub(crate) fn decodes(&self, body: Bytes, version: i16) -> bool {
        (self.decodes)(body, version)
    }
}

/// A request kind whose answer the codec crate encodes.
pub(crate) trait Handler {
    type Request: Decodable + HeaderVersion + Send + 'static;
    type Response: Encodable + HeaderVersion + Send + 'static;

    /// Carries out the request.
    fn answer(
        context: Arc<Context>,
        call: Call,
        request: Self::Request,
    ) -> impl Future<Output = Self::Response> + Send + 'static;

    /// Whether the answer is an error as a whole, for the metric.
    fn failed(_response: &Self::Response) -> bool {
        false
    }
}

/// Encodes an answer into a reply.
pub(crate) fn reply<R: Encodable + HeaderVersion>(
    api: &Api,
    version: i16,
    correlation_id: i32,
    response: &R,
    failed: bool,
) -> Reply {
    match wire::encode(correlation_id, version, response) {
        Ok(bytes) => Reply::Answer {
            frame: vec![bytes],
            failed,
        },
        Err(problem) => {
            error!(api = api.name, version, %problem, "answer not sent");
            Reply::Close("answer cannot be encoded")
        }
    }
}

fn start<H: Handler + 'static>(
    context: Arc<Context>,
    call: Call,
    body: Bytes,
) -> Result<Pending, MalformedBody> {
    let request = body::decode::<H::Request>(body, call.version)?;
    let (api, version, correlation_id) = (call.api, call.version, call.correlation_id);
    Ok(Box::pin(async move {
        let response = H::answer(context, call, request).await;
        let failed = H::failed(&response);
        reply(api, version, correlation_id, &response, failed)
    }))
}

fn decodes<R: Decodable>(body: Bytes, version: i16) -> bool {
    body::decode::<R>(body, version).is_ok()
}

const fn served<H: Handler + 'static>(key: i16, name: &'static str, min: i16, max: i16) -> Api {
    Api {
        key,
        name,
        listed_min: min,
        min,
        max,
        header_version: <H::Request as HeaderVersion>::header_version,
        start: start::<H>,
        decodes: decodes::<H::Request>,
    }
}

/// All served APIs by key.
pub(crate) static APIS: &[Api] = &[
    Api {
        key: 0,
        name: "Produce",
        // librdkafka up to 2.11.0 turns compression off unless 0 is listed (KAFKA-18659).
        listed_min: 0,
        min: 3,
        max: 13,
        header_version: api::produce::header_version,
        start: api::produce::start,
        decodes: decodes::<kafka_protocol::messages::ProduceRequest>,
    },
    Api {
        key: 1,
        name: "Fetch",
        listed_min: 4,
        min: 4,
        max: 18,
        header_version: api::fetch::header_version,
        start: api::fetch::start,
        decodes: decodes::<kafka_protocol::messages::FetchRequest>,
    },
    served::<api::list_offsets::ListOffsets>(2, "ListOffsets", 1, 10),
    served::<api::metadata::Metadata>(3, "Metadata", 0, 13),
    served::<api::offset_commit::OffsetCommit>(8, "OffsetCommit", 2, 9),
    served::<api::offset_fetch::OffsetFetch>(9, "OffsetFetch", 1, 9),
    served::<api::find_coordinator::FindCoordinator>(10, "FindCoordinator", 0, 6),
    served::<api::join_group::JoinGroup>(11, "JoinGroup", 0, 9),
    served::<api::heartbeat::Heartbeat>(12, "Heartbeat", 0, 4),
    served::<api::leave_group::LeaveGroup>(13, "LeaveGroup", 0, 5),
    served::<api::sync_group::SyncGroup>(14, "SyncGroup", 0, 5),
    served::<api::describe_groups::DescribeGroups>(15, "DescribeGroups", 0, 6),
    served::<api::list_groups::ListGroups>(16, "ListGroups", 0, 5),
    served::<api::api_versions::ApiVersions>(18, "ApiVersions", 0, 4),
    served::<api::create_topics::CreateTopics>(19, "CreateTopics", 2, 7),
    served::<api::delete_topics::DeleteTopics>(20, "DeleteTopics", 1, 6),
    served::<api::delete_records::DeleteRecords>(21, "DeleteRecords", 0, 2),
    served::<api::init_producer_id::InitProducerId>(22, "InitProducerId", 0, 5),
    served::<api::offset_for_leader_epoch::OffsetForLeaderEpoch>(23, "OffsetForLeaderEpoch", 2, 4),
    served::<api::describe_configs::DescribeConfigs>(32, "DescribeConfigs", 1, 4),
    served::<api::alter_configs::AlterConfigs>(33, "AlterConfigs", 0, 2),
    served::<api::describe_log_dirs::DescribeLogDirs>(35, "DescribeLogDirs", 1, 4),
    served::<api::create_partitions::CreatePartitions>(37, "CreatePartitions", 0, 3),
    served::<api::delete_groups::DeleteGroups>(42, "DeleteGroups", 0, 2),
    served::<api::incremental_alter_configs::IncrementalAlterConfigs>(
        44,
        "IncrementalAlterConfigs",
        0,
        1,
    ),
    served::<api::list_partition_reassignments::ListPartitionReassignments>(
        46,
        "ListPartitionReassignments",
        0,
        0,
    ),
    served::<api::offset_delete::OffsetDelete>(47, "OffsetDelete", 0, 0),
    served::<api::describe_cluster::DescribeCluster>(60, "DescribeCluster", 0, 2),
    served::<api::describe_producers::DescribeProducers>(61, "DescribeProducers", 0, 0),
    served::<api::describe_topic_partitions::DescribeTopicPartitions>(
        75,
        "DescribeTopicPartitions",
        0,
        0,
    ),
];

/// Why a frame is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// ApiVersions of a version we do not know: answered in the format of version 0 (KIP-511).
    #[error("unknown version of ApiVersions")]
    ApiVersions { correlation_id: i32 },
    #[error("key {key} version {version} is not served")]
    Unsupported { key: i16, version: i16 },
    #[error("{0}")]
    Header(#[from] header::HeaderError),
}

/// Reads the header and finds the API; the rest is the body.
pub(crate) fn parse(mut frame: Bytes) -> Result<(Call, Bytes), Refusal> {
    let fixed = header::take_fixed(&mut frame)?;
    let unsupported = Refusal::Unsupported {
        key: fixed.key,
        version: fixed.version,
    };
    let api = APIS
        .iter()
        .find(|api| api.key == fixed.key)
        .ok_or(unsupported)?;
    if !(api.min..=api.max).contains(&fixed.version) {
        return Err(match fixed.key {
            18 => Refusal::ApiVersions {
                correlation_id: fixed.correlation_id,
            },
            _ => unsupported,
        });
    }
    let flexible = (api.header_version)(fixed.version) >= 2;
    let client_id = header::take_rest(&mut frame, flexible)?;
    let call = Call {
        api,
        version: fixed.version,
        correlation_id: fixed.correlation_id,
        client_id,
        peer: Arc::from(""),
    };
    Ok((call, frame))
}

/// One line of the protocol table, for documentation and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedApi {
    pub key: i16,
    pub name: &'static str,
    /// Lowest version listed in ApiVersions.
    pub listed_min: i16,
    /// Lowest version carried out.
    pub min: i16,
    pub max: i16,
}

/// The protocol table.
pub fn served_apis() -> Vec<ServedApi> {
    let row = |api: &Api| ServedApi {
        key: api.key,
        name: api.name,
        listed_min: api.listed_min,
        min: api.min,
        max: api.max,
    };
    APIS.iter().map(row).collect()
}
