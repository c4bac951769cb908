//! The LZ4 frame format, read block by block straight into the output.
//!
//! A decoder of our own around the block decoder of `lz4_flex`, because that crate's frame reader
//! allocates (and clears) twice the block size a frame claims, up to 8 MiB for a few bytes.
//! Block and content checksums are skipped as in the Java client: the CRC of the batch has
//! covered these bytes. Linked blocks and dictionaries are refused, as Java refuses them.

use lz4_flex::block::{DecompressError, decompress_into};

use super::super::BatchError;
use super::grow;

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
const VERSION_MASK: u8 = 0b1100_0000;
const VERSION: u8 = 0b0100_0000;
const INDEPENDENT: u8 = 1 << 5;
const BLOCK_CHECKSUM: u8 = 1 << 4;
const CONTENT_SIZE: u8 = 1 << 3;
const RESERVED_OR_DICTIONARY: u8 = 0b11;
const STORED: u32 = 1 << 31;

/// More than a block can expand: one byte stands for at most 255.
const EXPANSION_MAX: usize = 255;
const ROOM_MIN: usize = 4096;

const BAD: BatchError = BatchError::Decompress("lz4");

pub(super) fn decompress(input: &[u8], bytes_max: usize) -> Result<Vec<u8>, BatchError> {
    let (frame, mut rest) = Frame::parse(input)?;
    let mut out = Vec::new();
    loop {
        let word = u32::from_le_bytes(take(&mut rest)?);
        if word == 0 {
            // A content checksum may follow; Java reads no further either.
            return Ok(out);
        }
        let length = usize::try_from(word & !STORED).map_err(|_| BAD)?;
        if length > frame.block_bytes_max {
            return Err(BAD);
        }
        let (block, tail) = rest.split_at_checked(length).ok_or(BAD)?;
        rest = tail;
        if word & STORED != 0 {
            let end = out.len().saturating_add(length);
            if end > bytes_max {
                return Err(BatchError::TooLarge { bytes_max });
            }
            reserve(&mut out, end, bytes_max);
            out.extend_from_slice(block);
        } else {
            unpack(block, &mut out, frame.block_bytes_max, bytes_max)?;
        }
        if frame.block_checksum {
            take::<4>(&mut rest)?;
        }
    }
}

/// Appends one compressed block to `out`.
fn unpack(
    block: &[u8],
    out: &mut Vec<u8>,
    block_bytes_max: usize,
    bytes_max: usize,
) -> Result<(), BatchError> {
    let start = out.len();
    let left = bytes_max.saturating_sub(start);
    let possible = block
        .len()
        .saturating_mul(EXPANSION_MAX)
        .min(block_bytes_max);
    let mut room = block
        .len()
        .saturating_mul(4)
        .max(ROOM_MIN)
        .min(possible)
        .min(left);
    loop {
        let end = start.saturating_add(room);
        reserve(out, end, bytes_max);
        grow(out, end);
        match decompress_into(block, out.get_mut(start..).unwrap_or_default()) {
            Ok(written) => {
                out.truncate(start.saturating_add(written));
                return Ok(());
            }
            Err(DecompressError::OutputTooSmall { .. }) if room < possible.min(left) => {
                room = room.saturating_mul(4).max(ROOM_MIN).min(possible).min(left);
            }
            Err(DecompressError::OutputTooSmall { .. }) if left < possible => {
                return Err(BatchError::TooLarge { bytes_max });
            }
            Err(_) => return Err(BAD),
        }
    }
}

/// Amortised growth over many blocks, kept below the cap.
fn reserve(out: &mut Vec<u8>, end: usize, bytes_max: usize) {
    if end > out.capacity() {
        let capacity = end.max(out.capacity().saturating_mul(2)).min(bytes_max);
        out.reserve_exact(capacity.saturating_sub(out.len()));
    }
}

struct Frame {
    block_bytes_max: usize,
    block_checksum: bool,
}

impl Frame {
    fn parse(input: &[u8]) -> Result<(Frame, &[u8]), BatchError> {
        let mut rest = input.strip_prefix(&MAGIC).ok_or(BAD)?;
        let described = rest;
        let [flags, size] = take(&mut rest)?;
        let plain = flags & (VERSION_MASK | RESERVED_OR_DICTIONARY) == VERSION;
        if !plain || flags & INDEPENDENT == 0 {
            return Err(BAD);
        }
        if flags & CONTENT_SIZE != 0 {
            take::<8>(&mut rest)?;
        }
        let described = described
            .get(..described.len() - rest.len())
            .unwrap_or_default();
        let [checksum] = take(&mut rest)?;
        if xxh32_short(described).to_be_bytes()[2] != checksum {
            return Err(BAD);
        }
        let block_bytes_max = match size {
            0x40 => 64 << 10,
            0x50 => 256 << 10,
            0x60 => 1 << 20,
            0x70 => 4 << 20,
            _ => return Err(BAD),
        };
        Ok((
            Frame {
                block_bytes_max,
                block_checksum: flags & BLOCK_CHECKSUM != 0,
            },
            rest,
        ))
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], BatchError> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or(BAD)?;
    *rest = tail;
    Ok(*head)
}

/// XXH32 with seed 0 of fewer than 16 bytes, which is all a frame descriptor has.
fn xxh32_short(bytes: &[u8]) -> u32 {
    const PRIME: [u32; 5] = [
        0x9e37_79b1,
        0x85eb_ca77,
        0xc2b2_ae3d,
        0x27d4_eb2f,
        0x1656_67b1,
    ];
    let mut hash = PRIME[4].wrapping_add(bytes.len() as u32);
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        let lane = u32::from_le_bytes(*word).wrapping_mul(PRIME[2]);
        hash = hash
            .wrapping_add(lane)
            .rotate_left(17)
            .wrapping_mul(PRIME[3]);
    }
    for &byte in tail {
        let lane = u32::from(byte).wrapping_mul(PRIME[4]);
        hash = hash
            .wrapping_add(lane)
            .rotate_left(11)
            .wrapping_mul(PRIME[0]);
    }
    hash = (hash ^ (hash >> 15)).wrapping_mul(PRIME[1]);
    hash = (hash ^ (hash >> 13)).wrapping_mul(PRIME[2]);
    hash ^ (hash >> 16)
}
