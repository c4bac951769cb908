//! Which lane each record of a batch belongs to: the key walk that feeds the lanes.
//!
//! Runs once per produced batch, on the node that received it. Lane names are distinct by name, not
//! by key, so a key that spells the name of a keyless lane joins it.

use std::borrow::Cow;
use std::hash::BuildHasher;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::DecodedBatch;

/// The record header that carries an HTTP push's transaction id, by which it is deduplicated.
pub const TRANSACTION_ID_HEADER: &[u8] = b"queen.transaction-id";

/// What names the lane of a key that is not UTF-8, before the key in base64.
pub const BASE64_PREFIX: &str = "base64:";

/// What names the lane of records without a key, before the Kafka partition.
pub const PARTITION_PREFIX: &str = "partition-";

/// The lanes of a batch's records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneKeys {
    /// Distinct lane names in order of first appearance.
    pub names: Vec<Bytes>,
    /// Per record, the index of its lane in `names`.
    pub lane_of: Vec<u32>,
    /// Records with a transaction id: index of the record, and the id.
    ///
    /// A null or empty id counts as none; of several, the first counts.
    pub dedup: Vec<(u32, Bytes)>,
}

/// The name of the lane of a record with this key, produced to this Kafka partition.
pub fn lane_name(key: Option<&[u8]>, partition: u32) -> Cow<'_, [u8]> {
    match key {
        Some(key) if std::str::from_utf8(key).is_ok() => Cow::Borrowed(key),
        Some(key) => {
            let mut name = String::from(BASE64_PREFIX);
            STANDARD.encode_string(key, &mut name);
            Cow::Owned(name.into_bytes())
        }
        None => Cow::Owned(format!("{PARTITION_PREFIX}{partition}").into_bytes()),
    }
}

/// Walks the keys of a batch produced to Kafka partition `partition`.
///
/// Names that are keys, and transaction ids, borrow the batch's memory.
pub fn lane_keys(batch: &DecodedBatch, partition: u32) -> LaneKeys {
    let mut lanes = LaneKeys::default();
    lanes.lane_of.reserve_exact(batch.len());
    let mut names = Names::default();
    let mut previous: Option<(Option<&[u8]>, u32)> = None;
    for (index, record) in (0u32..).zip(batch.iter()) {
        let lane = match previous {
            Some((key, lane)) if key == record.key => lane,
            _ => names.intern(batch, lane_name(record.key, partition)),
        };
        previous = Some((record.key, lane));
        lanes.lane_of.push(lane);
        if let Some(Some(id)) = record.headers.get(TRANSACTION_ID_HEADER)
            && !id.is_empty()
        {
            lanes.dedup.push((index, batch.slice_ref(id)));
        }
    }
    lanes.names = names.names;
    lanes
}

/// Distinct names and where to find them.
///
/// The hasher is seeded per process so that nobody can choose colliding keys; the seed never shows
/// in the result, which is in order of first appearance.
#[derive(Default)]
struct Names {
    names: Vec<Bytes>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Names {
    fn intern(&mut self, batch: &DecodedBatch, name: Cow<'_, [u8]>) -> u32 {
        let Names {
            names,
            table,
            hasher,
        } = self;
        let known = |index: &u32| {
            names
                .get(*index as usize)
                .map(Bytes::as_ref)
                .unwrap_or_default()
        };
        let hash = hasher.hash_one(name.as_ref());
        if let Some(&index) = table.find(hash, |index| known(index) == name.as_ref()) {
            return index;
        }
        // A batch has at most 2^31 records.
        let index = u32::try_from(names.len()).unwrap_or(u32::MAX);
        table.insert_unique(hash, index, |index| hasher.hash_one(known(index)));
        names.push(match name {
            Cow::Borrowed(key) => batch.slice_ref(key),
            Cow::Owned(name) => Bytes::from(name),
        });
        index
    }
}
