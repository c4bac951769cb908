//! Builds batches from records.

use bytes::Bytes;

use super::header::{CODEC_BITS, HEADER_LEN, MAGIC, assemble};
use super::varint::{put_varint, put_varlong, varint_len, varlong_len};
use super::{BatchError, BatchHeader, Codec, compress};

/// A batch under construction. Unless told otherwise: no producer, base offset 0, no leader epoch.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    header: BatchHeader,
    records: Vec<u8>,
}

impl BatchBuilder {
    /// A batch without records whose timestamps are stored relative to `base_timestamp_ms`.
    pub fn new(base_timestamp_ms: i64) -> Self {
        let header = BatchHeader {
            base_offset: 0,
            length: 0,
            leader_epoch: -1,
            magic: MAGIC,
            crc: 0,
            attributes: 0,
            last_offset_delta: -1,
            base_timestamp: base_timestamp_ms,
            max_timestamp: base_timestamp_ms,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records: 0,
        };
        BatchBuilder {
            header,
            records: Vec::new(),
        }
    }

    /// Sets the producer fields.
    #[must_use]
    pub fn with_producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        self.header.producer_id = id;
        self.header.producer_epoch = epoch;
        self.header.base_sequence = base_sequence;
        self
    }

    /// Sets the attribute bits, such as transactional or control; codec bits are ignored.
    #[must_use]
    pub fn with_attributes(mut self, attributes: i16) -> Self {
        self.header.attributes = attributes & !CODEC_BITS;
        self
    }

    /// Appends a record with the next offset delta.
    ///
    /// # Panics
    /// If the batch would exceed 2 GiB or 2^31 offsets; callers bound what they push.
    pub fn push(
        &mut self,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) {
        assert!(
            self.header.last_offset_delta < i32::MAX,
            "batch has too many offsets"
        );
        let offset_delta = self.header.last_offset_delta + 1;
        self.push_at(offset_delta, timestamp_ms, key, value, headers);
    }

    /// Appends a record with a given offset delta, larger than all before.
    ///
    /// # Panics
    /// If the delta does not increase, or the batch would exceed 2 GiB.
    pub fn push_at(
        &mut self,
        offset_delta: i32,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&[u8], Option<&[u8]>)],
    ) {
        assert!(
            offset_delta > self.header.last_offset_delta,
            "offset deltas must increase"
        );
        // Wraps as in Java and unwraps when read.
        let timestamp_delta = timestamp_ms.wrapping_sub(self.header.base_timestamp);
        let header_bytes = headers.iter().fold(0usize, |sum, (name, value)| {
            sum.saturating_add(field_len(Some(name)))
                .saturating_add(field_len(*value))
        });
        let length = [
            1,
            varlong_len(timestamp_delta),
            varint_len(offset_delta),
            field_len(key),
            field_len(value),
            varint_len(int(headers.len())),
            header_bytes,
        ]
        .into_iter()
        .fold(0usize, usize::saturating_add);
        assert!(
            length < BATCH_BYTES_MAX.saturating_sub(self.bytes()),
            "batch exceeds 2 GiB"
        );

        let out = &mut self.records;
        out.reserve(length + varint_len(int(length)));
        put_varint(out, int(length));
        out.push(0);
        put_varlong(out, timestamp_delta);
        put_varint(out, offset_delta);
        put_field(out, key);
        put_field(out, value);
        put_varint(out, int(headers.len()));
        for (name, value) in headers {
            put_field(out, Some(name));
            put_field(out, *value);
        }

        let header = &mut self.header;
        header.last_offset_delta = offset_delta;
        header.max_timestamp = match header.records {
            0 => timestamp_ms,
            _ => header.max_timestamp.max(timestamp_ms),
        };
        header.records += 1;
    }

    /// Count of records.
    pub fn len(&self) -> usize {
        usize::try_from(self.header.records).unwrap_or(0)
    }

    /// Whether nothing has been pushed.
    pub fn is_empty(&self) -> bool {
        self.header.records == 0
    }

    /// Bytes of the finished, uncompressed batch.
    pub fn bytes(&self) -> usize {
        HEADER_LEN.saturating_add(self.records.len())
    }

    /// The batch, uncompressed.
    ///
    /// A batch without records has last offset delta -1: it covers no offset.
    pub fn finish(self) -> Bytes {
        let batch = assemble(self.header, &self.records);
        batch.expect("push keeps a batch below 2 GiB")
    }

    /// The batch with its records compressed.
    pub fn finish_compressed(mut self, codec: Codec) -> Result<Bytes, BatchError> {
        self.header.attributes |= i16::from(codec.id());
        assemble(self.header, &compress(codec, &self.records)?)
    }
}

/// Room for the longest length prefix is left below what the length field can say.
const BATCH_BYTES_MAX: usize = i32::MAX as usize - 16;

/// Bytes of a nullable field with its length; saturating, the sum is checked.
fn field_len(field: Option<&[u8]>) -> usize {
    field.map_or(1, |bytes| {
        varint_len(int(bytes.len())).saturating_add(bytes.len())
    })
}

fn put_field(out: &mut Vec<u8>, field: Option<&[u8]>) {
    match field {
        None => put_varint(out, -1),
        Some(bytes) => {
            put_varint(out, int(bytes.len()));
            out.extend_from_slice(bytes);
        }
    }
}

/// A length as Kafka writes it; larger ones are refused by the size of the batch before any use.
fn int(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}
