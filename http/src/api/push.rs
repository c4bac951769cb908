//! `POST /api/v1/push` (http-api 5.1): a list of messages, one verdict each.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use hyper::StatusCode;
use queen_engine::names;
use queen_engine::outcome::Reject;
use queen_engine::port::{PushItem, Pushed};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::push_binary;
use crate::app::{App, Counted};
use crate::json::{self, Text};
use crate::problem::{Answer, Problem, reject_text};
use crate::reply::Reply;
use crate::request::{BodyError, Call, check_names};

/// Named where the original of a duplicate is not known any more.
pub const NO_MESSAGE_ID: &str = "00000000-0000-0000-0000-000000000000";

/// One message of a push body, borrowed from it.
#[derive(Debug)]
pub struct PushEntry<'a> {
    pub queue: String,
    /// [`names::DEFAULT_LANE`] when the client names none.
    pub lane: String,
    /// One JSON document, byte for byte.
    pub payload: &'a str,
    pub transaction_id: Option<String>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    items: Option<Vec<Item<'a>>>,
}

#[derive(Deserialize)]
struct Item<'a> {
    queue: Option<String>,
    partition: Option<Text>,
    #[serde(borrow, default, deserialize_with = "json::present")]
    payload: Option<&'a RawValue>,
    #[serde(rename = "transactionId")]
    transaction_id: Option<Text>,
}

/// Reads the JSON form of a push body. Pure: the input of a fuzz target.
pub fn parse_push_body(bytes: &[u8]) -> Result<Vec<PushEntry<'_>>, BodyError> {
    let envelope: Envelope<'_> =
        serde_json::from_slice(bytes).map_err(|error| BodyError(format!("bad body: {error}")))?;
    let Some(items) = envelope.items else {
        return Err(BodyError("items is required".to_owned()));
    };
    items
        .into_iter()
        .enumerate()
        .map(|(index, item)| entry(index, item))
        .collect()
}

fn entry(index: usize, item: Item<'_>) -> Result<PushEntry<'_>, BodyError> {
    let Some(queue) = item.queue else {
        return Err(BodyError(format!("items[{index}]: queue is required")));
    };
    let Some(payload) = item.payload else {
        return Err(BodyError(format!("items[{index}]: payload is required")));
    };
    Ok(PushEntry {
        queue,
        lane: lane_or_default(item.partition),
        payload: payload.get(),
        transaction_id: json::non_empty(item.transaction_id),
    })
}

/// The lane a request names, or the default one.
pub fn lane_or_default(lane: Option<Text>) -> String {
    json::non_empty(lane).unwrap_or_else(|| names::DEFAULT_LANE.to_owned())
}

/// Checks the names of one message to push.
pub fn check_item(item: &PushItem) -> Result<(), Problem> {
    check_names(&item.queue, &[&item.lane])?;
    let too_long = |text: &String| text.len() > names::TRANSACTION_ID_BYTES_MAX;
    if item.transaction_id.as_ref().is_some_and(too_long) {
        return Err(Problem::bad_request(
            "transactionId is longer than 65535 bytes",
        ));
    }
    Ok(())
}

/// The route.
pub async fn push(app: &App, call: &Call) -> Answer {
    if app.push_paused.load(Ordering::Relaxed) {
        return Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "maintenance",
            "pushes are paused for maintenance",
        )
        .retry_later());
    }
    if call.binary {
        return push_binary::push(app, call).await;
    }
    let body = &call.body;
    let items: Vec<PushItem> = parse_push_body(body)?
        .into_iter()
        .map(|entry| PushItem {
            queue: entry.queue,
            lane: entry.lane,
            payload: body.slice_ref(entry.payload.as_bytes()),
            transaction_id: entry.transaction_id,
            ..PushItem::default()
        })
        .collect();
    let asked = submit(app, items).await?;
    let bytes = render(&asked);
    Ok(Reply::json_bytes(StatusCode::CREATED, bytes))
}

/// What an answer repeats of its request.
pub struct Asked {
    pub queue: String,
    pub transaction_id: Option<String>,
    pub verdict: Result<Pushed, Reject>,
}

/// Checks and pushes messages; one verdict each.
pub async fn submit(app: &App, items: Vec<PushItem>) -> Result<Vec<Asked>, Problem> {
    for item in &items {
        check_item(item)?;
    }
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let echoes: Vec<(String, Option<String>)> = items
        .iter()
        .map(|item| (item.queue.clone(), item.transaction_id.clone()))
        .collect();
    let verdicts = app
        .broker
        .push(items)
        .await
        .map_err(|failure| Problem::of(&failure))?;
    if verdicts.len() != echoes.len() {
        return Err(Problem::unexpected("push"));
    }
    // Clients overlook refusals inside a 201; where all items fare alike, refuse the request.
    if let Some(Err(first)) = verdicts.first()
        && verdicts
            .iter()
            .all(|verdict| verdict.as_ref().err() == Some(first))
    {
        return Err(Problem::of_reject(first));
    }
    let stored = verdicts
        .iter()
        .flatten()
        .filter(|pushed| !pushed.duplicate)
        .count();
    app.count(Counted::Pushed, stored as u64);
    Ok(echoes
        .into_iter()
        .zip(verdicts)
        .map(|((queue, transaction_id), verdict)| Asked {
            queue,
            transaction_id,
            verdict,
        })
        .collect())
}

/// The verdicts as the 201 array.
pub fn render(asked: &[Asked]) -> Bytes {
    let mut out = Vec::with_capacity(2 + asked.len() * 200);
    out.push(b'[');
    for (index, one) in asked.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        render_one(&mut out, index, one);
    }
    out.push(b']');
    out.into()
}

/// One element of the array.
pub fn render_one(out: &mut Vec<u8>, index: usize, asked: &Asked) {
    let message_id = match &asked.verdict {
        Ok(pushed) if !pushed.message_id.is_empty() => pushed.message_id.as_str(),
        _ => NO_MESSAGE_ID,
    };
    let transaction_id = asked.transaction_id.as_deref().unwrap_or(message_id);
    out.extend_from_slice(b"{\"index\":");
    json::write_number(out, index as u64);
    out.extend_from_slice(b",\"message_id\":");
    json::write_text(out, message_id);
    out.extend_from_slice(b",\"transaction_id\":");
    json::write_text(out, transaction_id);
    out.extend_from_slice(b",\"queueName\":");
    json::write_text(out, &asked.queue);
    match &asked.verdict {
        Ok(pushed) => {
            let status: &[u8] = if pushed.duplicate {
                b"duplicate"
            } else {
                b"queued"
            };
            out.extend_from_slice(b",\"status\":\"");
            out.extend_from_slice(status);
            out.extend_from_slice(b"\",\"offset\":");
            json::write_number(out, pushed.number);
        }
        Err(reject) => {
            out.extend_from_slice(b",\"status\":\"error\",\"error\":");
            json::write_text(out, reject_text(reject));
        }
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use queen_engine::ids::{LaneId, TimeUs, TopicId};

    use super::*;

    #[test]
    fn a_body_keeps_payloads_byte_for_byte() {
        let body = br#"{"items":[{"queue":"q","payload":{ "a" : 1.0 },"traceId":{"x":1}},
            {"queue":"q","partition":"p","payload":null,"transactionId":"t","data":5},
            {"queue":"","partition":null,"payload":"x","transactionId":7,"producerSub":null}]}"#;
        let entries = parse_push_body(body).unwrap();
        let payloads: Vec<&str> = entries.iter().map(|entry| entry.payload).collect();
        assert_eq!(payloads, [r#"{ "a" : 1.0 }"#, "null", r#""x""#]);
        let lanes: Vec<&str> = entries.iter().map(|entry| entry.lane.as_str()).collect();
        assert_eq!(lanes, ["Default", "p", "Default"]);
        assert_eq!(entries[1].transaction_id.as_deref(), Some("t"));
        assert_eq!(entries[2].transaction_id.as_deref(), Some("7"));
    }

    #[test]
    fn incomplete_bodies_are_refused() {
        for body in [
            "",
            "{}",
            "[]",
            "null",
            r#"{"items":null}"#,
            r#"{"items":{}}"#,
            r#"{"items":[{"queue":"q"}]}"#,
            r#"{"items":[{"queue":"q","data":1}]}"#,
            r#"{"items":[{"payload":1}]}"#,
            r#"{"items":[{"queue":"q","payload":}]}"#,
            r#"{"items":[1]}"#,
        ] {
            assert!(parse_push_body(body.as_bytes()).is_err(), "{body}");
        }
        assert!(parse_push_body(br#"{"items":[]}"#).unwrap().is_empty());
        assert!(parse_push_body(&[0xff; 10]).is_err());
        let deep = format!(
            r#"{{"items":[{{"queue":"q","payload":{}1{}}}]}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        assert_eq!(parse_push_body(deep.as_bytes()).unwrap().len(), 1);
    }

    #[test]
    fn verdicts_have_the_mixed_names_clients_read() {
        let pushed = Pushed {
            topic: TopicId(1),
            lane: LaneId(4),
            number: 7,
            time: TimeUs(0),
            duplicate: false,
            message_id: "m".to_owned(),
        };
        let asked = |transaction_id: Option<&str>, verdict| Asked {
            queue: "q".to_owned(),
            transaction_id: transaction_id.map(str::to_owned),
            verdict,
        };
        let bytes = render(&[
            asked(None, Ok(pushed.clone())),
            asked(
                Some("t"),
                Ok(Pushed {
                    duplicate: true,
                    ..pushed
                }),
            ),
            asked(Some("u"), Err(Reject::QueueFull)),
        ]);
        let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(value[0]["transaction_id"], "m");
        assert_eq!(value[0]["status"], "queued");
        assert_eq!(value[0]["offset"], 7);
        assert_eq!(value[1]["status"], "duplicate");
        assert_eq!(value[1]["transaction_id"], "t");
        assert_eq!(value[2]["status"], "error");
        assert_eq!(value[2]["message_id"], NO_MESSAGE_ID);
        assert!(value[2].get("offset").is_none());
        assert_eq!(value[2]["queueName"], "q");
    }
}
