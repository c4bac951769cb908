//! Messages as the lane view shows them: ids, lookup of a lane's records, the way from a
//! transaction id to a number. Shared by everything above the state.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::batch::{DecodedBatch, Record};
use crate::ids::{LaneId, TimeUs};
use crate::index::BatchRow;
use crate::names;
use crate::port::{Broker, Failure, query};

/// The id of a message that was given none: a version 7 UUID made of its append time, lane and
/// number, so it needs no storage, is the same on every node and rises with the number.
pub fn message_id(lane: LaneId, number: u64, time: TimeUs) -> String {
    let millis = u128::from(time.millis().unsigned_abs()) & ((1 << 48) - 1);
    // 74 free bits: 32 of the lane, 42 of the number; version and variant bits sit between.
    let free = (u128::from(lane.0) << 42) | u128::from(number & ((1 << 42) - 1));
    let high = (free >> 62) & 0xfff;
    let low = free & ((1 << 62) - 1);
    format_uuid((millis << 80) | (0x7 << 76) | (high << 64) | (0b10 << 62) | low)
}

/// Reads a derived id back, if `text` has the form of one.
pub fn parse_message_id(text: &str) -> Option<(LaneId, u64)> {
    let bits = parse_uuid(text)?;
    if (bits >> 76) & 0xf != 0x7 || (bits >> 62) & 0b11 != 0b10 {
        return None;
    }
    let free = (((bits >> 64) & 0xfff) << 62) | (bits & ((1 << 62) - 1));
    let lane = u32::try_from(free >> 42).ok()?;
    let number = u64::try_from(free & ((1 << 42) - 1)).ok()?;
    Some((LaneId(lane), number))
}

/// Lower-case hyphenated UUID text of 128 bits.
pub fn format_uuid(bits: u128) -> String {
    let hex = format!("{bits:032x}");
    let mut text = String::with_capacity(36);
    for (i, part) in [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .into_iter()
    .enumerate()
    {
        let separator = if i == 0 { "" } else { "-" };
        let _ = write!(text, "{separator}{part}");
    }
    text
}

/// The 128 bits of a hyphenated or plain UUID text.
pub fn parse_uuid(text: &str) -> Option<u128> {
    let well_formed = match text.len() {
        32 => true,
        36 => [8, 13, 18, 23]
            .iter()
            .all(|&at| text.as_bytes()[at] == b'-'),
        _ => false,
    };
    if !well_formed {
        return None;
    }
    let hex: String = text.chars().filter(|c| *c != '-').collect();
    if hex.len() != 32 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(&hex, 16).ok()
}

/// One record of a lane.
#[derive(Clone)]
pub struct LaneRecord {
    pub lane: LaneId,
    pub number: u64,
    pub row: BatchRow,
    pub batch: Arc<DecodedBatch>,
    pub record: u32,
}

impl LaneRecord {
    /// The record itself.
    pub fn get(&self) -> Option<Record<'_>> {
        self.batch.record(self.record as usize)
    }

    /// The text of a record header, if present and UTF-8.
    pub fn header(&self, name: &str) -> Option<String> {
        let value = self.get()?.headers.get(name.as_bytes()).flatten()?;
        std::str::from_utf8(value).ok().map(str::to_owned)
    }

    /// The id that was promised for it, else the derived one.
    pub fn message_id(&self) -> String {
        self.header(names::HEADER_MESSAGE_ID)
            .unwrap_or_else(|| message_id(self.lane, self.number, self.row.time))
    }

    /// The client's transaction id, else the message id.
    pub fn transaction_id(&self) -> String {
        self.header(names::HEADER_TRANSACTION_ID)
            .unwrap_or_else(|| self.message_id())
    }

    /// Offset in its Kafka partition.
    pub fn offset(&self) -> u64 {
        let delta = self.get().map_or(0, |record| record.offset_delta);
        self.row.base_offset + u64::try_from(delta).unwrap_or(0)
    }
}

/// Records `from..to` of a lane in order, as many as are still retained. A number that retention
/// has removed is left out.
pub fn read_lane(
    broker: &dyn Broker,
    lane: LaneId,
    from: u64,
    to: u64,
) -> Result<Vec<LaneRecord>, Failure> {
    let places = query(broker, |view| {
        (from..to)
            .filter_map(|n| Some((n, view.index.locate(lane, n)?)))
            .collect::<Vec<_>>()
    });
    let mut records: Vec<LaneRecord> = Vec::with_capacity(places.len());
    for (number, place) in places {
        let batch = match records.last() {
            Some(last) if last.row.at == place.row.at => last.batch.clone(),
            _ => broker.decoded(place.row.at)?,
        };
        records.push(LaneRecord {
            lane,
            number,
            row: place.row,
            batch,
            record: place.record,
        });
    }
    Ok(records)
}

/// The number of the message a client addresses by transaction id: by the derived id, by the
/// dedup memory, else by looking through `window` of the lane.
pub fn resolve_transaction(
    broker: &dyn Broker,
    lane: LaneId,
    transaction_id: &str,
    window: std::ops::Range<u64>,
) -> Result<Option<u64>, Failure> {
    let known = query(broker, |view| {
        if let Some((of, number)) = parse_message_id(transaction_id)
            && of == lane
            && let Some(place) = view.index.locate(lane, number)
            && message_id(lane, number, place.row.time) == transaction_id
        {
            return Some(number);
        }
        view.engine
            .find_transaction(lane, transaction_id)
            .map(|seen| seen.number)
    });
    if known.is_some() {
        return Ok(known);
    }
    let records = read_lane(broker, lane, window.start, window.end)?;
    Ok(records
        .iter()
        .find(|r| r.transaction_id() == transaction_id)
        .map(|r| r.number))
}
