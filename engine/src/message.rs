//! Messages as the lane view shows them: ids, lookup of a lane's records, the way from a
//! transaction id to a number. Shared by everything above the state.

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

/// Places of the hyphens in a UUID's text.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// Lower-case hyphenated UUID text of 128 bits.
pub fn format_uuid(bits: u128) -> String {
    let mut text = String::with_capacity(36);
    for nibble in (0..32).rev() {
        if HYPHENS.contains(&text.len()) {
            text.push('-');
        }
        let digit = u8::try_from((bits >> (nibble * 4)) & 0xf).unwrap_or(0);
        text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
    }
    text
}

/// The 128 bits of a hyphenated or plain UUID text.
pub fn parse_uuid(text: &str) -> Option<u128> {
    let bytes = text.as_bytes();
    let hyphenated = match bytes.len() {
        32 => false,
        36 => HYPHENS.iter().all(|at| bytes[*at] == b'-'),
        _ => return None,
    };
    if bytes.len() == 36 && !hyphenated {
        return None;
    }
    let mut bits = 0u128;
    for (at, byte) in bytes.iter().enumerate() {
        if hyphenated && HYPHENS.contains(&at) {
            continue;
        }
        bits = (bits << 4) | u128::from(char::from(*byte).to_digit(16)?);
    }
    Some(bits)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_texts_read_back_and_nonsense_does_not() {
        for bits in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210] {
            let text = format_uuid(bits);
            assert_eq!(parse_uuid(&text), Some(bits));
            assert_eq!(parse_uuid(&text.to_uppercase()), Some(bits));
            assert_eq!(parse_uuid(&text.replace('-', "")), Some(bits));
        }
        let text = format_uuid(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210);
        assert_eq!(text, "01234567-89ab-cdef-fedc-ba9876543210");
        for bad in [
            "",
            "x",
            "01234567-89ab-cdef-fedc-ba987654321",
            "+1234567-89ab-cdef-fedc-ba9876543210",
        ] {
            assert_eq!(parse_uuid(bad), None, "{bad}");
        }
    }

    #[test]
    fn derived_ids_read_back_and_rise_with_the_number() {
        let time = TimeUs(1_791_290_494_021_007);
        let mut last = String::new();
        for number in [0, 1, 2, 1000, 1 << 20, (1 << 42) - 1] {
            let id = message_id(LaneId(77), number, time);
            assert_eq!(parse_message_id(&id), Some((LaneId(77), number)));
            assert!(id > last);
            last = id;
        }
    }
}
