//! Status for people and dashboards (http-api 12.2). Figures come from the state as it is now;
//! this node keeps no history, so every series is empty and says so by its length.

use std::sync::atomic::Ordering;

use hyper::StatusCode;
use queen_engine::ids::TimeUs;
use serde_json::{Value, json};

use crate::api::configure::options;
use crate::api::resources::{count_named, counts, lane_row, messages, queue_row};
use crate::app::App;
use crate::backlog::QueueCount;
use crate::problem::{Answer, Problem};
use crate::reply::Reply;
use crate::request::{Call, Query};
use crate::time::{iso_ms, parse_iso};

/// The stretch of time a request asks about, and the bucket width that goes with it.
struct Range {
    from: TimeUs,
    to: TimeUs,
}

impl Range {
    fn read(app: &App, query: &Query) -> Result<Range, Problem> {
        let now = app.broker.now();
        let time = |name: &str, default: TimeUs| match query.text(name) {
            None => Ok(default),
            Some(text) => parse_iso(text)
                .ok_or_else(|| Problem::bad_request(format!("{name} must be an ISO time"))),
        };
        Ok(Range {
            from: time("from", now.plus_seconds(-3600))?,
            to: time("to", now)?,
        })
    }

    fn json(&self) -> Value {
        json!({"from": iso_ms(self.from), "to": iso_ms(self.to)})
    }

    fn bucket_minutes(&self) -> i64 {
        match (self.to.0.saturating_sub(self.from.0)) / 60_000_000 {
            ..=60 => 1,
            61..=360 => 5,
            361..=1440 => 15,
            1441..=10_080 => 60,
            _ => 360,
        }
    }
}

/// `GET /api/v1/status`.
pub async fn status(app: &App, call: &Call) -> Answer {
    let range = Range::read(app, &call.query)?;
    let counts = counts(app).await?;
    let now = app.broker.now();
    let sum = |of: fn(&QueueCount) -> u64| counts.iter().map(of).sum::<u64>();
    let (active, lanes_leased) = app.view(|view| {
        let mut leased = 0;
        let mut leases = std::collections::BTreeSet::new();
        for (_, group) in view.engine.groups.iter() {
            for state in group.topics.values() {
                for exception in state.exceptions.values() {
                    if let Some(lease) = exception.live_lease(now) {
                        leased += 1;
                        leases.insert(lease.id);
                    }
                }
            }
        }
        (leases.len(), leased)
    });
    let requests = app.totals.requests.load(Ordering::Relaxed);
    Ok(Reply::json(&json!({
        "timeRange": range.json(),
        "bucketMinutes": range.bucket_minutes(),
        "pointCount": 0,
        "statsAge": 0,
        "throughput": [],
        "workers": [],
        "queues": counts.len(),
        "messages": {
            "total": sum(|count| count.total),
            "pending": sum(|count| count.pending),
            "processing": sum(|count| count.processing),
            "completed": sum(QueueCount::completed),
            "failed": 0,
            "deadLetter": sum(|count| count.dead_letters),
            "requests": requests,
        },
        "leases": {"active": active, "partitionsWithLeases": lanes_leased},
        "deadLetterQueue": {"totalMessages": sum(|count| count.dead_letters)},
        "errors": {"total": 0},
    })))
}

/// `GET /api/v1/status/queues`.
pub async fn queues(app: &App, call: &Call) -> Answer {
    let query = &call.query;
    let (limit, offset) = (query.limit(100, crate::limits::PAGE_MAX)?, query.offset()?);
    let wanted = |count: &&QueueCount| {
        query.text("queue").is_none_or(|name| name == count.name)
            && query
                .text("namespace")
                .is_none_or(|name| name == count.options.namespace)
            && query
                .text("task")
                .is_none_or(|name| name == count.options.task)
    };
    let counts = counts(app).await?;
    let matching: Vec<&QueueCount> = counts.iter().filter(wanted).collect();
    let rows: Vec<Value> = matching
        .iter()
        .skip(offset)
        .take(limit)
        .map(|count| queue_row(count))
        .collect();
    let pagination = json!({"limit": limit, "offset": offset, "total": matching.len()});
    Ok(Reply::json(
        &json!({"queues": rows, "pagination": pagination}),
    ))
}

/// `GET /api/v1/status/queues/:queue`.
pub async fn queue(app: &App, queue: &str) -> Answer {
    let count = count_named(app, queue, None).await?;
    let mut row = queue_row(&count);
    row["config"] = options(&count.options);
    let lanes: Vec<Value> = count.rows.iter().map(lane_row).collect();
    let totals = messages(&count);
    Ok(Reply::json(
        &json!({"queue": row, "partitions": lanes, "totals": totals}),
    ))
}

/// `GET /api/v1/status/analytics`.
pub async fn analytics(app: &App, call: &Call) -> Answer {
    let range = Range::read(app, &call.query)?;
    let interval = match call.query.text("interval") {
        None => "hour",
        Some(interval @ ("minute" | "hour" | "day")) => interval,
        Some(_) => return Err(Problem::bad_request("interval must be minute, hour or day")),
    };
    Ok(Reply::json(&json!({"dataPoints": [], "interval": interval,
        "from": iso_ms(range.from), "to": iso_ms(range.to)})))
}

/// `GET /api/v1/status/buffers`: pushes are never buffered.
pub fn buffers() -> Answer {
    Ok(Reply::json(
        &json!({"pending": 0, "failed": 0, "dbHealthy": true, "worker": 0}),
    ))
}

/// `POST /api/v1/stats/refresh`: figures are always fresh.
pub fn refresh() -> Answer {
    Ok(Reply::json(&json!({"success": true, "refreshed": true})))
}

/// `GET /api/v1/analytics/:name`; `None` for a name that is not served.
pub async fn series(app: &App, call: &Call, name: &str) -> Option<Answer> {
    let range = match Range::read(app, &call.query) {
        Ok(range) => range,
        Err(problem) => return Some(Err(problem)),
    };
    let mut body = json!({"timeRange": range.json(), "bucketMinutes": range.bucket_minutes(),
        "pointCount": 0});
    let fields = match name {
        "system-metrics" => json!({"replicas": []}),
        "worker-metrics" => json!({"summary": {}, "timeSeries": [], "workers": [], "queues": []}),
        "queue-ops" => json!({"series": [], "queues": []}),
        "queue-parked-replicas" => json!({"series": [], "replicas": []}),
        "retention" => json!({"series": [], "totals": {"retentionMsgs": 0,
            "completedRetentionMsgs": 0, "evictionMsgs": 0, "totalMsgs": 0, "eventCount": 0}}),
        "queue-lag" => return Some(Ok(Reply::json(&json!([])))),
        "workload" => match call.query.text("groupBy") {
            None | Some("namespace" | "task" | "queue") => {
                let group_by = call.query.text("groupBy").unwrap_or("namespace");
                json!({"groupBy": group_by, "buckets": [], "rows": [], "tenant": {}})
            }
            Some(_) => return Some(Err(bad("bad groupBy"))),
        },
        "dlq-signatures" => return Some(signatures(app, call).await),
        "partition-liveness" => {
            return Some(Ok(Reply::json(
                &json!({"capturedAt": iso_ms(range.to), "rows": []}),
            )));
        }
        _ => return None,
    };
    if let (Some(body), Value::Object(fields)) = (body.as_object_mut(), fields) {
        body.extend(fields);
    }
    Some(Ok(Reply::json(&body)))
}

fn bad(text: &str) -> Problem {
    Problem::with_body(StatusCode::BAD_REQUEST, json!({"error": text}))
}

/// Error texts of a queue's dead letters by how often they occur.
async fn signatures(app: &App, call: &Call) -> Answer {
    let Some(queue) = call.query.text("queue") else {
        return Err(bad("queue required"));
    };
    app.broker
        .barrier()
        .await
        .map_err(|failure| Problem::of(&failure))?;
    let mut texts: std::collections::BTreeMap<String, u64> = std::collections::BTreeMap::new();
    app.view(|view| {
        let topic = view.engine.topics.named(queue).map(|topic| topic.id);
        let letters = view.engine.dead_letters.values();
        for letter in letters.filter(|letter| Some(letter.topic) == topic) {
            *texts.entry(letter.error.clone()).or_default() += 1;
        }
    });
    let rows: u64 = texts.values().sum();
    let mut ranked: Vec<(String, u64)> = texts.into_iter().collect();
    ranked.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    ranked.truncate(50);
    let share = |count: u64| count as f64 / (rows.max(1)) as f64;
    let signatures: Vec<Value> = ranked
        .iter()
        .map(|(text, count)| json!({"text": text, "n": count, "share": share(*count)}))
        .collect();
    Ok(Reply::json(
        &json!({"queue": queue, "rowsNow": rows, "sample": rows,
        "signatures": signatures}),
    ))
}
