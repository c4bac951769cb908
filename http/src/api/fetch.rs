//! Reads by offset, without a group (http-api 7.1, 7.2). An offset here is a lane's number.

use std::time::Duration;

use queen_engine::ids::{LaneId, TimeUs, TopicId};
use queen_engine::message::read_lane;
use queen_engine::port::{Failure, View};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api::push::lane_or_default;
use crate::app::App;
use crate::json::{self, Text};
use crate::limits;
use crate::problem::{Answer, Problem};
use crate::reply::Reply;
use crate::request::Call;
use crate::resolve::lane_start;
use crate::shown::Shown;
use crate::time::{iso_us, parse_iso};

/// Records read from the log in one step.
const STEP: u64 = 128;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    entries: Option<Vec<EntryBody>>,
    max_wait_ms: Option<i64>,
    min_bytes: Option<i64>,
    max_bytes: Option<i64>,
    barrier: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EntryBody {
    queue: Option<Text>,
    partition: Option<Text>,
    offset: Option<i64>,
    max_bytes: Option<i64>,
}

struct Entry {
    queue: String,
    lane: String,
    offset: u64,
    max_bytes: u64,
}

/// What the state says of an entry.
#[derive(Clone, Copy)]
enum Place {
    UnknownQueue,
    NeverWritten,
    Lane { lane: LaneId, start: u64, next: u64 },
}

fn locate(view: View<'_>, queue: &str, lane: &str) -> Place {
    let Some(topic) = view.engine.topics.named(queue) else {
        return Place::UnknownQueue;
    };
    let found = view.engine.lanes.find(topic.id, lane.as_bytes());
    match found.and_then(|lane| Some((lane, view.engine.lanes.get(lane)?))) {
        None => Place::NeverWritten,
        Some((lane, row)) => Place::Lane {
            lane,
            start: lane_start(view, lane),
            next: row.next,
        },
    }
}

fn read_entries(entries: Option<Vec<EntryBody>>) -> Result<Vec<Entry>, Problem> {
    let Some(entries) = entries else {
        return Err(Problem::bad_request("entries is required"));
    };
    if entries.len() > limits::FETCH_ENTRIES_MAX {
        return Err(Problem::bad_request("at most 1024 entries"));
    }
    let read = |entry: EntryBody| {
        let Some(Text(queue)) = entry.queue else {
            return Err(Problem::bad_request("an entry needs a queue"));
        };
        let Some(offset) = entry.offset.and_then(|offset| u64::try_from(offset).ok()) else {
            return Err(Problem::bad_request(
                "an entry needs an offset of 0 or more",
            ));
        };
        let max_bytes = entry.max_bytes.map_or(limits::FETCH_ENTRY_BYTES, |bytes| {
            u64::try_from(bytes)
                .unwrap_or(0)
                .clamp(1, limits::FETCH_ENTRY_BYTES_MAX)
        });
        Ok(Entry {
            queue,
            lane: lane_or_default(entry.partition),
            offset,
            max_bytes,
        })
    };
    entries.into_iter().map(read).collect()
}

/// `POST /api/v1/fetch`.
pub async fn fetch(app: &App, call: &Call) -> Answer {
    let body: Body = call.json()?;
    let entries = read_entries(body.entries)?;
    let positive = |value: Option<i64>, default: u64| {
        value.map_or(default, |value| u64::try_from(value).unwrap_or(0))
    };
    let wait_ms = positive(body.max_wait_ms, 0).min(limits::FETCH_WAIT_MS_MAX);
    let min_bytes = positive(body.min_bytes, 1);
    let ceiling =
        positive(body.max_bytes, limits::FETCH_BYTES_MAX).clamp(1, limits::FETCH_BYTES_MAX);
    if body.barrier.unwrap_or(false) {
        app.broker
            .barrier()
            .await
            .map_err(|failure| Problem::of(&failure))?;
    }
    let deadline = Instant::now() + Duration::from_millis(wait_ms);
    loop {
        // Registered before looking, or an append in between would be slept through.
        let topics = topics_of(app, &entries);
        let appended = app.broker.appended(&topics);
        let page = read(app, &entries, ceiling).map_err(|failure| Problem::of(&failure))?;
        let done = entries.is_empty() || page.failed || page.bytes >= min_bytes;
        if done || Instant::now() >= deadline {
            return Ok(Reply::json_bytes(hyper::StatusCode::OK, page.json));
        }
        tokio::select! {
            () = appended => {}
            () = tokio::time::sleep_until(deadline) => {}
            () = app.stopped() => {
                return Ok(Reply::json_bytes(hyper::StatusCode::OK, page.json));
            }
        }
    }
}

fn topics_of(app: &App, entries: &[Entry]) -> Vec<TopicId> {
    let mut topics: Vec<TopicId> = app.view(|view| {
        let id = |entry: &Entry| view.engine.topics.named(&entry.queue).map(|topic| topic.id);
        entries.iter().filter_map(id).collect()
    });
    topics.sort_unstable();
    topics.dedup();
    topics
}

struct Page {
    json: Vec<u8>,
    /// Bytes of all payloads in it.
    bytes: u64,
    /// Whether an entry answers an error.
    failed: bool,
}

fn read(app: &App, entries: &[Entry], ceiling: u64) -> Result<Page, Failure> {
    let places: Vec<Place> = app.view(|view| {
        entries
            .iter()
            .map(|entry| locate(view, &entry.queue, &entry.lane))
            .collect()
    });
    let mut page = Page {
        json: b"{\"entries\":[".to_vec(),
        bytes: 0,
        failed: false,
    };
    for (at, (entry, place)) in entries.iter().zip(places).enumerate() {
        if at > 0 {
            page.json.push(b',');
        }
        write_entry(app, &mut page, entry, place, ceiling)?;
    }
    page.json.extend_from_slice(b"]}");
    Ok(page)
}

fn write_entry(
    app: &App,
    page: &mut Page,
    entry: &Entry,
    place: Place,
    ceiling: u64,
) -> Result<(), Failure> {
    page.json.extend_from_slice(b"{\"queue\":");
    json::write_text(&mut page.json, &entry.queue);
    page.json.extend_from_slice(b",\"partition\":");
    json::write_text(&mut page.json, &entry.lane);
    page.json.extend_from_slice(b",\"records\":[");
    let (start, next, mut error) = match place {
        Place::UnknownQueue => (0, 0, Some("UNKNOWN_TOPIC_OR_PARTITION")),
        Place::NeverWritten => (0, 0, None),
        Place::Lane { start, next, .. } => (start, next, None),
    };
    if error.is_none() && (entry.offset < start || entry.offset > next) {
        error = Some("OFFSET_OUT_OF_RANGE");
    }
    if let (Place::Lane { lane, .. }, None) = (place, error) {
        write_records(app, page, entry, lane, next, ceiling)?;
    }
    page.json.extend_from_slice(b"],\"highWatermark\":");
    json::write_number(&mut page.json, next);
    page.json.extend_from_slice(b",\"logStartOffset\":");
    json::write_number(&mut page.json, start);
    if let Some(error) = error {
        page.failed = true;
        page.json.extend_from_slice(b",\"error\":");
        json::write_text(&mut page.json, error);
    }
    page.json.push(b'}');
    Ok(())
}

fn write_records(
    app: &App,
    page: &mut Page,
    entry: &Entry,
    lane: LaneId,
    next: u64,
    ceiling: u64,
) -> Result<(), Failure> {
    let (mut at, mut own, mut first) = (entry.offset, 0, true);
    while at < next {
        let to = next.min(at + STEP);
        for record in read_lane(&*app.broker, lane, at, to)? {
            let Some(shown) = Shown::of(&record) else {
                continue;
            };
            let size = shown.value.map_or(4, |value| value.len() as u64) + 64;
            // One record at least, or a client could never pass a large one.
            let fits = own + size <= entry.max_bytes && page.bytes + size <= ceiling;
            let at_least = first && (page.bytes == 0 || page.bytes + size <= ceiling);
            if !fits && !at_least {
                return Ok(());
            }
            if !first {
                page.json.push(b',');
            }
            first = false;
            own += size;
            page.bytes += size;
            page.json.extend_from_slice(b"{\"offset\":");
            json::write_number(&mut page.json, record.number);
            page.json.extend_from_slice(b",\"transactionId\":");
            json::write_text(&mut page.json, &shown.transaction_id);
            page.json.extend_from_slice(b",\"ts\":");
            json::write_text(&mut page.json, &iso_us(record.row.time));
            page.json.extend_from_slice(b",\"payload\":");
            json::write_value(&mut page.json, shown.value);
            page.json.push(b'}');
        }
        at = to;
    }
    Ok(())
}

#[derive(Deserialize)]
struct OffsetsBody {
    entries: Option<Vec<OffsetsEntry>>,
    barrier: Option<bool>,
}

#[derive(Deserialize)]
struct OffsetsEntry {
    queue: Option<Text>,
    partition: Option<Text>,
    timestamp: Option<Value>,
}

/// A time in milliseconds or as ISO text.
pub fn read_time(value: &Value) -> Option<TimeUs> {
    match value {
        Value::Number(number) => {
            let millis = number
                .as_i64()
                .or_else(|| number.as_f64().map(|n| n as i64))?;
            Some(TimeUs(0).plus_millis(millis))
        }
        Value::String(text) => parse_iso(text),
        _ => None,
    }
}

/// `POST /api/v1/fetch/offsets`: the first offset appended at or after a time.
pub async fn offsets(app: &App, call: &Call) -> Answer {
    let body: OffsetsBody = call.json()?;
    let Some(entries) = body.entries else {
        return Err(Problem::bad_request("entries is required"));
    };
    if entries.len() > limits::FETCH_ENTRIES_MAX {
        return Err(Problem::bad_request("at most 1024 entries"));
    }
    if body.barrier.unwrap_or(false) {
        app.broker
            .barrier()
            .await
            .map_err(|failure| Problem::of(&failure))?;
    }
    let mut rows = Vec::with_capacity(entries.len());
    for entry in entries {
        let Some(Text(queue)) = entry.queue else {
            return Err(Problem::bad_request("an entry needs a queue"));
        };
        let Some(time) = entry.timestamp.as_ref().and_then(read_time) else {
            return Err(Problem::bad_request(
                "timestamp must be milliseconds or an ISO time",
            ));
        };
        let lane = lane_or_default(entry.partition);
        rows.push(app.view(|view| offset_row(view, &queue, &lane, time)));
    }
    Ok(Reply::json(&json!({"entries": rows})))
}

fn offset_row(view: View<'_>, queue: &str, lane_name: &str, time: TimeUs) -> Value {
    let mut row = json!({"queue": queue, "partition": lane_name, "offset": null, "ts": null,
        "highWatermark": 0, "logStartOffset": 0});
    match locate(view, queue, lane_name) {
        Place::UnknownQueue => row["error"] = json!("UNKNOWN_TOPIC_OR_PARTITION"),
        Place::NeverWritten => {}
        Place::Lane {
            lane, start, next, ..
        } => {
            row["highWatermark"] = json!(next);
            row["logStartOffset"] = json!(start);
            let number = first_at(view, lane, start, next, time);
            if let Some(place) = view.index.locate(lane, number).filter(|_| number < next) {
                row["offset"] = json!(number);
                row["ts"] = json!(iso_us(place.row.time));
            }
        }
    }
    row
}

/// The first number of `start..next` appended at or after `time`; `next` when there is none.
pub fn first_at(view: View<'_>, lane: LaneId, start: u64, next: u64, time: TimeUs) -> u64 {
    // Numbers follow commit order, so times never fall along a lane.
    let (mut low, mut high) = (start, next);
    while low < high {
        let middle = low + (high - low) / 2;
        if view
            .index
            .locate(lane, middle)
            .is_some_and(|place| place.row.time >= time)
        {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}
