//! The binary form of a push (http-api 5.2): groups of payloads, or of stored frames, optionally
//! under one zstd stream. Everything is checked before anything is pushed; no buffer is sized by
//! a number the sender wrote.

use bytes::Bytes;
use hyper::StatusCode;
use queen_engine::message::format_uuid;
use queen_engine::names;
use queen_engine::port::PushItem;
use serde_json::json;

use crate::api::push::{render, submit};
use crate::api::timers::inflate;
use crate::app::App;
use crate::json::as_document;
use crate::limits;
use crate::problem::Answer;
use crate::reply::Reply;
use crate::request::{BodyError, Call};

const MAGIC: &[u8] = b"QPB1";
const ZSTD: u8 = 1;
const COUNTS_ONLY: u8 = 2;
const TRANSACTION_IDS: u8 = 4;
const STORED_FRAMES: u8 = 8;

/// A binary push, read.
#[derive(Debug, Default)]
pub struct BinaryPush {
    pub items: Vec<PushItem>,
    /// Answer with counts instead of one verdict per item.
    pub counts_only: bool,
}

fn refuse<T>(text: &str) -> Result<T, BodyError> {
    Err(BodyError(format!("bad binary push: {text}")))
}

/// A place in the bytes; every step is checked against what is left.
struct Cursor {
    rest: Bytes,
}

impl Cursor {
    fn take(&mut self, len: usize) -> Result<Bytes, BodyError> {
        if len > self.rest.len() {
            return refuse("it ends early");
        }
        Ok(self.rest.split_to(len))
    }

    fn byte(&mut self) -> Result<u8, BodyError> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<usize, BodyError> {
        let bytes = self.take(2)?;
        Ok(usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
    }

    fn u32(&mut self) -> Result<usize, BodyError> {
        let bytes = self.take(4)?;
        let value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        usize::try_from(value).or_else(|_| refuse("a length is too large"))
    }

    fn text(&mut self) -> Result<String, BodyError> {
        let len = self.u16()?;
        let bytes = self.take(len)?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => refuse("a name is not UTF-8"),
        }
    }

    fn document(&mut self, len: usize) -> Result<Bytes, BodyError> {
        let bytes = self.take(len)?;
        if as_document(&bytes).is_none() {
            return refuse("a payload is not one JSON document");
        }
        Ok(bytes)
    }
}

/// Reads a binary push. Pure: the input of a fuzz target.
pub fn parse_binary_push(body: Bytes) -> Result<BinaryPush, BodyError> {
    let mut cursor = Cursor { rest: body };
    if cursor.take(MAGIC.len())? != MAGIC {
        return refuse("it does not begin with QPB1");
    }
    let flags = cursor.byte()?;
    if flags & !(ZSTD | COUNTS_ONLY | TRANSACTION_IDS | STORED_FRAMES) != 0 {
        return refuse("unknown flags");
    }
    if flags & STORED_FRAMES != 0 && flags & (ZSTD | TRANSACTION_IDS) != 0 {
        return refuse("flag 8 excludes flags 1 and 4");
    }
    if flags & ZSTD != 0 {
        let raw_len = cursor.u32()?;
        if raw_len > limits::BINARY_RAW_BYTES_MAX {
            return refuse("it inflates to too much");
        }
        match inflate(&cursor.rest, raw_len) {
            Some(raw) if raw.len() == raw_len => cursor.rest = raw.into(),
            _ => return refuse("it does not inflate to its length"),
        }
    }
    let mut items = Vec::new();
    let mut inflated = 0;
    for _ in 0..cursor.u32()? {
        let (queue, lane) = (cursor.text()?, cursor.text()?);
        let lane = if lane.is_empty() {
            names::DEFAULT_LANE.to_owned()
        } else {
            lane
        };
        let count = cursor.u32()?;
        if flags & STORED_FRAMES != 0 {
            let len = cursor.u32()?;
            let packed = cursor.take(len)?;
            let left = limits::BINARY_RAW_BYTES_MAX - inflated;
            let Some(raw) = inflate(&packed, left) else {
                return refuse("frames do not inflate");
            };
            inflated += raw.len();
            frames(raw.into(), count, &queue, &lane, &mut items)?;
        } else {
            plain(&mut cursor, count, flags, &queue, &lane, &mut items)?;
        }
    }
    if !cursor.rest.is_empty() {
        return refuse("bytes follow its end");
    }
    Ok(BinaryPush {
        items,
        counts_only: flags & COUNTS_ONLY != 0,
    })
}

fn plain(
    cursor: &mut Cursor,
    count: usize,
    flags: u8,
    queue: &str,
    lane: &str,
    items: &mut Vec<PushItem>,
) -> Result<(), BodyError> {
    for _ in 0..count {
        let transaction_id = if flags & TRANSACTION_IDS != 0 {
            cursor.text()?
        } else {
            String::new()
        };
        let len = cursor.u32()?;
        items.push(PushItem {
            queue: queue.to_owned(),
            lane: lane.to_owned(),
            payload: cursor.document(len)?,
            transaction_id: Some(transaction_id).filter(|id| !id.is_empty()),
            ..PushItem::default()
        });
    }
    Ok(())
}

fn frames(
    raw: Bytes,
    count: usize,
    queue: &str,
    lane: &str,
    items: &mut Vec<PushItem>,
) -> Result<(), BodyError> {
    let mut cursor = Cursor { rest: raw };
    for _ in 0..count {
        let len = cursor.u32()?;
        let mut frame = Cursor {
            rest: cursor.take(len)?,
        };
        if frame.byte()? != 0 {
            return refuse("a frame has flags");
        }
        let id = frame.take(16)?;
        let id = id
            .iter()
            .fold(0_u128, |bits, byte| (bits << 8) | u128::from(*byte));
        let transaction_id = frame.text()?;
        let len = frame.rest.len();
        let message_id = format_uuid(id);
        items.push(PushItem {
            queue: queue.to_owned(),
            lane: lane.to_owned(),
            payload: frame.document(len)?,
            transaction_id: Some(if transaction_id.is_empty() {
                message_id.clone()
            } else {
                transaction_id
            }),
            message_id: Some(message_id),
            ..PushItem::default()
        });
    }
    if !cursor.rest.is_empty() {
        return refuse("bytes follow the last frame");
    }
    Ok(())
}

/// The route, once the content type has said so.
pub async fn push(app: &App, call: &Call) -> Answer {
    let body = parse_binary_push(call.body.clone())?;
    let asked = submit(app, body.items).await?;
    if !body.counts_only {
        return Ok(Reply::json_bytes(StatusCode::CREATED, render(&asked)));
    }
    let duplicate = asked
        .iter()
        .filter(|one| matches!(&one.verdict, Ok(p) if p.duplicate))
        .count();
    let error = asked.iter().filter(|one| one.verdict.is_err()).count();
    Ok(Reply::json_with(
        StatusCode::CREATED,
        &json!({
            "count": asked.len(),
            "queued": asked.len() - duplicate - error,
            "duplicate": duplicate,
            "error": error,
        }),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(out: &mut Vec<u8>, text: &str) {
        out.extend_from_slice(&u16::try_from(text.len()).unwrap().to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }

    fn number(out: &mut Vec<u8>, number: usize) {
        out.extend_from_slice(&u32::try_from(number).unwrap().to_le_bytes());
    }

    fn group(flags: u8) -> Vec<u8> {
        let mut out = Vec::new();
        number(&mut out, 1);
        text(&mut out, "q");
        text(&mut out, "");
        if flags & STORED_FRAMES != 0 {
            let mut frame = vec![0];
            frame.extend_from_slice(&[7; 16]);
            text(&mut frame, "t");
            frame.extend_from_slice(b"[1]");
            let mut raw = Vec::new();
            number(&mut raw, frame.len());
            raw.extend_from_slice(&frame);
            let packed = zstd::encode_all(&raw[..], 0).unwrap();
            number(&mut out, 1);
            number(&mut out, packed.len());
            out.extend_from_slice(&packed);
        } else {
            number(&mut out, 2);
            for payload in ["{\"a\":1}", "null"] {
                if flags & TRANSACTION_IDS != 0 {
                    text(&mut out, if payload == "null" { "" } else { "t" });
                }
                number(&mut out, payload.len());
                out.extend_from_slice(payload.as_bytes());
            }
        }
        out
    }

    fn body(flags: u8) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.push(flags);
        let group = group(flags);
        if flags & ZSTD != 0 {
            number(&mut out, group.len());
            out.extend_from_slice(&zstd::encode_all(&group[..], 0).unwrap());
        } else {
            out.extend_from_slice(&group);
        }
        out
    }

    #[test]
    fn every_legal_form_is_read() {
        for flags in [
            0,
            ZSTD,
            TRANSACTION_IDS,
            ZSTD | TRANSACTION_IDS | COUNTS_ONLY,
        ] {
            let push = parse_binary_push(body(flags).into()).unwrap();
            assert_eq!(push.items.len(), 2, "{flags}");
            assert_eq!(push.items[0].payload, "{\"a\":1}");
            assert_eq!(push.items[0].lane, names::DEFAULT_LANE);
            assert_eq!(
                push.items[0].transaction_id.is_some(),
                flags & TRANSACTION_IDS != 0
            );
            assert_eq!(push.items[1].transaction_id, None);
            assert_eq!(push.counts_only, flags & COUNTS_ONLY != 0);
        }
        let push = parse_binary_push(body(STORED_FRAMES).into()).unwrap();
        assert_eq!(push.items[0].payload, "[1]");
        assert_eq!(push.items[0].transaction_id.as_deref(), Some("t"));
        assert_eq!(
            push.items[0].message_id.as_deref(),
            Some("07070707-0707-0707-0707-070707070707")
        );
    }

    #[test]
    fn damaged_forms_are_refused_without_panic() {
        for flags in [0, ZSTD, TRANSACTION_IDS, STORED_FRAMES] {
            let whole = body(flags);
            for cut in 0..whole.len() {
                assert!(
                    parse_binary_push(whole[..cut].to_vec().into()).is_err(),
                    "{flags} {cut}"
                );
            }
            for at in 0..whole.len() {
                let mut flipped = whole.clone();
                flipped[at] ^= 0xff;
                let _ = parse_binary_push(flipped.into());
            }
            let mut longer = whole;
            longer.push(0);
            assert!(
                flags == ZSTD || parse_binary_push(longer.into()).is_err(),
                "{flags}"
            );
        }
        assert!(parse_binary_push(body(STORED_FRAMES | ZSTD).into()).is_err());
        let mut huge = MAGIC.to_vec();
        huge.push(0);
        huge.extend_from_slice(&[0xff; 4]);
        assert!(parse_binary_push(huge.into()).is_err());
    }
}
