//! Reading frames: whole and verified, or slices of them without a copy.
//!
//! A reader holds the table's lock for one look-up and then touches only bytes that are written for
//! good. Reads of cold segments may wait for the disk inside a page fault.

use bytes::Bytes;

use crate::error::LogError;
use crate::frame::{FRAME_HEADER_BYTES, check};
use crate::log::{FrameOut, Log};
use crate::segment::SegmentFile;
use crate::table::{Found, Slot};

impl Log {
    /// Reads one frame and verifies it; `None` when the log does not hold the index.
    pub fn read(&self, index: u64) -> Result<Option<FrameOut>, LogError> {
        let found = self.shared.table.read().find(index);
        found.map(|found| to_frame(index, found)).transpose()
    }

    /// Reads consecutive frames, at least one if there is any, up to a sum of payload bytes.
    pub fn read_range(
        &self,
        from: u64,
        to_exclusive: u64,
        bytes_max: u64,
    ) -> Result<Vec<FrameOut>, LogError> {
        let mut found = Vec::new();
        {
            let table = self.shared.table.read();
            let mut bytes = 0;
            for index in from..to_exclusive {
                let Some(frame) = table.find(index) else {
                    break;
                };
                bytes += match &frame {
                    Found::Tail(tail) => u64::from(tail.len),
                    Found::Disk { slot, .. } => u64::from(slot.len),
                };
                if bytes > bytes_max && !found.is_empty() {
                    break;
                }
                found.push((index, frame));
            }
        }
        found
            .into_iter()
            .map(|(index, frame)| to_frame(index, frame))
            .collect()
    }

    /// A part of one frame's payload without copying it; does not verify the frame's checksum.
    pub fn slice(&self, index: u64, offset: u32, len: u32) -> Result<Bytes, LogError> {
        let found = self.shared.table.read().find(index);
        let Some(found) = found else {
            return Err(LogError::Invalid {
                reason: format!("the log holds no frame {index}"),
            });
        };
        let payload_len = match &found {
            Found::Tail(tail) => tail.len,
            Found::Disk { slot, .. } => slot.len,
        };
        if u64::from(offset) + u64::from(len) > u64::from(payload_len) {
            let reason = format!("frame {index} holds {payload_len} bytes, not {offset}+{len}");
            return Err(LogError::Invalid { reason });
        }
        Ok(match found {
            Found::Tail(tail) => tail.slice(offset as usize, len as usize),
            Found::Disk { file, slot } => {
                let position = slot.payload_position() + u64::from(offset);
                // SAFETY: the slot is in the table, so the frame is written, and written frames are
                // never overwritten: truncation seals the segment and goes on in a new one.
                unsafe { file.map.bytes(position, len as usize) }
            }
        })
    }
}

fn to_frame(index: u64, found: Found) -> Result<FrameOut, LogError> {
    match found {
        Found::Tail(tail) => Ok(FrameOut {
            kind: tail.kind,
            term: tail.term,
            index,
            payload: tail.slice(0, tail.len as usize),
        }),
        Found::Disk { file, slot } => from_disk(index, &file, slot),
    }
}

fn from_disk(index: u64, file: &SegmentFile, slot: Slot) -> Result<FrameOut, LogError> {
    let len = FRAME_HEADER_BYTES + slot.len as usize;
    // SAFETY: the slot is in the table, so the frame is written and never overwritten.
    let bytes = unsafe { file.map.bytes(slot.position(), len) };
    let header = check(&bytes, 0, file.place)
        .map_err(|fault| LogError::damaged(&file.path, slot.position(), fault))?;
    if header.index != index || header.len != slot.len {
        let reason = format!(
            "frame {index} is expected there, not frame {}",
            header.index
        );
        return Err(LogError::damaged(&file.path, slot.position(), reason));
    }
    Ok(FrameOut {
        kind: header.kind,
        term: header.term,
        index,
        payload: bytes.slice(FRAME_HEADER_BYTES..),
    })
}
