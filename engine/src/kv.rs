//! Versioned keys with compare-and-set and lifetimes (semantics 12). Owns the KV map; decides
//! nothing about names and sizes, which the edge has checked.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::TimeUs;

/// How long a written row lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifetime {
    Forever,
    /// Seconds from the entry's time, greater than 0.
    Seconds(i64),
}

/// One KV operation. `value` is JSON text kept byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvOp {
    pub ns: String,
    pub key: String,
    /// Losing rolls the whole call back (semantics KV-6).
    pub required: bool,
    pub action: KvAction,
}

/// What a [`KvOp`] does to its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KvAction {
    Get,
    /// The keys are here; the op's own key is unused.
    GetMany { keys: Vec<String> },
    /// The op's key is the prefix.
    GetPrefix { after: Option<String>, limit: usize, keys_only: bool },
    Put { value: String, lifetime: Lifetime, expect: Option<u64> },
    PutIfAbsent { value: String, lifetime: Lifetime },
    Delete { expect: Option<u64> },
    Incr { delta: i64, min: Option<i64>, max: Option<i64>, lifetime: Lifetime },
    Check { expect: u64 },
}

/// Why a write lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KvReason {
    Exists,
    Absent,
    Version,
    Limit,
    Type,
}

/// A row as it is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvRow {
    pub key: String,
    pub value: String,
    pub version: u64,
    pub expires: Option<TimeUs>,
    pub updated: TimeUs,
}

/// The result of one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KvResult {
    /// `Get`.
    Row(Option<KvRow>),
    /// `GetMany` and `GetPrefix`.
    Rows { rows: Vec<KvRow>, missing: Vec<String>, truncated: bool, next_after: Option<String> },
    /// A write or check that held; the row after it, `None` after a delete.
    Applied { row: Option<KvRow> },
    /// A write or check that lost; the row that won, if there is one.
    Lost { reason: KvReason, row: Option<KvRow> },
}

/// A `required` operation that lost, and with it the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvLoss {
    /// Index of the operation in its list.
    pub index: usize,
    pub reason: KvReason,
    pub row: Option<KvRow>,
}

/// All rows by (namespace, key).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvStore {
    rows: BTreeMap<(String, String), StoredRow>,
    by_expiry: BTreeSet<(TimeUs, String, String)>,
    next_version: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredRow {
    value: String,
    version: u64,
    expires: Option<TimeUs>,
    updated: TimeUs,
}

impl KvStore {
    /// A row, if it is there and has not expired at `now`.
    pub fn get(&self, ns: &str, key: &str, now: TimeUs) -> Option<KvRow> {
        let row = self.rows.get(&(ns.to_string(), key.to_string()))?;
        row.live(now).then(|| row.show(key))
    }

    /// Rows of `ns` whose key begins with `prefix`, in byte order of keys, behind `after`, at
    /// most `limit`; and whether there are more.
    pub fn scan(
        &self,
        ns: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
        now: TimeUs,
    ) -> (Vec<KvRow>, bool) {
        let from = (ns.to_string(), after.unwrap_or_default().max(prefix).to_string());
        let mut rows = Vec::new();
        for ((row_ns, key), row) in self.rows.range(from..) {
            if row_ns != ns || !key.starts_with(prefix) {
                break;
            }
            if after.is_some_and(|after| key.as_str() <= after) || !row.live(now) {
                continue;
            }
            if rows.len() == limit {
                return (rows, true);
            }
            rows.push(row.show(key));
        }
        (rows, false)
    }

    /// Namespaces with their counts of live keys.
    pub fn namespaces(&self, now: TimeUs) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for ((ns, _), row) in &self.rows {
            if row.live(now) {
                *counts.entry(ns.clone()).or_insert(0) += 1;
            }
        }
        counts
    }

    /// Rows stored, expired ones not yet swept included.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether no row is stored.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Applies read operations to the present state; write operations answer as if refused.
    pub fn read(&self, ops: &[KvOp], now: TimeUs) -> Vec<KvResult> {
        ops.iter().map(|op| self.read_one(op, now)).collect()
    }
}
