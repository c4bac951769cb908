//! Answers: a status, a few headers and bytes that are there in full.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;

/// Runs when an answer is dropped before its bytes were taken for the wire.
type OnLost = Box<dyn FnOnce() + Send + Sync>;

/// A body of known bytes.
#[derive(Default)]
pub struct Body {
    bytes: Bytes,
    on_lost: Option<OnLost>,
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.on_lost = None;
        let bytes = std::mem::take(&mut self.bytes);
        Poll::Ready(if bytes.is_empty() {
            None
        } else {
            Some(Ok(Frame::data(bytes)))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some(on_lost) = self.on_lost.take() {
            on_lost();
        }
    }
}

/// One answer.
pub struct Reply {
    status: StatusCode,
    content_type: Option<&'static str>,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Body,
}

impl Reply {
    /// JSON bytes that were written by hand.
    pub fn json_bytes(status: StatusCode, bytes: impl Into<Bytes>) -> Reply {
        Reply {
            status,
            content_type: Some("application/json"),
            headers: Vec::new(),
            body: Body {
                bytes: bytes.into(),
                on_lost: None,
            },
        }
    }

    /// 200 with `value` as JSON.
    pub fn json(value: &impl Serialize) -> Reply {
        Reply::json_with(StatusCode::OK, value)
    }

    /// `value` as JSON under another status.
    pub fn json_with(status: StatusCode, value: &impl Serialize) -> Reply {
        match serde_json::to_vec(value) {
            Ok(bytes) => Reply::json_bytes(status, bytes),
            // Only a map with keys that are no text can fail, and there is none.
            Err(error) => Reply::json_bytes(
                StatusCode::INTERNAL_SERVER_ERROR,
                serde_json::json!({"error": error.to_string(), "code": "internal"}).to_string(),
            ),
        }
    }

    /// What another node answered.
    pub fn relayed(
        status: StatusCode,
        headers: Vec<(HeaderName, HeaderValue)>,
        bytes: Bytes,
    ) -> Reply {
        Reply {
            status,
            content_type: None,
            headers,
            body: Body {
                bytes,
                on_lost: None,
            },
        }
    }

    /// Text of another type.
    pub fn text(status: StatusCode, content_type: &'static str, text: String) -> Reply {
        let mut reply = Reply::json_bytes(status, text);
        reply.content_type = Some(content_type);
        reply
    }

    /// 204: neither a body nor a length, or the clients' HTTP stacks drop the connection.
    pub fn no_content() -> Reply {
        Reply {
            status: StatusCode::NO_CONTENT,
            content_type: None,
            headers: Vec::new(),
            body: Body::default(),
        }
    }

    /// Adds a header.
    pub fn with_header(mut self, name: HeaderName, value: &str) -> Reply {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((name, value));
        }
        self
    }

    /// Runs `on_lost` if the connection goes away before the body was taken.
    pub fn with_lost(mut self, on_lost: impl FnOnce() + Send + Sync + 'static) -> Reply {
        self.body.on_lost = Some(Box::new(on_lost));
        self
    }

    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Length of the body.
    pub fn len(&self) -> usize {
        self.body.bytes.len()
    }

    /// The answer as hyper sends it.
    pub fn into_response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if let Some(content_type) = self.content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        for (name, value) in self.headers {
            headers.insert(name, value);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_dropped_answer_is_reported_and_a_taken_one_is_not() {
        for taken in [false, true] {
            let lost = Arc::new(AtomicBool::new(false));
            let flag = lost.clone();
            let reply = Reply::json_bytes(StatusCode::OK, "{}")
                .with_lost(move || flag.store(true, Ordering::Relaxed));
            let mut body = reply.into_response().into_body();
            if taken {
                let mut context = Context::from_waker(std::task::Waker::noop());
                let _ = hyper::body::Body::poll_frame(Pin::new(&mut body), &mut context);
            }
            drop(body);
            assert_eq!(lost.load(Ordering::Relaxed), !taken);
        }
    }
}
