//! A small client for the listener's own routes, for the command line: one call, one answer.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::header::CONTENT_TYPE;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Largest answer, bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long a call may take: a node that joins fetches files first.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// What a node said.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    pub status: u16,
    /// `Null` when the answer is not JSON.
    pub body: Value,
}

/// Calls a node at `base`, `http://HOST:PORT`; an error is a sentence for people.
pub async fn call(
    base: &str,
    method: &str,
    path: &str,
    body: Option<Value>,
) -> Result<Said, String> {
    let base = base.trim_end_matches('/');
    let base = match base.contains("://") {
        true => base.to_owned(),
        false => format!("http://{base}"),
    };
    let mut request = Request::builder()
        .method(method)
        .uri(format!("{base}{path}"));
    let bytes = match body {
        Some(body) => {
            request = request.header(CONTENT_TYPE, "application/json");
            Bytes::from(body.to_string())
        }
        None => Bytes::new(),
    };
    let request = request
        .body(Full::new(bytes))
        .map_err(|error| format!("{base} is no address of a node: {error}"))?;
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(Duration::from_secs(5)));
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
    let said = async {
        let response = client.request(request).await.map_err(|error| {
            format!(
                "no node answers at {base}: {}; is it running there?",
                cause(&error)
            )
        })?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect();
        let body = body
            .await
            .map_err(|error| format!("the answer of {base} broke off: {error}"))?
            .to_bytes();
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        Ok(Said { status, body })
    };
    match tokio::time::timeout(PATIENCE, said).await {
        Ok(said) => said,
        Err(_) => Err(format!("{base} does not answer")),
    }
}

/// The innermost reason, which is the one that people understand.
fn cause(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
