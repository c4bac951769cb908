//! Walks the frames of one segment's bytes and judges where and why they end.
//!
//! Pure: bytes in, findings out, no panic on any input. `recovery.rs` decides what a finding means
//! for the log; the fuzz target calls [`recover_bytes`].

use crate::frame::{FRAME_HEADER_BYTES, FrameFault, Place, check, frame_bytes, u32_at, u64_at};
use crate::segment::{HeaderFault, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::table::{Slot, TermRuns};

/// The valid frames at the start of a segment.
#[derive(Debug)]
pub(crate) struct Scan {
    pub slots: Vec<Slot>,
    pub terms: TermRuns,
    /// Where the next frame would go.
    pub end: u64,
    pub last_crc: u32,
    pub last_term: u64,
    /// Why the walk ended; `None` when it reached `until_index`.
    pub fault: Option<FrameFault>,
}

/// What is known about a segment before its frames are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    pub place: Place,
    pub first_index: u64,
    pub prev_crc: u32,
}

/// Walks frames from the start of the segment to the first one that does not fit.
pub(crate) fn scan(segment: &[u8], start: Start, until_index: Option<u64>) -> Scan {
    let mut found = Scan {
        slots: Vec::new(),
        terms: TermRuns::default(),
        end: SEGMENT_HEADER_BYTES,
        last_crc: start.prev_crc,
        last_term: 0,
        fault: None,
    };
    let mut index = start.first_index;
    while until_index != Some(index) {
        let header = match check(segment, found.end, start.place) {
            Ok(header) if header.prev_crc != found.last_crc => Err(FrameFault::Chain),
            Ok(header) if header.index != index => Err(FrameFault::Index),
            judged => judged,
        };
        let header = match header {
            Ok(header) => header,
            Err(fault) => {
                found.fault = Some(fault);
                return found;
            }
        };
        found.slots.push(Slot::new(found.end, header.len));
        found.terms.push(index, header.term);
        found.last_crc = header.crc;
        found.last_term = header.term;
        found.end += frame_bytes(u64::from(header.len));
        let Some(next) = index.checked_add(1) else {
            return found;
        };
        index = next;
    }
    found
}

/// A frame that shows that earlier bytes had been durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// Where the frame lies.
    pub position: u64,
    /// Its log index.
    pub index: u64,
    /// Everything below this position was on the disk when the frame was written.
    pub durable_mark: u64,
}

/// Looks behind a bad position for a frame that was written when the position was already durable.
///
/// At most `in_flight_bytes_max` bytes (or one append, if larger) are ever unsynced, so a frame
/// farther away than that always carries such a mark: looking for marks covers both rules.
pub(crate) fn find_proof(segment: &[u8], bad: u64, place: Place) -> Option<Proof> {
    let mut position = bad.checked_add(8)?;
    loop {
        position = next_written(segment, position)?;
        let bytes = segment
            .get(position as usize..)?
            .get(..FRAME_HEADER_BYTES)?;
        let mark = u64_at(bytes, 40);
        let plausible = u32_at(bytes, 12) == place.segment_no
            && u32_at(bytes, 20) == place.group
            && mark > bad
            && mark <= position;
        if plausible && let Ok(header) = check(segment, position, place) {
            return Some(Proof {
                position,
                index: header.index,
                durable_mark: mark,
            });
        }
        position += 8;
    }
}

/// End of the last byte at or after `from` that is not zero.
pub(crate) fn written_end(segment: &[u8], from: u64) -> Option<u64> {
    let rest = segment.get(from as usize..)?;
    let mut end = rest.len();
    while end > 0 {
        let start = end.saturating_sub(ZEROS.len());
        let chunk = &rest[start..end];
        if chunk != &ZEROS[..chunk.len()] {
            let last = chunk.iter().rposition(|byte| *byte != 0)?;
            return Some(from + (start + last + 1) as u64);
        }
        end = start;
    }
    None
}

/// The next multiple of 8 at or after `position` that is not followed by zeros only.
fn next_written(segment: &[u8], position: u64) -> Option<u64> {
    let mut at = usize::try_from(position.next_multiple_of(8)).ok()?;
    loop {
        let rest = segment.get(at..)?;
        if rest.len() < 8 {
            return None;
        }
        if rest[..8] != [0; 8] {
            return Some(at as u64);
        }
        // Unwritten space is long: skip it a page at a time.
        at += if rest.len() > ZEROS.len() && rest[..ZEROS.len()] == ZEROS {
            ZEROS.len()
        } else {
            8
        };
    }
}

static ZEROS: [u8; 4096] = [0; 4096];

/// What recovery would make of one segment's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoverySummary {
    /// Frames that form an intact chain.
    pub frames: u64,
    /// Index of the first and the last of them.
    pub indexes: Option<(u64, u64)>,
    /// Where the chain ends.
    pub end: u64,
    /// Why the header or the frame at `end` was not accepted.
    pub reason: String,
    /// Set when the bytes at `end` are damage and not a torn tail.
    pub proof: Option<Proof>,
}

/// Scans the bytes of one segment as recovery would; accepts any input.
pub fn recover_bytes(bytes: &[u8]) -> RecoverySummary {
    let header = match SegmentHeader::decode(bytes) {
        Ok(header) => header,
        Err(fault) => {
            let reason = match fault {
                HeaderFault::Empty => "the segment was never used".to_owned(),
                HeaderFault::Broken(reason) => reason.to_owned(),
                HeaderFault::Format(version) => format!("unknown format {version}"),
            };
            return RecoverySummary {
                frames: 0,
                indexes: None,
                end: 0,
                reason,
                proof: None,
            };
        }
    };
    let start = Start {
        place: header.place(),
        first_index: header.first_index,
        prev_crc: header.prev_crc,
    };
    let found = scan(bytes, start, None);
    let frames = found.slots.len() as u64;
    RecoverySummary {
        frames,
        indexes: frames
            .checked_sub(1)
            .map(|more| (header.first_index, header.first_index.saturating_add(more))),
        end: found.end,
        reason: found
            .fault
            .map(|fault| fault.to_string())
            .unwrap_or_default(),
        proof: find_proof(bytes, found.end, header.place()),
    }
}
