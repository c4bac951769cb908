//! The request header, read by hand: the codec crate's reader panics on short frames. Versions 1
//! (plain) and 2 (tagged fields) differ only behind the client id.

use bytes::{Buf, Bytes};
use kafka_protocol::protocol::StrBytes;

/// What stands in front of every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestHeader {
    pub(crate) key: i16,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
}

/// A header that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request header is cut short or malformed")]
pub(crate) struct HeaderError;

/// Takes the fixed part.
pub(crate) fn take_fixed(frame: &mut Bytes) -> Result<RequestHeader, HeaderError> {
    Ok(RequestHeader {
        key: frame.try_get_i16().map_err(|_| HeaderError)?,
        version: frame.try_get_i16().map_err(|_| HeaderError)?,
        correlation_id: frame.try_get_i32().map_err(|_| HeaderError)?,
    })
}

/// Takes the client id and, for flexible versions, skips the tagged fields.
pub(crate) fn take_rest(
    frame: &mut Bytes,
    flexible: bool,
) -> Result<Option<StrBytes>, HeaderError> {
    let len = frame.try_get_i16().map_err(|_| HeaderError)?;
    let client_id = match usize::try_from(len) {
        Ok(len) if len <= frame.len() => {
            Some(StrBytes::from_utf8(frame.split_to(len)).map_err(|_| HeaderError)?)
        }
        Ok(_) => return Err(HeaderError),
        Err(_) if len == -1 => None,
        Err(_) => return Err(HeaderError),
    };
    if flexible {
        let fields = take_varint(frame)?;
        for _ in 0..fields {
            take_varint(frame)?;
            let len = take_varint(frame)? as usize;
            if len > frame.len() {
                return Err(HeaderError);
            }
            frame.advance(len);
        }
    }
    Ok(client_id)
}

fn take_varint(frame: &mut Bytes) -> Result<u32, HeaderError> {
    let mut value = 0u32;
    for shift in [0, 7, 14, 21, 28] {
        let byte = frame.try_get_u8().map_err(|_| HeaderError)?;
        value |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(HeaderError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_headers_are_refused_not_panicked_on() {
        let whole = [0, 18, 0, 3, 0, 0, 0, 7, 0, 2, b'm', b'e', 1, 5, 1, 9];
        for cut in 0..whole.len() {
            let mut frame = Bytes::copy_from_slice(&whole[..cut]);
            let read = take_fixed(&mut frame).and_then(|_| take_rest(&mut frame, true));
            assert!(read.is_err(), "cut at {cut}");
        }
        let mut frame = Bytes::copy_from_slice(&whole);
        let fixed = take_fixed(&mut frame).unwrap();
        assert_eq!((fixed.key, fixed.version, fixed.correlation_id), (18, 3, 7));
        assert_eq!(take_rest(&mut frame, true).unwrap().unwrap().as_str(), "me");
        assert!(frame.is_empty());
    }

    #[test]
    fn endless_tagged_fields_end_with_the_frame() {
        let mut frame = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]);
        assert_eq!(take_rest(&mut frame, true), Err(HeaderError));
    }
}
