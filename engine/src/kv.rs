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
    GetMany {
        keys: Vec<String>,
    },
    /// The op's key is the prefix.
    GetPrefix {
        after: Option<String>,
        limit: usize,
        keys_only: bool,
    },
    Put {
        value: String,
        lifetime: Lifetime,
        expect: Option<u64>,
    },
    PutIfAbsent {
        value: String,
        lifetime: Lifetime,
    },
    Delete {
        expect: Option<u64>,
    },
    Incr {
        delta: i64,
        min: Option<i64>,
        max: Option<i64>,
        lifetime: Lifetime,
    },
    Check {
        expect: u64,
    },
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
    Rows {
        rows: Vec<KvRow>,
        missing: Vec<String>,
        truncated: bool,
        next_after: Option<String>,
    },
    /// A write or check that held; the row after it, `None` after a delete.
    Applied { row: Option<KvRow> },
    /// A write or check that lost; the row that won, if there is one.
    Lost {
        reason: KvReason,
        row: Option<KvRow>,
    },
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
        let from = (
            ns.to_string(),
            after.unwrap_or_default().max(prefix).to_string(),
        );
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

impl StoredRow {
    fn live(&self, now: TimeUs) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }

    fn show(&self, key: &str) -> KvRow {
        KvRow {
            key: key.to_string(),
            value: self.value.clone(),
            version: self.version,
            expires: self.expires,
            updated: self.updated,
        }
    }
}

/// What a write that wins does.
enum Write {
    Nothing,
    Remove,
    /// New value; `None` keeps the present lifetime.
    Store(String, Option<Lifetime>),
}

impl KvStore {
    /// The first `required` operation that would lose against the present state.
    pub(crate) fn first_loss(&self, ops: &[KvOp], now: TimeUs) -> Option<KvLoss> {
        ops.iter()
            .enumerate()
            .filter(|(_, op)| op.required)
            .find_map(|(index, op)| {
                let (reason, row) = self.judge(op, now)?.err()?;
                Some(KvLoss { index, reason, row })
            })
    }

    /// Applies operations in order. Call [`KvStore::first_loss`] first: here a required loss is
    /// only reported like any other.
    pub(crate) fn apply(&mut self, ops: &[KvOp], now: TimeUs) -> Vec<KvResult> {
        ops.iter()
            .map(|op| match self.judge(op, now) {
                None => self.read_one(op, now),
                Some(Err((reason, row))) => KvResult::Lost { reason, row },
                Some(Ok(write)) => KvResult::Applied {
                    row: self.write(op, write, now),
                },
            })
            .collect()
    }

    /// Forgets rows expired at `now`, at most `rows_max`; how many.
    pub(crate) fn sweep(&mut self, now: TimeUs, rows_max: usize) -> usize {
        let mut swept = 0;
        while swept < rows_max
            && let Some((expires, _, _)) = self.by_expiry.first()
            && *expires <= now
            && let Some((_, ns, key)) = self.by_expiry.pop_first()
        {
            self.rows.remove(&(ns, key));
            swept += 1;
        }
        swept
    }

    /// When the next row expires.
    pub fn next_expiry(&self) -> Option<TimeUs> {
        self.by_expiry.first().map(|(expires, _, _)| *expires)
    }

    /// `None` for a read; for a write or check what it would do, or why it loses.
    #[allow(clippy::type_complexity)] // the pair is the loss, named at its two uses
    fn judge(&self, op: &KvOp, now: TimeUs) -> Option<Result<Write, (KvReason, Option<KvRow>)>> {
        let row = self.get(&op.ns, &op.key, now);
        let version = row.as_ref().map_or(0, |row| row.version);
        let expected = |expect: Option<u64>| match expect {
            Some(0) if row.is_some() => Err((KvReason::Exists, row.clone())),
            Some(n) if n > 0 && row.is_none() => Err((KvReason::Absent, None)),
            Some(n) if n != version => Err((KvReason::Version, row.clone())),
            _ => Ok(()),
        };
        Some(match &op.action {
            KvAction::Get | KvAction::GetMany { .. } | KvAction::GetPrefix { .. } => return None,
            KvAction::Put {
                value,
                lifetime,
                expect,
            } => expected(*expect).map(|()| Write::Store(value.clone(), Some(*lifetime))),
            KvAction::PutIfAbsent { value, lifetime } => {
                expected(Some(0)).map(|()| Write::Store(value.clone(), Some(*lifetime)))
            }
            KvAction::Delete { expect } => match row {
                None => Err((KvReason::Absent, None)),
                Some(_) => expected(*expect).map(|()| Write::Remove),
            },
            KvAction::Check { expect } => expected(Some(*expect)).map(|()| Write::Nothing),
            KvAction::Incr {
                delta,
                min,
                max,
                lifetime,
            } => {
                let old = match &row {
                    None => 0,
                    Some(row) => match row.value.trim().parse::<i64>() {
                        Ok(number) => number,
                        Err(_) => return Some(Err((KvReason::Type, Some(row.clone())))),
                    },
                };
                match old.checked_add(*delta) {
                    Some(new)
                        if min.is_none_or(|min| new >= min) && max.is_none_or(|max| new <= max) =>
                    {
                        let lifetime = if row.is_none() { Some(*lifetime) } else { None };
                        Ok(Write::Store(new.to_string(), lifetime))
                    }
                    _ => Err((KvReason::Limit, row)),
                }
            }
        })
    }

    fn write(&mut self, op: &KvOp, write: Write, now: TimeUs) -> Option<KvRow> {
        let id = (op.ns.clone(), op.key.clone());
        match write {
            Write::Nothing => self.get(&op.ns, &op.key, now),
            Write::Remove => {
                self.remove(&id);
                None
            }
            Write::Store(value, lifetime) => {
                let kept = self.rows.get(&id).and_then(|row| row.expires);
                let expires = match lifetime {
                    None => kept,
                    Some(Lifetime::Forever) => None,
                    Some(Lifetime::Seconds(seconds)) => Some(now.plus_seconds(seconds)),
                };
                self.remove(&id);
                self.next_version += 1;
                let row = StoredRow {
                    value,
                    version: self.next_version,
                    expires,
                    updated: now,
                };
                let shown = row.show(&op.key);
                if let Some(expires) = expires {
                    self.by_expiry.insert((expires, id.0.clone(), id.1.clone()));
                }
                self.rows.insert(id, row);
                Some(shown)
            }
        }
    }

    fn remove(&mut self, id: &(String, String)) {
        if let Some(row) = self.rows.remove(id)
            && let Some(expires) = row.expires
        {
            self.by_expiry
                .remove(&(expires, id.0.clone(), id.1.clone()));
        }
    }

    fn read_one(&self, op: &KvOp, now: TimeUs) -> KvResult {
        match &op.action {
            KvAction::GetMany { keys } => {
                let mut keys: Vec<&String> = keys.iter().collect();
                keys.sort();
                keys.dedup();
                let (mut rows, mut missing, mut bytes) = (Vec::new(), Vec::new(), 0);
                let mut truncated = false;
                for key in keys {
                    match self.get(&op.ns, key, now) {
                        None => missing.push(key.clone()),
                        Some(_) if bytes > READ_BYTES_MAX => truncated = true,
                        Some(row) => {
                            bytes += row.value.len();
                            rows.push(row);
                        }
                    }
                }
                KvResult::Rows {
                    rows,
                    missing,
                    truncated,
                    next_after: None,
                }
            }
            KvAction::GetPrefix { after, limit, .. } => {
                let (rows, truncated) = self.scan(&op.ns, &op.key, after.as_deref(), *limit, now);
                let next_after = rows.last().filter(|_| truncated).map(|row| row.key.clone());
                KvResult::Rows {
                    rows,
                    missing: Vec::new(),
                    truncated,
                    next_after,
                }
            }
            _ => KvResult::Row(self.get(&op.ns, &op.key, now)),
        }
    }
}

/// Most bytes of values one call reads (semantics KV-9).
const READ_BYTES_MAX: usize = 4 * 1024 * 1024;
