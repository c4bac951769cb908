//! The KV routes (http-api 8.1, 8.2).

use hyper::StatusCode;
use hyper::header::ETAG;
use queen_engine::command::Command;
use queen_engine::kv::{KvLoss, KvOp, KvResult};
use queen_engine::outcome::Outcome;
use queen_engine::port::Failure;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::api::kv_ops::{
    self, NamedOp, OpBody, PLAIN, Writer, add_loss, is_write, namespace, needs_log, read_op,
    read_ops, refuse,
};
use crate::app::App;
use crate::json;
use crate::limits;
use crate::problem::{Answer, Family, Problem};
use crate::reply::Reply;
use crate::request::Call;

#[derive(Deserialize)]
struct BatchBody<'a> {
    #[serde(borrow)]
    operations: Option<Vec<&'a RawValue>>,
}

fn bad_body(error: impl std::fmt::Display) -> Problem {
    refuse("kv_bad_body", error.to_string())
}

/// Failures keep the family's shape.
pub fn failed(failure: &Failure) -> Problem {
    Problem::of_family(Family::Kv, failure)
}

/// `POST /api/v1/kv`: `{"operations": [...]}` or a bare list.
pub async fn batch(app: &App, call: &Call) -> Answer {
    let is_list = call.body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    let bodies: Vec<&RawValue> = if is_list {
        call.parse().map_err(bad_body)?
    } else {
        let body: BatchBody<'_> = call.parse().map_err(bad_body)?;
        body.operations
            .ok_or_else(|| bad_body("operations is required"))?
    };
    let ops = read_ops(&bodies, PLAIN)?;
    match run(app, &ops).await? {
        Err(loss) => Ok(lost(&loss)),
        Ok(results) => {
            let mut writer = Writer::new();
            let mut out = b"{\"results\":[".to_vec();
            for (index, (named, result)) in ops.iter().zip(&results).enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                writer.write(&mut out, &format!("\"index\":{index}"), named, result);
            }
            out.extend_from_slice(b"]}");
            Ok(Reply::json_bytes(StatusCode::OK, out))
        }
    }
}

/// A `required` operation lost: nothing was applied.
fn lost(loss: &KvLoss) -> Reply {
    let mut body = Map::new();
    add_loss(&mut body, loss, loss.index);
    Reply::json(&body)
}

/// Runs operations: reads behind a barrier, anything else as one entry.
async fn run(app: &App, named: &[NamedOp]) -> Result<Result<Vec<KvResult>, KvLoss>, Problem> {
    let ops: Vec<KvOp> = named.iter().map(|named| named.op.clone()).collect();
    if ops.is_empty() {
        return Ok(Ok(Vec::new()));
    }
    if !ops.iter().any(needs_log) {
        app.broker
            .barrier()
            .await
            .map_err(|failure| failed(&failure))?;
        let now = app.broker.now();
        return Ok(Ok(app.view(|view| {
            view.engine.kv.read(&ops, now.max(view.engine.now()))
        })));
    }
    let expected = ops.len();
    match app.broker.submit(Command::Kv { ops }).await {
        Ok(Outcome::Kv(Ok(results))) if results.len() == expected => Ok(Ok(results)),
        Ok(Outcome::Kv(Err(loss))) => Ok(Err(loss)),
        Ok(_) => Err(Problem::unexpected("kv")),
        Err(failure) => Err(failed(&failure)),
    }
}

/// Fields that the path or the server owns.
#[derive(Deserialize)]
struct InPath {
    op: Option<IgnoredAny>,
    ns: Option<IgnoredAny>,
    namespace: Option<IgnoredAny>,
    key: Option<IgnoredAny>,
    keys: Option<IgnoredAny>,
}

/// `GET /api/v1/kv/:ns/*key`.
pub async fn get(app: &App, call: &Call, ns: String, key: String) -> Answer {
    no_query(call)?;
    single(app, json!({"op": "get", "ns": ns, "key": key}).to_string()).await
}

/// `PUT /api/v1/kv/:ns/*key`.
pub async fn put(app: &App, call: &Call, ns: String, key: String) -> Answer {
    single(app, with_path(call, "put", &ns, &key)?).await
}

/// `DELETE /api/v1/kv/:ns/*key`.
pub async fn delete(app: &App, call: &Call, ns: String, key: String) -> Answer {
    single(app, with_path(call, "delete", &ns, &key)?).await
}

fn no_query(call: &Call) -> Result<(), Problem> {
    if call.query.is_present() {
        return Err(refuse(
            "kv_no_query_string",
            "this route takes no query string",
        ));
    }
    Ok(())
}

/// The body with the operation and the address of the path put in front.
fn with_path(call: &Call, op: &str, ns: &str, key: &str) -> Result<String, Problem> {
    no_query(call)?;
    let owned: InPath = call.parse().map_err(bad_body)?;
    let named = [owned.op, owned.ns, owned.namespace, owned.key, owned.keys];
    if named.iter().any(Option::is_some) {
        return Err(refuse(
            "kv_field_in_path",
            "op, ns and key stand in the path",
        ));
    }
    let body: &RawValue = call.parse().map_err(bad_body)?;
    let inside = body
        .get()
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'));
    let Some(inside) = inside else {
        return Err(bad_body("the body must be an object"));
    };
    let mut text = json!({"op": op, "ns": ns, "key": key}).to_string();
    text.pop();
    if !inside.trim().is_empty() {
        text.push(',');
    }
    text.push_str(inside);
    text.push('}');
    Ok(text)
}

async fn single(app: &App, text: String) -> Answer {
    let body: OpBody<'_> = serde_json::from_str(&text).map_err(bad_body)?;
    let named = [read_op(body, PLAIN)?];
    let results = match run(app, &named).await? {
        Ok(results) => results,
        Err(loss) => return Ok(lost(&loss)),
    };
    let [result] = results.as_slice() else {
        return Err(Problem::unexpected("kv"));
    };
    let mut out = Vec::new();
    Writer::new().write(&mut out, "\"index\":0", &named[0], result);
    let reply = Reply::json_bytes(StatusCode::OK, out);
    Ok(match result {
        KvResult::Row(Some(row)) if !is_write(&named[0].op) => {
            reply.with_header(ETAG, &format!("\"{}\"", row.version))
        }
        _ => reply,
    })
}

/// `GET /api/v1/resources/kv/namespaces`.
pub async fn namespaces(app: &App) -> Answer {
    app.broker
        .barrier()
        .await
        .map_err(|failure| failed(&failure))?;
    let now = app.broker.now();
    let counts = app.view(|view| view.engine.kv.namespaces(now));
    let rows: Vec<Value> = counts
        .iter()
        .map(|(ns, keys)| json!({"namespace": ns, "keys": keys}))
        .collect();
    Ok(Reply::json(&json!({"namespaces": rows})))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListBody {
    #[serde(alias = "ns")]
    namespace: Option<String>,
    prefix: Option<String>,
    after: Option<String>,
    limit: Option<i64>,
    keys_only: Option<bool>,
}

/// `POST /api/v1/resources/kv/list`: like `getPrefix`, with any prefix.
pub async fn list(app: &App, call: &Call) -> Answer {
    no_query(call)?;
    let body: ListBody = call.parse().map_err(bad_body)?;
    let ns = namespace(body.namespace.as_deref())?;
    let limit = body
        .limit
        .map_or(limits::KV_PREFIX_LIMIT, |n| usize::try_from(n).unwrap_or(1));
    let limit = limit.clamp(1, limits::KV_PREFIX_LIMIT_MAX);
    let prefix = body.prefix.unwrap_or_default();
    app.broker
        .barrier()
        .await
        .map_err(|failure| failed(&failure))?;
    let now = app.broker.now();
    let (rows, more) = app.view(|view| {
        view.engine
            .kv
            .scan(&ns, &prefix, body.after.as_deref(), limit, now)
    });
    let keys_only = body.keys_only.unwrap_or(false);
    let mut out = b"{\"rows\":[".to_vec();
    let mut bytes = 0;
    for (index, row) in rows.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b"{" } else { b",{" });
        kv_ops::write_row(&mut out, row, !keys_only);
        out.extend_from_slice(b",\"expired\":false}");
        bytes += row.value.len();
    }
    out.extend_from_slice(b"],\"truncated\":");
    out.extend_from_slice(if more { b"true" } else { b"false" });
    out.extend_from_slice(b",\"nextAfter\":");
    json::write_optional(
        &mut out,
        rows.last().filter(|_| more).map(|row| row.key.as_str()),
    );
    out.extend_from_slice(b",\"bytes\":");
    json::write_number(&mut out, bytes as u64);
    out.push(b'}');
    Ok(Reply::json_bytes(StatusCode::OK, out))
}
