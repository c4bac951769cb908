//! A request body under the codec's hands: what the codec crate would misread in silence is an
//! error here. Bytes behind a complete body are nobody's business: Apache Kafka does not look at
//! them, and librdkafka 2.12 and later sends three of them with a Metadata request.

use bytes::{Buf, Bytes, TryGetError};
use kafka_protocol::protocol::Decodable;
use kafka_protocol::protocol::buf::{ByteBuf, NotEnoughBytesError};

/// Bytes of the longest unsigned varint (32 bits, seven in each).
const VARINT_BYTES_MAX: u8 = 5;

/// A body that is not what its version says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request body is malformed")]
pub(crate) struct MalformedBody;

/// Decodes a body and drops the bytes behind it. The codec crate is known to panic on some
/// malformed input; a panic counts as malformed.
pub(crate) fn decode<R: Decodable>(body: Bytes, version: i16) -> Result<R, MalformedBody> {
    let mut body = Guarded { body, unended: 0 };
    let decoding = std::panic::AssertUnwindSafe(|| R::decode(&mut body, version));
    match std::panic::catch_unwind(decoding) {
        Ok(Ok(request)) => Ok(request),
        Ok(Err(_)) | Err(_) => Err(MalformedBody),
    }
}

/// The bytes of a body, with a fault of the codec's reader (kafka-protocol 0.18) mended: its varints
/// stop at the fifth byte even if that one says that another follows, and what is read next starts
/// in the middle of the number. Kafka refuses such a varint (`ByteUtils.readUnsignedVarint`). It is
/// the reader's only way to stop early in silence: lengths are checked against what is there, and
/// sizes of known tagged fields are ignored as Kafka ignores them.
///
/// The reader fetches varints with `try_get_u8`, byte by byte, and apart from them only booleans,
/// so five bytes in a row that end nothing are such a varint. (Or a boolean that is neither 0 nor 1
/// with a small number written in five bytes behind it, which no client writes.)
struct Guarded {
    body: Bytes,
    /// Bytes just read in a row that end no varint.
    unended: u8,
}

impl Buf for Guarded {
    fn remaining(&self) -> usize {
        self.body.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.body.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.unended = 0;
        self.body.advance(count);
    }

    fn try_get_u8(&mut self) -> Result<u8, TryGetError> {
        let byte = self.body.try_get_u8()?;
        if byte & 0x80 == 0 {
            self.unended = 0;
        } else {
            self.unended += 1;
        }
        if self.unended == VARINT_BYTES_MAX {
            return Err(TryGetError {
                requested: usize::from(VARINT_BYTES_MAX) + 1,
                available: usize::from(VARINT_BYTES_MAX),
            });
        }
        Ok(byte)
    }
}

impl ByteBuf for Guarded {
    fn peek_bytes(&mut self, range: std::ops::Range<usize>) -> Bytes {
        self.body.peek_bytes(range)
    }

    fn get_bytes(&mut self, size: usize) -> Bytes {
        self.unended = 0;
        self.body.get_bytes(size)
    }

    fn try_get_bytes(&mut self, size: usize) -> Result<Bytes, NotEnoughBytesError> {
        self.unended = 0;
        self.body.try_get_bytes(size)
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{FetchRequest, MetadataRequest};

    use super::*;

    /// A piece of a body: bytes as they are, or a number below 128 written as a varint.
    #[derive(Clone, Copy)]
    enum Piece {
        Raw(&'static [u8]),
        Varint(u8),
    }
    use Piece::{Raw, Varint};

    /// Metadata v13 with tagged fields in the request and in its one topic.
    const METADATA: &[Piece] = &[
        Varint(2),
        Raw(&[0; 16]),
        Varint(3),
        Raw(b"ab"),
        Varint(1),
        Varint(77),
        Varint(2),
        Raw(b"xy"),
        Raw(&[1, 0]),
        Varint(1),
        Varint(99),
        Varint(1),
        Raw(b"z"),
    ];

    /// Fetch v12 without topics and with the one tagged field that it knows, the cluster's id.
    const FETCH: &[Piece] = &[
        Raw(&[0xff; 4]),
        Raw(&[0; 21]),
        Varint(1),
        Varint(1),
        Varint(1),
        Varint(1),
        Varint(0),
        Varint(4),
        Varint(4),
        Raw(b"abc"),
    ];

    /// The body, its `nth` varint written by `write`.
    fn written(pieces: &[Piece], nth: usize, write: fn(u8) -> Vec<u8>) -> Bytes {
        let mut body = Vec::new();
        let mut met = 0;
        for piece in pieces {
            match *piece {
                Raw(bytes) => body.extend_from_slice(bytes),
                Varint(number) if met == nth => {
                    body.extend(write(number));
                    met += 1;
                }
                Varint(number) => {
                    body.push(number);
                    met += 1;
                }
            }
        }
        Bytes::from(body)
    }

    /// As long as a varint may be, with nothing in its upper bytes: legal.
    fn padded(number: u8) -> Vec<u8> {
        vec![number | 0x80, 0x80, 0x80, 0x80, 0]
    }

    /// One byte longer: the codec by itself reads the number and stumbles over the sixth byte.
    fn endless(number: u8) -> Vec<u8> {
        vec![number | 0x80, 0x80, 0x80, 0x80, 0x80, 0]
    }

    fn check<R: Decodable + PartialEq + std::fmt::Debug>(pieces: &[Piece], version: i16) {
        let varints = pieces
            .iter()
            .filter(|piece| matches!(piece, Varint(_)))
            .count();
        let plain = written(pieces, varints, padded);
        let read: R = decode(plain.clone(), version).expect("a whole body");
        for nth in 0..varints {
            let long = written(pieces, nth, padded);
            assert_eq!(decode(long, version).as_ref(), Ok(&read), "varint {nth}");
            for behind in [0, 1, 100] {
                let mut bad = written(pieces, nth, endless).to_vec();
                bad.resize(bad.len() + behind, 0);
                let refused = decode::<R>(bad.into(), version);
                assert_eq!(refused, Err(MalformedBody), "varint {nth}, {behind} behind");
            }
        }
        for cut in 0..plain.len() {
            let refused = decode::<R>(plain.slice(..cut), version);
            assert_eq!(refused, Err(MalformedBody), "cut at {cut}");
        }
        for behind in [1, 3, 100] {
            for byte in [0, 1, 0x80, 0xff] {
                let mut more = plain.to_vec();
                more.resize(more.len() + behind, byte);
                assert_eq!(decode(more.into(), version).as_ref(), Ok(&read));
            }
        }
    }

    #[test]
    fn a_varint_without_end_is_malformed_wherever_it_stands() {
        check::<MetadataRequest>(METADATA, 13);
        check::<FetchRequest>(FETCH, 12);
    }

    /// What librdkafka 2.16.0 sends to list all topics: three bytes stand behind the body.
    #[test]
    fn bytes_behind_the_body_are_dropped() {
        let all = Bytes::from_static(&[0, 0, 0, 0, 1, 0, 0]);
        let request: MetadataRequest = decode(all.clone(), 13).unwrap();
        assert_eq!(decode(all.slice(..4), 13).as_ref(), Ok(&request));
        assert_eq!(request.topics, None);
    }

    #[test]
    fn the_codec_still_needs_the_guard() {
        let mut endless = Bytes::from_static(&[0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0, 0, 0]);
        let read =
            MetadataRequest::decode(&mut endless, 9).expect("once refused, the guard can go");
        assert_eq!(read.topics, Some(Vec::new()));
    }
}
