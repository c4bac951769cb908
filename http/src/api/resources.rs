//! What exists and how full it is (http-api 12.1).

use std::collections::BTreeMap;

use queen_engine::ids::TimeUs;
use serde_json::{Value, json};

use crate::api::configure::options;
use crate::app::App;
use crate::backlog::{LaneCount, QueueCount, count, queue_ids, seconds_since};
use crate::problem::{Answer, Problem};
use crate::reply::Reply;
use crate::request::Call;
use crate::time::iso_ms;

/// Most lanes of one listing of lanes (http-api 12.1).
const LANES_LISTED_MAX: usize = 610;

/// Waits for everything committed, then counts every queue.
pub async fn counts(app: &App) -> Result<Vec<QueueCount>, Problem> {
    app.broker
        .barrier()
        .await
        .map_err(|failure| Problem::of(&failure))?;
    Ok(queue_ids(app)
        .into_iter()
        .filter_map(|id| count(app, id, None))
        .collect())
}

/// Counts one queue.
pub async fn count_named(
    app: &App,
    queue: &str,
    group: Option<&str>,
) -> Result<QueueCount, Problem> {
    app.broker
        .barrier()
        .await
        .map_err(|failure| Problem::of(&failure))?;
    app.queue_id(queue)
        .and_then(|id| count(app, id, group))
        .ok_or_else(|| Problem::not_found("Queue not found"))
}

/// The message figures of a queue.
pub fn messages(count: &QueueCount) -> Value {
    json!({
        "total": count.total,
        "pending": count.pending,
        "processing": count.processing,
        "completed": count.completed(),
        "failed": 0,
        "deadLetter": count.dead_letters,
    })
}

/// A queue as listings show it.
pub fn queue_row(count: &QueueCount) -> Value {
    json!({
        "id": count.id,
        "name": count.name,
        "namespace": count.options.namespace,
        "task": count.options.task,
        "createdAt": iso_ms(count.created),
        "partitions": count.lanes,
        "retainedBytes": count.bytes,
        "segments": {"segments": 0, "messages": count.total},
        "messages": messages(count),
    })
}

/// A lane as a queue's detail shows it.
pub fn lane_row(lane: &LaneCount) -> Value {
    json!({
        "id": lane.lane.0.to_string(),
        "name": lane.name,
        "createdAt": lane.oldest.map(iso_ms),
        "stats": {
            "total": lane.total,
            "pending": lane.pending,
            "processing": lane.processing,
            "completed": lane.total.saturating_sub(lane.pending),
            "failed": null,
            "deadLetter": 0,
        },
        "oldestMessage": lane.oldest.map(iso_ms),
        "newestMessage": (lane.total > 0).then(|| iso_ms(lane.newest)),
    })
}

/// `GET /api/v1/resources/overview`.
pub async fn overview(app: &App) -> Answer {
    let now = app.broker.now();
    let counts = counts(app).await?;
    let sum = |of: fn(&QueueCount) -> u64| counts.iter().map(of).sum::<u64>();
    let labels = |of: fn(&QueueCount) -> &str| {
        let mut found: Vec<&str> = counts
            .iter()
            .map(of)
            .filter(|label| !label.is_empty())
            .collect();
        found.sort_unstable();
        found.dedup();
        found.len()
    };
    let lags: Vec<i64> = counts
        .iter()
        .flat_map(|count| &count.rows)
        .filter_map(|row| row.oldest_pending)
        .map(|oldest| seconds_since(oldest, now))
        .collect();
    let depths: Vec<i64> = counts
        .iter()
        .flat_map(|count| &count.rows)
        .filter(|row| row.pending > 0)
        .map(|row| i64::try_from(row.pending).unwrap_or(i64::MAX))
        .collect();
    let uptime = app.started.elapsed().as_secs_f64().max(1.0);
    let rate = |total: &std::sync::atomic::AtomicU64| {
        total.load(std::sync::atomic::Ordering::Relaxed) as f64 / uptime
    };
    Ok(Reply::json(&json!({
        "queues": counts.len(),
        "partitions": counts.iter().map(|count| count.lanes).sum::<usize>(),
        "namespaces": labels(|count| &count.options.namespace),
        "tasks": labels(|count| &count.options.task),
        "messages": {
            "total": sum(|count| count.total),
            "pending": sum(|count| count.pending),
            "processing": sum(|count| count.processing),
            "completed": sum(QueueCount::completed),
            "failed": 0,
            "deadLetter": sum(|count| count.dead_letters),
        },
        "lag": {"time": spread(&lags), "offset": spread(&depths)},
        "throughput": {
            "ingestedPerSecond": rate(&app.totals.pushed),
            "processedPerSecond": rate(&app.totals.popped),
        },
        "timestamp": iso_ms(now),
        "statsAge": 0,
    })))
}

/// Average, middle, smallest and largest; zeroes of nothing.
fn spread(values: &[i64]) -> Value {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let average = if sorted.is_empty() {
        0
    } else {
        sorted.iter().sum::<i64>() / i64::try_from(sorted.len()).unwrap_or(1)
    };
    json!({
        "avg": average,
        "median": sorted.get(sorted.len() / 2).copied().unwrap_or(0),
        "min": sorted.first().copied().unwrap_or(0),
        "max": sorted.last().copied().unwrap_or(0),
    })
}

/// `GET /api/v1/resources/queues`.
pub async fn queues(app: &App) -> Answer {
    let rows: Vec<Value> = counts(app).await?.iter().map(queue_row).collect();
    Ok(Reply::json(&json!({"queues": rows})))
}

/// `GET /api/v1/resources/queues/:queue`.
pub async fn queue(app: &App, queue: &str) -> Answer {
    let count = count_named(app, queue, None).await?;
    let mut body = queue_row(&count);
    body["options"] = options(&count.options);
    body["partitions"] = count.rows.iter().map(lane_row).collect();
    body["totals"] = messages(&count);
    Ok(Reply::json(&body))
}

/// `GET /api/v1/resources/queues/:queue/depth`.
pub async fn depth(app: &App, call: &Call, queue: &str) -> Answer {
    let group = call
        .query
        .text("group")
        .or_else(|| call.query.text("consumerGroup"));
    let count = count_named(app, queue, group).await?;
    let ready = |lane: &LaneCount| {
        if lane.processing > 0 || lane.lease.is_some() {
            0
        } else {
            lane.pending
        }
    };
    let with_work = count.rows.iter().filter(|lane| lane.pending > 0).count() as u64;
    let lanes_ready = count.rows.iter().filter(|lane| ready(lane) > 0).count() as u64;
    let total_ready: u64 = count.rows.iter().map(ready).sum();
    let conflated = |lanes: u64, messages: u64| if count.conflation { lanes } else { messages };
    let rows: Vec<Value> = count
        .rows
        .iter()
        .map(|lane| {
            json!({"partition": lane.name, "pending": lane.pending,
                "processing": lane.processing, "ready": ready(lane)})
        })
        .collect();
    Ok(Reply::json(&json!({
        "queue": queue,
        "group": group,
        "pending": count.pending,
        "processing": count.processing,
        "ready": total_ready,
        "partitionsPending": with_work,
        "partitionsReady": lanes_ready,
        "conflation": count.conflation,
        "effectivePending": conflated(with_work, count.pending),
        "effectiveReady": conflated(lanes_ready, total_ready),
        "partitions": rows,
    })))
}

async fn by_label(app: &App, key: &str, label: fn(&QueueCount) -> &str) -> Result<Value, Problem> {
    let counts = counts(app).await?;
    let mut groups: BTreeMap<&str, Vec<&QueueCount>> = BTreeMap::new();
    for count in &counts {
        groups.entry(label(count)).or_default().push(count);
    }
    let rows = groups.into_iter().map(|(name, counts)| {
        let sum = |of: fn(&QueueCount) -> u64| counts.iter().map(|count| of(count)).sum::<u64>();
        json!({
            key: name,
            "queues": counts.len(),
            "partitions": counts.iter().map(|count| count.lanes).sum::<usize>(),
            "messages": {"total": sum(|count| count.total), "pending": sum(|count| count.pending)},
        })
    });
    Ok(rows.collect())
}

/// `GET /api/v1/resources/namespaces`.
pub async fn namespaces(app: &App) -> Answer {
    let rows = by_label(app, "namespace", |count| &count.options.namespace).await?;
    Ok(Reply::json(&json!({"namespaces": rows})))
}

/// `GET /api/v1/resources/tasks`.
pub async fn tasks(app: &App) -> Answer {
    let rows = by_label(app, "task", |count| &count.options.task).await?;
    Ok(Reply::json(&json!({"tasks": rows})))
}

/// `GET /api/v1/resources/partitions`: the fullest lanes first.
pub async fn partitions(app: &App, call: &Call) -> Answer {
    let limit = call.query.limit(100, LANES_LISTED_MAX)?;
    let now = app.broker.now();
    let counts = match call.query.text("queue") {
        Some(queue) => vec![count_named(app, queue, None).await?],
        None => counts(app).await?,
    };
    let mut lanes: Vec<(&str, &LaneCount)> = counts
        .iter()
        .flat_map(|count| count.rows.iter().map(|row| (count.name.as_str(), row)))
        .collect();
    lanes.sort_by_key(|(_, lane)| std::cmp::Reverse(lane.pending));
    let row = |(queue, lane): &(&str, &LaneCount)| {
        let lag = |oldest: TimeUs| seconds_since(oldest, now);
        json!({"queue": queue, "partition": lane.name, "id": lane.lane.0.to_string(),
            "pending": lane.pending, "processing": lane.processing,
            "lagSeconds": lane.oldest_pending.map(lag)})
    };
    let rows: Vec<Value> = lanes.iter().take(limit).map(row).collect();
    Ok(Reply::json(&json!({"partitions": rows})))
}
