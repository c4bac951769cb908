//! Snappy: raw blocks, and the framing of the Java library ("xerial") around them.
//!
//! Framed: 8 bytes magic, two 32-bit versions, then blocks of a 32-bit big-endian length and a raw
//! block each. A new header may follow a block where streams were concatenated.

use snap::raw;

use super::super::BatchError;
use super::grow;

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const VERSIONS: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];

/// Block size of the Java library.
const BLOCK_BYTES: usize = 32 * 1024;

/// More than any raw block can expand: three bytes copy at most 64.
const EXPANSION_MAX: usize = 22;

const BAD: BatchError = BatchError::Decompress("snappy");

pub(super) fn compress(input: &[u8]) -> Result<Vec<u8>, BatchError> {
    let bad = |_| BatchError::Compress("snappy");
    let mut out = [MAGIC, VERSIONS].concat();
    let mut encoder = raw::Encoder::new();
    for block in input.chunks(BLOCK_BYTES) {
        let packed = encoder.compress_vec(block).map_err(bad)?;
        let length = u32::try_from(packed.len()).map_err(|_| BatchError::Compress("snappy"))?;
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&packed);
    }
    Ok(out)
}

pub(super) fn decompress(input: &[u8], bytes_max: usize) -> Result<Vec<u8>, BatchError> {
    let mut out = Vec::new();
    if !input.starts_with(&MAGIC) {
        block(input, &mut out, bytes_max)?;
        return Ok(out);
    }
    let mut rest = input;
    while !rest.is_empty() {
        if rest.starts_with(&MAGIC) {
            rest = rest.get(MAGIC.len() + VERSIONS.len()..).ok_or(BAD)?;
            continue;
        }
        let (length, tail) = rest.split_first_chunk::<4>().ok_or(BAD)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| BAD)?;
        let (packed, tail) = tail.split_at_checked(length).ok_or(BAD)?;
        block(packed, &mut out, bytes_max)?;
        rest = tail;
    }
    Ok(out)
}

/// Appends one raw block to `out`.
fn block(packed: &[u8], out: &mut Vec<u8>, bytes_max: usize) -> Result<(), BatchError> {
    let claimed = raw::decompress_len(packed).map_err(|_| BAD)?;
    if claimed > packed.len().saturating_mul(EXPANSION_MAX) {
        return Err(BAD);
    }
    let start = out.len();
    let end = start.saturating_add(claimed);
    if end > bytes_max {
        return Err(BatchError::TooLarge { bytes_max });
    }
    // Amortised growth over many blocks, kept below the cap.
    if end > out.capacity() {
        let capacity = end.max(out.capacity().saturating_mul(2)).min(bytes_max);
        out.reserve_exact(capacity.saturating_sub(start));
    }
    grow(out, end);
    let room = out.get_mut(start..).unwrap_or_default();
    let written = raw::Decoder::new()
        .decompress(packed, room)
        .map_err(|_| BAD)?;
    if written == claimed { Ok(()) } else { Err(BAD) }
}
