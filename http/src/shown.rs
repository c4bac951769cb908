//! A lane's record as the HTTP side names it: id, transaction id, trace and producer, taken from
//! the record's headers in one pass.

use std::borrow::Cow;

use queen_engine::message::{LaneRecord, message_id};
use queen_engine::names;

/// What the headers of a record say, and its value.
pub struct Shown<'a> {
    pub id: Cow<'a, str>,
    pub transaction_id: Cow<'a, str>,
    pub trace_id: Option<&'a str>,
    pub producer_sub: Option<&'a str>,
    /// `None` is a tombstone.
    pub value: Option<&'a [u8]>,
}

impl<'a> Shown<'a> {
    /// Reads a record; `None` when its batch does not hold it.
    pub fn of(record: &'a LaneRecord) -> Option<Shown<'a>> {
        let stored = record.get()?;
        let (mut id, mut transaction_id, mut trace_id, mut producer_sub) = (None, None, None, None);
        for (name, value) in stored.headers {
            let Some(value) = value.and_then(|value| std::str::from_utf8(value).ok()) else {
                continue;
            };
            let Ok(name) = std::str::from_utf8(name) else {
                continue;
            };
            let slot = match name {
                names::HEADER_MESSAGE_ID => &mut id,
                names::HEADER_TRANSACTION_ID => &mut transaction_id,
                names::HEADER_TRACE_ID => &mut trace_id,
                names::HEADER_PRODUCER_SUB => &mut producer_sub,
                _ => continue,
            };
            slot.get_or_insert(value);
        }
        let id: Cow<'a, str> = match id {
            Some(id) => id.into(),
            None => message_id(record.lane, record.number, record.row.time).into(),
        };
        let transaction_id = transaction_id.map_or_else(|| id.clone(), Cow::Borrowed);
        Some(Shown {
            id,
            transaction_id,
            trace_id,
            producer_sub,
            value: stored.value,
        })
    }
}
