//! The three pop routes (http-api 5.3): parameters in, one long poll, messages out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use queen_engine::command::{AckItem, AckStatus, Command};
use queen_engine::ids::{LeaseId, TimeUs};
use queen_engine::message::{LaneRecord, format_uuid, read_lane};
use queen_engine::names;
use queen_engine::port::{
    Broker, Failure, PopAnswer, PopClaim, PopRequest, PopTarget, Subscription,
};
use serde_json::json;
use tokio::time::Instant;

use crate::app::{App, Counted};
use crate::problem::{Answer, Problem};
use crate::reply::Reply;
use crate::request::{Call, Query, check_names};
use crate::shown::Shown;
use crate::time::{parse_iso, write_iso_ms};
use crate::{json, limits};

/// A pop of one queue, or of one lane of it.
pub async fn queue(app: &App, call: &Call, queue: String, lane: Option<String>) -> Answer {
    let target = match lane {
        Some(lane) => PopTarget::Lane { queue, lane },
        None => PopTarget::Queue(queue),
    };
    pop(app, call, target).await
}

/// A pop over all queues with the labels.
pub async fn discover(app: &App, call: &Call) -> Answer {
    let label = |name: &str| call.query.text(name).map(str::to_owned);
    let (namespace, task) = (label("namespace"), label("task"));
    if namespace.is_none() && task.is_none() {
        return Err(Problem::bad_request("namespace or task is required").for_pop());
    }
    pop(app, call, PopTarget::Labels { namespace, task }).await
}

/// How long a pop with this query is ready to wait, milliseconds.
pub fn wait_ms(query: &Query) -> Result<u64, Problem> {
    let timeout = query.integer("timeout")?.unwrap_or(30_000);
    Ok(match query.switch("wait")? {
        true => u64::try_from(timeout)
            .unwrap_or(0)
            .min(limits::POP_WAIT_MS_MAX),
        false => 0,
    })
}

async fn pop(app: &App, call: &Call, target: PopTarget) -> Answer {
    let mut request = parse(&call.query, target).map_err(Problem::for_pop)?;
    request.wait_ms = request.wait_ms.min(call.wait_ms_max.unwrap_or(u64::MAX));
    if app.pop_paused.load(Ordering::Relaxed) {
        return Ok(if request.conflation {
            let body = json!({"success": true, "messages": [], "paused": true, "conflation": true});
            Reply::json(&body)
        } else {
            Reply::no_content()
        });
    }
    let deadline = Instant::now() + Duration::from_millis(request.wait_ms);
    tokio::select! {
        answer = claim(app, &request, deadline) => answer,
        // Dropping the claim gives back what it had.
        () = app.stopped() => Ok(Reply::no_content()),
    }
}

/// Claims until there is something to show or the time is up.
async fn claim(app: &App, request: &PopRequest, deadline: Instant) -> Answer {
    let mut again = request.clone();
    loop {
        let answer = match app.broker.pop(again.clone()).await {
            Ok(answer) => answer,
            // `forward.rs` parks it until somebody leads.
            Err(failure) => return Err(Problem::of_pop(&failure)),
        };
        let held = Held::new(app, &request.group, answer);
        let rendered = render(&*app.broker, request, held.answer());
        let rendered = rendered.map_err(|failure| Problem::of_pop(&failure))?;
        if rendered.messages == 0 && !held.answer().claims.is_empty() {
            finish_empty(app, request, held.keep()).await?;
            again.wait_ms = left_ms(deadline);
            continue;
        }
        app.count(Counted::Popped, rendered.messages);
        if rendered.messages == 0 && !held.answer().conflation && !held.answer().conflict {
            return Ok(Reply::no_content());
        }
        let reply = Reply::json_bytes(hyper::StatusCode::OK, rendered.bytes);
        return Ok(held.guard(reply));
    }
}

fn left_ms(deadline: Instant) -> u64 {
    let left = deadline.saturating_duration_since(Instant::now());
    u64::try_from(left.as_millis()).unwrap_or(0)
}

/// A claimed answer that goes back unless somebody takes it over.
struct Held {
    broker: Arc<dyn Broker>,
    group: String,
    answer: Option<PopAnswer>,
    empty: PopAnswer,
}

impl Held {
    fn new(app: &App, group: &str, answer: PopAnswer) -> Held {
        Held {
            broker: app.broker.clone(),
            group: group.to_owned(),
            answer: Some(answer),
            empty: PopAnswer::default(),
        }
    }

    fn answer(&self) -> &PopAnswer {
        self.answer.as_ref().unwrap_or(&self.empty)
    }

    /// The caller answers for the claim now.
    fn keep(mut self) -> PopAnswer {
        self.answer.take().unwrap_or_default()
    }

    /// The claim lives on if the reply reaches the wire.
    fn guard(self, reply: Reply) -> Reply {
        let (broker, group) = (self.broker.clone(), self.group.clone());
        let answer = self.keep();
        if answer.lease.is_none() {
            return reply;
        }
        reply.with_lost(move || broker.unclaim(group, answer))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take()
            && answer.lease.is_some()
        {
            self.broker.unclaim(self.group.clone(), answer);
        }
    }
}

/// Reads the parameters (http-api 5.3).
fn parse(query: &Query, target: PopTarget) -> Result<PopRequest, Problem> {
    let group = query
        .text("consumerGroup")
        .unwrap_or(names::QUEUE_MODE_GROUP);
    match &target {
        PopTarget::Queue(queue) => check_names(queue, &[group])?,
        PopTarget::Lane { queue, lane } => check_names(queue, &[group, lane])?,
        PopTarget::Labels { .. } => check_names("", &[group])?,
    }
    let commit = query.switch("autoAck")? || query.switch("commitOnDelivery")?;
    let conflation = query.switch("conflation")?;
    let in_queue_mode = group == names::QUEUE_MODE_GROUP;
    if conflation && in_queue_mode {
        return Err(Problem::bad_request("conflation needs a consumerGroup"));
    }
    if conflation && commit {
        return Err(Problem::bad_request("conflation excludes autoAck"));
    }
    query.switch("autopilot")?;
    query.switch("frames")?;
    let batch = at_least_one(query.integer("batch")?)
        .unwrap_or(limits::POP_BATCH_DEFAULT)
        .min(limits::POP_BATCH_MAX);
    let lanes = match query.integer("partitions")? {
        Some(lanes) => clamp_lanes(lanes),
        None if conflation => batch.min(limits::POP_LANES_MAX),
        None => 1,
    };
    let lanes = if matches!(target, PopTarget::Lane { .. }) {
        1
    } else {
        lanes
    };
    let wait_ms = wait_ms(query)?;
    let lease_ms = match query
        .integer("leaseSeconds")?
        .filter(|seconds| *seconds > 0)
    {
        Some(seconds) => Some(seconds.min(limits::LEASE_SECONDS_MAX) * 1000),
        None if matches!(target, PopTarget::Labels { .. }) => Some(limits::DISCOVERY_LEASE_MS),
        None => None,
    };
    let subscription = if in_queue_mode {
        Subscription::default()
    } else {
        subscription(query)?
    };
    Ok(PopRequest {
        target,
        group: group.to_owned(),
        batch,
        lanes,
        wait_ms,
        lease_ms,
        subscription,
        commit,
        conflation,
    })
}

fn at_least_one(value: Option<i64>) -> Option<u32> {
    value
        .filter(|value| *value > 0)
        .map(|value| u32::try_from(value).unwrap_or(u32::MAX))
}

fn clamp_lanes(lanes: i64) -> u32 {
    u32::try_from(lanes.clamp(1, i64::from(limits::POP_LANES_MAX))).unwrap_or(1)
}

fn subscription(query: &Query) -> Result<Subscription, Problem> {
    let mode = query.text("subscriptionMode").map(str::to_owned);
    match query.text("subscriptionFrom") {
        None => Ok(Subscription { mode, from: None }),
        // The end of the log, not a clock's opinion of it.
        Some("now") => Ok(Subscription {
            mode: Some("new".to_owned()),
            from: None,
        }),
        Some(text) => match parse_iso(text) {
            Some(from) => Ok(Subscription {
                mode,
                from: Some(from),
            }),
            None => Err(Problem::bad_request(
                "subscriptionFrom must be `now` or an ISO time",
            )),
        },
    }
}

struct Rendered {
    bytes: Vec<u8>,
    messages: u64,
}

/// Reads the claimed runs and writes the answer.
fn render(
    broker: &dyn Broker,
    request: &PopRequest,
    answer: &PopAnswer,
) -> Result<Rendered, Failure> {
    let lease = answer
        .lease
        .map_or_else(String::new, |lease| format_uuid(lease.0));
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(b"{\"success\":true,\"queue\":");
    let queue = match &request.target {
        PopTarget::Queue(queue) | PopTarget::Lane { queue, .. } => queue.as_str(),
        PopTarget::Labels { .. } => "",
    };
    json::write_text(&mut out, queue);
    let first = answer.claims.first();
    out.extend_from_slice(b",\"partition\":");
    json::write_optional(&mut out, first.map(lane_name).as_deref());
    out.extend_from_slice(b",\"partitionId\":");
    json::write_optional(
        &mut out,
        first.map(|claim| claim.lane.0.to_string()).as_deref(),
    );
    out.extend_from_slice(b",\"leaseId\":");
    json::write_text(&mut out, &lease);
    if let Some(expires) = answer.claims.iter().map(|claim| claim.expires).min()
        && answer.lease.is_some()
    {
        write_expiry(&mut out, expires);
    }
    out.extend_from_slice(b",\"consumerGroup\":");
    json::write_text(&mut out, &request.group);
    out.extend_from_slice(b",\"partitionsClaimed\":");
    json::write_number(&mut out, answer.claims.len() as u64);
    if answer.conflation {
        out.extend_from_slice(b",\"conflation\":true");
    }
    if answer.conflict {
        out.extend_from_slice(b",\"conflationConflict\":true");
    }
    out.extend_from_slice(b",\"messages\":[");
    let mut messages = 0;
    for claim in &answer.claims {
        let end = tail(&request.group, &lease, claim);
        for record in read_lane(broker, claim.lane, claim.deliver_from, claim.to)? {
            let Some(shown) = Shown::of(&record) else {
                return Err(Failure::Storage(
                    "a batch lacks an indexed record".to_owned(),
                ));
            };
            if messages > 0 {
                out.push(b',');
            }
            message(&mut out, &record, &shown, &end);
            messages += 1;
        }
    }
    out.extend_from_slice(b"]}");
    Ok(Rendered {
        bytes: out,
        messages,
    })
}

fn lane_name(claim: &PopClaim) -> String {
    String::from_utf8_lossy(&claim.name).into_owned()
}

fn write_expiry(out: &mut Vec<u8>, expires: TimeUs) {
    out.extend_from_slice(b",\"leaseExpiresAt\":\"");
    write_iso_ms(out, expires);
    out.push(b'"');
}

/// What all messages of one claim end with.
fn tail(group: &str, lease: &str, claim: &PopClaim) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(b",\"partitionId\":\"");
    json::write_number(&mut out, claim.lane.0);
    out.extend_from_slice(b"\",\"partition\":");
    json::write_text(&mut out, &String::from_utf8_lossy(&claim.name));
    out.extend_from_slice(b",\"queue\":");
    json::write_text(&mut out, &claim.queue);
    out.extend_from_slice(b",\"leaseId\":");
    json::write_text(&mut out, lease);
    if !lease.is_empty() {
        write_expiry(&mut out, claim.expires);
    }
    out.extend_from_slice(b",\"consumerGroup\":");
    json::write_text(&mut out, group);
    out.extend_from_slice(b",\"deliveryAttempt\":");
    json::write_number(&mut out, claim.attempt.max(1));
    out.push(b'}');
    out
}

fn message(out: &mut Vec<u8>, record: &LaneRecord, shown: &Shown<'_>, end: &[u8]) {
    out.extend_from_slice(b"{\"id\":");
    json::write_text(out, &shown.id);
    out.extend_from_slice(b",\"transactionId\":");
    json::write_text(out, &shown.transaction_id);
    out.extend_from_slice(b",\"traceId\":");
    json::write_optional(out, shown.trace_id);
    out.extend_from_slice(b",\"producerSub\":");
    json::write_optional(out, shown.producer_sub);
    out.extend_from_slice(b",\"offset\":");
    json::write_number(out, record.number);
    out.extend_from_slice(b",\"createdAt\":\"");
    write_iso_ms(out, record.row.time);
    out.extend_from_slice(b"\",\"data\":");
    json::write_value(out, shown.value);
    out.extend_from_slice(end);
}

/// A claim of which retention has removed every record: finish it, so that the group does not
/// stay behind for ever.
async fn finish_empty(app: &App, request: &PopRequest, answer: PopAnswer) -> Result<(), Problem> {
    let Some(lease) = answer.lease else {
        return Ok(());
    };
    let items = answer.claims.iter().filter(|claim| claim.to > claim.from);
    let items: Vec<AckItem> = items
        .map(|claim| finished(&request.group, claim, lease))
        .collect();
    let done = app.broker.submit(Command::Ack { items }).await;
    done.map(drop).map_err(|failure| Problem::of_pop(&failure))
}

fn finished(group: &str, claim: &PopClaim, lease: LeaseId) -> AckItem {
    AckItem {
        lane: claim.lane,
        group: group.to_owned(),
        number: claim.to - 1,
        status: AckStatus::Completed,
        lease: Some(lease),
        error: None,
        first_pending: claim.from,
        created: claim.expires,
        transaction_id: String::new(),
        payload: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(query: &str) -> Result<PopRequest, Problem> {
        let target = PopTarget::Queue("q".to_owned());
        parse(&Query::parse(Some(query)), target)
    }

    #[test]
    fn parameters_have_their_defaults_and_bounds() {
        let plain = parsed("").unwrap();
        assert_eq!((plain.batch, plain.lanes, plain.wait_ms), (200, 1, 0));
        assert_eq!((plain.lease_ms, plain.commit), (None, false));
        assert_eq!(plain.group, names::QUEUE_MODE_GROUP);

        let all = parsed(
            "autopilot=true&batch=0&wait=true&timeout=999999&consumerGroup=g&partitions=900&\
             leaseSeconds=1&subscriptionMode=all&subscriptionFrom=2026-01-01T00:00:00Z&autoAck=true",
        )
        .unwrap();
        assert_eq!((all.batch, all.lanes, all.wait_ms), (200, 64, 60_000));
        assert_eq!((all.lease_ms, all.commit), (Some(1000), true));
        assert_eq!(all.subscription.mode.as_deref(), Some("all"));
        assert!(all.subscription.from.is_some());
        let now = parsed("consumerGroup=g&subscriptionMode=all&subscriptionFrom=now").unwrap();
        let end = Subscription {
            mode: Some("new".to_owned()),
            from: None,
        };
        assert_eq!(now.subscription, end);

        let conflating = parsed("conflation=true&consumerGroup=g&batch=10").unwrap();
        assert_eq!(conflating.lanes, 10);
        assert_eq!(parsed("leaseSeconds=-3").unwrap().lease_ms, None);
        // Queue mode begins at the oldest message whatever it is told.
        let queue_mode = parsed("subscriptionMode=new&subscriptionFrom=now").unwrap();
        assert_eq!(queue_mode.subscription, Subscription::default());
    }

    #[test]
    fn refusals() {
        for query in [
            "batch=abc",
            "wait=maybe",
            "partitions=x",
            "conflation=true",
            "conflation=true&consumerGroup=g&autoAck=true",
            "consumerGroup=g&subscriptionFrom=yesterday",
        ] {
            assert!(parsed(query).is_err(), "{query}");
        }
    }
}
