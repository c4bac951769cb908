//! Dead letters (http-api 9.1): list, replay, delete.

use hyper::StatusCode;
use queen_engine::command::Command;
use queen_engine::ids::TopicId;
use queen_engine::message::{format_uuid, parse_uuid, read_lane};
use queen_engine::outcome::{DeadLetter, Outcome, Reject};
use queen_engine::port::{Failure, PushItem};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::api::push::{Asked, render_one};
use crate::app::App;
use crate::json::{self, Text};
use crate::limits;
use crate::problem::{Answer, Problem};
use crate::reply::Reply;
use crate::request::{Call, check_names};
use crate::resolve::lane_id;
use crate::time::iso_ms;

/// Marks our ids among UUIDs: version 8, whose bits are the maker's own.
const ID_BASE: u128 = (0x8 << 76) | (0b10 << 62);

/// A dead letter's id as text.
pub fn id_text(id: u64) -> String {
    format_uuid(ID_BASE | u128::from(id & ((1 << 62) - 1)))
}

/// Reads it back.
fn read_id(text: &str) -> Option<u64> {
    let id = u64::try_from(parse_uuid(text)? ^ ID_BASE).ok()?;
    (id < 1 << 62).then_some(id)
}

/// A dead letter with the names of where it came from.
struct Named {
    letter: DeadLetter,
    queue: String,
    lane: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    id: String,
    transaction_id: String,
    partition_id: String,
    queue: String,
    partition: String,
    consumer_group: String,
    error_message: String,
    retry_count: u32,
    offset: u64,
    data: Box<RawValue>,
    producer_sub: Option<String>,
    created_at: String,
    failed_at: String,
    is_encrypted: bool,
}

/// `GET /api/v1/dlq`: newest first.
pub async fn list(app: &App, call: &Call) -> Answer {
    app.broker
        .barrier()
        .await
        .map_err(|failure| Problem::of(&failure))?;
    let (limit, offset) = (
        call.query.limit(100, limits::PAGE_MAX)?,
        call.query.offset()?,
    );
    let queue = call.query.text("queue");
    let group = call.query.text("consumerGroup");
    let mut total = 0;
    let page = app.view(|view| {
        let only: Option<Option<TopicId>> =
            queue.map(|queue| view.engine.topics.named(queue).map(|topic| topic.id));
        let mut page = Vec::new();
        for letter in view.engine.dead_letters.values().rev() {
            let wanted = only.is_none_or(|topic| topic == Some(letter.topic))
                && group.is_none_or(|group| group == letter.group);
            if wanted {
                total += 1;
                if total > offset && page.len() < limit {
                    page.push(letter.clone());
                }
            }
        }
        page
    });
    let rows = page
        .into_iter()
        .map(|letter| row(app, letter))
        .collect::<Result<Vec<Row>, Failure>>()
        .map_err(|failure| Problem::of(&failure))?;
    #[derive(Serialize)]
    struct Page {
        messages: Vec<Row>,
        pagination: Value,
        total: usize,
    }
    let pagination = json!({"limit": limit, "offset": offset});
    Ok(Reply::json(&Page {
        messages: rows,
        pagination,
        total,
    }))
}

fn name(app: &App, letter: DeadLetter) -> Named {
    let (queue, lane) = app.view(|view| {
        let queue = view
            .engine
            .topics
            .get(letter.topic)
            .map(|topic| topic.name.clone());
        let lane = view
            .engine
            .lanes
            .name(letter.lane)
            .map(String::from_utf8_lossy);
        (
            queue.unwrap_or_default(),
            lane.map(|lane| lane.into_owned()).unwrap_or_default(),
        )
    });
    Named {
        letter,
        queue,
        lane,
    }
}

/// The payload as it was: kept with the letter, else still in the log.
fn payload(app: &App, letter: &DeadLetter) -> Result<Option<Vec<u8>>, Failure> {
    if let Some(payload) = &letter.payload {
        return Ok(Some(payload.to_vec()));
    }
    let records = read_lane(&*app.broker, letter.lane, letter.number, letter.number + 1)?;
    let stored = records.first().and_then(|record| record.get());
    Ok(stored.and_then(|stored| stored.value.map(<[u8]>::to_vec)))
}

fn row(app: &App, letter: DeadLetter) -> Result<Row, Failure> {
    let data = json::value_document(payload(app, &letter)?.as_deref());
    let Named {
        letter,
        queue,
        lane,
    } = name(app, letter);
    Ok(Row {
        id: id_text(letter.id),
        transaction_id: letter.transaction_id,
        partition_id: letter.lane.0.to_string(),
        queue,
        partition: lane,
        consumer_group: letter.group,
        error_message: letter.error,
        retry_count: letter.retries,
        offset: letter.number,
        data,
        producer_sub: None,
        created_at: iso_ms(letter.created),
        failed_at: iso_ms(letter.failed),
        is_encrypted: false,
    })
}

#[derive(Deserialize)]
struct ReplayBody {
    queue: Option<Text>,
    partition: Option<Text>,
}

/// `POST /api/v1/dlq/:id/replay`.
pub async fn replay(app: &App, call: &Call, id: &str) -> Answer {
    barrier(app).await?;
    let letter =
        read_id(id).and_then(|id| app.view(|view| view.engine.dead_letters.get(&id).cloned()));
    match letter {
        Some(letter) => move_letter(app, call, letter).await,
        None => Err(gone(id)),
    }
}

/// `POST /api/v1/messages/:partitionId/:transactionId/retry`: the newest letter of that address.
pub async fn retry(app: &App, call: &Call, lane: &str, txn: &str) -> Answer {
    barrier(app).await?;
    match at_address(app, lane, txn).pop() {
        Some(letter) => move_letter(app, call, letter).await,
        None => Err(not_found(
            json!({"error": "Message not found", "success": false}),
        )),
    }
}

async fn barrier(app: &App) -> Result<(), Problem> {
    app.broker
        .barrier()
        .await
        .map_err(|failure| Problem::of(&failure))
}

fn at_address(app: &App, lane: &str, txn: &str) -> Vec<DeadLetter> {
    let Some(lane) = lane_id(lane) else {
        return Vec::new();
    };
    app.view(|view| {
        let letters = view.engine.dead_letters.values();
        letters
            .filter(|letter| letter.lane == lane && letter.transaction_id == txn)
            .cloned()
            .collect()
    })
}

fn not_found(body: Value) -> Problem {
    Problem::with_body(StatusCode::NOT_FOUND, body)
}

fn gone(id: &str) -> Problem {
    not_found(json!({"success": false, "result": "gone", "dlqId": id,
        "error": "Message not found"}))
}

async fn move_letter(app: &App, call: &Call, letter: DeadLetter) -> Answer {
    let body: ReplayBody = call.json()?;
    let id = id_text(letter.id);
    if app.push_paused.load(std::sync::atomic::Ordering::Relaxed) {
        let body = json!({"success": false, "result": "maintenance", "dlqId": id,
            "error": "pushes are paused for maintenance"});
        return Err(Problem::with_body(StatusCode::SERVICE_UNAVAILABLE, body).retry_later());
    }
    let payload = payload(app, &letter).map_err(|failure| Problem::of(&failure))?;
    let Named {
        letter,
        queue,
        lane,
    } = name(app, letter);
    let copy = PushItem {
        queue: json::non_empty(body.queue).unwrap_or(queue),
        lane: json::non_empty(body.partition).unwrap_or(lane),
        payload: payload.map_or_else(|| "null".into(), Into::into),
        transaction_id: Some(format!("dlq:{id}")),
        ..PushItem::default()
    };
    check_names(&copy.queue, &[&copy.lane])?;
    let (to_queue, to_lane) = (copy.queue.clone(), copy.lane.clone());
    let transaction_id = copy.transaction_id.clone();
    let replayed = app.broker.replay(letter.id, copy).await;
    let verdict = match replayed.map_err(|failure| Problem::of(&failure))? {
        Ok(pushed) => Ok(pushed),
        Err(Reject::Duplicate) => Err(Reject::Duplicate),
        Err(Reject::UnknownDeadLetter) => return Err(gone(&id)),
        Err(reject) => return Err(Problem::of_reject(&reject)),
    };
    let moved = verdict.as_ref().is_ok_and(|pushed| !pushed.duplicate);
    let mut body = json!({
        "success": moved,
        "result": if moved { "moved" } else { "duplicate" },
        "queue": to_queue,
        "partition": to_lane,
        "consumerGroup": letter.group,
        "dlqId": id,
        "originalTransactionId": letter.transaction_id,
        "dlqRowRemoved": moved,
    });
    if verdict.is_ok() {
        let mut pushed = Vec::new();
        render_one(
            &mut pushed,
            0,
            &Asked {
                queue: to_queue,
                transaction_id,
                verdict,
            },
        );
        body["replayedAs"] = serde_json::from_slice(&pushed).unwrap_or(Value::Null);
    }
    Ok(Reply::json(&body))
}

async fn delete_letters(app: &App, ids: Vec<u64>) -> Result<u64, Problem> {
    if ids.is_empty() {
        return Ok(0);
    }
    match app.broker.submit(Command::DeleteDeadLetters { ids }).await {
        Ok(Outcome::Deleted(count)) => Ok(count),
        Ok(_) => Err(Problem::unexpected("dead letters")),
        Err(failure) => Err(Problem::of(&failure)),
    }
}

/// `DELETE /api/v1/messages/:partitionId/:transactionId`: every letter of that address.
pub async fn delete(app: &App, lane: &str, txn: &str) -> Answer {
    barrier(app).await?;
    let ids = at_address(app, lane, txn)
        .iter()
        .map(|letter| letter.id)
        .collect();
    if delete_letters(app, ids).await? == 0 {
        return Err(not_found(
            json!({"success": false, "error": "Message not found"}),
        ));
    }
    Ok(Reply::json(
        &json!({"success": true, "partitionId": lane, "transactionId": txn,
        "message": "Message deleted"}),
    ))
}

/// `DELETE /api/v1/dlq?queue=&consumerGroup=`.
pub async fn purge(app: &App, call: &Call) -> Answer {
    let Some(queue) = call.query.text("queue") else {
        return Err(Problem::bad_request("queue is required"));
    };
    barrier(app).await?;
    let group = call.query.text("consumerGroup");
    let ids = app.view(|view| {
        let topic = view.engine.topics.named(queue).map(|topic| topic.id);
        let letters = view.engine.dead_letters.values();
        letters
            .filter(|letter| Some(letter.topic) == topic)
            .filter(|letter| group.is_none_or(|group| letter.group == group))
            .map(|letter| letter.id)
            .collect()
    });
    let deleted = delete_letters(app, ids).await?;
    Ok(Reply::json(
        &json!({"success": true, "deleted": deleted, "queue": queue,
        "consumerGroup": group}),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_uuids_and_read_back() {
        for id in [0, 1, 77, (1 << 62) - 1] {
            let text = id_text(id);
            assert_eq!(text.len(), 36);
            assert_eq!(read_id(&text), Some(id));
        }
        for text in ["", "7", "00000000-0000-4000-8000-000000000001"] {
            assert_eq!(read_id(text), None, "{text}");
        }
    }
}
