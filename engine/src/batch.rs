//! Kafka record batch v2 as bytes: headers, checks, codecs, records, rewriting, lane names.
//!
//! Everything here is a pure function of its arguments: no I/O, no clock, no state. Bytes come from
//! peers, so every length is checked before it is used, decompression stops at a cap given by the
//! caller, and nothing is allocated because a peer merely claimed a size.
//!
//! The order in which a produced batch meets these files: [`check`](fn@check) (header and CRC),
//! [`DecodedBatch`] (decompress, validate, borrow records), [`lane_keys`] (which lane each record
//! belongs to). The bytes themselves are stored untouched; [`patched_header`] puts the final
//! offset in front of them when they are read, and [`without`] hides records.

#![forbid(unsafe_code)]

pub mod build;
pub mod check;
pub mod codec;
pub mod decode;
pub mod error;
pub mod header;
pub mod lanes;
pub mod partition;
pub mod rewrite;
mod varint;

pub use build::BatchBuilder;
pub use check::check;
pub use codec::{Codec, compress, decompress};
pub use decode::{DecodedBatch, Headers, Record};
pub use error::{BatchError, RecordError};
pub use header::{BatchHeader, HEADER_LEN, patched_header, with_append_time};
pub use lanes::{LaneKeys, TRANSACTION_ID_HEADER, lane_keys, lane_name};
pub use partition::{kafka_partition, murmur2};
pub use rewrite::without;

#[cfg(test)]
mod tests;
