//! A batch with its records decompressed, validated once and borrowed from then on.

use bytes::Bytes;

use super::header::HEADER_LEN;
use super::varint::Cursor;
use super::{BatchError, BatchHeader, Codec, RecordError, decompress};

/// A validated batch: header, decompressed records and where each begins.
#[derive(Clone, Debug)]
pub struct DecodedBatch {
    header: BatchHeader,
    records: Bytes,
    starts: Vec<u32>,
}

impl DecodedBatch {
    /// Decompresses (at most `bytes_max` bytes) and validates the records of one whole batch.
    ///
    /// Offset deltas must increase and stay within the header's last offset delta. Together with
    /// [`check`](fn@super::check), which ties that to the count, a produced batch therefore has
    /// deltas 0, 1, 2, ...; a stored one may have gaps, or no records. The CRC is not looked at.
    /// Nothing is copied when the batch is not compressed.
    pub fn decode(batch: Bytes, bytes_max: usize) -> Result<DecodedBatch, BatchError> {
        let header = BatchHeader::parse(&batch)?;
        if header.total_len() != batch.len() {
            return Err(BatchError::Length);
        }
        let codec = header.codec()?;
        let packed = batch.slice(HEADER_LEN..);
        // Record starts are 32-bit, as are all lengths in a batch.
        let bytes_max = bytes_max.min(i32::MAX as usize);
        let records = match codec {
            _ if header.records == 0 && packed.is_empty() => packed,
            Codec::None if packed.len() > bytes_max => {
                return Err(BatchError::TooLarge { bytes_max });
            }
            Codec::None => packed,
            codec => decompress(codec, &packed, bytes_max)?,
        };
        let starts = validate(&records, &header)?;
        Ok(DecodedBatch {
            header,
            records,
            starts,
        })
    }

    /// The header of the batch.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Count of records.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether the batch has no records.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Record number `index` of those present; `None` only beyond the last.
    pub fn record(&self, index: usize) -> Option<Record<'_>> {
        let start = usize::try_from(*self.starts.get(index)?).ok()?;
        let mut cursor = Cursor::new(self.records.get(start..)?);
        Raw::read(&mut cursor)
            .ok()
            .map(|raw| raw.resolve(&self.header))
    }

    /// All records in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Record<'_>> {
        Iter {
            batch: self,
            next: 0,
        }
    }

    /// Bytes this value keeps alive.
    pub fn memory_bytes(&self) -> usize {
        let starts = self.starts.capacity().saturating_mul(size_of::<u32>());
        let pinned = match self.header.codec() {
            // The records are a slice of the batch and keep its header alive too.
            Ok(Codec::None) => self.records.len().saturating_add(HEADER_LEN),
            _ => self.records.len(),
        };
        size_of::<Self>()
            .saturating_add(starts)
            .saturating_add(pinned)
    }

    /// `part`, borrowed from a record of this batch, as owned bytes without a copy.
    ///
    /// Bytes that are not from this batch are copied.
    pub fn slice_ref(&self, part: &[u8]) -> Bytes {
        let within = self.records.as_ptr_range();
        let part_range = part.as_ptr_range();
        if within.start <= part_range.start && part_range.end <= within.end {
            self.records.slice_ref(part)
        } else {
            Bytes::copy_from_slice(part)
        }
    }

    /// The bytes of record `index`, its length prefix included.
    pub(super) fn record_bytes(&self, index: usize) -> Option<&[u8]> {
        let start = usize::try_from(*self.starts.get(index)?).ok()?;
        let end = match self.starts.get(index.checked_add(1)?) {
            Some(&next) => usize::try_from(next).ok()?,
            None => self.records.len(),
        };
        self.records.get(start..end)
    }
}

/// One record, borrowed from its batch.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Offset minus the batch's base offset.
    pub offset_delta: i32,
    /// Milliseconds since the epoch: the append time if the batch says so, else the producer's.
    pub timestamp: i64,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Headers<'a>,
}

/// The headers of a record in their order, duplicates included: an iterator over name and value.
#[derive(Clone, Copy)]
pub struct Headers<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Headers<'a> {
    /// The value of the **first** header called `name`; `Some(None)` if that value is null.
    pub fn get(&self, name: &[u8]) -> Option<Option<&'a [u8]>> {
        self.into_iter()
            .find(|(found, _)| *found == name)
            .map(|(_, value)| value)
    }

    /// Whether no header is left.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let mut cursor = Cursor::new(self.rest);
        let header = read_header(&mut cursor).ok()?;
        self.rest = cursor.rest();
        Some(header)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Headers<'_> {}

impl std::fmt::Debug for Headers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

struct Iter<'a> {
    batch: &'a DecodedBatch,
    next: usize,
}

impl<'a> Iterator for Iter<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let record = self.batch.record(self.next)?;
        self.next = self.next.saturating_add(1);
        Some(record)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.batch.len().saturating_sub(self.next);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// Fewest bytes of a record: length, attributes, two deltas, key, value, header count.
const RECORD_BYTES_MIN: usize = 7;

/// Walks all records once and returns where they start.
fn validate(records: &[u8], header: &BatchHeader) -> Result<Vec<u32>, BatchError> {
    let count = usize::try_from(header.records).map_err(|_| BatchError::Count)?;
    if count > records.len() / RECORD_BYTES_MIN {
        return Err(RecordError::Count.into());
    }
    let mut starts = Vec::with_capacity(count);
    let mut cursor = Cursor::new(records);
    let mut offset_delta_min = 0;
    for _ in 0..count {
        let start = records.len() - cursor.rest().len();
        starts.push(u32::try_from(start).map_err(|_| RecordError::Length)?);
        let raw = Raw::read(&mut cursor)?;
        if raw.offset_delta < offset_delta_min || raw.offset_delta > header.last_offset_delta {
            return Err(RecordError::Offset.into());
        }
        offset_delta_min = raw.offset_delta.saturating_add(1);
        let mut headers = Cursor::new(raw.headers.rest);
        for _ in 0..raw.headers.left {
            read_header(&mut headers)?;
        }
        if !headers.rest().is_empty() {
            return Err(RecordError::Length.into());
        }
    }
    if cursor.rest().is_empty() {
        Ok(starts)
    } else {
        Err(RecordError::Count.into())
    }
}

/// A record as written, its times relative to the batch.
struct Raw<'a> {
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    headers: Headers<'a>,
}

impl<'a> Raw<'a> {
    /// Reads everything but the headers, which are left as they are, and moves `cursor` on.
    fn read(cursor: &mut Cursor<'a>) -> Result<Raw<'a>, RecordError> {
        let length = usize::try_from(cursor.varint()?).map_err(|_| RecordError::Length)?;
        let mut body = Cursor::new(cursor.take(length)?);
        // Record attributes: none are defined.
        body.byte()?;
        let timestamp_delta = body.varlong()?;
        let offset_delta = body.varint()?;
        let key = body.nullable()?;
        let value = body.nullable()?;
        let left = usize::try_from(body.varint()?).map_err(|_| RecordError::Length)?;
        let headers = Headers {
            rest: body.rest(),
            left,
        };
        Ok(Raw {
            timestamp_delta,
            offset_delta,
            key,
            value,
            headers,
        })
    }

    fn resolve(self, header: &BatchHeader) -> Record<'a> {
        let timestamp = if header.log_append_time() {
            header.max_timestamp
        } else {
            // Wraps as in Java, so that any pair of times survives the round trip.
            header.base_timestamp.wrapping_add(self.timestamp_delta)
        };
        Record {
            offset_delta: self.offset_delta,
            timestamp,
            key: self.key,
            value: self.value,
            headers: self.headers,
        }
    }
}

fn read_header<'a>(cursor: &mut Cursor<'a>) -> Result<(&'a [u8], Option<&'a [u8]>), RecordError> {
    let name = cursor.nullable()?.ok_or(RecordError::HeaderName)?;
    Ok((name, cursor.nullable()?))
}
