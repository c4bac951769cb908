//! Accepts connections, reads requests, and goes down without cutting anybody off.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use queen_engine::port::Broker;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::app::{App, HttpConfig};
use crate::limits;
use crate::reply::{Body, Reply};
use crate::request::{Call, Query, read_body};
use crate::{forward, metrics};

/// Serves HTTP/1.1 and HTTP/2 without TLS until `shutdown` resolves; then parked pops are
/// answered, requests in flight are finished, and after three seconds the rest is dropped.
pub async fn serve(
    listener: TcpListener,
    broker: Arc<dyn Broker>,
    config: HttpConfig,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let (stop, stopping) = watch::channel(false);
    let connections = Arc::new(Semaphore::new(config.connections_max));
    let app = Arc::new(App::new(broker, config, stopping));
    let graceful = GracefulShutdown::new();
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(limits::HEAD_SECONDS));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(256);

    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut shutdown => break,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, mostly: give the others time to close.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(permit) = connections.clone().try_acquire_owned() else {
            tracing::warn!(%peer, "too many connections; closed");
            continue;
        };
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%peer, %error, "no TCP_NODELAY");
        }
        let app = app.clone();
        let service = service_fn(move |request| {
            let app = app.clone();
            async move { Ok::<_, Infallible>(answer(&app, request).await) }
        });
        let connection = builder
            .serve_connection(TokioIo::new(socket), service)
            .into_owned();
        let connection = graceful.watch(connection);
        metrics::connections(1.0);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%peer, %error, "connection ended");
            }
            metrics::connections(-1.0);
            drop(permit);
        });
    }
    drop(listener);
    // Parked requests look at this; a receiver that is gone needs nothing.
    let _ = stop.send(true);
    let drained = tokio::time::timeout(
        Duration::from_secs(limits::DRAIN_SECONDS),
        graceful.shutdown(),
    );
    if drained.await.is_err() {
        tracing::warn!("requests were still in flight when the listener stopped");
    }
    Ok(())
}

/// One request from its head to its answer.
async fn answer(app: &App, request: Request<Incoming>) -> Response<Body> {
    let begun = Instant::now();
    let (head, body) = request.into_parts();
    let body = match read_body(body, app.config.body_bytes_max).await {
        Ok(Some(body)) => body,
        Ok(None) => return too_large().into_response(),
        Err(error) => {
            tracing::debug!(%error, "a body ended early");
            let problem = crate::problem::Problem::bad_body("the body could not be read");
            return problem.into_reply().into_response();
        }
    };
    let received = body.len();
    let mut call = Call {
        path: head.uri.path().to_owned(),
        query: Query::parse(head.uri.query()),
        method: head.method,
        binary: is_binary(&head.headers),
        accepts_text: accepts_text(&head.headers),
        forwarded: head.headers.contains_key(forward::FORWARDED),
        wait_ms_max: forward::wait_left(&head.headers),
        body,
    };
    app.totals.requests.fetch_add(1, Ordering::Relaxed);
    let (route, answer) = forward::answer(app, &mut call, &head.uri, &head.headers).await;
    let reply = answer.unwrap_or_else(|problem| problem.into_reply());
    metrics::request(
        route,
        reply.status().as_u16(),
        begun.elapsed(),
        received,
        reply.len(),
    );
    reply.into_response()
}

/// Whether the client asks for text by name; `*/*` does not.
fn accepts_text(headers: &HeaderMap) -> bool {
    headers
        .get_all(hyper::header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|accept| accept.contains("text/plain") || accept.contains("openmetrics"))
}

fn is_binary(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| {
        let value = value.as_bytes();
        let kind = value.split(|byte| *byte == b';').next().unwrap_or_default();
        kind.trim_ascii()
            .eq_ignore_ascii_case(b"application/x-queen-push")
    })
}

/// The one error that is not JSON.
fn too_large() -> Reply {
    Reply::text(
        StatusCode::PAYLOAD_TOO_LARGE,
        "text/plain",
        "request body too large\n".to_owned(),
    )
}
