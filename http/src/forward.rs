//! Any node serves any call (http-api 3.3): one that does not lead hands what needs the leader on to
//! it, and waits for the next leader when there is none. A call is sent a second time only when
//! nothing of the first can have been applied, or when twice does no harm; else its sender is told
//! that the outcome is unknown.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use queen_engine::port::Failure;
use tokio::time::Instant;

use crate::api::pop;
use crate::app::App;
use crate::limits;
use crate::problem::{Answer, Family, Problem};
use crate::reply::Reply;
use crate::request::{Call, read_body};
use crate::router;

/// The node that hands a call on; whoever gets it does not hand it on again.
pub const FORWARDED: HeaderName = HeaderName::from_static("x-queen-forwarded-by");
/// Milliseconds that are left of a long poll's wait.
const WAIT_LEFT: HeaderName = HeaderName::from_static("x-queen-wait-left");
/// In an answer: nothing was applied, ask the node that leads.
const ELSEWHERE: HeaderName = HeaderName::from_static("x-queen-elsewhere");

/// Headers of one connection, not of the call (RFC 9110 section 7.6.1), and those set anew.
const OF_THE_CONNECTION: [HeaderName; 9] = [
    header::CONNECTION,
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::EXPECT,
    HeaderName::from_static("keep-alive"),
];

/// Connections to the other nodes' listeners.
pub struct Others(Client<HttpConnector, Full<Bytes>>);

impl Others {
    /// Dials when it is needed.
    pub fn new() -> Others {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(Duration::from_secs(1)));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(20))
            .pool_timer(TokioTimer::new())
            .build(connector);
        Others(client)
    }
}

/// What is left of a long poll's wait, if another node says so.
pub fn wait_left(headers: &HeaderMap) -> Option<u64> {
    headers.get(WAIT_LEFT)?.to_str().ok()?.parse().ok()
}

/// What every node answers for itself, whoever leads.
fn is_of_this_node(call: &Call) -> bool {
    let path = call.path.as_str();
    !path.starts_with("/api/") || (call.method == Method::GET && path == "/api/v1/cluster")
}

/// Whether twice does no harm: it reads, or it claims what comes back by itself.
fn is_repeatable(call: &Call) -> bool {
    matches!(call.method, Method::GET | Method::HEAD)
        || matches!(
            call.path.as_str(),
            "/api/v1/fetch" | "/api/v1/fetch/offsets" | "/api/v1/partitions/changed"
        )
}

/// What became of a call that was handed on.
enum Sent {
    Answer(Reply),
    /// Nothing was applied there.
    Untouched,
    /// It may have been applied.
    Unknown,
}

/// Answers a call, here or by the leader; also its name for metrics.
pub async fn answer(
    app: &App,
    call: &mut Call,
    uri: &Uri,
    headers: &HeaderMap,
) -> (&'static str, Answer) {
    if app.broker.is_leading() || is_of_this_node(call) {
        let (route, answer) = router::dispatch(app, call).await;
        match answer {
            Err(problem) if problem.is_elsewhere() => {
                return find_leader(app, call, uri, headers, Some(problem)).await;
            }
            answer => return (route, answer),
        }
    }
    find_leader(app, call, uri, headers, None).await
}

/// Looks for somebody who leads until the call's patience is over.
async fn find_leader(
    app: &App,
    call: &mut Call,
    uri: &Uri,
    headers: &HeaderMap,
    mut refused: Option<Problem>,
) -> (&'static str, Answer) {
    let begun = Instant::now();
    let wait_ms = wait_of(call);
    let is_alone = app.broker.node().replicas.len() <= 1;
    let patience = match wait_ms {
        0 if is_alone => Duration::ZERO,
        0 => limits::LEADER_WAIT,
        wait_ms => Duration::from_millis(wait_ms),
    };
    let left_ms = || {
        let left = (begun + Duration::from_millis(wait_ms)).duration_since(Instant::now());
        u64::try_from(left.as_millis()).unwrap_or(0)
    };
    loop {
        if call.forwarded {
            // Whoever hands it on looks for the leader.
            return ("forwarded", Ok(elsewhere(call, refused)));
        }
        // Registered before looking.
        let changed = app.broker.leader_changed();
        if refused.is_none() && (app.broker.is_leading() || is_alone) {
            call.wait_ms_max = Some(left_ms());
            let (route, answer) = router::dispatch(app, call).await;
            match answer {
                Err(problem) if problem.is_elsewhere() => refused = Some(problem),
                answer => return (route, answer),
            }
        } else if let Some(leader) = app.broker.node().leader_http {
            match hand_on(app, call, uri, headers, &leader, left_ms()).await {
                Sent::Answer(reply) => return ("forwarded", Ok(reply)),
                Sent::Untouched => {}
                Sent::Unknown if is_repeatable(call) => {}
                Sent::Unknown => return ("forwarded", Err(problem_of(call, &Failure::Timeout))),
            }
        }
        if begun.elapsed() >= patience {
            return match wait_ms {
                0 => {
                    let nobody = || problem_of(call, &Failure::NotLeader { leader: None });
                    ("forwarded", Err(refused.unwrap_or_else(nobody)))
                }
                _ => ("forwarded", Ok(Reply::no_content())),
            };
        }
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep(limits::LEADER_PAUSE) => {}
            () = app.stopped() => {
                return ("forwarded", Err(problem_of(call, &Failure::Stopping)));
            }
        }
        refused = None;
    }
}

/// How long the call is ready to wait for messages, milliseconds.
fn wait_of(call: &Call) -> u64 {
    if !call.path.starts_with("/api/v1/pop") {
        return 0;
    }
    // A parameter that makes no sense is refused by whoever answers.
    let wait = pop::wait_ms(&call.query).unwrap_or(0);
    wait.min(call.wait_ms_max.unwrap_or(u64::MAX))
}

async fn hand_on(
    app: &App,
    call: &Call,
    uri: &Uri,
    headers: &HeaderMap,
    leader: &str,
    wait_left_ms: u64,
) -> Sent {
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let mut request = Request::new(Full::new(call.body.clone()));
    *request.method_mut() = call.method.clone();
    *request.uri_mut() = match format!("http://{leader}{target}").parse() {
        Ok(uri) => uri,
        Err(error) => {
            tracing::warn!(leader, %error, "the leader's address is none");
            return Sent::Untouched;
        }
    };
    let kept = headers
        .iter()
        .filter(|(name, _)| !OF_THE_CONNECTION.contains(name));
    for (name, value) in kept {
        request.headers_mut().append(name.clone(), value.clone());
    }
    let by = HeaderValue::from(app.broker.node().id);
    request.headers_mut().insert(FORWARDED, by);
    let left = HeaderValue::from(wait_left_ms);
    request.headers_mut().insert(WAIT_LEFT, left);
    let asked = app.others.0.request(request);
    let patience = limits::FORWARD_WAIT + Duration::from_millis(wait_left_ms);
    let deposed = deposed(app, leader);
    let response = tokio::select! {
        response = asked => response,
        () = deposed => return Sent::Unknown,
        () = tokio::time::sleep(patience) => return Sent::Unknown,
    };
    let response = match response {
        Ok(response) => response,
        Err(error) if error.is_connect() => return Sent::Untouched,
        Err(error) => {
            tracing::debug!(leader, %error, "the leader did not answer");
            return Sent::Unknown;
        }
    };
    let (head, body) = response.into_parts();
    if head.headers.contains_key(ELSEWHERE) {
        return Sent::Untouched;
    }
    let body = tokio::time::timeout(patience, read_body(body, limits::FORWARDED_BYTES_MAX)).await;
    let Ok(Ok(Some(body))) = body else {
        return Sent::Unknown;
    };
    let headers = head
        .headers
        .into_iter()
        .filter_map(|(name, value)| Some((name?, value)))
        .filter(|(name, _)| !OF_THE_CONNECTION.contains(name) && *name != header::DATE)
        .collect();
    Sent::Answer(Reply::relayed(head.status, headers, body))
}

/// Resolves when another node has led for a while, or this one: what the old leader has not answered
/// by then it may never answer.
async fn deposed(app: &App, leader: &str) {
    loop {
        let changed = app.broker.leader_changed();
        let node = app.broker.node();
        let is_other = node.is_leader || node.leader_http.is_some_and(|now| now != leader);
        if is_other {
            tokio::time::sleep(limits::DEPOSED_WAIT).await;
            return;
        }
        tokio::select! {
            () = changed => {}
            // Where a leader's listener is becomes known a little later than who it is.
            () = tokio::time::sleep(Duration::from_millis(250)) => {}
        }
    }
}

/// The answer that tells another node to look elsewhere.
fn elsewhere(call: &Call, refused: Option<Problem>) -> Reply {
    let problem = refused.unwrap_or_else(|| problem_of(call, &Failure::NotLeader { leader: None }));
    problem.into_reply().with_header(ELSEWHERE, "1")
}

/// A failure in the shape that the call's sender reads.
fn problem_of(call: &Call, failure: &Failure) -> Problem {
    let path = call.path.strip_prefix("/api/v1/").unwrap_or_default();
    match path.split('/').next().unwrap_or_default() {
        "ack" | "lease" => Problem::of_ack(failure),
        "pop" => Problem::of_pop(failure),
        "kv" => Problem::of_family(Family::Kv, failure),
        "timers" => Problem::of_family(Family::Timers, failure),
        "transaction" => Problem::of(failure).reworded(|body| {
            body["success"] = false.into();
            body["reason"] = "unavailable".into();
            body["results"] = serde_json::json!([]);
        }),
        _ => Problem::of(failure),
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;

    use super::*;
    use crate::request::Query;

    fn call(method: Method, path: &str, query: &str) -> Call {
        Call {
            method,
            path: path.to_owned(),
            query: Query::parse(Some(query)),
            body: Bytes::new(),
            binary: false,
            accepts_text: false,
            forwarded: false,
            wait_ms_max: None,
        }
    }

    #[test]
    fn only_what_does_no_harm_is_repeated() {
        for (method, path, repeatable) in [
            (Method::GET, "/api/v1/pop/queue/q", true),
            (Method::POST, "/api/v1/fetch", true),
            (Method::POST, "/api/v1/push", false),
            (Method::POST, "/api/v1/kv", false),
            (Method::DELETE, "/api/v1/resources/queues/q", false),
        ] {
            assert_eq!(is_repeatable(&call(method, path, "")), repeatable, "{path}");
        }
    }

    #[test]
    fn a_pop_waits_as_long_as_it_says_and_not_again() {
        let mut pop = call(Method::GET, "/api/v1/pop/queue/q", "wait=true&timeout=5000");
        assert_eq!(wait_of(&pop), 5000);
        pop.wait_ms_max = Some(70);
        assert_eq!(wait_of(&pop), 70);
        assert_eq!(wait_of(&call(Method::POST, "/api/v1/push", "wait=true")), 0);
    }

    #[test]
    fn an_unknown_outcome_has_the_word_of_its_family() {
        let words = |path: &str| {
            let problem = problem_of(&call(Method::POST, path, ""), &Failure::Timeout);
            assert_eq!(problem.status(), StatusCode::SERVICE_UNAVAILABLE);
            problem.body().clone()
        };
        assert_eq!(words("/api/v1/push")["code"], "timeout");
        assert_eq!(words("/api/v1/ack/batch")["code"], "outcome_unknown");
        assert_eq!(words("/api/v1/kv")["reason"], "kv_timeout");
        assert_eq!(words("/api/v1/pop")["messages"], serde_json::json!([]));
        assert_eq!(words("/api/v1/transaction")["success"], false);
    }
}
