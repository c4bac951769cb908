//! What a batch from a producer must satisfy before anything else looks at it.
//!
//! Header and checksum only; the records are validated by
//! [`DecodedBatch::decode`](super::DecodedBatch::decode), and the two together leave nothing to
//! break a consumer later.

use super::header::crc_of;
use super::{BatchError, BatchHeader};

/// Checks a batch as a client sent it, and returns its header.
///
/// `bytes` must be exactly one batch: anything before or after it is [`BatchError::Length`].
pub fn check(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = BatchHeader::parse(bytes)?;
    if header.total_len() != bytes.len() {
        return Err(BatchError::Length);
    }
    if crc_of(bytes) != header.crc {
        return Err(BatchError::Crc);
    }
    if header.base_offset != 0 {
        return Err(BatchError::BaseOffset(header.base_offset));
    }
    if header.records <= 0 || header.last_offset_delta != header.records - 1 {
        return Err(BatchError::Count);
    }
    if header.is_control() {
        return Err(BatchError::Control);
    }
    if header.producer_id >= 0 && header.base_sequence < 0 {
        return Err(BatchError::Sequence(header.base_sequence));
    }
    header.codec()?;
    Ok(header)
}
