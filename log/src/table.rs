//! Where every frame is: in memory until it is written, then in a segment's map.
//!
//! One table per log behind one short read-write lock. Positions of a segment's frames are an
//! array, so that index → position is a subtraction and a load. For a sealed segment the array is
//! the mapped seal record and costs no memory.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::SegmentInfo;
use crate::frame::{FRAME_HEADER_BYTES, u32_at};
use crate::segment::SegmentFile;

/// Bytes of one slot in a seal record.
pub(crate) const SLOT_BYTES: usize = 8;

/// Position and payload length of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// In units of 8 bytes.
    position: u32,
    pub len: u32,
}

impl Slot {
    pub fn new(position: u64, len: u32) -> Slot {
        // Segments are at most 1 GiB, so this is exact.
        Slot {
            position: (position / 8) as u32,
            len,
        }
    }

    pub fn position(self) -> u64 {
        u64::from(self.position) * 8
    }

    pub fn payload_position(self) -> u64 {
        self.position() + FRAME_HEADER_BYTES as u64
    }

    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.position.to_le_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
    }

    pub fn decode(bytes: &[u8]) -> Slot {
        Slot {
            position: u32_at(bytes, 0),
            len: u32_at(bytes, 4),
        }
    }
}

/// The slots of one segment.
#[derive(Clone)]
pub(crate) enum Slots {
    Memory(Vec<Slot>),
    /// The array inside a verified seal record.
    Mapped(Bytes),
}

impl Slots {
    pub fn len(&self) -> usize {
        match self {
            Slots::Memory(slots) => slots.len(),
            Slots::Mapped(bytes) => bytes.len() / SLOT_BYTES,
        }
    }

    pub fn get(&self, at: usize) -> Option<Slot> {
        match self {
            Slots::Memory(slots) => slots.get(at).copied(),
            Slots::Mapped(bytes) => {
                let start = at.checked_mul(SLOT_BYTES)?;
                bytes.get(start..start + SLOT_BYTES).map(Slot::decode)
            }
        }
    }
}

/// Terms by index, one entry per change of term.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TermRuns(pub Vec<(u64, u64)>);

impl TermRuns {
    pub fn push(&mut self, index: u64, term: u64) {
        if self.0.last().is_none_or(|(_, last)| *last != term) {
            self.0.push((index, term));
        }
    }

    pub fn append(&mut self, later: &TermRuns) {
        for (index, term) in &later.0 {
            self.push(*index, *term);
        }
    }

    /// The term at an index at or after the first run's start.
    pub fn at(&self, index: u64) -> Option<u64> {
        let after = self.0.partition_point(|(first, _)| *first <= index);
        after.checked_sub(1).map(|at| self.0[at].1)
    }

    pub fn cut_after(&mut self, index: u64) {
        self.0.retain(|(first, _)| *first <= index);
    }

    pub fn cut_before(&mut self, index: u64) {
        let after = self.0.partition_point(|(first, _)| *first <= index);
        self.0.drain(..after.saturating_sub(1));
        if let Some(first) = self.0.first_mut() {
            first.0 = first.0.max(index);
        }
    }

    /// The runs of the range `first..=last`, the first one starting at `first`.
    pub fn range(&self, first: u64, last: u64) -> TermRuns {
        let mut runs = self.clone();
        runs.cut_after(last);
        runs.cut_before(first);
        runs
    }
}

/// One segment that is part of the log.
#[derive(Clone)]
pub(crate) struct Entry {
    pub file: Arc<SegmentFile>,
    pub first_index: u64,
    pub slots: Slots,
    /// Where the next frame would go.
    pub end: u64,
    /// Checksum of the frame before the first one here.
    pub prev_crc: u32,
    pub last_crc: u32,
    /// No frame will be added.
    pub sealed: bool,
    /// The seal record is on the disk.
    pub recorded: bool,
}

impl Entry {
    pub fn next_index(&self) -> u64 {
        self.first_index + self.slots.len() as u64
    }

    pub fn last_index(&self) -> Option<u64> {
        self.next_index()
            .checked_sub(1)
            .filter(|last| *last >= self.first_index)
    }

    pub fn info(&self) -> SegmentInfo {
        SegmentInfo {
            no: self.file.no,
            first_index: self.first_index,
            last_index: self.last_index(),
            bytes: self.end,
            sealed: self.sealed,
            path: self.file.path.clone(),
        }
    }
}

/// A frame that is accepted and not written yet.
#[derive(Clone)]
pub(crate) struct TailFrame {
    pub kind: u8,
    pub term: u64,
    pub payload: Arc<[Bytes]>,
    pub len: u32,
}

impl TailFrame {
    /// A part of the payload; copies only when it spans parts.
    pub fn slice(&self, offset: usize, len: usize) -> Bytes {
        let mut start = offset;
        for (at, part) in self.payload.iter().enumerate() {
            if start < part.len() || (len == 0 && start == part.len()) {
                if start + len <= part.len() {
                    return part.slice(start..start + len);
                }
                return join(&self.payload[at..], start, len);
            }
            start -= part.len();
        }
        Bytes::new()
    }
}

fn join(parts: &[Bytes], mut start: usize, len: usize) -> Bytes {
    let mut joined = BytesMut::with_capacity(len);
    for part in parts {
        let rest = &part[start.min(part.len())..];
        start = 0;
        joined.extend_from_slice(&rest[..rest.len().min(len - joined.len())]);
    }
    joined.freeze()
}

/// All frames of the log.
#[derive(Default)]
pub(crate) struct Table {
    /// In order; only the last one may be unsealed.
    pub entries: VecDeque<Entry>,
    /// Frames after the last written one.
    pub tail: VecDeque<TailFrame>,
    /// Index of the first frame in `tail`, that is: written + 1.
    pub tail_first: u64,
    pub terms: TermRuns,
    pub first_index: u64,
    pub last: Option<(u64, u64)>,
}

/// A frame found in the table.
pub(crate) enum Found {
    Tail(TailFrame),
    Disk { file: Arc<SegmentFile>, slot: Slot },
}

impl Table {
    pub fn find(&self, index: u64) -> Option<Found> {
        if index >= self.tail_first {
            let at = usize::try_from(index - self.tail_first).ok()?;
            return self.tail.get(at).cloned().map(Found::Tail);
        }
        let after = self
            .entries
            .partition_point(|entry| entry.first_index <= index);
        let entry = self.entries.get(after.checked_sub(1)?)?;
        let slot = entry
            .slots
            .get(usize::try_from(index - entry.first_index).ok()?)?;
        Some(Found::Disk {
            file: Arc::clone(&entry.file),
            slot,
        })
    }

    pub fn entry_mut(&mut self, no: u64) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.file.no == no)
    }

    pub fn entry(&self, no: u64) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.file.no == no)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_slices_do_not_copy_inside_a_part() {
        let parts = [
            Bytes::from_static(b"abc"),
            Bytes::new(),
            Bytes::from_static(b"defgh"),
        ];
        let frame = TailFrame {
            kind: 0,
            term: 0,
            payload: Arc::from(parts.to_vec()),
            len: 8,
        };
        for start in 0..=8 {
            for end in start..=8 {
                assert_eq!(frame.slice(start, end - start), &b"abcdefgh"[start..end]);
            }
        }
        assert_eq!(frame.slice(4, 2).as_ptr(), parts[2][1..].as_ptr());
    }

    #[test]
    fn term_runs() {
        let mut runs = TermRuns::default();
        for (index, term) in [(5, 1), (6, 1), (7, 3), (8, 3), (9, 4)] {
            runs.push(index, term);
        }
        assert_eq!(runs.0, [(5, 1), (7, 3), (9, 4)]);
        assert_eq!(
            (runs.at(4), runs.at(6), runs.at(8), runs.at(100)),
            (None, Some(1), Some(3), Some(4))
        );
        assert_eq!(runs.range(6, 7).0, [(6, 1), (7, 3)]);
        assert_eq!(runs.range(8, 8).0, [(8, 3)]);
    }
}
