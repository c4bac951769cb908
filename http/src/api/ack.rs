//! `POST /api/v1/ack`, `/ack/batch` and `/lease/:id/extend` (http-api 5.5 to 5.7).

use std::collections::HashMap;

use queen_engine::command::{AckItem, AckStatus, Command};
use queen_engine::ids::{LaneId, LeaseId};
use queen_engine::message::{format_uuid, parse_uuid};
use queen_engine::names;
use queen_engine::outcome::{AckReject, AckResult, Outcome};
use serde::Deserialize;
use serde_json::json;

use crate::app::{App, Counted};
use crate::json::{self, Text};
use crate::problem::{Answer, Problem};
use crate::reply::Reply;
use crate::request::Call;
use crate::resolve::{Address, Resolved, payload_for, resolve};
use crate::time::iso_ms;

/// One ack as it comes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AckBody {
    transaction_id: Option<Text>,
    partition_id: Option<Text>,
    status: Option<Text>,
    consumer_group: Option<Text>,
    lease_id: Option<Text>,
    error: Option<Text>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BatchBody {
    acknowledgments: Option<Vec<AckBody>>,
    consumer_group: Option<Text>,
}

/// One ack with its words understood.
#[derive(Debug)]
pub struct Ack {
    pub transaction_id: String,
    pub partition_id: String,
    pub status: AckStatus,
    pub group: String,
    pub lease: Fence,
    pub error: Option<String>,
}

/// What an ack says about its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    None,
    Lease(LeaseId),
    /// Text that was never a lease of ours.
    Foreign,
}

impl Fence {
    /// Reads a lease id; the empty text, which a pop without a lease answers, is none.
    pub fn read(text: Option<Text>) -> Fence {
        match json::non_empty(text) {
            None => Fence::None,
            Some(text) => parse_uuid(&text).map_or(Fence::Foreign, |id| Fence::Lease(LeaseId(id))),
        }
    }

    /// The lease to check, if one is named.
    pub fn lease(self) -> Option<LeaseId> {
        match self {
            Fence::Lease(lease) => Some(lease),
            Fence::None | Fence::Foreign => None,
        }
    }
}

/// The status words of the plain routes, case-sensitive; an unknown word is a failure.
fn plain_status(word: Option<&str>) -> AckStatus {
    match word {
        None | Some("completed" | "success" | "acked" | "ok") => AckStatus::Completed,
        Some("retry") => AckStatus::Retry,
        Some("dlq") => AckStatus::Dlq,
        Some(_) => AckStatus::Failed,
    }
}

impl AckBody {
    fn read(self, group: Option<&str>) -> Ack {
        let status = self.status.map(|text| text.0);
        let own_group = json::non_empty(self.consumer_group);
        let group = group.map(str::to_owned).or(own_group);
        Ack {
            transaction_id: self.transaction_id.map_or_else(String::new, |text| text.0),
            partition_id: self.partition_id.map_or_else(String::new, |text| text.0),
            status: plain_status(status.as_deref()),
            group: group.unwrap_or_else(|| names::QUEUE_MODE_GROUP.to_owned()),
            lease: Fence::read(self.lease_id),
            error: json::non_empty(self.error),
        }
    }
}

/// An ack that can be submitted, or the reason why it cannot.
pub type Prepared = Result<AckItem, AckReject>;

/// Resolves acks into items of a command.
pub async fn prepare(app: &App, acks: &[Ack]) -> Result<Vec<Prepared>, Problem> {
    let addresses: Vec<Address<'_>> = acks
        .iter()
        .map(|ack| Address {
            partition_id: &ack.partition_id,
            transaction_id: &ack.transaction_id,
            group: &ack.group,
            lease: ack.lease.lease(),
        })
        .collect();
    let broker = &*app.broker;
    let resolved = resolve(broker, &addresses)
        .await
        .map_err(|failure| Problem::of(&failure))?;
    let lowest = lowest_failed(acks, &resolved);
    let prepare = |(ack, resolved): (&Ack, Resolved)| -> Result<Prepared, Problem> {
        let found = match resolved {
            Resolved::Found(found) => found,
            Resolved::NoConsumer => return Ok(Err(AckReject::UnknownConsumer)),
            Resolved::Unresolvable => return Ok(Err(AckReject::Unresolvable)),
        };
        if ack.lease == Fence::Foreign {
            return Ok(Err(AckReject::LeaseLost));
        }
        let charged = ack.status != AckStatus::Failed
            || lowest.get(&(found.lane, ack.group.as_str(), ack.lease.lease()))
                == Some(&found.number);
        let payload = if charged {
            payload_for(broker, &found, ack.status).map_err(|failure| Problem::of(&failure))?
        } else {
            None
        };
        Ok(Ok(AckItem {
            lane: found.lane,
            group: ack.group.clone(),
            number: found.number,
            status: ack.status,
            lease: ack.lease.lease(),
            error: ack.error.clone(),
            first_pending: found.first_pending,
            created: found.created,
            transaction_id: ack.transaction_id.clone(),
            payload,
        }))
    };
    acks.iter().zip(resolved).map(prepare).collect()
}

/// Acks are judged together by lane, group and lease.
type Judged<'a> = (LaneId, &'a str, Option<LeaseId>);

/// Per lane the only failed message that is charged, and so may be dead-lettered.
fn lowest_failed<'a>(acks: &'a [Ack], resolved: &[Resolved]) -> HashMap<Judged<'a>, u64> {
    let mut lowest = HashMap::new();
    for (ack, resolved) in acks.iter().zip(resolved) {
        if let (AckStatus::Failed, Resolved::Found(found)) = (ack.status, resolved) {
            let key = (found.lane, ack.group.as_str(), ack.lease.lease());
            let number = lowest.entry(key).or_insert(found.number);
            *number = found.number.min(*number);
        }
    }
    lowest
}

/// `POST /api/v1/ack`.
pub async fn single(app: &App, call: &Call) -> Answer {
    let body: AckBody = call.json()?;
    if body.transaction_id.is_none() || body.partition_id.is_none() {
        return Err(Problem::bad_request(
            "transactionId and partitionId are required",
        ));
    }
    settle(app, vec![body.read(None)]).await
}

/// `POST /api/v1/ack/batch`: the group stands at the top.
pub async fn batch(app: &App, call: &Call) -> Answer {
    let body: BatchBody = call.json()?;
    let Some(acks) = body.acknowledgments else {
        return Err(Problem::bad_request("acknowledgments is required"));
    };
    let group =
        json::non_empty(body.consumer_group).unwrap_or_else(|| names::QUEUE_MODE_GROUP.to_owned());
    settle(
        app,
        acks.into_iter().map(|ack| ack.read(Some(&group))).collect(),
    )
    .await
}

async fn settle(app: &App, acks: Vec<Ack>) -> Answer {
    let prepared = prepare(app, &acks).await?;
    let mut items = Vec::with_capacity(prepared.len());
    // Per ack its place among the items sent, or why it was not sent.
    let places: Vec<Result<usize, AckReject>> = prepared
        .into_iter()
        .map(|one| {
            one.map(|item| {
                items.push(item);
                items.len() - 1
            })
        })
        .collect();
    let results = if items.is_empty() {
        Vec::new()
    } else {
        submit(app, items).await?
    };
    let mut out = Vec::with_capacity(2 + acks.len() * 160);
    out.push(b'[');
    let mut accepted = 0;
    for (index, (ack, place)) in acks.iter().zip(places).enumerate() {
        let result = match place {
            Ok(place) => results
                .get(place)
                .copied()
                .ok_or_else(|| Problem::unexpected("ack"))?,
            Err(reject) => AckResult {
                rejected: Some(reject),
                ..AckResult::default()
            },
        };
        accepted += u64::from(result.rejected.is_none());
        if index > 0 {
            out.push(b',');
        }
        render(&mut out, index, &ack.transaction_id, &result);
    }
    out.push(b']');
    app.count(Counted::Acked, accepted);
    Ok(Reply::json_bytes(hyper::StatusCode::OK, out))
}

async fn submit(app: &App, items: Vec<AckItem>) -> Result<Vec<AckResult>, Problem> {
    match app.broker.submit(Command::Ack { items }).await {
        Ok(Outcome::Acked(results)) => Ok(results),
        Ok(Outcome::Rejected(reject)) => Err(Problem::of_reject(&reject)),
        Ok(_) => Err(Problem::unexpected("ack")),
        Err(failure) => Err(Problem::of_ack(&failure)),
    }
}

fn render(out: &mut Vec<u8>, index: usize, transaction_id: &str, result: &AckResult) {
    let flag = |on: bool| -> &'static [u8] { if on { b"true" } else { b"false" } };
    out.extend_from_slice(b"{\"index\":");
    json::write_number(out, index as u64);
    out.extend_from_slice(b",\"transactionId\":");
    json::write_text(out, transaction_id);
    out.extend_from_slice(b",\"success\":");
    out.extend_from_slice(flag(result.rejected.is_none()));
    out.extend_from_slice(b",\"error\":");
    json::write_optional(out, result.rejected.map(reject_text));
    out.extend_from_slice(b",\"leaseReleased\":");
    out.extend_from_slice(flag(result.lease_released));
    out.extend_from_slice(b",\"dlq\":");
    out.extend_from_slice(flag(result.dead_lettered));
    out.extend_from_slice(b",\"noop\":");
    out.extend_from_slice(flag(result.noop));
    if result.conflated > 0 {
        out.extend_from_slice(b",\"conflated\":");
        json::write_number(out, result.conflated);
    }
    out.push(b'}');
}

/// The refusals in the words clients search for.
pub fn reject_text(reject: AckReject) -> &'static str {
    match reject {
        AckReject::LeaseLost => "invalid or expired lease",
        AckReject::Unresolvable => "unresolvable: no such message in the leased batch",
        AckReject::AlreadyCommitted => "already committed: the message is finished for this group",
        AckReject::UnknownConsumer => "consumer not found",
    }
}

#[derive(Deserialize)]
struct ExtendBody {
    seconds: Option<f64>,
}

/// `POST /api/v1/lease/:leaseId/extend`; a body that is no JSON counts as none.
pub async fn extend(app: &App, call: &Call, lease_id: &str) -> Answer {
    let seconds = call
        .parse::<ExtendBody>()
        .ok()
        .and_then(|body| body.seconds)
        .unwrap_or(60.0);
    let longest = crate::limits::LEASE_SECONDS_MAX as f64;
    // The clamp leaves nothing that does not fit.
    let seconds = seconds.clamp(1.0, longest) as i64;
    let (renewed, expires) = match parse_uuid(lease_id) {
        None => (0, None),
        Some(lease) => {
            let command = Command::Extend {
                lease: LeaseId(lease),
                seconds,
            };
            match app.broker.submit(command).await {
                Ok(Outcome::Extended(renewed, expires)) => (renewed, expires),
                Ok(_) => return Err(Problem::unexpected("extend")),
                Err(failure) => return Err(Problem::of(&failure)),
            }
        }
    };
    let expires = expires.filter(|_| renewed > 0).map(iso_ms);
    let lease_id = parse_uuid(lease_id).map_or_else(|| lease_id.to_owned(), format_uuid);
    Ok(Reply::json(&json!({
        "leaseId": lease_id,
        "success": renewed > 0,
        "renewed": renewed,
        "newExpiresAt": expires,
        "expiresAt": expires,
        "lease_expires_at": expires,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_words_are_case_sensitive() {
        for word in [
            None,
            Some("completed"),
            Some("success"),
            Some("acked"),
            Some("ok"),
        ] {
            assert_eq!(plain_status(word), AckStatus::Completed);
        }
        assert_eq!(plain_status(Some("retry")), AckStatus::Retry);
        assert_eq!(plain_status(Some("dlq")), AckStatus::Dlq);
        for word in ["failed", "Completed", "", "nonsense"] {
            assert_eq!(plain_status(Some(word)), AckStatus::Failed);
        }
    }

    #[test]
    fn results_have_all_seven_keys() {
        let mut out = Vec::new();
        let lost = AckResult {
            rejected: Some(AckReject::LeaseLost),
            ..AckResult::default()
        };
        render(&mut out, 3, "t\"x", &lost);
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let expected = json!({"index": 3, "transactionId": "t\"x", "success": false,
            "error": "invalid or expired lease", "leaseReleased": false, "dlq": false,
            "noop": false});
        assert_eq!(value, expected);
        assert!(reject_text(AckReject::Unresolvable).contains("unresolv"));
        assert!(reject_text(AckReject::AlreadyCommitted).contains("committed"));
    }

    #[test]
    fn nulls_and_empty_texts_are_absent() {
        let body: AckBody = serde_json::from_str(
            r#"{"transactionId":"t","partitionId":4,"status":null,"consumerGroup":null,
                "leaseId":"","error":null}"#,
        )
        .unwrap();
        let ack = body.read(None);
        assert_eq!(ack.partition_id, "4");
        assert_eq!(ack.status, AckStatus::Completed);
        assert_eq!(ack.group, names::QUEUE_MODE_GROUP);
        assert_eq!(ack.lease, Fence::None);
        assert_eq!(Fence::read(Some(Text("junk".to_owned()))), Fence::Foreign);
    }
}
