//! The bytes of one frame: a 48 byte header, the payload, zero padding to 8 bytes.
//!
//! ```text
//!  0 payload length u32 | 4 crc u32 | 8 crc of the frame before u32 | 12 segment no (low) u32
//! 16 kind u8, zero × 3  | 20 group u32 | 24 term u64 | 32 index u64 | 40 durable mark u64
//! ```
//!
//! Everything is little-endian. `crc` is CRC-32 (IEEE), seeded with the segment's salt, over the
//! header without the field itself and the payload. The salt keeps a payload that contains a copy of
//! a frame from ever passing for one. The chain through "crc of the frame before" keeps bytes of an
//! earlier life of the file from passing for the tail. The durable mark is the position in this
//! segment below which everything was known to be on the disk when the frame was written: it is
//! what lets recovery tell a torn tail from damage.
//!
//! This file does no I/O and never panics on any input.

use crc32fast::Hasher;

/// Bytes of a frame before its payload.
pub const FRAME_HEADER_BYTES: usize = 48;

/// The fixed fields of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub len: u32,
    pub crc: u32,
    pub prev_crc: u32,
    pub segment_no: u32,
    pub kind: u8,
    pub group: u32,
    pub term: u64,
    pub index: u64,
    pub durable_mark: u64,
}

/// Why bytes are not the expected frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameFault {
    /// Nothing was ever written here, or the segment has no room for another header.
    End,
    /// The length reaches beyond the segment.
    Length,
    /// The frame belongs to another segment or group.
    Foreign,
    /// The checksum does not match.
    Checksum,
    /// The frame is intact but does not follow the one before it.
    Chain,
    /// The frame is intact but carries another index than the one expected.
    Index,
}

/// What a frame must agree with to count as part of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub group: u32,
    pub segment_no: u32,
    pub salt: u32,
}

impl FrameHeader {
    /// Encodes the header, computing its checksum; `payload` has been fed the payload alone.
    pub fn encode(&mut self, salt: u32, payload: &Hasher) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.prev_crc.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.segment_no.to_le_bytes());
        bytes[16] = self.kind;
        bytes[20..24].copy_from_slice(&self.group.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.term.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.index.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.durable_mark.to_le_bytes());
        let mut hasher = header_hasher(salt, &bytes);
        hasher.combine(payload);
        self.crc = hasher.finalize();
        bytes[4..8].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    /// Splits the fields apart without judging them.
    pub fn decode(bytes: &[u8; FRAME_HEADER_BYTES]) -> FrameHeader {
        FrameHeader {
            len: u32_at(bytes, 0),
            crc: u32_at(bytes, 4),
            prev_crc: u32_at(bytes, 8),
            segment_no: u32_at(bytes, 12),
            kind: bytes[16],
            group: u32_at(bytes, 20),
            term: u64_at(bytes, 24),
            index: u64_at(bytes, 32),
            durable_mark: u64_at(bytes, 40),
        }
    }
}

/// Bytes a frame takes in a segment.
pub(crate) fn frame_bytes(payload: u64) -> u64 {
    (FRAME_HEADER_BYTES as u64 + payload).next_multiple_of(8)
}

/// Verifies the frame at `position` of a segment by itself: bounds, owner and checksum.
pub(crate) fn check(
    segment: &[u8],
    position: u64,
    place: Place,
) -> Result<FrameHeader, FrameFault> {
    let start = usize::try_from(position).map_err(|_| FrameFault::End)?;
    let rest = segment.get(start..).ok_or(FrameFault::End)?;
    let bytes: &[u8; FRAME_HEADER_BYTES] = rest.first_chunk().ok_or(FrameFault::End)?;
    if bytes == &[0; FRAME_HEADER_BYTES] {
        return Err(FrameFault::End);
    }
    let header = FrameHeader::decode(bytes);
    let payload = rest
        .get(FRAME_HEADER_BYTES..)
        .and_then(|rest| rest.get(..header.len as usize))
        .ok_or(FrameFault::Length)?;
    if header.segment_no != place.segment_no || header.group != place.group {
        return Err(FrameFault::Foreign);
    }
    let mut hasher = header_hasher(place.salt, bytes);
    hasher.update(payload);
    if hasher.finalize() != header.crc {
        return Err(FrameFault::Checksum);
    }
    Ok(header)
}

impl std::fmt::Display for FrameFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FrameFault::End => "there is no frame",
            FrameFault::Length => "the frame's length reaches beyond the segment",
            FrameFault::Foreign => "the frame belongs to another segment or group",
            FrameFault::Checksum => "the frame's checksum does not match",
            FrameFault::Chain => "the frame does not follow the one before it",
            FrameFault::Index => "the frame carries an unexpected index",
        })
    }
}

fn header_hasher(salt: u32, bytes: &[u8; FRAME_HEADER_BYTES]) -> Hasher {
    let mut hasher = Hasher::new_with_initial(salt);
    hasher.update(&bytes[0..4]);
    hasher.update(&bytes[8..]);
    hasher
}

/// Reads a little-endian number; the caller guarantees that the bytes are there.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(raw)
}

/// Reads a little-endian number; the caller guarantees that the bytes are there.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_noticed() {
        let place = Place {
            group: 7,
            segment_no: 3,
            salt: 99,
        };
        let payload = b"some payload bytes";
        let mut hasher = Hasher::new();
        hasher.update(payload);
        let mut header = FrameHeader {
            len: payload.len() as u32,
            crc: 0,
            prev_crc: 5,
            segment_no: 3,
            kind: 1,
            group: 7,
            term: 2,
            index: 11,
            durable_mark: 4096,
        };
        let mut bytes = header.encode(place.salt, &hasher).to_vec();
        bytes.extend_from_slice(payload);
        assert_eq!(check(&bytes, 0, place), Ok(header));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&bytes, 0, place).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(
            check(&bytes, 0, Place { salt: 98, ..place }),
            Err(FrameFault::Checksum),
            "a frame of another salt"
        );
    }
}
