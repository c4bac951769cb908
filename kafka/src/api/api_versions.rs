//! ApiVersions, key 18, versions 0-4.
//!
//! * A version we do not know is answered in the format of version 0 with UNSUPPORTED_VERSION and
//!   only this key's range; the connection stays (KIP-511). The response header is always version
//!   0.
//! * The list is the dispatch table. No tagged field is sent: librdkafka 2.0.2 misreads features
//!   (case PR-1), and there is nothing to announce.
//! * A client name outside letters, digits, dot and dash is INVALID_REQUEST (KIP-511).

use std::sync::Arc;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};

use crate::context::Context;
use crate::dispatch::{APIS, Api, Call, Handler, Reply};
use crate::wire;

pub(crate) struct ApiVersions;

impl Handler for ApiVersions {
    type Request = ApiVersionsRequest;
    type Response = ApiVersionsResponse;

    async fn answer(
        _context: Arc<Context>,
        call: Call,
        request: ApiVersionsRequest,
    ) -> ApiVersionsResponse {
        let legal =
            is_legal(&request.client_software_name) && is_legal(&request.client_software_version);
        if call.version >= 3 && !legal {
            return ApiVersionsResponse::default()
                .with_error_code(ResponseError::InvalidRequest.code());
        }
        ApiVersionsResponse::default().with_api_keys(APIS.iter().map(row).collect())
    }

    fn failed(response: &ApiVersionsResponse) -> bool {
        response.error_code != 0
    }
}

/// The answer to a version that is not served.
pub(crate) fn unknown_version(correlation_id: i32) -> Reply {
    let response = ApiVersionsResponse::default()
        .with_error_code(ResponseError::UnsupportedVersion.code())
        .with_api_keys(APIS.iter().filter(|api| api.key == 18).map(row).collect());
    match wire::encode(correlation_id, 0, &response) {
        Ok(bytes) => Reply::Answer {
            frame: vec![bytes],
            failed: true,
        },
        Err(_) => Reply::Close("answer cannot be encoded"),
    }
}

fn row(api: &Api) -> ApiVersion {
    ApiVersion::default()
        .with_api_key(api.key)
        .with_min_version(api.listed_min)
        .with_max_version(api.max)
}

/// Kafka's pattern: `[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?`.
fn is_legal(name: &str) -> bool {
    let bytes = name.as_bytes();
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    edge(bytes.first())
        && edge(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}
