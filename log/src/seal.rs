//! The seal record: what is known about a segment that will not change any more.
//!
//! `NNNN.seal` beside the segment holds the last index, the end, the checksums at both ends, the
//! terms and the position of every frame. Boot maps it instead of scanning the segment. It also says
//! where a segment ends after `truncate_after`: the frames behind that end stay in the file, are
//! never overwritten (readers may still hold them) and never come back.
//!
//! ```text
//! 0 first index u64 | 8 frames u64 | 16 end u64 | 24 prev crc u32 | 28 last crc u32
//! 32 term runs u64 | 40 (first index u64, term u64) × runs | (position / 8 u32, length u32) × frames
//! ```

use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::checked_file::{self, Kind, Label, Unusable};
use crate::error::LogError;
use crate::frame::{u32_at, u64_at};
use crate::segment::SegmentHeader;
use crate::storage::Storage;
use crate::table::{Entry, SLOT_BYTES, Slots, TermRuns};

const FIXED_BYTES: usize = 40;
const RUN_BYTES: usize = 16;

/// A verified seal record.
pub(crate) struct Seal {
    pub end: u64,
    pub last_crc: u32,
    pub terms: TermRuns,
    pub slots: Slots,
}

/// Name of a segment's seal record.
pub(crate) fn seal_path(dir: &Path, no: u64) -> PathBuf {
    dir.join(format!("{no:016}.seal"))
}

/// Encodes the record of a segment as it stands.
pub(crate) fn encode(entry: &Entry, terms: &TermRuns) -> Vec<u8> {
    let frames = entry.slots.len();
    let mut body =
        Vec::with_capacity(FIXED_BYTES + terms.0.len() * RUN_BYTES + frames * SLOT_BYTES);
    body.extend_from_slice(&entry.first_index.to_le_bytes());
    body.extend_from_slice(&(frames as u64).to_le_bytes());
    body.extend_from_slice(&entry.end.to_le_bytes());
    body.extend_from_slice(&entry.prev_crc.to_le_bytes());
    body.extend_from_slice(&entry.last_crc.to_le_bytes());
    body.extend_from_slice(&(terms.0.len() as u64).to_le_bytes());
    for (index, term) in &terms.0 {
        body.extend_from_slice(&index.to_le_bytes());
        body.extend_from_slice(&term.to_le_bytes());
    }
    for slot in (0..frames).filter_map(|at| entry.slots.get(at)) {
        slot.encode(&mut body);
    }
    body
}

/// Makes a record durable.
pub(crate) fn write(
    storage: &dyn Storage,
    dir: &Path,
    header: &SegmentHeader,
    body: &[u8],
) -> Result<(), LogError> {
    checked_file::write(storage, &seal_path(dir, header.no), label(header), &[body])
}

/// Maps the record of the segment with this header.
pub(crate) fn read(
    storage: &dyn Storage,
    dir: &Path,
    header: &SegmentHeader,
) -> Result<Seal, Unusable> {
    let body = checked_file::map(storage, &seal_path(dir, header.no), label(header))?;
    parse(header, body).ok_or(Unusable::Damaged("the seal record contradicts itself"))
}

/// The salt is drawn anew for every file, so it names this very one.
fn label(header: &SegmentHeader) -> Label {
    Label {
        kind: Kind::Seal,
        group: header.group,
        tag: header.no << 32 | u64::from(header.salt),
    }
}

fn parse(header: &SegmentHeader, body: Bytes) -> Option<Seal> {
    let fixed = body.get(..FIXED_BYTES)?;
    let frames = usize::try_from(u64_at(fixed, 8)).ok()?;
    let end = u64_at(fixed, 16);
    let run_count = usize::try_from(u64_at(fixed, 32)).ok()?;
    let runs_end = run_count.checked_mul(RUN_BYTES)?.checked_add(FIXED_BYTES)?;
    let body_end = frames.checked_mul(SLOT_BYTES)?.checked_add(runs_end)?;
    let runs = body.get(FIXED_BYTES..runs_end)?;
    if u64_at(fixed, 0) != header.first_index
        || u32_at(fixed, 24) != header.prev_crc
        || end > header.size
        || body.len() != body_end
    {
        return None;
    }
    let terms = runs
        .chunks_exact(RUN_BYTES)
        .map(|run| (u64_at(run, 0), u64_at(run, 8)))
        .collect();
    let slots = Slots::Mapped(body.slice(runs_end..));
    // Positions are used without further checks, so none may leave the segment.
    for at in 0..frames {
        let slot = slots.get(at)?;
        if slot.payload_position() + u64::from(slot.len) > end {
            return None;
        }
    }
    Some(Seal {
        end,
        last_crc: u32_at(fixed, 28),
        terms: TermRuns(terms),
        slots,
    })
}
