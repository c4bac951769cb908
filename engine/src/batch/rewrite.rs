//! Removes records from stored batches: hides duplicates, and is what compaction writes.

use std::borrow::Cow;

use bytes::Bytes;

use super::header::{CODEC_BITS, assemble};
use super::{BatchError, Codec, DecodedBatch, compress};

/// A copy of `batch` without the records whose index among those present is in `dropped`.
///
/// Base offset, last offset delta, producer fields and codec stay, and so do the deltas of the
/// records that remain; count, maximum timestamp (unless it is the append time) and CRC are new.
/// When nothing remains the result is an empty batch that still covers its offsets, as Kafka's
/// compaction leaves it. Indexes beyond the last are ignored.
pub fn without(batch: &Bytes, dropped: &[u32], bytes_max: usize) -> Result<Bytes, BatchError> {
    if dropped.is_empty() {
        return Ok(batch.clone());
    }
    let dropped = sorted(dropped);
    let decoded = DecodedBatch::decode(batch.clone(), bytes_max)?;
    let mut header = *decoded.header();
    let codec = header.codec()?;

    let mut next_dropped = dropped.iter().copied().peekable();
    let mut records = Vec::new();
    let mut count = 0;
    let mut max_timestamp = None;
    for (index, record) in (0u32..).zip(decoded.iter()) {
        while next_dropped.next_if(|&dropped| dropped < index).is_some() {}
        if next_dropped.peek() == Some(&index) {
            continue;
        }
        let bytes = usize::try_from(index)
            .ok()
            .and_then(|index| decoded.record_bytes(index));
        records.extend_from_slice(bytes.unwrap_or_default());
        count += 1;
        max_timestamp = max_timestamp.max(Some(record.timestamp));
    }

    if count == header.records {
        return Ok(batch.clone());
    }
    header.records = count;
    match max_timestamp {
        None => {
            header.attributes &= !CODEC_BITS;
            return assemble(header, &[]);
        }
        Some(time) if !header.log_append_time() => header.max_timestamp = time,
        Some(_) => {}
    }
    match codec {
        Codec::None => assemble(header, &records),
        codec => assemble(header, &compress(codec, &records)?),
    }
}

fn sorted(dropped: &[u32]) -> Cow<'_, [u32]> {
    if dropped.is_sorted() {
        return Cow::Borrowed(dropped);
    }
    let mut copy = dropped.to_vec();
    copy.sort_unstable();
    Cow::Owned(copy)
}
