//! `POST /api/v1/transaction` (http-api 6): acks, pushes, positions, KV and timers as one entry.

use std::collections::BTreeSet;

use bytes::Bytes;
use hyper::StatusCode;
use queen_engine::command::{AckStatus, Position, TopicRef};
use queen_engine::group::first_pending;
use queen_engine::ids::LeaseId;
use queen_engine::message::parse_uuid;
use queen_engine::names;
use queen_engine::outcome::{AckReject, Reject, Rollback};
use queen_engine::port::{Bundle, BundleDone, BundleRollback, Failure, PushItem};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::api::ack::{Ack, Fence, prepare, reject_text};
use crate::api::kv_ops::{self, IN_TRANSACTION, NamedOp, Writer};
use crate::api::push::{check_item, lane_or_default};
use crate::api::timers;
use crate::app::{App, Counted};
use crate::json::{self, Text};
use crate::limits;
use crate::problem::{self, Answer, Problem};
use crate::reply::Reply;
use crate::request::{Call, check_names};
use crate::resolve::lane_start;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(borrow)]
    operations: Option<Vec<Operation<'a>>>,
    required_leases: Option<Vec<Option<Text>>>,
    #[serde(borrow)]
    kv: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    timers: Option<Vec<&'a RawValue>>,
    positions: Option<Vec<PositionBody>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Operation<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(borrow)]
    items: Option<Vec<PushBody<'a>>>,
    queue: Option<Text>,
    partition: Option<Text>,
    #[serde(borrow, default, deserialize_with = "json::present")]
    payload: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "json::present")]
    data: Option<&'a RawValue>,
    transaction_id: Option<Text>,
    trace_id: Option<Value>,
    partition_id: Option<Text>,
    consumer_group: Option<Text>,
    lease_id: Option<Text>,
    status: Option<Text>,
    error: Option<Text>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PushBody<'a> {
    queue: Option<Text>,
    partition: Option<Text>,
    #[serde(borrow, default, deserialize_with = "json::present")]
    payload: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "json::present")]
    data: Option<&'a RawValue>,
    transaction_id: Option<Text>,
    trace_id: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PositionBody {
    queue: Option<Text>,
    consumer_group: Option<Text>,
    partition: Option<Text>,
    offset: Option<i64>,
    metadata: Option<String>,
}

/// What stands at an index of the flat result list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Push(usize),
    Ack(usize),
}

/// A request with its words understood.
#[derive(Debug)]
struct Parsed {
    /// Operations in their order.
    flat: Vec<Part>,
    pushes: Vec<PushItem>,
    acks: Vec<Ack>,
    /// The first ack whose status is no word of ours.
    unknown_status: Option<String>,
    kv: Vec<NamedOp>,
}

/// Answers under one id.
struct Answers {
    id: String,
}

impl Answers {
    fn refuse(&self, status: StatusCode, reason: &str, text: &str) -> Reply {
        Reply::json_with(
            status,
            &json!({
                "transactionId": self.id,
                "success": false,
                "reason": reason,
                "error": text,
                "code": reason,
                "results": [],
            }),
        )
    }

    /// A refusal of a part, in this route's frame.
    fn of(&self, problem: Problem) -> Problem {
        problem.reworded(|body| {
            let word = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
            let reason = word("reason").or_else(|| word("code"));
            let error = word("detail").or_else(|| word("error"));
            body["transactionId"] = json!(self.id);
            body["success"] = json!(false);
            body["reason"] = json!(reason.unwrap_or_else(|| "bad_request".to_owned()));
            body["error"] = json!(format!("rolled back: {}", error.unwrap_or_default()));
            body["results"] = json!([]);
        })
    }

    fn rolled_back(&self, reason: &str, text: &str) -> Reply {
        Reply::json(&json!({
            "transactionId": self.id,
            "success": false,
            "reason": reason,
            "error": text,
            "results": [],
        }))
    }
}

/// The route.
pub async fn commit(app: &App, call: &Call) -> Answer {
    let answers = Answers {
        id: uuid::Uuid::new_v4().to_string(),
    };
    if call.binary {
        let text = "the binary form of a transaction is not served; send JSON";
        return Ok(answers.refuse(StatusCode::BAD_REQUEST, "bad_request", text));
    }
    let body: Body<'_> = match call.parse() {
        Ok(body) => body,
        Err(error) => {
            return Ok(answers.refuse(StatusCode::BAD_REQUEST, "bad_request", &error.0));
        }
    };
    run(app, call, body, &answers).await
}

async fn run(app: &App, call: &Call, body: Body<'_>, answers: &Answers) -> Answer {
    let framed = |problem| answers.of(problem);
    let Body {
        operations,
        required_leases,
        kv,
        timers,
        positions,
    } = body;
    let (kv, timers) = (kv.unwrap_or_default(), timers.unwrap_or_default());
    let positions = positions.unwrap_or_default();
    let operations = operations.unwrap_or_default();
    if operations.is_empty() && kv.is_empty() && timers.is_empty() && positions.is_empty() {
        return Err(framed(Problem::bad_request(
            "a transaction needs at least one operation",
        )));
    }
    let required = required_leases.unwrap_or_default();
    let parsed = read(&call.body, operations, required, &kv).map_err(framed)?;
    let timers = timers::read_ops(&timers, app.broker.now()).map_err(framed)?;
    check_positions(&positions).map_err(framed)?;

    if let Some(word) = &parsed.unknown_status {
        let text = format!("QTXN rolled back: unknown ack status {word:?}");
        return Ok(answers.rolled_back("rejected_ack", &text));
    }
    let mut acks = Vec::with_capacity(parsed.acks.len());
    for one in prepare(app, &parsed.acks).await.map_err(framed)? {
        match one {
            Ok(item) => acks.push(item),
            Err(reject) => return Ok(answers.rolled_back("rejected_ack", &ack_text(reject))),
        }
    }
    let positions_len = positions.len();
    let Some(positions) = resolve_positions(app, positions) else {
        let text = "QTXN rolled back: a position names a queue that does not exist";
        return Ok(answers.rolled_back("queue_not_found", text));
    };
    let kv = parsed.kv.iter().map(|named| named.op.clone()).collect();
    let pushes = parsed.pushes.clone();
    let bundle = Bundle {
        acks,
        pushes,
        positions,
        kv,
        timers,
    };
    match app.broker.transact(bundle).await {
        Ok(Ok(done)) => committed(app, answers, &parsed, &done, positions_len),
        Ok(Err(rollback)) => Ok(rolled_back(answers, &parsed, &rollback)),
        Err(Failure::TooLarge) => {
            Ok(answers.rolled_back("too_large", "rolled back: too large for one log entry"))
        }
        Err(failure) => Err(framed_failure(answers, &failure)),
    }
}

/// A failure keeps its retry hint.
fn framed_failure(answers: &Answers, failure: &Failure) -> Problem {
    Problem::of(failure).reworded(|body| {
        body["transactionId"] = json!(answers.id);
        body["success"] = json!(false);
        body["reason"] = json!("unavailable");
        body["results"] = json!([]);
    })
}

fn read(
    body: &Bytes,
    operations: Vec<Operation<'_>>,
    required: Vec<Option<Text>>,
    kv: &[&RawValue],
) -> Result<Parsed, Problem> {
    let mut parsed = Parsed {
        flat: Vec::with_capacity(operations.len()),
        pushes: Vec::new(),
        acks: Vec::new(),
        unknown_status: None,
        kv: kv_ops::read_ops(kv, IN_TRANSACTION)?,
    };
    for operation in operations {
        match operation.kind.as_deref() {
            Some("push") => parsed.add_push(body, operation)?,
            Some("ack") => parsed.add_ack(operation)?,
            kind => {
                let kind = kind.unwrap_or_default();
                return Err(Problem::bad_request(format!(
                    "operation type {kind:?}: operations hold push and ack; kv and timers have \
                     lists of their own"
                )));
            }
        }
    }
    lend_lease(&mut parsed.acks, required);
    Ok(parsed)
}

impl Parsed {
    fn add_push(&mut self, body: &Bytes, operation: Operation<'_>) -> Result<(), Problem> {
        let inline = PushBody {
            queue: operation.queue,
            partition: operation.partition,
            payload: operation.payload,
            data: operation.data,
            transaction_id: operation.transaction_id,
            trace_id: operation.trace_id,
        };
        for item in operation.items.unwrap_or_else(|| vec![inline]) {
            let Some(Text(queue)) = item.queue else {
                return Err(Problem::bad_request("a push needs a queue"));
            };
            let Some(payload) = item.payload.or(item.data) else {
                return Err(Problem::bad_request("a push needs a payload"));
            };
            let trace_id = item.trace_id.as_ref().and_then(Value::as_str);
            let item = PushItem {
                queue,
                lane: lane_or_default(item.partition),
                payload: body.slice_ref(payload.get().as_bytes()),
                transaction_id: json::non_empty(item.transaction_id),
                trace_id: trace_id
                    .filter(|id| parse_uuid(id).is_some())
                    .map(str::to_owned),
                producer_sub: None,
                message_id: None,
            };
            check_item(&item)?;
            self.flat.push(Part::Push(self.pushes.len()));
            self.pushes.push(item);
        }
        Ok(())
    }

    fn add_ack(&mut self, operation: Operation<'_>) -> Result<(), Problem> {
        let (Some(Text(transaction_id)), Some(Text(partition_id))) =
            (operation.transaction_id, operation.partition_id)
        else {
            return Err(Problem::bad_request(
                "an ack needs transactionId and partitionId",
            ));
        };
        let word = operation.status.map(|text| text.0);
        let status = match word.as_deref() {
            None | Some("completed" | "success" | "acked" | "ok") => AckStatus::Completed,
            Some("failed") => AckStatus::Failed,
            Some("retry") => AckStatus::Retry,
            Some("dlq") => AckStatus::Dlq,
            Some(unknown) => {
                self.unknown_status
                    .get_or_insert_with(|| unknown.to_owned());
                AckStatus::Completed
            }
        };
        self.flat.push(Part::Ack(self.acks.len()));
        self.acks.push(Ack {
            transaction_id,
            partition_id,
            status,
            group: json::non_empty(operation.consumer_group)
                .unwrap_or_else(|| names::QUEUE_MODE_GROUP.to_owned()),
            lease: Fence::read(operation.lease_id),
            error: json::non_empty(operation.error),
        });
        Ok(())
    }
}

/// Gives the only lease that the call names to the acks that name none (http-api 6.1).
fn lend_lease(acks: &mut [Ack], required: Vec<Option<Text>>) {
    let mut leases: BTreeSet<Option<LeaseId>> = required
        .into_iter()
        .map(Fence::read)
        .filter(|fence| *fence != Fence::None)
        .map(Fence::lease)
        .collect();
    leases.extend(
        acks.iter()
            .filter(|ack| ack.lease != Fence::None)
            .map(|ack| ack.lease.lease()),
    );
    let mut only = leases.into_iter();
    if let (Some(Some(lease)), None) = (only.next(), only.next()) {
        for ack in acks.iter_mut().filter(|ack| ack.lease == Fence::None) {
            ack.lease = Fence::Lease(lease);
        }
    }
}

fn check_positions(positions: &[PositionBody]) -> Result<(), Problem> {
    if positions.len() > limits::POSITIONS_MAX {
        return Err(Problem::bad_request("at most 16384 positions"));
    }
    for position in positions {
        let queue = position.queue.as_ref().map_or("", |text| text.0.as_str());
        let group = position
            .consumer_group
            .as_ref()
            .map_or("", |text| text.0.as_str());
        let lane = position
            .partition
            .as_ref()
            .map_or("", |text| text.0.as_str());
        if position.queue.is_none() || group.is_empty() {
            return Err(Problem::bad_request(
                "a position needs queue and consumerGroup",
            ));
        }
        check_names(queue, &[group, lane])?;
        if position.offset.is_some_and(|offset| offset < 0) {
            return Err(Problem::bad_request(
                "a position's offset must not be negative",
            ));
        }
        let metadata = position.metadata.as_ref().map_or(0, String::len);
        if metadata > limits::POSITION_METADATA_BYTES_MAX {
            return Err(Problem::bad_request(
                "a position's metadata has at most 4096 bytes",
            ));
        }
    }
    Ok(())
}

/// Finds the queues of positions; `None` when one does not exist.
fn resolve_positions(app: &App, positions: Vec<PositionBody>) -> Option<Vec<Position>> {
    app.view(|view| {
        let resolve = |position: PositionBody| {
            let queue = position.queue.map(|text| text.0).unwrap_or_default();
            let group = position
                .consumer_group
                .map(|text| text.0)
                .unwrap_or_default();
            let lane = lane_or_default(position.partition);
            let topic = view.engine.topics.named(&queue)?;
            let first = view
                .engine
                .lanes
                .find(topic.id, lane.as_bytes())
                .map_or(0, |lane| match view.engine.groups.on(&group, topic.id) {
                    Some(state) => first_pending(view.engine, view.index, state, lane),
                    None => lane_start(view, lane),
                });
            Some(Position {
                topic: TopicRef::Id(topic.id),
                group,
                lane: lane.into(),
                number: position
                    .offset
                    .and_then(|offset| u64::try_from(offset).ok()),
                first_pending: first,
                metadata: position.metadata.unwrap_or_default(),
            })
        };
        positions.into_iter().map(resolve).collect()
    })
}

/// The flat result list: operations, kv, timers, positions.
fn committed(
    app: &App,
    answers: &Answers,
    parsed: &Parsed,
    done: &BundleDone,
    positions: usize,
) -> Answer {
    let fits = done.acks.len() == parsed.acks.len()
        && done.pushes.len() == parsed.pushes.len()
        && done.kv.len() == parsed.kv.len();
    if !fits {
        return Err(Problem::unexpected("transaction"));
    }
    app.count(
        Counted::Pushed,
        done.pushes
            .iter()
            .filter(|pushed| !pushed.duplicate)
            .count() as u64,
    );
    app.count(Counted::Acked, done.acks.len() as u64);
    let mut out = b"{\"transactionId\":".to_vec();
    json::write_text(&mut out, &answers.id);
    out.extend_from_slice(b",\"success\":true,\"results\":[");
    let mut index = 0;
    let mut next = |out: &mut Vec<u8>| {
        if index > 0 {
            out.push(b',');
        }
        index += 1;
        index - 1
    };
    for part in &parsed.flat {
        let index = next(&mut out);
        match *part {
            Part::Push(at) => write_push(&mut out, index, &parsed.pushes[at], &done.pushes[at]),
            Part::Ack(at) => write_ack(&mut out, index, &parsed.acks[at], &done.acks[at]),
        }
    }
    let mut writer = Writer::new();
    for (at, (named, result)) in parsed.kv.iter().zip(&done.kv).enumerate() {
        let index = next(&mut out);
        let places = format!("\"index\":{index},\"type\":\"kv\",\"opIndex\":{at}");
        writer.write(&mut out, &places, named, result);
    }
    for (at, result) in done.timers.iter().enumerate() {
        let mut fields = timers::result(result);
        fields.insert("index".to_owned(), json!(next(&mut out)));
        fields.insert("type".to_owned(), json!("timer"));
        fields.insert("opIndex".to_owned(), json!(at));
        out.extend_from_slice(Value::Object(fields).to_string().as_bytes());
    }
    for at in 0..positions {
        let index = next(&mut out);
        let row = json!({"index": index, "type": "position", "opIndex": at, "success": true});
        out.extend_from_slice(row.to_string().as_bytes());
    }
    out.extend_from_slice(b"]}");
    Ok(Reply::json_bytes(StatusCode::OK, out))
}

fn write_push(
    out: &mut Vec<u8>,
    index: usize,
    item: &PushItem,
    pushed: &queen_engine::port::Pushed,
) {
    let transaction_id = item.transaction_id.as_deref().unwrap_or(&pushed.message_id);
    let mut row = json!({
        "index": index,
        "type": "push",
        "success": true,
        "transactionId": transaction_id,
        "messageId": pushed.message_id,
        "queueName": item.queue,
        "offset": pushed.number,
    });
    if pushed.duplicate {
        row["duplicate"] = json!(true);
    }
    out.extend_from_slice(row.to_string().as_bytes());
}

fn write_ack(
    out: &mut Vec<u8>,
    index: usize,
    ack: &Ack,
    result: &queen_engine::outcome::AckResult,
) {
    let row = json!({
        "index": index,
        "type": "ack",
        "success": true,
        "transactionId": ack.transaction_id,
        "error": null,
        "dlq": result.dead_lettered,
        "noop": result.noop,
        "leaseReleased": result.lease_released,
    });
    out.extend_from_slice(row.to_string().as_bytes());
}

fn ack_text(reject: AckReject) -> String {
    format!("QTXN rolled back: {}", reject_text(reject))
}

fn rolled_back(answers: &Answers, parsed: &Parsed, rollback: &BundleRollback) -> Reply {
    let rollback = match rollback {
        BundleRollback::Duplicate { push } => {
            return duplicate(answers, parsed.pushes.get(*push));
        }
        BundleRollback::Other(rollback) => rollback,
    };
    match rollback {
        Rollback::Ack(_, reject) => answers.rolled_back("rejected_ack", &ack_text(*reject)),
        // The broker names the push itself; this one only when it cannot.
        Rollback::Duplicate { .. } => duplicate(answers, None),
        Rollback::Push(_, reject) | Rollback::Position(_, reject) => {
            let text = format!("QTXN rolled back: {}", problem::reject_text(reject));
            answers.rolled_back(reject_reason(reject), &text)
        }
        Rollback::Kv(loss) => {
            let mut body = Map::new();
            kv_ops::add_loss(&mut body, loss, parsed.flat.len() + loss.index);
            let text = format!(
                "QKV rolled back: kv operation {} lost: {}",
                loss.index,
                kv_ops::reason_word(loss.reason)
            );
            body.insert("transactionId".to_owned(), json!(answers.id));
            body.insert("success".to_owned(), json!(false));
            body.insert("error".to_owned(), json!(text));
            body.insert("results".to_owned(), json!([]));
            Reply::json(&body)
        }
    }
}

fn duplicate(answers: &Answers, item: Option<&PushItem>) -> Reply {
    let text = match item {
        Some(item) => format!(
            "QDUP rolled back: transactionId {:?} is already in queue {:?}",
            item.transaction_id.as_deref().unwrap_or_default(),
            item.queue
        ),
        None => "QDUP rolled back: a transactionId is already stored".to_owned(),
    };
    answers.rolled_back("duplicate", &text)
}

fn reject_reason(reject: &Reject) -> &'static str {
    match reject {
        Reject::UnknownTopic | Reject::UnknownPartition => "queue_not_found",
        Reject::NameTooLong => "name_too_long",
        Reject::Duplicate => "duplicate",
        Reject::TooLate | Reject::Stale | Reject::StaleLane => "reserved",
        Reject::QueueFull => "unavailable",
        Reject::TopicExists
        | Reject::InvalidPartitions
        | Reject::InvalidConfig
        | Reject::InvalidName
        | Reject::OffsetOutOfRange
        | Reject::UnknownGroup
        | Reject::OutOfOrderSequence
        | Reject::InvalidProducerEpoch
        | Reject::UnknownDeadLetter
        | Reject::UnknownTimer
        | Reject::Malformed => "bad_request",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &'static str) -> Result<Parsed, Problem> {
        let bytes = Bytes::from_static(text.as_bytes());
        let body: Body<'_> = serde_json::from_slice(&bytes).unwrap();
        let kv = body.kv.unwrap_or_default();
        read(
            &bytes,
            body.operations.unwrap_or_default(),
            body.required_leases.unwrap_or_default(),
            &kv,
        )
    }

    const LEASE: &str = "00000000-0000-4000-8000-000000000001";

    #[test]
    fn operations_share_one_index_space() {
        let parsed = parsed(
            r#"{"operations":[
                {"type":"push","items":[{"queue":"a","payload":1},{"queue":"b","data":null}]},
                {"type":"ack","transactionId":"t","partitionId":"4","status":null},
                {"type":"push","queue":"c","payload":{},"traceId":"nope"}],
              "kv":null}"#,
        )
        .unwrap();
        let order = [Part::Push(0), Part::Push(1), Part::Ack(0), Part::Push(2)];
        assert_eq!(parsed.flat, order);
        assert_eq!(parsed.pushes[1].payload, "null");
        assert_eq!(parsed.pushes[2].trace_id, None);
    }

    #[test]
    fn traces_survive_when_they_are_uuids() {
        let parsed = parsed(
            r#"{"operations":[{"type":"push","queue":"c","payload":{},
                "traceId":"00000000-0000-4000-8000-000000000001"}]}"#,
        )
        .unwrap();
        assert_eq!(parsed.pushes[0].trace_id.as_deref(), Some(LEASE));
    }

    #[test]
    fn a_lease_is_lent_only_when_it_is_the_only_one() {
        let ack = |lease: Fence| Ack {
            transaction_id: "t".to_owned(),
            partition_id: "1".to_owned(),
            status: AckStatus::Completed,
            group: "g".to_owned(),
            lease,
            error: None,
        };
        let (one, two) = (Fence::Lease(LeaseId(1)), Fence::Lease(LeaseId(2)));
        let required = || vec![Some(Text(LEASE.to_owned()))];
        let lent = Fence::Lease(LeaseId(parse_uuid(LEASE).unwrap()));

        let mut acks = [ack(Fence::None)];
        lend_lease(&mut acks, required());
        assert_eq!(acks[0].lease, lent);

        let mut acks = [ack(Fence::None), ack(one)];
        lend_lease(&mut acks, Vec::new());
        assert_eq!(acks[0].lease, one);

        let mut acks = [ack(Fence::None), ack(one), ack(two)];
        lend_lease(&mut acks, Vec::new());
        assert_eq!(acks[0].lease, Fence::None);

        let mut acks = [ack(Fence::None), ack(one)];
        lend_lease(&mut acks, required());
        assert_eq!(acks[0].lease, Fence::None);
    }

    #[test]
    fn unknown_words_are_noticed_and_foreign_types_refused() {
        let ack = r#"{"operations":[{"type":"ack","transactionId":"t","partitionId":"1",
            "status":"Done"}]}"#;
        assert_eq!(parsed(ack).unwrap().unknown_status.as_deref(), Some("Done"));
        for body in [
            r#"{"operations":[{"type":"kv"}]}"#,
            r#"{"operations":[{"op":"put"}]}"#,
            r#"{"operations":[{"type":"push","items":[{"queue":"q"}]}]}"#,
            r#"{"operations":[{"type":"ack","transactionId":"t"}]}"#,
        ] {
            assert!(parsed(body).is_err(), "{body}");
        }
    }
}
