//! `POST /api/v1/partitions/changed` (http-api 7.3): pages of lanes, all or those written since.

use queen_engine::ids::{LaneId, TimeUs, TopicId};
use queen_engine::port::View;
use queen_engine::topic::Topic;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::json::{self, Text};
use crate::limits;
use crate::problem::{Answer, Problem};
use crate::reply::Reply;
use crate::request::Call;
use crate::resolve::lane_start;
use crate::time::{iso_us, parse_iso};

#[derive(Deserialize)]
struct Body {
    entries: Option<Vec<EntryBody>>,
    barrier: Option<bool>,
}

#[derive(Deserialize)]
struct EntryBody {
    queue: Option<Text>,
    since: Option<Text>,
    after: Option<Text>,
    limit: Option<i64>,
}

struct Entry {
    queue: String,
    since: Option<TimeUs>,
    after: Option<String>,
    limit: usize,
}

/// The route.
pub async fn changed(app: &App, call: &Call) -> Answer {
    let body: Body = call.json()?;
    let Some(entries) = body.entries else {
        return Err(Problem::bad_request("entries is required"));
    };
    if entries.len() > limits::FETCH_ENTRIES_MAX {
        return Err(Problem::bad_request("at most 1024 entries"));
    }
    let entries: Vec<Entry> = entries
        .into_iter()
        .map(read_entry)
        .collect::<Result<_, _>>()?;
    if body.barrier.unwrap_or(false) {
        app.broker
            .barrier()
            .await
            .map_err(|failure| Problem::of(&failure))?;
    }
    // Taken before the pages: what is appended meanwhile has a later stamp.
    let safe = app.view(|view| view.engine.now());
    let rows: Vec<Value> = entries.iter().map(|entry| page(app, entry)).collect();
    Ok(Reply::json(&json!({
        "safeTime": iso_us(safe),
        "safeTimeDegraded": false,
        "entries": rows,
    })))
}

fn read_entry(body: EntryBody) -> Result<Entry, Problem> {
    let Some(Text(queue)) = body.queue else {
        return Err(Problem::bad_request("an entry needs a queue"));
    };
    let since = match json::non_empty(body.since) {
        None => None,
        Some(text) => Some(
            parse_iso(&text).ok_or_else(|| Problem::bad_request("since must be an ISO time"))?,
        ),
    };
    let limit = body
        .limit
        .map_or(limits::CHANGED_LIMIT, |n| usize::try_from(n).unwrap_or(1));
    let limit = limit.clamp(1, limits::CHANGED_LIMIT);
    Ok(Entry {
        queue,
        since,
        after: json::non_empty(body.after),
        limit,
    })
}

/// The cursor: the queue's creation and the last lane shown. Lanes are numbered in order of
/// creation, so lanes made meanwhile come behind it.
fn write_cursor(topic: TopicId, lane: LaneId) -> String {
    format!("{}.{}", topic.0, lane.0)
}

fn read_cursor(text: &str) -> Option<(TopicId, LaneId)> {
    let (topic, lane) = text.split_once('.')?;
    Some((TopicId(topic.parse().ok()?), LaneId(lane.parse().ok()?)))
}

fn page(app: &App, entry: &Entry) -> Value {
    let failed = |error: &str| json!({"queue": entry.queue, "error": error});
    let Some(topic) = app.queue_id(&entry.queue) else {
        return failed("UNKNOWN_TOPIC_OR_PARTITION");
    };
    let mut after = None;
    if let Some(cursor) = &entry.after {
        match read_cursor(cursor) {
            Some((of, lane)) if of == topic => after = Some(lane),
            _ => return failed("BAD_CURSOR"),
        }
    }
    let mut rows = Vec::new();
    let mut more = true;
    while more && rows.len() < entry.limit {
        (after, more) = app.view(|view| match view.engine.topics.get(topic) {
            Some(topic) => look(view, topic, entry, after, &mut rows),
            None => (after, false),
        });
    }
    let next = after
        .filter(|_| rows.len() == entry.limit)
        .map(|lane| write_cursor(topic, lane));
    json!({"queue": entry.queue, "partitions": rows, "next": next})
}

/// One look: some lanes behind `after`; where it got to, and whether there are more.
fn look(
    view: View<'_>,
    topic: &Topic,
    entry: &Entry,
    mut after: Option<LaneId>,
    rows: &mut Vec<Value>,
) -> (Option<LaneId>, bool) {
    let from = topic.lanes.partition_point(|lane| Some(*lane) <= after);
    let rest = topic.lanes.get(from..).unwrap_or_default();
    for lane in rest.iter().take(limits::LANES_PER_LOOK) {
        if rows.len() == entry.limit {
            return (after, true);
        }
        after = Some(*lane);
        let Some(row) = view.engine.lanes.get(*lane) else {
            continue;
        };
        if entry.since.is_some_and(|since| row.last_time < since) {
            continue;
        }
        let name = view.engine.lanes.name(*lane).unwrap_or_default();
        let last = i64::try_from(row.next).map_or(i64::MAX, |next| next - 1);
        rows.push(json!({
            "name": String::from_utf8_lossy(name),
            "id": lane.0.to_string(),
            "lastOffset": last,
            "logStart": lane_start(view, *lane),
            "lastWriteAt": iso_us(row.last_time),
        }));
    }
    (after, rest.len() > limits::LANES_PER_LOOK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_back_and_others_are_not() {
        let text = write_cursor(TopicId(3), LaneId(9));
        assert_eq!(read_cursor(&text), Some((TopicId(3), LaneId(9))));
        for text in ["", "3", "3.x", "x.9", "3.9.1", "-3.9"] {
            assert_eq!(read_cursor(text), None, "{text}");
        }
    }
}
