//! Browsing messages (http-api 9.2): newest first, and one in detail.

use std::collections::BinaryHeap;

use hyper::StatusCode;
use queen_engine::group::GroupTopic;
use queen_engine::ids::{LaneId, TimeUs};
use queen_engine::message::{LaneRecord, read_lane};
use queen_engine::names;
use queen_engine::port::{Failure, View};
use queen_engine::topic::Topic;
use serde_json::{Value, json};

use crate::api::configure::options;
use crate::app::App;
use crate::backlog::lane_cursor;
use crate::json;
use crate::limits;
use crate::problem::{Answer, Problem};
use crate::reply::Reply;
use crate::request::{Call, Query};
use crate::resolve::{lane_id, lane_start};
use crate::shown::Shown;
use crate::time::{iso_ms, parse_iso};

const MINUTE_US: i64 = 60_000_000;

/// What a listing asks for.
struct Filter<'a> {
    queue: Option<&'a str>,
    lane: Option<&'a str>,
    namespace: Option<&'a str>,
    task: Option<&'a str>,
    status: Option<&'a str>,
    from: TimeUs,
    /// Exclusive.
    to: TimeUs,
    limit: usize,
    offset: usize,
}

impl<'a> Filter<'a> {
    fn read(query: &'a Query, now: TimeUs) -> Result<Filter<'a>, Problem> {
        let time = |name: &str, default: TimeUs| match query.text(name) {
            None => Ok(default),
            Some(text) => parse_iso(text)
                .ok_or_else(|| Problem::bad_request(format!("{name} must be an ISO time"))),
        };
        let next_minute = TimeUs((now.0.div_euclid(MINUTE_US) + 1).saturating_mul(MINUTE_US));
        let to = time("to", next_minute)?;
        // A full minute stays; anything within one counts to its end.
        let to = TimeUs(
            (to.0 + MINUTE_US - 1)
                .div_euclid(MINUTE_US)
                .saturating_mul(MINUTE_US),
        );
        Ok(Filter {
            queue: query.text("queue"),
            lane: query.text("partition"),
            namespace: query.text("namespace").or_else(|| query.text("ns")),
            task: query.text("task"),
            status: query.text("status"),
            from: time("from", now.plus_seconds(-3600))?,
            to,
            limit: query.limit(200, limits::PAGE_MAX)?,
            offset: query.offset()?.min(10 * limits::PAGE_MAX),
        })
    }

    fn takes(&self, topic: &Topic) -> bool {
        self.queue.is_none_or(|queue| queue == topic.name)
            && self
                .namespace
                .is_none_or(|namespace| namespace == topic.options.namespace)
            && self.task.is_none_or(|task| task == topic.options.task)
    }
}

/// `GET /api/v1/messages`.
pub async fn list(app: &App, call: &Call) -> Answer {
    app.broker
        .barrier()
        .await
        .map_err(|failure| Problem::of(&failure))?;
    let now = app.broker.now();
    let filter = Filter::read(&call.query, now)?;
    // Status is told of each message only when it is met; look a little further for it.
    let wanted = filter.offset + filter.limit * if filter.status.is_some() { 10 } else { 1 };
    let found = app.view(|view| newest(view, &filter, wanted));
    let mut rows = Vec::new();
    let mut skipped = 0;
    for (lane, number) in found {
        if rows.len() == filter.limit {
            break;
        }
        let state = app.view(|view| message_state(view, lane, number, now));
        let Some(state) = state else { continue };
        if filter.status.is_some_and(|status| status != state.status) {
            continue;
        }
        if skipped < filter.offset {
            skipped += 1;
            continue;
        }
        let read = read_lane(&*app.broker, lane, number, number + 1);
        let records = read.map_err(|failure| Problem::of(&failure))?;
        if let Some(record) = records.first() {
            rows.push(list_row(record, &state));
        }
    }
    let mut out = b"{\"messages\":[".to_vec();
    out.extend_from_slice(rows.join(",").as_bytes());
    out.extend_from_slice(b"],\"mode\":");
    out.extend_from_slice(
        app.view(|view| mode(view, filter.queue))
            .to_string()
            .as_bytes(),
    );
    out.extend_from_slice(b",\"total\":");
    json::write_number(&mut out, rows.len() as u64);
    out.push(b'}');
    Ok(Reply::json_bytes(StatusCode::OK, out))
}

/// The newest messages of all matching lanes, merged by time.
fn newest(view: View<'_>, filter: &Filter<'_>, wanted: usize) -> Vec<(LaneId, u64)> {
    let mut lanes: Vec<(TimeUs, LaneId)> = Vec::new();
    for topic in view
        .engine
        .topics
        .iter()
        .filter(|topic| filter.takes(topic))
    {
        let named = filter
            .lane
            .map(|name| view.engine.lanes.find(topic.id, name.as_bytes()));
        let chosen: Vec<LaneId> = match named {
            Some(lane) => lane.into_iter().collect(),
            None => topic.lanes.clone(),
        };
        for lane in chosen {
            if let Some(row) = view.engine.lanes.get(lane)
                && row.next > 0
                && row.last_time >= filter.from
            {
                lanes.push((row.last_time, lane));
            }
        }
    }
    // The newest messages lie in as many lanes at most.
    lanes.sort_unstable_by(|a, b| b.cmp(a));
    lanes.truncate(wanted.max(1));
    let mut heap: BinaryHeap<(TimeUs, LaneId, u64)> = lanes
        .into_iter()
        .filter_map(|(time, lane)| Some((time, lane, view.engine.lanes.get(lane)?.next - 1)))
        .collect();
    let mut found = Vec::new();
    let mut looked = 0;
    while found.len() < wanted
        && looked < limits::PAGE_OFFSET_MAX
        && let Some((time, lane, number)) = heap.pop()
    {
        looked += 1;
        if time < filter.from {
            break;
        }
        if time < filter.to && number >= lane_start(view, lane) {
            found.push((lane, number));
        }
        if let Some(below) = number.checked_sub(1)
            && let Some(place) = view.index.locate(lane, below)
        {
            heap.push((place.row.time, lane, below));
        }
    }
    found
}

/// What groups have made of one message.
struct MessageState {
    queue: String,
    lane_name: String,
    namespace: String,
    task: String,
    config: Value,
    status: &'static str,
    queue_status: Option<&'static str>,
    bus_status: Option<String>,
    lease_expires: Option<TimeUs>,
    retries: u32,
    error: Option<String>,
    groups: Vec<Value>,
}

fn message_state(view: View<'_>, lane: LaneId, number: u64, now: TimeUs) -> Option<MessageState> {
    let row = view.engine.lanes.get(lane)?;
    let topic = view.engine.topics.get(row.topic)?;
    let letters = view.engine.dead_letters.values();
    let letter = letters
        .rev()
        .find(|letter| letter.lane == lane && letter.number == number);
    let (mut groups, mut bus_finished, mut bus_groups) = (Vec::new(), 0, 0);
    let (mut queue_status, mut lease_expires, mut retries) = (None, None, 0);
    for (name, group) in view.engine.groups.iter() {
        let Some(state) = group.topics.get(&topic.id) else {
            continue;
        };
        let (consumed, expires, spent) = group_state(view, state, lane, number, now);
        lease_expires = lease_expires.max(expires);
        retries = retries.max(spent);
        if name == names::QUEUE_MODE_GROUP {
            queue_status = Some(word(consumed, expires.is_some()));
        } else {
            bus_groups += 1;
            bus_finished += usize::from(consumed);
        }
        groups.push(json!({"name": name, "group": name, "consumed": consumed,
            "status": word(consumed, expires.is_some()),
            "leaseExpiresAt": expires.map(iso_ms)}));
    }
    let all = !groups.is_empty() && groups.iter().all(|group| group["consumed"] == true);
    let status = if letter.is_some() {
        "dead_letter"
    } else {
        word(all, lease_expires.is_some())
    };
    Some(MessageState {
        queue: topic.name.clone(),
        lane_name: String::from_utf8_lossy(view.engine.lanes.name(lane)?).into_owned(),
        namespace: topic.options.namespace.clone(),
        task: topic.options.task.clone(),
        config: options(&topic.options),
        status,
        queue_status,
        bus_status: (bus_groups > 0).then(|| format!("{bus_finished}/{bus_groups}")),
        lease_expires,
        retries: letter.map_or(retries, |letter| letter.retries),
        error: letter.map(|letter| letter.error.clone()),
        groups,
    })
}

/// Whether a group has finished the message, the end of a live lease over it, and failures spent.
fn group_state(
    view: View<'_>,
    state: &GroupTopic,
    lane: LaneId,
    number: u64,
    now: TimeUs,
) -> (bool, Option<TimeUs>, u32) {
    let consumed = number < lane_cursor(view, state, lane);
    let exception = state.exceptions.get(&lane);
    let lease = exception
        .and_then(|exception| exception.live_lease(now))
        .filter(|lease| !consumed && (lease.from..lease.to).contains(&number));
    let spent = exception
        .filter(|exception| exception.charged == number)
        .map_or(0, |e| e.retries);
    (consumed, lease.map(|lease| lease.expires), spent)
}

fn word(consumed: bool, leased: bool) -> &'static str {
    match (consumed, leased) {
        (true, _) => "completed",
        (false, true) => "processing",
        (false, false) => "pending",
    }
}

fn mode(view: View<'_>, queue: Option<&str>) -> Value {
    let topics = view.engine.topics.iter();
    let chosen: Vec<_> = topics
        .filter(|topic| queue.is_none_or(|queue| queue == topic.name))
        .collect();
    let (mut queue_mode, mut bus) = (false, 0);
    for (name, group) in view.engine.groups.iter() {
        if !chosen
            .iter()
            .any(|topic| group.topics.contains_key(&topic.id))
        {
            continue;
        }
        if name == names::QUEUE_MODE_GROUP {
            queue_mode = true;
        } else {
            bus += 1;
        }
    }
    let kind = match (queue_mode, bus) {
        (false, 0) => "none",
        (true, 0) => "queue",
        (false, _) => "bus",
        (true, _) => "hybrid",
    };
    json!({"hasQueueMode": queue_mode, "busGroupsCount": bus, "type": kind})
}

/// Fields of both answers; the payload is put in behind, byte for byte.
fn fields(record: &LaneRecord, shown: &Shown<'_>, state: &MessageState) -> Value {
    json!({
        "id": shown.id,
        "transactionId": shown.transaction_id,
        "partitionId": record.lane.0.to_string(),
        "queuePath": format!("{}/{}", state.queue, state.lane_name),
        "queue": state.queue,
        "partition": state.lane_name,
        "namespace": state.namespace,
        "task": state.task,
        "status": state.status,
        "queueStatus": state.queue_status,
        "busStatus": state.bus_status,
        "traceId": shown.trace_id,
        "producerSub": shown.producer_sub,
        "offset": record.number,
        "createdAt": iso_ms(record.row.time),
        "leaseExpiresAt": state.lease_expires.map(iso_ms),
        "isEncrypted": false,
    })
}

/// Closes an object with the payload under both of its names.
fn with_payload(mut fields: Value, value: Option<&[u8]>) -> String {
    if let Some(map) = fields.as_object_mut() {
        map.insert("payloadAvailable".to_owned(), json!(true));
    }
    let document = json::value_document(value);
    let mut text = fields.to_string();
    text.pop();
    let payload = document.get();
    text.push_str(",\"data\":");
    text.push_str(payload);
    text.push_str(",\"payload\":");
    text.push_str(payload);
    text.push('}');
    text
}

fn list_row(record: &LaneRecord, state: &MessageState) -> String {
    let Some(shown) = Shown::of(record) else {
        return "{}".to_owned();
    };
    let mut row = fields(record, &shown, state);
    row["txnHash"] = Value::Null;
    row["segment"] = json!({"seq": record.row.at.index, "frameIdx": record.record});
    with_payload(row, shown.value)
}

/// `GET /api/v1/messages/:partitionId/:transactionId`.
pub async fn detail(app: &App, lane: &str, txn: &str) -> Answer {
    app.broker
        .barrier()
        .await
        .map_err(|failure| Problem::of(&failure))?;
    let now = app.broker.now();
    let found = locate(app, lane, txn).map_err(|failure| Problem::of(&failure))?;
    let Some(record) = found else {
        return Err(Problem::not_found("Message not found"));
    };
    let state = app.view(|view| message_state(view, record.lane, record.number, now));
    let (Some(state), Some(shown)) = (state, Shown::of(&record)) else {
        return Err(Problem::not_found("Message not found"));
    };
    let mut body = fields(&record, &shown, &state);
    body["errorMessage"] = json!(state.error);
    body["retryCount"] = json!(state.retries);
    body["queueConfig"] = state.config.clone();
    body["consumerGroups"] = json!(state.groups);
    body["mode"] = app.view(|view| mode(view, Some(&state.queue)));
    Ok(Reply::json_bytes(
        StatusCode::OK,
        with_payload(body, shown.value),
    ))
}

/// The record a message address names: looked up, else searched among the newest of the lane.
fn locate(app: &App, lane: &str, txn: &str) -> Result<Option<LaneRecord>, Failure> {
    let Some(lane) = lane_id(lane) else {
        return Ok(None);
    };
    let next = app.view(|view| view.engine.lanes.get(lane).map(|row| row.next));
    let Some(next) = next else { return Ok(None) };
    let window = next.saturating_sub(limits::RESOLVE_WINDOW)..next;
    let number = queen_engine::message::resolve_transaction(&*app.broker, lane, txn, window)?;
    let Some(number) = number else {
        return Ok(None);
    };
    Ok(read_lane(&*app.broker, lane, number, number + 1)?.pop())
}
