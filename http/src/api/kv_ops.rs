//! KV operations as they come in a body (http-api 8.1): checked here once, for the KV routes and
//! for transactions alike, and their results written out.

use std::collections::BTreeSet;

use hyper::StatusCode;
use queen_engine::kv::{KvAction, KvLoss, KvOp, KvReason, KvResult, KvRow, Lifetime};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::json;
use crate::limits;
use crate::problem::Problem;
use crate::time::iso_ms;

/// Bounds of one call.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub ops: usize,
    pub keys: usize,
    /// Prefix reads are not part of a transaction.
    pub prefix: bool,
}

/// Bounds of `POST /api/v1/kv`.
pub const PLAIN: Bounds = Bounds {
    ops: limits::KV_OPS_MAX,
    keys: limits::KV_KEYS_MAX,
    prefix: true,
};
/// Bounds of a transaction's KV part.
pub const IN_TRANSACTION: Bounds = Bounds {
    ops: limits::KV_OPS_IN_TRANSACTION_MAX,
    keys: limits::KV_KEYS_IN_TRANSACTION_MAX,
    prefix: false,
};

/// One operation as it comes.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpBody<'a> {
    op: Option<String>,
    #[serde(alias = "namespace")]
    ns: Option<String>,
    key: Option<String>,
    keys: Option<Vec<String>>,
    prefix: Option<String>,
    after: Option<String>,
    limit: Option<i64>,
    keys_only: Option<bool>,
    #[serde(borrow, default, deserialize_with = "json::present")]
    value: Option<&'a RawValue>,
    ttl_seconds: Option<Value>,
    forever: Option<bool>,
    expect: Option<Value>,
    required: Option<bool>,
    delta: Option<Value>,
    min: Option<Value>,
    max: Option<Value>,
    tenant: Option<IgnoredAny>,
    #[serde(alias = "tenant_id")]
    tenant_id: Option<IgnoredAny>,
}

/// A refusal of the KV family.
pub fn refuse(reason: &str, detail: impl AsRef<str>) -> Problem {
    Problem::family(
        StatusCode::BAD_REQUEST,
        "kv_bad_request",
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

/// An operation with the word it came under, which its result repeats.
#[derive(Debug)]
pub struct NamedOp {
    pub word: &'static str,
    pub op: KvOp,
}

/// Checks a list of operations.
pub fn read_ops(bodies: &[&RawValue], bounds: Bounds) -> Result<Vec<NamedOp>, Problem> {
    if bodies.len() > bounds.ops {
        return Err(refuse(
            "kv_too_many_ops",
            format!("at most {} operations", bounds.ops),
        ));
    }
    let mut ops = Vec::with_capacity(bodies.len());
    let (mut written, mut keys) = (BTreeSet::new(), 0);
    for (index, body) in bodies.iter().enumerate() {
        let body: OpBody<'_> = serde_json::from_str(body.get())
            .map_err(|error| refuse("kv_bad_body", format!("operation {index}: {error}")))?;
        let named = read_op(body, bounds)?;
        keys += keys_of(&named.op);
        if is_write(&named.op) && !written.insert((named.op.ns.clone(), named.op.key.clone())) {
            return Err(refuse(
                "kv_duplicate_key_in_call",
                "a key can be written once in a call",
            ));
        }
        ops.push(named);
    }
    if keys > bounds.keys {
        return Err(refuse(
            "kv_too_many_keys",
            format!("at most {} keys", bounds.keys),
        ));
    }
    Ok(ops)
}

fn keys_of(op: &KvOp) -> usize {
    match &op.action {
        KvAction::GetMany { keys } => keys.len(),
        KvAction::GetPrefix { limit, .. } => *limit,
        KvAction::Get
        | KvAction::Put { .. }
        | KvAction::PutIfAbsent { .. }
        | KvAction::Delete { .. }
        | KvAction::Incr { .. }
        | KvAction::Check { .. } => 1,
    }
}

/// Whether the operation may change its key.
pub fn is_write(op: &KvOp) -> bool {
    match op.action {
        KvAction::Put { .. }
        | KvAction::PutIfAbsent { .. }
        | KvAction::Delete { .. }
        | KvAction::Incr { .. } => true,
        KvAction::Get
        | KvAction::GetMany { .. }
        | KvAction::GetPrefix { .. }
        | KvAction::Check { .. } => false,
    }
}

/// Whether the operation must go through the log: writes, and checks that refuse with them.
pub fn needs_log(op: &KvOp) -> bool {
    is_write(op) || matches!(op.action, KvAction::Check { .. })
}

/// Checks one operation.
pub fn read_op(body: OpBody<'_>, bounds: Bounds) -> Result<NamedOp, Problem> {
    if body.tenant.is_some() || body.tenant_id.is_some() {
        return Err(refuse(
            "kv_tenant_not_an_input",
            "the tenant is not an input",
        ));
    }
    let ns = namespace(body.ns.as_deref())?;
    let word = word_of(body.op.as_deref().unwrap_or_default())?;
    let (key, action) = match word {
        "get" => (key(body.key.as_deref())?, KvAction::Get),
        "getMany" => (
            String::new(),
            KvAction::GetMany {
                keys: many_keys(&body)?,
            },
        ),
        "getPrefix" if !bounds.prefix => {
            return Err(refuse(
                "kv_get_prefix_not_allowed_in_transaction",
                "a prefix cannot be read in a transaction",
            ));
        }
        "getPrefix" => (prefix(&body)?, prefix_action(&body)),
        "put" => (key(body.key.as_deref())?, put(&body)?),
        "putIfAbsent" => (key(body.key.as_deref())?, put_if_absent(&body)?),
        "delete" => (
            key(body.key.as_deref())?,
            KvAction::Delete {
                expect: expect(body.expect.as_ref())?,
            },
        ),
        "incr" => (key(body.key.as_deref())?, incr(&body)?),
        _ => (key(body.key.as_deref())?, check(&body)?),
    };
    let required = body.required.unwrap_or(false);
    Ok(NamedOp {
        word,
        op: KvOp {
            ns,
            key,
            required,
            action,
        },
    })
}

fn word_of(op: &str) -> Result<&'static str, Problem> {
    let known = [
        "get",
        "getMany",
        "getPrefix",
        "put",
        "putIfAbsent",
        "delete",
        "incr",
        "check",
    ];
    known
        .into_iter()
        .find(|word| *word == op)
        .ok_or_else(|| refuse("kv_unknown_op", format!("unknown op {op:?}")))
}

/// `^[a-z0-9][a-z0-9._-]{0,63}$`.
pub fn namespace(ns: Option<&str>) -> Result<String, Problem> {
    let ns = ns.unwrap_or_default();
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let legal = ns.len() <= 64
        && ns.bytes().next().is_some_and(lower)
        && ns
            .bytes()
            .all(|byte| lower(byte) || matches!(byte, b'.' | b'_' | b'-'));
    if legal {
        Ok(ns.to_owned())
    } else {
        Err(refuse(
            "kv_bad_namespace",
            "ns must match [a-z0-9][a-z0-9._-]{0,63}",
        ))
    }
}

/// 1 to 512 bytes without NUL.
pub fn key(key: Option<&str>) -> Result<String, Problem> {
    let key = key.unwrap_or_default();
    if key.len() > limits::KV_KEY_BYTES_MAX {
        return Err(too_large("kv_key_too_large", "a key has at most 512 bytes"));
    }
    if key.is_empty() || key.contains('\0') {
        return Err(refuse("kv_bad_key", "a key has 1 to 512 bytes and no NUL"));
    }
    Ok(key.to_owned())
}

fn many_keys(body: &OpBody<'_>) -> Result<Vec<String>, Problem> {
    let Some(keys) = &body.keys else {
        return Err(refuse("kv_bad_key", "getMany needs keys"));
    };
    keys.iter().map(|one| key(Some(one))).collect()
}

fn prefix(body: &OpBody<'_>) -> Result<String, Problem> {
    match body.prefix.as_deref() {
        None | Some("") => Err(refuse("kv_prefix_required", "getPrefix needs a prefix")),
        Some(prefix) => key(Some(prefix)),
    }
}

fn prefix_action(body: &OpBody<'_>) -> KvAction {
    let limit = body
        .limit
        .map_or(limits::KV_PREFIX_LIMIT, |n| usize::try_from(n).unwrap_or(1));
    KvAction::GetPrefix {
        after: body.after.clone(),
        limit: limit.clamp(1, limits::KV_PREFIX_LIMIT_MAX),
        keys_only: body.keys_only.unwrap_or(false),
    }
}

fn value(body: &OpBody<'_>) -> Result<String, Problem> {
    let Some(value) = body.value else {
        return Err(refuse("kv_bad_body", "value is required"));
    };
    let value = json::compact(value.get());
    if value.len() > limits::KV_VALUE_BYTES_MAX {
        return Err(too_large(
            "kv_value_too_large",
            "a value has at most 64 KiB",
        ));
    }
    Ok(value)
}

fn lifetime(body: &OpBody<'_>) -> Result<Lifetime, Problem> {
    let ttl = body.ttl_seconds.as_ref().filter(|ttl| !ttl.is_null());
    match (ttl, body.forever.unwrap_or(false)) {
        (None, true) => Ok(Lifetime::Forever),
        (Some(ttl), false) => match ttl.as_i64() {
            // Far enough to be for ever, near enough to be added to a time.
            Some(seconds) if seconds > 0 => Ok(Lifetime::Seconds(seconds.min(1 << 40))),
            _ => Err(refuse(
                "kv_bad_ttl",
                "ttlSeconds must be an integer above 0",
            )),
        },
        (None, false) | (Some(_), true) => Err(refuse(
            "kv_expiry_not_specified",
            "give exactly one of ttlSeconds and forever:true",
        )),
    }
}

fn expect(value: Option<&Value>) -> Result<Option<u64>, Problem> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value
            .as_u64()
            .map(Some)
            .ok_or_else(|| refuse("kv_bad_expect", "expect must be a version or 0")),
    }
}

fn put(body: &OpBody<'_>) -> Result<KvAction, Problem> {
    let expect = expect(body.expect.as_ref())?;
    Ok(KvAction::Put {
        lifetime: lifetime(body)?,
        value: value(body)?,
        expect,
    })
}

fn put_if_absent(body: &OpBody<'_>) -> Result<KvAction, Problem> {
    if expect(body.expect.as_ref())?.is_some_and(|expect| expect != 0) {
        return Err(refuse("kv_bad_expect", "putIfAbsent expects only 0"));
    }
    Ok(KvAction::PutIfAbsent {
        lifetime: lifetime(body)?,
        value: value(body)?,
    })
}

fn incr(body: &OpBody<'_>) -> Result<KvAction, Problem> {
    if body.expect.as_ref().is_some_and(|expect| !expect.is_null()) {
        return Err(refuse("kv_bad_expect", "incr takes no expect"));
    }
    let integer = |name: &str, value: &Option<Value>| match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value
            .as_i64()
            .map(Some)
            .ok_or_else(|| refuse("kv_bad_body", format!("{name} must be an integer"))),
    };
    let Some(delta) = integer("delta", &body.delta)? else {
        return Err(refuse("kv_bad_body", "incr needs delta"));
    };
    let (min, max) = (integer("min", &body.min)?, integer("max", &body.max)?);
    Ok(KvAction::Incr {
        delta,
        min,
        max,
        lifetime: lifetime(body)?,
    })
}

fn check(body: &OpBody<'_>) -> Result<KvAction, Problem> {
    match expect(body.expect.as_ref())? {
        Some(expect) => Ok(KvAction::Check { expect }),
        None => Err(refuse("kv_bad_expect", "check needs expect")),
    }
}

/// Why an operation lost, in the contract's word.
pub fn reason_word(reason: KvReason) -> &'static str {
    match reason {
        KvReason::Exists => "exists",
        KvReason::Absent => "absent",
        KvReason::Version => "version",
        KvReason::Limit => "limit",
        KvReason::Type => "type",
    }
}

/// What a lost precondition adds to its answer.
pub fn add_loss(body: &mut Map<String, Value>, loss: &KvLoss, failed_index: usize) {
    body.insert("ok".to_owned(), json!(false));
    body.insert("reason".to_owned(), json!("kv_precondition"));
    body.insert("failedIndex".to_owned(), json!(failed_index));
    body.insert("kvReason".to_owned(), json!(reason_word(loss.reason)));
    let (version, value) = match &loss.row {
        Some(row) => (json!(row.version), parse_value(&row.value)),
        None => (Value::Null, Value::Null),
    };
    body.insert("version".to_owned(), version);
    body.insert("value".to_owned(), value);
}

/// The winner's value inside an answer that is built as a tree.
fn parse_value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}

/// Writes results; the values they carry share one budget.
pub struct Writer {
    budget: usize,
}

impl Writer {
    /// A writer for one call.
    pub fn new() -> Writer {
        Writer {
            budget: limits::KV_READ_BYTES_MAX,
        }
    }

    /// One result element. `places` are its leading fields (`"index":0`, and more in a
    /// transaction).
    pub fn write(&mut self, out: &mut Vec<u8>, places: &str, named: &NamedOp, result: &KvResult) {
        out.push(b'{');
        out.extend_from_slice(places.as_bytes());
        out.extend_from_slice(b",\"op\":");
        json::write_text(out, named.word);
        match result {
            KvResult::Row(Some(row)) => {
                out.extend_from_slice(b",\"found\":true,");
                write_row(out, row, true);
            }
            KvResult::Row(None) => {
                out.extend_from_slice(b",\"found\":false,\"key\":");
                json::write_text(out, &named.op.key);
            }
            KvResult::Rows {
                rows,
                missing,
                truncated,
                next_after,
            } => {
                self.write_rows(out, named, rows, missing, *truncated, next_after.as_deref());
            }
            KvResult::Applied { row } => {
                out.extend_from_slice(b",\"applied\":true,");
                write_changed(out, named, row.as_ref());
            }
            KvResult::Lost { reason, row } => {
                out.extend_from_slice(b",\"applied\":false,\"reason\":");
                json::write_text(out, reason_word(*reason));
                out.push(b',');
                write_held(out, named, row.as_ref());
            }
        }
        out.push(b'}');
    }

    fn write_rows(
        &mut self,
        out: &mut Vec<u8>,
        named: &NamedOp,
        rows: &[KvRow],
        missing: &[String],
        truncated: bool,
        next_after: Option<&str>,
    ) {
        let (keys_only, paged) = match &named.op.action {
            KvAction::GetPrefix { keys_only, .. } => (*keys_only, true),
            _ => (false, false),
        };
        out.extend_from_slice(b",\"rows\":[");
        let (mut cut, mut last) = (false, None);
        for row in rows {
            let size = row.key.len() + if keys_only { 0 } else { row.value.len() };
            if size > self.budget {
                cut = true;
                break;
            }
            self.budget -= size;
            out.extend_from_slice(if last.is_none() { b"{" } else { b",{" });
            write_row(out, row, !keys_only);
            out.push(b'}');
            last = Some(row.key.as_str());
        }
        out.extend_from_slice(b"],\"truncated\":");
        out.extend_from_slice(if truncated || cut { b"true" } else { b"false" });
        if paged {
            let next = if cut { last } else { next_after };
            out.extend_from_slice(b",\"nextAfter\":");
            json::write_optional(out, next);
        } else {
            out.extend_from_slice(b",\"missing\":");
            write_texts(out, missing);
        }
    }
}

fn write_texts(out: &mut Vec<u8>, texts: &[String]) {
    // Writing into a Vec cannot fail.
    if serde_json::to_writer(&mut *out, texts).is_err() {
        out.extend_from_slice(b"[]");
    }
}

/// The fields of a row as it is read.
pub fn write_row(out: &mut Vec<u8>, row: &KvRow, with_value: bool) {
    out.extend_from_slice(b"\"key\":");
    json::write_text(out, &row.key);
    if with_value {
        out.extend_from_slice(b",\"value\":");
        out.extend_from_slice(row.value.as_bytes());
    }
    out.extend_from_slice(b",\"version\":");
    json::write_number(out, row.version);
    out.extend_from_slice(b",\"expiresAt\":");
    json::write_optional(out, row.expires.map(iso_ms).as_deref());
    out.extend_from_slice(b",\"updatedAt\":");
    json::write_text(out, &iso_ms(row.updated));
}

/// The fields of an operation that held; a check that held shows no value.
fn write_changed(out: &mut Vec<u8>, named: &NamedOp, row: Option<&KvRow>) {
    out.extend_from_slice(b"\"key\":");
    json::write_text(out, &named.op.key);
    let is_check = matches!(named.op.action, KvAction::Check { .. });
    if let Some(row) = row {
        if !is_check {
            out.extend_from_slice(b",\"value\":");
            out.extend_from_slice(row.value.as_bytes());
        }
        out.extend_from_slice(b",\"version\":");
        json::write_number(out, row.version);
        if !is_check {
            out.extend_from_slice(b",\"expiresAt\":");
            json::write_optional(out, row.expires.map(iso_ms).as_deref());
        }
    } else if is_check {
        out.extend_from_slice(b",\"version\":0");
    }
}

/// The fields of an operation that lost: what stands in its way.
fn write_held(out: &mut Vec<u8>, named: &NamedOp, row: Option<&KvRow>) {
    out.extend_from_slice(b"\"key\":");
    json::write_text(out, &named.op.key);
    match row {
        Some(row) => {
            out.extend_from_slice(b",\"value\":");
            out.extend_from_slice(row.value.as_bytes());
            out.extend_from_slice(b",\"version\":");
            json::write_number(out, row.version);
        }
        None => out.extend_from_slice(b",\"value\":null,\"version\":null"),
    }
}

#[cfg(test)]
mod tests {
    use queen_engine::ids::TimeUs;

    use super::*;

    fn read(ops: &[&str], bounds: Bounds) -> Result<Vec<NamedOp>, Problem> {
        let raw: Vec<Box<RawValue>> = ops
            .iter()
            .map(|op| RawValue::from_string((*op).to_owned()).unwrap())
            .collect();
        let raw: Vec<&RawValue> = raw.iter().map(AsRef::as_ref).collect();
        read_ops(&raw, bounds)
    }

    fn refused(op: &str, bounds: Bounds) -> (u16, String) {
        let problem = read(&[op], bounds).unwrap_err();
        let reason = problem.body()["reason"].as_str().unwrap().to_owned();
        (problem.status().as_u16(), reason)
    }

    #[test]
    fn every_refusal_has_its_reason() {
        let long = "k".repeat(513);
        let big = format!("\"{}\"", "v".repeat(65_536));
        let cases = [
            (
                r#"{"op":"get","ns":"UP","key":"k"}"#.to_owned(),
                "kv_bad_namespace",
            ),
            (r#"{"op":"get","key":"k"}"#.to_owned(), "kv_bad_namespace"),
            (r#"{"op":"get","ns":"n"}"#.to_owned(), "kv_bad_key"),
            (
                r#"{"op":"get","ns":"n","key":"a\u0000"}"#.to_owned(),
                "kv_bad_key",
            ),
            (
                format!(r#"{{"op":"get","ns":"n","key":"{long}"}}"#),
                "kv_key_too_large",
            ),
            (
                r#"{"op":"swap","ns":"n","key":"k"}"#.to_owned(),
                "kv_unknown_op",
            ),
            (r#"{"ns":"n","key":"k"}"#.to_owned(), "kv_unknown_op"),
            (
                r#"{"op":"put","ns":"n","key":"k","value":1}"#.to_owned(),
                "kv_expiry_not_specified",
            ),
            (
                r#"{"op":"put","ns":"n","key":"k","value":1,"ttlSeconds":5,"forever":true}"#
                    .to_owned(),
                "kv_expiry_not_specified",
            ),
            (
                r#"{"op":"put","ns":"n","key":"k","value":1,"ttlSeconds":0}"#.to_owned(),
                "kv_bad_ttl",
            ),
            (
                r#"{"op":"put","ns":"n","key":"k","forever":true}"#.to_owned(),
                "kv_bad_body",
            ),
            (
                format!(r#"{{"op":"put","ns":"n","key":"k","value":{big},"forever":true}}"#),
                "kv_value_too_large",
            ),
            (
                r#"{"op":"putIfAbsent","ns":"n","key":"k","value":1,"forever":true,"expect":2}"#
                    .to_owned(),
                "kv_bad_expect",
            ),
            (
                r#"{"op":"incr","ns":"n","key":"k","delta":1,"forever":true,"expect":0}"#
                    .to_owned(),
                "kv_bad_expect",
            ),
            (
                r#"{"op":"check","ns":"n","key":"k"}"#.to_owned(),
                "kv_bad_expect",
            ),
            (
                r#"{"op":"getPrefix","ns":"n","prefix":""}"#.to_owned(),
                "kv_prefix_required",
            ),
            (
                r#"{"op":"get","ns":"n","key":"k","tenant":"t"}"#.to_owned(),
                "kv_tenant_not_an_input",
            ),
            (r#"[]"#.to_owned(), "kv_bad_body"),
        ];
        for (op, reason) in cases {
            let (status, found) = refused(&op, PLAIN);
            assert_eq!(found, reason, "{op}");
            let large = reason.ends_with("too_large");
            assert_eq!(status, if large { 413 } else { 400 }, "{op}");
        }
        let (_, reason) = refused(
            r#"{"op":"getPrefix","ns":"n","prefix":"p"}"#,
            IN_TRANSACTION,
        );
        assert_eq!(reason, "kv_get_prefix_not_allowed_in_transaction");
    }

    #[test]
    fn calls_are_bounded_and_write_a_key_once() {
        let put = r#"{"op":"put","ns":"n","key":"k","value":null,"forever":true}"#;
        let check = r#"{"op":"check","ns":"n","key":"k","expect":0}"#;
        assert!(read(&[put, put], PLAIN).is_err());
        assert_eq!(read(&[check, put], PLAIN).unwrap().len(), 2);
        assert!(read(&[check; 65], IN_TRANSACTION).is_err());
        assert_eq!(read(&[check; 65], PLAIN).unwrap().len(), 65);
        let prefix = r#"{"op":"getPrefix","ns":"n","prefix":"p","limit":9999}"#;
        assert!(read(&[prefix], PLAIN).is_ok());
        assert!(read(&[prefix, prefix], PLAIN).is_err());
    }

    #[test]
    fn results_show_what_clients_read() {
        let row = KvRow {
            key: "k".to_owned(),
            value: r#"{"a":1}"#.to_owned(),
            version: 9,
            expires: None,
            updated: TimeUs(0),
        };
        let shown = |op: &str, result: &KvResult| -> Value {
            let named = read(&[op], PLAIN).unwrap();
            let mut out = Vec::new();
            Writer::new().write(&mut out, "\"index\":0", &named[0], result);
            serde_json::from_slice(&out).unwrap()
        };
        let check = r#"{"op":"check","ns":"n","key":"k","expect":9}"#;
        let held = shown(
            check,
            &KvResult::Applied {
                row: Some(row.clone()),
            },
        );
        assert_eq!(held["applied"], true);
        assert_eq!(held["version"], 9);
        assert!(held.get("value").is_none());
        let lost = KvResult::Lost {
            reason: KvReason::Version,
            row: Some(row.clone()),
        };
        let lost = shown(check, &lost);
        assert_eq!(
            (&lost["reason"], &lost["value"]["a"]),
            (&json!("version"), &json!(1))
        );
        let get = r#"{"op":"get","ns":"n","key":"k"}"#;
        assert_eq!(shown(get, &KvResult::Row(None))["found"], false);
        let found = shown(get, &KvResult::Row(Some(row.clone())));
        assert_eq!(found["expiresAt"], Value::Null);
        let rows = KvResult::Rows {
            rows: vec![row],
            missing: vec!["m".to_owned()],
            truncated: false,
            next_after: None,
        };
        let many = shown(r#"{"op":"getMany","ns":"n","keys":["k","m"]}"#, &rows);
        assert_eq!(many["missing"], json!(["m"]));
        let keys = r#"{"op":"getPrefix","ns":"n","prefix":"k","keysOnly":true}"#;
        let keys = shown(keys, &rows);
        assert!(keys["rows"][0].get("value").is_none());
        assert_eq!(keys["nextAfter"], Value::Null);
    }
}
