//! Timers (http-api 8.4): messages that append themselves later.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use hyper::StatusCode;
use queen_engine::command::Command;
use queen_engine::ids::TimeUs;
use queen_engine::message::format_uuid;
use queen_engine::outcome::Outcome;
use queen_engine::port::Failure;
use queen_engine::timer::{Timer, TimerAction, TimerOp, TimerResult, TimerStatus};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::limits;
use crate::problem::{Answer, Family, Problem};
use crate::reply::Reply;
use crate::request::{Call, check_names};
use crate::time::iso_us;

/// Fields that the server fills in; a client that sends one expects an effect it would not have.
const SERVER_OWNED: [&str; 4] = ["producerSub", "messageId", "deliverAt", "attempts"];

/// A refusal of the timers family.
pub fn refuse(reason: &str, detail: impl AsRef<str>) -> Problem {
    Problem::family(
        StatusCode::BAD_REQUEST,
        "timers_bad_request",
        reason,
        detail.as_ref(),
    )
}

fn too_large(reason: &str, detail: &str) -> Problem {
    Problem::family(
        StatusCode::PAYLOAD_TOO_LARGE,
        "payload_too_large",
        reason,
        detail,
    )
}

fn failed(failure: &Failure) -> Problem {
    Problem::of_family(Family::Timers, failure)
}

/// A version 7 UUID of a time to come: the id of a message that will be appended then.
fn promised_id(time: TimeUs) -> String {
    let millis = u128::from(time.millis().unsigned_abs()) & ((1 << 48) - 1);
    let random = uuid::Uuid::new_v4().as_u128();
    let version_and_variant_kept = (0xfff << 64) | ((1 << 62) - 1);
    let bits = random & version_and_variant_kept;
    format_uuid((millis << 80) | (0x7 << 76) | (0b10 << 62) | bits)
}

/// Checks a list of operations, for the route and for transactions alike.
pub fn read_ops(bodies: &[&RawValue], now: TimeUs) -> Result<Vec<TimerOp>, Problem> {
    if bodies.len() > limits::TIMER_OPS_MAX {
        return Err(refuse("timers_too_many_ops", "at most 256 operations"));
    }
    let mut seen = BTreeSet::new();
    let mut ops = Vec::with_capacity(bodies.len());
    for body in bodies {
        let body: Map<String, Value> = serde_json::from_str(body.get())
            .map_err(|error| refuse("timers_bad_body", error.to_string()))?;
        let op = read_op(&body, now)?;
        if !seen.insert((op.queue.clone(), op.key.clone())) {
            return Err(refuse(
                "timers_bad_op",
                "one operation per queue and timerKey",
            ));
        }
        ops.push(op);
    }
    Ok(ops)
}

fn read_op(body: &Map<String, Value>, now: TimeUs) -> Result<TimerOp, Problem> {
    let owned = |name: &String| {
        SERVER_OWNED.contains(&name.as_str())
            || name == "delaySeconds"
            || name.starts_with("tenant")
            || name.starts_with("claim")
            || name.starts_with('_')
    };
    if let Some(name) = body.keys().find(|name| owned(name)) {
        return Err(refuse(
            "timers_server_owned_field",
            format!("{name} is not an input"),
        ));
    }
    let queue = match text(body, "queue")? {
        Some(queue) if !queue.is_empty() => queue,
        _ => return Err(refuse("timers_queue_required", "queue is required")),
    };
    let key = match text(body, "timerKey")? {
        Some(key) if !key.is_empty() => key,
        _ => return Err(refuse("timers_bad_op", "timerKey is required")),
    };
    check_key(&key)?;
    let action = match text(body, "op")?.as_deref() {
        Some("schedule" | "reschedule") => schedule(body, &queue, now)?,
        Some("cancel") => TimerAction::Cancel {
            txn: text(body, "txn")?,
        },
        _ => {
            return Err(refuse(
                "timers_bad_op",
                "op must be schedule, reschedule or cancel",
            ));
        }
    };
    Ok(TimerOp { queue, key, action })
}

fn check_key(key: &str) -> Result<(), Problem> {
    if key.len() > limits::TIMER_KEY_BYTES_MAX || key.contains('\0') {
        return Err(refuse(
            "timers_bad_op",
            "timerKey has at most 512 bytes and no NUL",
        ));
    }
    Ok(())
}

fn text(body: &Map<String, Value>, name: &str) -> Result<Option<String>, Problem> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(refuse(
            "timers_bad_body",
            format!("{name} must be a string"),
        )),
    }
}

fn flag(body: &Map<String, Value>, name: &str) -> bool {
    body.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn schedule(body: &Map<String, Value>, queue: &str, now: TimeUs) -> Result<TimerAction, Problem> {
    let Some(delay) = body.get("delayMs").and_then(Value::as_f64) else {
        return Err(refuse(
            "timers_delay_required",
            "delayMs is required and must be a number",
        ));
    };
    if delay > limits::TIMER_HORIZON_MS as f64 {
        return Err(Problem::family(
            StatusCode::FORBIDDEN,
            "timer_horizon_exceeded",
            "timers_horizon",
            "delayMs lies more than 90 days ahead",
        ));
    }
    // Rounded up, so that a timer is never early; anything due already is due now.
    let delay_ms = delay.ceil().max(0.0) as i64;
    let payload = payload(body)?;
    if flag(body, "encrypted") {
        return Err(refuse("timers_bad_op", "encrypted payloads are not served"));
    }
    let partition = text(body, "partition")?.filter(|partition| !partition.is_empty());
    let partition = partition.unwrap_or_else(|| queen_engine::names::DEFAULT_LANE.to_owned());
    check_names(queue, &[&partition])?;
    let message_id = promised_id(now.plus_millis(delay_ms));
    let txn = text(body, "txn")?.filter(|txn| !txn.is_empty());
    let txn = txn.unwrap_or_else(|| message_id.clone());
    if txn.len() > queen_engine::names::TRANSACTION_ID_BYTES_MAX {
        return Err(refuse("timers_bad_op", "txn is longer than 65535 bytes"));
    }
    Ok(TimerAction::Schedule {
        partition,
        delay_ms,
        txn,
        message_id,
        payload,
        producer_sub: None,
    })
}

fn payload(body: &Map<String, Value>) -> Result<Bytes, Problem> {
    let Some(encoded) = body.get("payload").and_then(Value::as_str) else {
        return Err(refuse(
            "timers_payload_required",
            "payload is required, in base64",
        ));
    };
    let max = limits::TIMER_PAYLOAD_BYTES_MAX;
    let large = || too_large("timers_payload_too_large", "a payload has at most 1 MiB");
    if encoded.len() / 4 * 3 > max + 3 {
        return Err(large());
    }
    let bytes = BASE64
        .decode(encoded)
        .map_err(|_| refuse("timers_payload_not_base64", "payload must be base64"))?;
    let bytes = if flag(body, "payloadZstd") {
        inflate(&bytes, max).ok_or_else(large)?
    } else {
        bytes
    };
    if bytes.len() > max {
        Err(large())
    } else {
        Ok(bytes.into())
    }
}

/// Inflates one zstd stream to at most `max` bytes; `None` when it is longer or damaged.
pub fn inflate(bytes: &[u8], max: usize) -> Option<Vec<u8>> {
    use std::io::Read as _;
    let decoder = zstd::stream::read::Decoder::new(bytes).ok()?;
    let mut out = Vec::new();
    decoder.take(max as u64 + 1).read_to_end(&mut out).ok()?;
    (out.len() <= max).then_some(out)
}

/// One result as JSON fields.
pub fn result(result: &TimerResult) -> Map<String, Value> {
    let (ok, status) = match result.status {
        TimerStatus::Scheduled => (true, "scheduled"),
        TimerStatus::Rescheduled => (true, "rescheduled"),
        TimerStatus::Cancelled => (true, "cancelled"),
        TimerStatus::Absent => (false, "absent"),
    };
    let mut fields = Map::new();
    fields.insert("ok".to_owned(), json!(ok));
    fields.insert("status".to_owned(), json!(status));
    fields.insert("queue".to_owned(), json!(result.queue));
    fields.insert("timerKey".to_owned(), json!(result.key));
    fields.insert("txn".to_owned(), json!(result.txn));
    if let Some(message_id) = &result.message_id {
        fields.insert("messageId".to_owned(), json!(message_id));
    }
    if let Some(deliver_at) = result.deliver_at {
        fields.insert("deliverAt".to_owned(), json!(iso_us(deliver_at)));
    }
    fields
}

#[derive(serde::Deserialize)]
struct BatchBody<'a> {
    #[serde(borrow)]
    operations: Option<Vec<&'a RawValue>>,
}

/// `POST /api/v1/timers`.
pub async fn batch(app: &App, call: &Call) -> Answer {
    let body: BatchBody<'_> = call
        .parse()
        .map_err(|error| refuse("timers_bad_body", error.to_string()))?;
    let Some(operations) = body.operations else {
        return Err(refuse("timers_bad_body", "operations is required"));
    };
    let ops = read_ops(&operations, app.broker.now())?;
    let results = run(app, ops).await?;
    let rows: Vec<Value> = results
        .iter()
        .enumerate()
        .map(|(index, one)| {
            let mut fields = result(one);
            fields.insert("index".to_owned(), json!(index));
            Value::Object(fields)
        })
        .collect();
    Ok(Reply::json(&json!({"results": rows})))
}

async fn run(app: &App, ops: Vec<TimerOp>) -> Result<Vec<TimerResult>, Problem> {
    if ops.is_empty() {
        return Ok(Vec::new());
    }
    match app.broker.submit(Command::Timers { ops }).await {
        Ok(Outcome::Timers(results)) => Ok(results),
        Ok(Outcome::Rejected(reject)) => Err(Problem::of_reject(&reject)),
        Ok(_) => Err(Problem::unexpected("timers")),
        Err(failure) => Err(failed(&failure)),
    }
}

/// `DELETE /api/v1/timers/:queue/*timerKey`.
pub async fn cancel(app: &App, call: &Call, queue: String, key: String) -> Answer {
    check_key(&key)?;
    let txn = call.query.text("txn").map(str::to_owned);
    let op = TimerOp {
        queue,
        key,
        action: TimerAction::Cancel { txn },
    };
    let results = run(app, vec![op]).await?;
    match results.first() {
        Some(one) => Ok(Reply::json(&result(one))),
        None => Err(Problem::unexpected("timers")),
    }
}

fn row(timer: &Timer, with_payload: bool) -> Value {
    let mut row = json!({
        "found": true,
        "queue": timer.queue,
        "timerKey": timer.key,
        "partition": timer.partition,
        "deliverAt": iso_us(timer.due),
        "txn": timer.txn,
        "messageId": timer.message_id,
        "payloadZstd": false,
        "encrypted": false,
        "producerSub": timer.producer_sub,
        "attempts": 0,
        "lastError": null,
        "claimed": false,
        "createdAt": iso_us(timer.created),
        "updatedAt": iso_us(timer.updated),
    });
    if with_payload {
        row["payload"] = json!(BASE64.encode(&timer.payload));
    }
    row
}

/// `GET /api/v1/timers/:queue/*timerKey`.
pub async fn peek(app: &App, queue: String, key: String) -> Answer {
    app.broker
        .barrier()
        .await
        .map_err(|failure| failed(&failure))?;
    let found = app.view(|view| view.engine.timers.get(&queue, &key).cloned());
    Ok(Reply::json(&match found {
        Some(timer) => row(&timer, true),
        None => json!({"found": false, "queue": queue, "timerKey": key}),
    }))
}

/// `GET /api/v1/timers/:queue`: a page, or with `mode=count` a number.
pub async fn list(app: &App, call: &Call, queue: String) -> Answer {
    app.broker
        .barrier()
        .await
        .map_err(|failure| failed(&failure))?;
    let query = &call.query;
    if query.get("mode") == Some("count") {
        if query.get("after").is_some() || query.get("limit").is_some() {
            return Err(refuse(
                "timers_bad_count",
                "a count takes neither after nor limit",
            ));
        }
        let prefix = query.get("prefix").unwrap_or_default();
        if prefix.is_empty() || prefix.len() > limits::TIMER_PREFIX_BYTES_MAX {
            return Err(refuse("timers_bad_count", "prefix has 1 to 128 bytes"));
        }
        let count = app.view(|view| view.engine.timers.count(&queue, prefix));
        return Ok(Reply::json(&json!({"count": count})));
    }
    let limit = query.limit(100, limits::PAGE_MAX)?;
    let (rows, more) = app.view(|view| {
        let (timers, more) = view.engine.timers.list(&queue, query.get("after"), limit);
        (timers.into_iter().cloned().collect::<Vec<Timer>>(), more)
    });
    let next = rows.last().filter(|_| more).map(|timer| timer.key.as_str());
    let shown: Vec<Value> = rows.iter().map(|timer| row(timer, false)).collect();
    Ok(Reply::json(
        &json!({"rows": shown, "truncated": more, "nextAfter": next}),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(op: &Value) -> Result<TimerOp, Problem> {
        let raw = RawValue::from_string(op.to_string()).unwrap();
        read_ops(&[&raw], TimeUs(1_000_000)).map(|mut ops| ops.remove(0))
    }

    fn base() -> Value {
        json!({"op": "schedule", "queue": "q", "timerKey": "a/b:c", "delayMs": -5000,
            "txn": "t", "payload": BASE64.encode("{}")})
    }

    #[test]
    fn a_schedule_is_read_and_a_late_one_is_due_now() {
        let op = read(&base()).unwrap();
        let TimerAction::Schedule {
            partition,
            delay_ms,
            txn,
            payload,
            message_id,
            ..
        } = op.action
        else {
            panic!("a schedule");
        };
        assert_eq!(
            (partition.as_str(), delay_ms, txn.as_str()),
            ("Default", 0, "t")
        );
        assert_eq!(payload, "{}");
        assert_eq!(message_id.as_bytes()[14], b'7');
    }

    #[test]
    fn refusals_have_their_reason() {
        let cases = [
            ("queue", Value::Null, 400, "timers_queue_required"),
            ("timerKey", json!(""), 400, "timers_bad_op"),
            ("op", json!("fire"), 400, "timers_bad_op"),
            ("delayMs", json!("5"), 400, "timers_delay_required"),
            (
                "delayMs",
                json!(limits::TIMER_HORIZON_MS + 1),
                403,
                "timers_horizon",
            ),
            ("delayMs", json!(9.3e18), 403, "timers_horizon"),
            ("payload", Value::Null, 400, "timers_payload_required"),
            (
                "payload",
                json!("not base64!"),
                400,
                "timers_payload_not_base64",
            ),
            (
                "payload",
                json!("A".repeat(1_500_000)),
                413,
                "timers_payload_too_large",
            ),
            ("messageId", json!("m"), 400, "timers_server_owned_field"),
            ("tenantId", json!("m"), 400, "timers_server_owned_field"),
            ("_x", json!(1), 400, "timers_server_owned_field"),
        ];
        for (field, value, status, reason) in cases {
            let mut op = base();
            op[field] = value;
            let problem = read(&op).unwrap_err();
            assert_eq!(problem.body()["reason"], reason, "{field}");
            assert_eq!(problem.status().as_u16(), status, "{field}");
        }
    }

    #[test]
    fn compressed_payloads_are_stored_plain_and_bounded() {
        let mut op = base();
        op["payloadZstd"] = json!(true);
        op["payload"] = json!(BASE64.encode(zstd::encode_all(&b"[1]"[..], 0).unwrap()));
        let TimerAction::Schedule { payload, .. } = read(&op).unwrap().action else {
            panic!("a schedule");
        };
        assert_eq!(payload, "[1]");
        let bomb = zstd::encode_all(&vec![0_u8; 4_000_000][..], 0).unwrap();
        op["payload"] = json!(BASE64.encode(bomb));
        assert_eq!(read(&op).unwrap_err().status().as_u16(), 413);
    }
}
