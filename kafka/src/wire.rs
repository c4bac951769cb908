//! Bytes and messages: frames, headers, primitives of hand-written answers, the error table.

pub(crate) mod body;
pub(crate) mod error_code;
pub(crate) mod frame;
pub(crate) mod header;
pub(crate) mod put;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::{Encodable, HeaderVersion};

/// A whole answer frame, length prefix included, as byte strings to be written one after another.
pub(crate) type Frame = Vec<Bytes>;

/// An answer the codec refused to encode: a bug of ours.
#[derive(Debug, thiserror::Error)]
#[error("answer cannot be encoded: {0}")]
pub(crate) struct EncodeError(String);

/// Encodes an answer with its header and length prefix.
pub(crate) fn encode<R: Encodable + HeaderVersion>(
    correlation_id: i32,
    version: i16,
    answer: &R,
) -> Result<Bytes, EncodeError> {
    let mut out = BytesMut::with_capacity(256);
    out.put_i32(0);
    out.put_i32(correlation_id);
    if R::header_version(version) >= 1 {
        out.put_u8(0);
    }
    answer
        .encode(&mut out, version)
        .map_err(|error| EncodeError(error.to_string()))?;
    let length = i32::try_from(out.len() - 4).map_err(|_| EncodeError("too large".into()))?;
    out[..4].copy_from_slice(&length.to_be_bytes());
    Ok(out.freeze())
}
