//! What can be wrong with a batch, by kind, without text made from a peer's bytes.

use thiserror::Error;

/// Why a batch was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BatchError {
    /// Fewer bytes than a batch header.
    #[error("batch is shorter than its header")]
    TooShort,
    /// A message format other than v2.
    #[error("batch has magic {0}, only 2 is stored")]
    Magic(i8),
    /// The length field does not fit the bytes given.
    #[error("batch length does not match its bytes")]
    Length,
    /// The CRC-32C does not match.
    #[error("batch checksum does not match")]
    Crc,
    /// A produced batch must have base offset 0.
    #[error("produced batch has base offset {0}, not 0")]
    BaseOffset(i64),
    /// The record count is not positive, or does not agree with the last offset delta.
    #[error("batch record count does not fit its last offset delta")]
    Count,
    /// A producer id without a base sequence.
    #[error("batch has a producer id but base sequence {0}")]
    Sequence(i32),
    /// A client tried to write a control batch.
    #[error("produced batch has the control bit")]
    Control,
    /// A compression id that Kafka does not define.
    #[error("batch has unknown codec {0}")]
    Codec(u8),
    /// The records inside are malformed.
    #[error("batch has a malformed record: {0}")]
    Record(#[from] RecordError),
    /// The content is larger than the caller allows.
    #[error("batch content exceeds {bytes_max} bytes")]
    TooLarge {
        /// The cap that was exceeded.
        bytes_max: usize,
    },
    /// The compressed bytes are damaged; names the codec.
    #[error("batch content is not valid {0}")]
    Decompress(&'static str),
    /// Compression failed; names the codec.
    #[error("batch content could not be compressed as {0}")]
    Compress(&'static str),
}

/// What is wrong with a record inside a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// The bytes end inside a record, or a field ends outside its record.
    #[error("truncated")]
    Truncated,
    /// A variable-length integer is too long or too large.
    #[error("bad varint")]
    Varint,
    /// A length is negative where it may not be, or a record is longer than its fields.
    #[error("bad length")]
    Length,
    /// Offset deltas do not increase, or leave the range the header promises.
    #[error("bad offset delta")]
    Offset,
    /// A header has no name.
    #[error("header without a name")]
    HeaderName,
    /// More or fewer records than the header promises.
    #[error("wrong number of records")]
    Count,
}
