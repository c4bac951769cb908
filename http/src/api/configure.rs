//! `POST /api/v1/configure` and `DELETE /api/v1/resources/queues/:queue` (http-api 4).

use queen_engine::command::{Command, TopicRef};
use queen_engine::config::{Origin, Patch, QueueOptions, QueueOptionsPatch};
use queen_engine::message::format_uuid;
use queen_engine::outcome::{Outcome, Reject};
use serde_json::{Map, Value, json};

use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::reply::Reply;
use crate::request::{Call, check_names};

/// Longest time a sink may hold data back: bounds in seconds.
const SINK_HOLD_SECONDS: std::ops::RangeInclusive<i64> = 60..=31_536_000;
/// Reported for the options that have no effect until they are set (DESIGN section 8).
const RETRY_DELAY_REPORTED: i64 = 1000;
const TTL_REPORTED: i64 = 3600;

/// The route.
pub async fn configure(app: &App, call: &Call) -> Answer {
    let body: Map<String, Value> = call.json()?;
    let Some(Value::String(name)) = body.get("queue") else {
        return Err(Problem::bad_request(
            "queue is required and must be a string",
        ));
    };
    check_names(name, &[])?;
    let replace = match body.get("mode") {
        None | Some(Value::Null) => false,
        Some(Value::String(mode)) if mode == "merge" => false,
        Some(Value::String(mode)) if mode == "replace" => true,
        Some(_) => return Err(Problem::bad_request("mode must be merge or replace")),
    };
    let patch = read_patch(&body)?;
    let topic = TopicRef::Name {
        name: name.clone(),
        partitions: app.broker.node().default_partitions,
        uuid: uuid::Uuid::new_v4().as_u128(),
        origin: Origin::Configure,
    };
    let outcome = app
        .broker
        .submit(Command::Configure {
            topic,
            patch,
            replace,
        })
        .await;
    match outcome.map_err(|failure| Problem::of(&failure))? {
        Outcome::Topic(_) | Outcome::Done => {}
        Outcome::Rejected(reject) => return Err(Problem::of_reject(&reject)),
        _ => return Err(Problem::unexpected("configure")),
    }
    // The node that served the write may be another one.
    app.broker
        .barrier()
        .await
        .map_err(|failure| Problem::of(&failure))?;
    let echo = app.queue(name, |_, topic| {
        json!({
            "configured": true,
            "queueId": format_uuid(topic.uuid),
            "partitionId": null,
            "queue": topic.name,
            "namespace": topic.options.namespace,
            "task": topic.options.task,
            "storage": "segments",
            "options": options(&topic.options),
        })
    });
    match echo {
        Some(echo) => Ok(Reply::json(&echo)),
        None => Err(Problem::not_found("Queue not found")),
    }
}

/// All effective options.
pub fn options(options: &QueueOptions) -> Value {
    json!({
        "namespace": options.namespace,
        "task": options.task,
        "leaseTime": options.lease_time,
        "retryLimit": options.retry_limit,
        "retryDelay": options.retry_delay.unwrap_or(RETRY_DELAY_REPORTED),
        "maxSize": options.max_size,
        "ttl": options.ttl.unwrap_or(TTL_REPORTED),
        "priority": options.priority,
        "deadLetterQueue": options.dead_letter_queue,
        "dlqAfterMaxRetries": options.dlq_after_max_retries,
        "delayedProcessing": options.delayed_processing,
        "windowBuffer": options.window_buffer,
        "retentionEnabled": options.retention_enabled,
        "retentionSeconds": options.retention_seconds,
        "completedRetentionSeconds": options.completed_retention_seconds,
        "maxWaitTimeSeconds": options.max_wait_time_seconds,
        "encryptionEnabled": options.encryption_enabled,
        "minPopWaitTime": options.min_pop_wait_time,
        "dedupWindowSeconds": options.dedup_window_seconds,
        "retentionSinkHold": options.retention_sink_hold,
        "retentionSinkHoldMaxSeconds": options.retention_sink_hold_max_seconds,
        "maxDeliveries": options.max_deliveries,
    })
}

/// Where options are looked for: under `options` first, then at the top.
struct Source<'a> {
    inner: Option<&'a Map<String, Value>>,
    outer: &'a Map<String, Value>,
}

impl Source<'_> {
    fn patch<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Result<Patch<T>, Problem> {
        let found = self
            .inner
            .and_then(|inner| inner.get(name))
            .or_else(|| self.outer.get(name));
        match found {
            None => Ok(Patch::Keep),
            Some(Value::Null) => Ok(Patch::Reset),
            Some(value) => read(value)
                .map(Patch::Set)
                .map_err(|text| Problem::bad_request(format!("option {name} {text}"))),
        }
    }

    /// Labels are often sent as an explicit null by clients that mean "not given".
    fn label(&self, name: &str) -> Result<Patch<String>, Problem> {
        let patch = self.patch(name, text)?;
        Ok(if patch == Patch::Reset {
            Patch::Keep
        } else {
            patch
        })
    }
}

fn read_patch(body: &Map<String, Value>) -> Result<QueueOptionsPatch, Problem> {
    let inner = match body.get("options") {
        None | Some(Value::Null) => None,
        Some(Value::Object(inner)) => Some(inner),
        Some(_) => return Err(Problem::bad_request("options must be an object")),
    };
    let source = Source { inner, outer: body };
    let count = |name: &str| source.patch(name, at_least_zero);
    let flag = |name: &str| source.patch(name, boolean);
    Ok(QueueOptionsPatch {
        namespace: source.label("namespace")?,
        task: source.label("task")?,
        lease_time: source.patch("leaseTime", at_least_zero)?,
        retry_limit: count("retryLimit")?,
        retry_delay: source.patch("retryDelay", |value| at_least_zero(value).map(Some))?,
        max_size: count("maxSize")?,
        ttl: source.patch("ttl", |value| at_least_zero(value).map(Some))?,
        priority: count("priority")?,
        dead_letter_queue: flag("deadLetterQueue")?,
        dlq_after_max_retries: flag("dlqAfterMaxRetries")?,
        delayed_processing: count("delayedProcessing")?,
        window_buffer: count("windowBuffer")?,
        retention_enabled: flag("retentionEnabled")?,
        retention_seconds: count("retentionSeconds")?,
        completed_retention_seconds: count("completedRetentionSeconds")?,
        max_wait_time_seconds: count("maxWaitTimeSeconds")?,
        encryption_enabled: flag("encryptionEnabled")?,
        min_pop_wait_time: source.patch("minPopWaitTime", |value| {
            integer(value).map(|n| n.clamp(0, 60_000))
        })?,
        dedup_window_seconds: source.patch("dedupWindowSeconds", |value| {
            integer(value).map(|n| n.max(0))
        })?,
        retention_sink_hold: source.patch("retentionSinkHold", sink_name)?,
        retention_sink_hold_max_seconds: source.patch("retentionSinkHoldMaxSeconds", |value| {
            let seconds = integer(value)?;
            if SINK_HOLD_SECONDS.contains(&seconds) {
                Ok(seconds)
            } else {
                Err("must be 60..31536000".to_owned())
            }
        })?,
        max_deliveries: count("maxDeliveries")?,
    })
}

fn text(value: &Value) -> Result<String, String> {
    value
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| "must be a string".to_owned())
}

fn boolean(value: &Value) -> Result<bool, String> {
    value
        .as_bool()
        .ok_or_else(|| "must be true or false".to_owned())
}

/// A whole number; `5.0` counts as one, because some clients send all numbers that way.
fn integer(value: &Value) -> Result<i64, String> {
    let whole = value
        .as_f64()
        .filter(|n| n.fract() == 0.0 && n.abs() < 9.0e15);
    value
        .as_i64()
        .or_else(|| whole.map(|n| n as i64))
        .ok_or_else(|| "must be an integer".to_owned())
}

fn at_least_zero(value: &Value) -> Result<i64, String> {
    integer(value).and_then(|n| {
        if n >= 0 {
            Ok(n)
        } else {
            Err("must not be negative".to_owned())
        }
    })
}

fn sink_name(value: &Value) -> Result<String, String> {
    let name = text(value)?;
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if name.len() <= 64 && name.bytes().all(legal) {
        Ok(name)
    } else {
        Err("must match [A-Za-z0-9._-]{0,64}".to_owned())
    }
}

/// Deletes a queue with everything in it; never 404.
pub async fn delete(app: &App, queue: String) -> Answer {
    let outcome = app
        .broker
        .submit(Command::DeleteTopic {
            name: queue.clone(),
        })
        .await;
    let existed = match outcome.map_err(|failure| Problem::of(&failure))? {
        Outcome::Deleted(count) => count > 0,
        Outcome::Done | Outcome::Topic(_) => true,
        Outcome::Rejected(Reject::UnknownTopic) => false,
        Outcome::Rejected(reject) => return Err(Problem::of_reject(&reject)),
        _ => return Err(Problem::unexpected("delete")),
    };
    Ok(Reply::json(&if existed {
        json!({"deleted": true, "queue": queue, "existed": true})
    } else {
        json!({"deleted": false, "queue": queue, "existed": false, "message": "Queue not found"})
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(body: Value) -> Result<QueueOptionsPatch, Problem> {
        read_patch(body.as_object().unwrap())
    }

    #[test]
    fn options_are_read_from_both_places() {
        let patch = patch(json!({
            "queue": "q", "namespace": null, "task": "t", "leaseTime": 10,
            "options": {"leaseTime": 20, "ttl": null, "minPopWaitTime": 90000,
                "dedupWindowSeconds": -4, "retryDelay": 5.0},
        }))
        .unwrap();
        assert_eq!(patch.lease_time, Patch::Set(20));
        assert_eq!(patch.ttl, Patch::Reset);
        assert_eq!(patch.min_pop_wait_time, Patch::Set(60_000));
        assert_eq!(patch.dedup_window_seconds, Patch::Set(0));
        assert_eq!(patch.retry_delay, Patch::Set(Some(5)));
        assert_eq!(patch.namespace, Patch::Keep);
        assert_eq!(patch.task, Patch::Set("t".to_owned()));
        assert_eq!(patch.max_size, Patch::Keep);
    }

    #[test]
    fn wrong_values_are_refused() {
        for (name, value) in [
            ("retryLimit", json!(-1)),
            ("leaseTime", json!("10")),
            ("leaseTime", json!(1.5)),
            ("deadLetterQueue", json!(1)),
            ("retentionSinkHold", json!("a b")),
            ("retentionSinkHoldMaxSeconds", json!(59)),
            ("maxDeliveries", json!(-2)),
        ] {
            let problem = patch(json!({"options": {name: value}})).unwrap_err();
            assert_eq!(problem.status().as_u16(), 400, "{name}");
        }
        assert!(patch(json!({"options": []})).is_err());
    }

    #[test]
    fn options_without_effect_are_reported_with_the_contract_defaults() {
        let shown = options(&QueueOptions::default());
        assert_eq!(shown["retryDelay"], 1000);
        assert_eq!(shown["ttl"], 3600);
        assert_eq!(shown["leaseTime"], 300);
    }
}
