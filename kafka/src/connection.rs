//! One connection: requests are begun in the order they arrive, work side by side, and are
//! answered in that same order. One task per connection; it ends when the peer closes, sends
//! something that is no request, idles too long, or the listener stops.

use std::collections::VecDeque;
use std::future::Future;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Buf, Bytes};
use futures_util::FutureExt;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tracing::{debug, warn};

use crate::api::api_versions;
use crate::context::Context;
use crate::dispatch::{self, Api, Pending, Refusal, Reply};
use crate::limits;
use crate::wire::frame::{FrameError, FrameReader};

/// A request under way, with what it holds of the connection's bounds.
struct Started {
    pending: Pending,
    api: Option<&'static Api>,
    arrived: Instant,
    slot: OwnedSemaphorePermit,
    bytes: OwnedSemaphorePermit,
}

/// Why a connection ended.
enum End {
    /// The peer closed, idled or the listener stops: nothing to say.
    Quiet,
    /// The peer broke the protocol.
    Refused(String),
    /// The socket failed.
    Io(std::io::Error),
}

/// Serves one connection until its end.
pub(crate) async fn run<R, W>(context: Arc<Context>, read: R, write: W, peer: Arc<str>)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (starts, started) = mpsc::channel(limits::PIPELINE_MAX);
    let mut reading = std::pin::pin!(read_requests(&context, read, starts, &peer));
    let mut writing = std::pin::pin!(write_answers(&context, write, started));
    let end = tokio::select! {
        end = &mut writing => end,
        end = &mut reading => {
            // Requests that were whole are still answered.
            match (end, writing.await) {
                (End::Quiet, end) | (end, _) => end,
            }
        }
    };
    match end {
        End::Quiet => {}
        End::Refused(reason) => {
            context.metrics.protocol_errors.increment(1);
            warn!(peer = &*peer, reason, "connection closed");
        }
        End::Io(error) => debug!(peer = &*peer, %error, "connection lost"),
    }
}

async fn read_requests<R: AsyncRead + Unpin>(
    context: &Arc<Context>,
    read: R,
    starts: mpsc::Sender<Started>,
    peer: &Arc<str>,
) -> End {
    let slots = Arc::new(Semaphore::new(limits::PIPELINE_MAX));
    let bytes_max = u32::try_from(context.config.request_bytes_max).unwrap_or(u32::MAX);
    let bytes = Arc::new(Semaphore::new(bytes_max as usize));
    let mut reader = FrameReader::new(read, context.config.request_bytes_max);
    let mut stopped = std::pin::pin!(context.stopped());
    let mut idle = std::pin::pin!(tokio::time::sleep(context.config.idle_close));
    let mut last_request = tokio::time::Instant::now();
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else {
            return End::Quiet;
        };
        let frame = loop {
            tokio::select! {
                biased;
                frame = reader.next() => break frame,
                () = &mut stopped => return End::Quiet,
                () = &mut idle => {
                    let busy = slots.available_permits() + 1 < limits::PIPELINE_MAX;
                    let due = last_request + context.config.idle_close;
                    let now = tokio::time::Instant::now();
                    if now < due {
                        idle.as_mut().reset(due);
                    } else if busy {
                        idle.as_mut().reset(now + context.config.idle_close);
                    } else {
                        if reader.is_inside_frame() {
                            return End::Refused("no end of frame before the idle limit".into());
                        }
                        return End::Quiet;
                    }
                }
            }
        };
        let frame = match frame {
            Ok(Some(frame)) => frame,
            Ok(None) => return End::Quiet,
            Err(FrameError::Io(error)) => return End::Io(error),
            Err(error) => return End::Refused(error.to_string()),
        };
        last_request = tokio::time::Instant::now();
        let length = u32::try_from(frame.len())
            .unwrap_or(u32::MAX)
            .min(bytes_max);
        let Ok(bytes) = bytes.clone().acquire_many_owned(length).await else {
            return End::Quiet;
        };
        context.metrics.bytes_in.increment(u64::from(length) + 4);
        let (pending, api) = match begin(context, frame, peer) {
            Ok(begun) => begun,
            Err(reason) => return End::Refused(reason),
        };
        let arrived = Instant::now();
        if starts
            .send(Started {
                pending,
                api,
                arrived,
                slot,
                bytes,
            })
            .await
            .is_err()
        {
            return End::Quiet;
        }
    }
}

/// Begins the work of one frame.
fn begin(
    context: &Arc<Context>,
    frame: Bytes,
    peer: &Arc<str>,
) -> Result<(Pending, Option<&'static Api>), String> {
    match dispatch::parse(frame) {
        Ok((mut call, body)) => {
            call.peer = peer.clone();
            let (api, version) = (call.api, call.version);
            match api.start(context.clone(), call, body) {
                Ok(pending) => Ok((pending, Some(api))),
                Err(malformed) => Err(format!("{} v{version}: {malformed}", api.name)),
            }
        }
        Err(Refusal::ApiVersions { correlation_id }) => {
            let reply = api_versions::unknown_version(correlation_id);
            Ok((Box::pin(std::future::ready(reply)), None))
        }
        Err(refusal) => Err(refusal.to_string()),
    }
}

/// An answer with what it still holds.
type Answered = (Reply, Option<&'static Api>, Instant, OwnedSemaphorePermit);

fn finish(started: Started) -> impl Future<Output = Answered> {
    let Started {
        pending,
        api,
        arrived,
        slot,
        bytes,
    } = started;
    async move {
        let reply = pending.await;
        drop(bytes);
        (reply, api, arrived, slot)
    }
}

async fn write_answers<W: AsyncWrite + Unpin>(
    context: &Arc<Context>,
    mut write: W,
    mut started: mpsc::Receiver<Started>,
) -> End {
    let mut answers = FuturesOrdered::new();
    let mut parts: VecDeque<Bytes> = VecDeque::new();
    let mut open = true;
    loop {
        let mut next = tokio::select! {
            biased;
            next = answers.next(), if !answers.is_empty() => next,
            request = started.recv(), if open => {
                match request {
                    Some(request) => answers.push_back(finish(request)),
                    None => open = false,
                }
                continue;
            }
            else => return End::Quiet,
        };
        let mut bytes = 0;
        let mut slots = Vec::new();
        let mut closing = None;
        while let Some((reply, api, arrived, slot)) = next.take() {
            slots.push(slot);
            let failed = match reply {
                Reply::Answer { frame, failed } => {
                    bytes += frame.iter().map(Bytes::len).sum::<usize>();
                    parts.extend(frame);
                    failed
                }
                Reply::Silent => false,
                Reply::Close(reason) => {
                    closing = Some(reason);
                    true
                }
            };
            if let Some(api) = api {
                context
                    .metrics
                    .answered(api, arrived.elapsed().as_secs_f64(), failed);
            }
            if closing.is_none() && bytes < limits::WRITE_GATHER_BYTES {
                next = answers.next().now_or_never().flatten();
            }
        }
        if let Err(error) = write_all(&mut write, &mut parts).await {
            return End::Io(error);
        }
        context.metrics.bytes_out.increment(bytes as u64);
        drop(slots);
        if let Some(reason) = closing {
            return End::Refused(reason.into());
        }
    }
}

/// Writes all parts, many per call.
async fn write_all<W: AsyncWrite + Unpin>(
    write: &mut W,
    parts: &mut VecDeque<Bytes>,
) -> std::io::Result<()> {
    while !parts.is_empty() {
        let mut slices = [IoSlice::new(&[]); limits::WRITE_SLICES];
        let mut count = 0;
        for (slice, part) in slices.iter_mut().zip(parts.iter()) {
            *slice = IoSlice::new(part);
            count += 1;
        }
        let mut written = write.write_vectored(&slices[..count]).await?;
        if written == 0 && parts.iter().any(|part| !part.is_empty()) {
            return Err(std::io::ErrorKind::WriteZero.into());
        }
        while let Some(part) = parts.front_mut() {
            if part.len() > written {
                part.advance(written);
                break;
            }
            written -= part.len();
            parts.pop_front();
        }
    }
    write.flush().await
}
