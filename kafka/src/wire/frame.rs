//! The length prefix: reads whole frames from a socket into buffers that grow with the bytes that
//! have arrived, never with the length a peer claims.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::limits;

/// Why no further frame can be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("frame length {0} is negative or above the limit")]
    Length(i32),
    #[error("connection ended inside a frame")]
    CutShort,
    #[error("read: {0}")]
    Io(#[from] std::io::Error),
}

/// Reads frames; keeps what came after the last one.
pub(crate) struct FrameReader<R> {
    socket: R,
    buffer: BytesMut,
    frame_max: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(socket: R, frame_max: usize) -> FrameReader<R> {
        FrameReader {
            socket,
            buffer: BytesMut::new(),
            frame_max,
        }
    }

    /// The next frame without its length; `None` when the peer closed between frames. Safe to
    /// drop and call again.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, FrameError> {
        loop {
            let wanted = match self.length()? {
                Some(length) if self.buffer.len() >= length + 4 => {
                    let mut frame = self.buffer.split_to(length + 4).freeze();
                    let _prefix = frame.split_to(4);
                    return Ok(Some(frame));
                }
                Some(length) => length + 4 - self.buffer.len(),
                None => 4 - self.buffer.len(),
            };
            self.reserve(wanted);
            if self.socket.read_buf(&mut self.buffer).await? == 0 {
                let clean = self.buffer.is_empty();
                return if clean {
                    Ok(None)
                } else {
                    Err(FrameError::CutShort)
                };
            }
        }
    }

    /// Whether part of a frame has arrived.
    pub(crate) fn is_inside_frame(&self) -> bool {
        !self.buffer.is_empty()
    }

    fn length(&self) -> Result<Option<usize>, FrameError> {
        let Some(prefix) = self.buffer.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = i32::from_be_bytes(*prefix);
        match usize::try_from(length) {
            Ok(length) if length <= self.frame_max => Ok(Some(length)),
            _ => Err(FrameError::Length(length)),
        }
    }

    /// Makes room for `wanted` bytes, or for as many as those that have arrived justify.
    fn reserve(&mut self, wanted: usize) {
        let spare = self.buffer.capacity() - self.buffer.len();
        let room = if self.buffer.len() < limits::READ_CHUNK / 2 {
            limits::READ_CHUNK
        } else {
            wanted.min(limits::FRAME_RESERVE_MAX)
        };
        if spare < wanted && spare < room / 2 + 1 {
            self.buffer.reserve(room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(bytes: &[u8], max: usize) -> Result<Vec<Bytes>, FrameError> {
        let mut reader = FrameReader::new(bytes, max);
        let mut frames = Vec::new();
        while let Some(frame) = reader.next().await? {
            frames.push(frame);
        }
        Ok(frames)
    }

    #[tokio::test]
    async fn frames_come_out_whole() {
        let big = vec![7u8; 300_000];
        let mut bytes = Vec::new();
        for body in [&b"one"[..], b"", &big, b"two"] {
            bytes.extend_from_slice(&i32::try_from(body.len()).unwrap().to_be_bytes());
            bytes.extend_from_slice(body);
        }
        let frames = read_all(&bytes, 1 << 20).await.unwrap();
        assert_eq!(frames.len(), 4);
        assert_eq!(frames[2], big);
        assert_eq!(frames[3], "two");
    }

    #[tokio::test]
    async fn lengths_out_of_bounds_are_refused_before_any_byte() {
        for prefix in [-1i32, i32::MIN, 1001, i32::MAX] {
            let read = read_all(&prefix.to_be_bytes(), 1000).await;
            assert!(matches!(read, Err(FrameError::Length(n)) if n == prefix));
        }
        assert!(matches!(
            read_all(&[0, 0, 0, 9, 1], 1000).await,
            Err(FrameError::CutShort)
        ));
    }
}
