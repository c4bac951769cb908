//! Frames between nodes: a length, a kind, a number that pairs an answer with its question, and a
//! body in pieces. Owns reading and writing them, and their bounds; knows nothing of what they say.
//!
//! ```text
//! body length u32 | kind u8 | number u64 | body
//! ```
//! Integers little-endian. Between the ends of a connection that have proved who they are, TCP's
//! checksum and the frames' own (the log checks every entry before it is used) are enough.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Bytes before a frame's body.
const HEAD_BYTES: usize = 13;
/// Largest body of an authenticated peer: the largest entry with room for what stands around it.
pub const BODY_BYTES_MAX: usize = crate::limits::ENTRY_BYTES_MAX + (8 << 20);
/// A body is read in steps of this size, so that a length alone allocates little.
const STEP_BYTES: usize = 1 << 20;

/// One frame.
#[derive(Debug, Default)]
pub struct Frame {
    pub kind: u8,
    pub number: u64,
    /// Parts that are sent one after the other; one part when read.
    pub body: Vec<Bytes>,
}

impl Frame {
    /// A frame whose body is one piece.
    pub fn new(kind: u8, number: u64, body: impl Into<Bytes>) -> Frame {
        Frame {
            kind,
            number,
            body: vec![body.into()],
        }
    }

    /// The body in one piece; copies only when it is in several.
    pub fn whole(self) -> Bytes {
        match <[Bytes; 1]>::try_from(self.body) {
            Ok([one]) => one,
            Err(parts) => {
                let mut whole = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
                parts.iter().for_each(|part| whole.extend_from_slice(part));
                whole.freeze()
            }
        }
    }
}

/// Writes a frame; the caller flushes.
pub async fn write(to: &mut (impl AsyncWrite + Unpin), frame: &Frame) -> io::Result<()> {
    let len: usize = frame.body.iter().map(Bytes::len).sum();
    if len > BODY_BYTES_MAX {
        let text = format!("a frame of {len} bytes is too large");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut head = [0; HEAD_BYTES];
    let mut put = &mut head[..];
    put.put_u32_le(u32::try_from(len).unwrap_or(u32::MAX));
    put.put_u8(frame.kind);
    put.put_u64_le(frame.number);
    to.write_all(&head).await?;
    for part in &frame.body {
        to.write_all(part).await?;
    }
    Ok(())
}

/// Reads a frame whose body has at most `bytes_max` bytes; `None` at the end of the stream.
pub async fn read(
    from: &mut (impl AsyncRead + Unpin),
    bytes_max: usize,
) -> io::Result<Option<Frame>> {
    let mut head = [0; HEAD_BYTES];
    match from.read_exact(&mut head).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let [a, b, c, d, kind, number @ ..] = head;
    let len = u32::from_le_bytes([a, b, c, d]) as usize;
    if len > bytes_max {
        let text = format!("a frame of {len} bytes, of which {bytes_max} are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let mut body = BytesMut::with_capacity(len.min(STEP_BYTES));
    while body.len() < len {
        body.reserve((len - body.len()).min(STEP_BYTES.max(body.len())));
        let left = (len - body.len()) as u64;
        if (&mut *from).take(left).read_buf(&mut body).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Some(Frame::new(
        kind,
        u64::from_le_bytes(number),
        body.freeze(),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_come_back_and_lengths_are_not_believed() {
        let (mut a, mut b) = tokio::io::duplex(1 << 16);
        let frame = Frame {
            kind: 7,
            number: 99,
            body: vec![Bytes::from_static(b"ab"), Bytes::from_static(b"c")],
        };
        write(&mut a, &frame).await.unwrap();
        write(&mut a, &Frame::new(1, 2, vec![0u8; 50]))
            .await
            .unwrap();
        let read_back = read(&mut b, 100).await.unwrap().unwrap();
        assert_eq!((read_back.kind, read_back.number), (7, 99));
        assert_eq!(&read_back.whole()[..], b"abc");
        assert!(read(&mut b, 49).await.is_err());
        drop(a);
    }

    #[tokio::test]
    async fn a_cut_frame_is_an_error_and_an_end_is_none() {
        let (mut a, mut b) = tokio::io::duplex(1 << 16);
        tokio::io::AsyncWriteExt::write_all(&mut a, &[9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 5])
            .await
            .unwrap();
        drop(a);
        assert!(read(&mut b, 100).await.is_err());
        assert!(read(&mut b, 100).await.unwrap().is_none());
    }
}
