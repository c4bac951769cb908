//! Consumer groups (http-api 9.4): listings, seeks, start times, deletion.

use queen_engine::command::{Command, Seek};
use queen_engine::group::{GroupTopic, Registration};
use queen_engine::ids::{LaneId, TimeUs, TopicId};
use queen_engine::outcome::Outcome;
use queen_engine::port::View;
use queen_engine::schedule::offsets_at;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::api::fetch::{first_at, read_time};
use crate::app::App;
use crate::backlog::{self, lane_cursor, seconds_since};
use crate::problem::{Answer, Problem};
use crate::reply::Reply;
use crate::request::Call;
use crate::resolve::lane_start;
use crate::time::iso_ms;

/// Lag from which a group counts as lagging, seconds.
const LAGGING_SECONDS: i64 = 300;

async fn barrier(app: &App) -> Result<(), Problem> {
    app.broker
        .barrier()
        .await
        .map_err(|failure| Problem::of(&failure))
}

/// Every (group, queue) pair with its registration.
fn pairs(app: &App, only: Option<&str>) -> Vec<(String, TopicId, Option<Registration>, usize)> {
    app.view(|view| {
        let groups = view.engine.groups.iter();
        let groups = groups.filter(|(name, _)| only.is_none_or(|only| only == *name));
        groups
            .flat_map(|(name, group)| {
                group.topics.iter().map(move |(topic, state)| {
                    let cursors = state.exceptions.len();
                    (name.to_owned(), *topic, state.registration.clone(), cursors)
                })
            })
            .collect()
    })
}

/// `GET /api/v1/consumer-groups`: a bare list.
pub async fn list(app: &App) -> Answer {
    barrier(app).await?;
    let now = app.broker.now();
    let mut rows = Vec::new();
    for (name, topic, registration, _) in pairs(app, None) {
        let Some(count) = backlog::count(app, topic, Some(&name)) else {
            continue;
        };
        let oldest = count.rows.iter().filter_map(|row| row.oldest_pending).min();
        let time_lag = oldest.map_or(0, |oldest| seconds_since(oldest, now));
        let registered = registration.as_ref();
        rows.push(json!({
            "name": name,
            "topics": [count.name],
            "queueName": count.name,
            "members": 0,
            "partitionCursors": count.lanes,
            "partitionsWithLag": count.rows.iter().filter(|row| row.pending > 0).count(),
            "totalLag": count.pending,
            "maxTimeLag": time_lag,
            "state": if time_lag > LAGGING_SECONDS { "Lagging" } else { "Stable" },
            "storage": "segments",
            "subscriptionMode": registered.map(|registration| registration.mode.as_str()),
            "subscriptionTimestamp":
                registered.and_then(|registration| registration.timestamp).map(iso_ms),
            "subscriptionCreatedAt": registered.map(|registration| iso_ms(registration.created)),
            "conflation": count.conflation,
        }));
    }
    Ok(Reply::json(&rows))
}

/// `GET /api/v1/consumer-groups/lagging`: a bare list of lanes.
pub async fn lagging(app: &App, call: &Call) -> Answer {
    let least = call.query.integer("minLagSeconds")?.unwrap_or(3600).max(0);
    barrier(app).await?;
    let now = app.broker.now();
    let mut rows = Vec::new();
    for (name, topic, _, _) in pairs(app, None) {
        let Some(count) = backlog::count(app, topic, Some(&name)) else {
            continue;
        };
        for lane in &count.rows {
            let Some(oldest) = lane.oldest_pending else {
                continue;
            };
            let lag = seconds_since(oldest, now);
            if lag < least {
                continue;
            }
            rows.push(json!({
                "consumer_group": name,
                "queue_name": count.name,
                "partition_name": lane.name,
                "partition_id": lane.lane.0.to_string(),
                "worker_id": lane.lease,
                "offset_lag": lane.pending,
                "time_lag_seconds": lag,
                "lag_hours": lag as f64 / 3600.0,
                "oldest_unconsumed_at": iso_ms(oldest),
                "last_consumed_at": null,
            }));
        }
    }
    Ok(Reply::json(&rows))
}

/// `GET /api/v1/consumer-groups/:group`: an object keyed by queue.
pub async fn detail(app: &App, group: &str) -> Answer {
    barrier(app).await?;
    let now = app.broker.now();
    let mut queues = Map::new();
    for (name, topic, _, _) in pairs(app, Some(group)) {
        let Some(count) = backlog::count(app, topic, Some(&name)) else {
            continue;
        };
        let rows: Vec<Value> = count
            .rows
            .iter()
            .map(|lane| {
                let oldest = lane.oldest_pending;
                json!({
                    "partition": lane.name,
                    "partitionId": lane.lane.0.to_string(),
                    "workerId": lane.lease,
                    "lastConsumedAt": null,
                    "totalConsumed": lane.cursor,
                    "offsetLag": lane.pending,
                    "timeLagSeconds": oldest.map_or(0, |oldest| seconds_since(oldest, now)),
                    "leaseActive": lane.lease.is_some(),
                })
            })
            .collect();
        queues.insert(
            count.name,
            json!({"conflation": count.conflation, "partitions": rows}),
        );
    }
    Ok(Reply::json(&queues))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SubscriptionBody {
    subscription_timestamp: Option<Value>,
}

/// `POST /api/v1/consumer-groups/:group/subscription`.
pub async fn resubscribe(app: &App, call: &Call, group: String) -> Answer {
    let body: SubscriptionBody = call.json()?;
    let Some(given) = body.subscription_timestamp else {
        return Err(Problem::bad_request("subscriptionTimestamp is required"));
    };
    let Some(timestamp) = read_time(&given) else {
        return Err(Problem::bad_request(
            "subscriptionTimestamp must be an ISO time",
        ));
    };
    barrier(app).await?;
    let offsets = app.view(|view| {
        let topics = view
            .engine
            .groups
            .get(&group)
            .map(|group| group.topics.keys());
        let topics = topics.into_iter().flatten();
        topics
            .filter_map(|topic| view.engine.topics.get(*topic))
            .map(|topic| (topic.id, offsets_at(view, topic, timestamp)))
            .collect()
    });
    let command = Command::Resubscribe {
        group: group.clone(),
        offsets,
        timestamp,
    };
    let rows = match app.broker.submit(command).await {
        Ok(Outcome::Deleted(rows)) => rows,
        Ok(_) => return Err(Problem::unexpected("subscription")),
        Err(failure) => return Err(Problem::of(&failure)),
    };
    Ok(Reply::json(
        &json!({"success": true, "consumerGroup": group, "newTimestamp": given,
        "rowsUpdated": rows}),
    ))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SeekBody {
    to_end: Option<bool>,
    timestamp: Option<Value>,
}

/// Where a seek goes.
#[derive(Clone, Copy)]
enum Target {
    End,
    Time(TimeUs),
}

/// Both seek routes.
pub async fn seek(
    app: &App,
    call: &Call,
    group: String,
    queue: String,
    lane: Option<String>,
) -> Answer {
    let body: SeekBody = call.json()?;
    let given = body.timestamp.filter(|timestamp| !timestamp.is_null());
    let target = match (&given, body.to_end) {
        (_, Some(true)) => Target::End,
        (Some(time), _) => Target::Time(
            read_time(time).ok_or_else(|| Problem::bad_request("timestamp must be an ISO time"))?,
        ),
        (None, _) if lane.is_some() && call.body.trim_ascii().is_empty() => Target::End,
        (None, _) => {
            return Err(Problem::bad_request("seek needs toEnd:true or a timestamp"));
        }
    };
    barrier(app).await?;
    let lane_name = lane.as_deref();
    let (seek, lanes) = app.view(|view| plan_seek(view, &group, &queue, lane_name, target))?;
    let outcome = app.broker.submit(Command::Seek(seek)).await;
    match outcome.map_err(|failure| Problem::of(&failure))? {
        Outcome::Done | Outcome::Topic(_) => {}
        Outcome::Rejected(reject) => return Err(Problem::of_reject(&reject)),
        _ => return Err(Problem::unexpected("seek")),
    }
    let mut answer = json!({
        "success": true,
        "consumerGroup": group,
        "queueName": queue,
        "seekToEnd": matches!(target, Target::End),
        "targetTimestamp": given,
        "partitionsUpdated": lanes,
    });
    if let Some(lane) = lane {
        answer["partitionName"] = json!(lane);
        answer["updated"] = json!(true);
    }
    Ok(Reply::json(&answer))
}

fn plan_seek(
    view: View<'_>,
    group: &str,
    queue: &str,
    lane: Option<&str>,
    target: Target,
) -> Result<(Seek, usize), Problem> {
    let Some(topic) = view.engine.topics.named(queue) else {
        return Err(Problem::not_found("Queue not found"));
    };
    let Some(state) = view.engine.groups.on(group, topic.id) else {
        return Err(Problem::not_found("Consumer group not found"));
    };
    let seek = Seek {
        topic: topic.id,
        group: group.to_owned(),
        offsets: Vec::new(),
        lane: None,
    };
    match lane {
        None => {
            let offsets = match target {
                Target::End => topic
                    .partitions
                    .iter()
                    .map(|p| Some(p.next_offset))
                    .collect(),
                Target::Time(time) => offsets_at(view, topic, time)
                    .into_iter()
                    .map(Some)
                    .collect(),
            };
            Ok((Seek { offsets, ..seek }, topic.lanes.len()))
        }
        Some(name) => {
            let Some(lane) = view.engine.lanes.find(topic.id, name.as_bytes()) else {
                return Err(Problem::not_found("Partition not found"));
            };
            Ok((
                Seek {
                    lane: Some(plan_lane(view, state, lane, target)),
                    ..seek
                },
                1,
            ))
        }
    }
}

fn plan_lane(
    view: View<'_>,
    state: &GroupTopic,
    lane: LaneId,
    target: Target,
) -> (LaneId, u64, u64) {
    let next = view.engine.lanes.get(lane).map_or(0, |row| row.next);
    let number = match target {
        Target::End => next,
        Target::Time(time) => first_at(view, lane, lane_start(view, lane), next, time),
    };
    (lane, number, lane_cursor(view, state, lane))
}

/// `DELETE /api/v1/consumer-groups/:group` and the same for one queue.
pub async fn delete(app: &App, call: &Call, group: String, queue: Option<String>) -> Answer {
    let metadata =
        call.query.get("deleteMetadata").is_none() || call.query.switch("deleteMetadata")?;
    barrier(app).await?;
    let topic = queue.as_deref().map(|queue| app.queue_id(queue));
    let deleted = match topic {
        // A queue that is not there has no such group.
        Some(None) => 0,
        None | Some(Some(_)) => {
            let command = Command::DeleteGroup {
                group: group.clone(),
                topic: topic.flatten(),
                keep_start: !metadata,
            };
            match app.broker.submit(command).await {
                Ok(Outcome::Deleted(count)) => count,
                Ok(Outcome::Done | Outcome::Rejected(_)) => 0,
                Ok(_) => return Err(Problem::unexpected("delete group")),
                Err(failure) => return Err(Problem::of(&failure)),
            }
        }
    };
    let mut answer = json!({"success": true, "consumerGroup": group,
        "deletedPartitions": deleted, "metadataDeleted": metadata});
    if let Some(queue) = queue {
        answer["queueName"] = json!(queue);
    }
    Ok(Reply::json(&answer))
}
