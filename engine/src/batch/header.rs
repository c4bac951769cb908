//! The 61 bytes in front of every batch: fields, places, and the two patches made after a producer.
//!
//! Base offset, length and leader epoch lie outside the CRC, which covers everything from the
//! attributes on.

use bytes::Bytes;
use crc_fast::CrcAlgorithm;

use super::{BatchError, Codec};

/// Bytes of a batch before its records.
pub const HEADER_LEN: usize = 61;

/// Bytes the length field does not count: base offset and the length itself.
pub(super) const LENGTH_END: usize = 12;
pub(super) const LEADER_EPOCH_AT: usize = 12;
pub(super) const MAGIC_AT: usize = 16;
pub(super) const CRC_AT: usize = 17;
pub(super) const ATTRIBUTES_AT: usize = 21;
const MAX_TIMESTAMP_AT: usize = 35;

/// Smallest value of the length field: a header and no records.
const LENGTH_MIN: i32 = 49;

pub(super) const MAGIC: i8 = 2;
pub(super) const CODEC_BITS: i16 = 0b111;
pub(super) const LOG_APPEND_TIME_BIT: i16 = 1 << 3;
pub(super) const TRANSACTIONAL_BIT: i16 = 1 << 4;
pub(super) const CONTROL_BIT: i16 = 1 << 5;

/// The fields of a batch header, as they are in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: i64,
    /// Bytes after this field.
    pub length: i32,
    pub leader_epoch: i32,
    pub magic: i8,
    pub crc: u32,
    pub attributes: i16,
    /// Last offset minus base offset, kept when records are removed.
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    /// Count of records present.
    pub records: i32,
}

impl BatchHeader {
    /// Reads the header in front of `bytes`, which may be longer or shorter than the batch.
    ///
    /// Refuses other formats than v2 and lengths below a header; the rest is for
    /// [`check`](fn@super::check).
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        // All formats have the magic byte here, and old ones may be shorter than our header.
        if let Some(&magic) = bytes.get(MAGIC_AT)
            && magic.cast_signed() != MAGIC
        {
            return Err(BatchError::Magic(magic.cast_signed()));
        }
        let fixed: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(BatchError::TooShort)?;
        let mut rest = &fixed[..];
        let header = BatchHeader {
            base_offset: i64::from_be_bytes(take(&mut rest)?),
            length: i32::from_be_bytes(take(&mut rest)?),
            leader_epoch: i32::from_be_bytes(take(&mut rest)?),
            magic: i8::from_be_bytes(take(&mut rest)?),
            crc: u32::from_be_bytes(take(&mut rest)?),
            attributes: i16::from_be_bytes(take(&mut rest)?),
            last_offset_delta: i32::from_be_bytes(take(&mut rest)?),
            base_timestamp: i64::from_be_bytes(take(&mut rest)?),
            max_timestamp: i64::from_be_bytes(take(&mut rest)?),
            producer_id: i64::from_be_bytes(take(&mut rest)?),
            producer_epoch: i16::from_be_bytes(take(&mut rest)?),
            base_sequence: i32::from_be_bytes(take(&mut rest)?),
            records: i32::from_be_bytes(take(&mut rest)?),
        };
        if header.length < LENGTH_MIN {
            return Err(BatchError::Length);
        }
        Ok(header)
    }

    /// The header as bytes, with the CRC field as it is in `self`.
    pub(super) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        put(&mut out, 0, self.base_offset.to_be_bytes());
        put(&mut out, 8, self.length.to_be_bytes());
        put(&mut out, LEADER_EPOCH_AT, self.leader_epoch.to_be_bytes());
        put(&mut out, MAGIC_AT, self.magic.to_be_bytes());
        put(&mut out, CRC_AT, self.crc.to_be_bytes());
        put(&mut out, ATTRIBUTES_AT, self.attributes.to_be_bytes());
        put(&mut out, 23, self.last_offset_delta.to_be_bytes());
        put(&mut out, 27, self.base_timestamp.to_be_bytes());
        put(&mut out, MAX_TIMESTAMP_AT, self.max_timestamp.to_be_bytes());
        put(&mut out, 43, self.producer_id.to_be_bytes());
        put(&mut out, 51, self.producer_epoch.to_be_bytes());
        put(&mut out, 53, self.base_sequence.to_be_bytes());
        put(&mut out, 57, self.records.to_be_bytes());
        out
    }

    /// How the records are compressed.
    pub fn codec(&self) -> Result<Codec, BatchError> {
        Codec::from_id((self.attributes & CODEC_BITS) as u8)
    }

    /// Whether the batch belongs to a transaction.
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }

    /// Whether the batch holds a control record, such as a transaction marker.
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }

    /// Whether all records carry the time of the append, `max_timestamp`.
    pub fn log_append_time(&self) -> bool {
        self.attributes & LOG_APPEND_TIME_BIT != 0
    }

    /// Bytes of the whole batch, header included.
    pub fn total_len(&self) -> usize {
        LENGTH_END.saturating_add(usize::try_from(self.length).unwrap_or(0))
    }
}

/// The first 61 bytes of `batch` with base offset and leader epoch replaced.
///
/// Both lie outside the CRC, so these bytes followed by the untouched rest are a valid batch.
pub fn patched_header(
    batch: &[u8],
    base_offset: i64,
    leader_epoch: i32,
) -> Result<[u8; HEADER_LEN], BatchError> {
    let mut out = *batch
        .first_chunk::<HEADER_LEN>()
        .ok_or(BatchError::TooShort)?;
    put(&mut out, 0, base_offset.to_be_bytes());
    put(&mut out, LEADER_EPOCH_AT, leader_epoch.to_be_bytes());
    Ok(out)
}

/// A copy of `batch` whose records all carry the append time: attribute bit 3, maximum timestamp
/// and CRC are new, the records are untouched.
pub fn with_append_time(batch: &[u8], time_ms: i64) -> Result<Bytes, BatchError> {
    let mut header = BatchHeader::parse(batch)?;
    let records = batch
        .get(HEADER_LEN..header.total_len())
        .ok_or(BatchError::Length)?;
    header.attributes |= LOG_APPEND_TIME_BIT;
    header.max_timestamp = time_ms;
    assemble(header, records)
}

/// A batch made of a header and its (already compressed) records; length and CRC are filled in.
pub(super) fn assemble(mut header: BatchHeader, records: &[u8]) -> Result<Bytes, BatchError> {
    let total = HEADER_LEN
        .checked_add(records.len())
        .ok_or(BatchError::Length)?;
    header.length = i32::try_from(total - LENGTH_END).map_err(|_| BatchError::Length)?;
    let mut out = Vec::with_capacity(total);
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(records);
    seal(&mut out);
    Ok(Bytes::from(out))
}

/// Computes the CRC of a complete batch and writes it into its place.
fn seal(batch: &mut [u8]) {
    let crc = crc_of(batch);
    if let Some(place) = batch.get_mut(CRC_AT..ATTRIBUTES_AT) {
        place.copy_from_slice(&crc.to_be_bytes());
    }
}

/// CRC-32C of everything from the attributes on.
pub(super) fn crc_of(batch: &[u8]) -> u32 {
    let covered = batch.get(ATTRIBUTES_AT..).unwrap_or_default();
    // A 32-bit algorithm fills only the low half of the result.
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, covered) as u32
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], BatchError> {
    let (head, tail) = rest.split_first_chunk::<N>().ok_or(BatchError::TooShort)?;
    *rest = tail;
    Ok(*head)
}

/// Writes `bytes` at a fixed place; all places are constants inside the header.
fn put<const N: usize>(out: &mut [u8; HEADER_LEN], at: usize, bytes: [u8; N]) {
    out[at..at + N].copy_from_slice(&bytes);
}
