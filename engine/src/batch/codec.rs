//! Kafka's compression codecs, with decompression bounded by the caller.
//!
//! Output buffers start at a small multiple of the input and grow with what is really produced,
//! never with what the input claims, and never past the cap.

use std::io::{self, Read, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use zstd::zstd_safe::{self, DCtx};

use super::BatchError;

mod lz4;
mod snappy;

/// How the records of a batch are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Codec {
    /// The codec with Kafka's id, the low three attribute bits.
    pub fn from_id(id: u8) -> Result<Codec, BatchError> {
        match id {
            0 => Ok(Codec::None),
            1 => Ok(Codec::Gzip),
            2 => Ok(Codec::Snappy),
            3 => Ok(Codec::Lz4),
            4 => Ok(Codec::Zstd),
            other => Err(BatchError::Codec(other)),
        }
    }

    /// Kafka's id of this codec.
    pub fn id(self) -> u8 {
        match self {
            Codec::None => 0,
            Codec::Gzip => 1,
            Codec::Snappy => 2,
            Codec::Lz4 => 3,
            Codec::Zstd => 4,
        }
    }
}

/// Decompresses `input`, refusing with [`BatchError::TooLarge`] what exceeds `bytes_max`.
///
/// Snappy is read framed (as Java writes it) and raw; LZ4 in the frame format with independent
/// blocks, the only kind Java clients can read.
pub fn decompress(codec: Codec, input: &[u8], bytes_max: usize) -> Result<Bytes, BatchError> {
    match codec {
        Codec::None if input.len() > bytes_max => Err(BatchError::TooLarge { bytes_max }),
        Codec::None => Ok(Bytes::copy_from_slice(input)),
        Codec::Gzip => gunzip(input, bytes_max).map(Bytes::from),
        Codec::Snappy => snappy::decompress(input, bytes_max).map(Bytes::from),
        Codec::Lz4 => lz4::decompress(input, bytes_max).map(Bytes::from),
        Codec::Zstd => unzstd(input, bytes_max).map(Bytes::from),
    }
}

/// Compresses `input` in the form Java clients write and read.
pub fn compress(codec: Codec, input: &[u8]) -> Result<Vec<u8>, BatchError> {
    match codec {
        Codec::None => Ok(input.to_vec()),
        Codec::Gzip => gzip(input).map_err(|_| BatchError::Compress("gzip")),
        Codec::Snappy => snappy::compress(input),
        Codec::Lz4 => lz4_frame(input).map_err(|_| BatchError::Compress("lz4")),
        Codec::Zstd => {
            zstd::bulk::compress(input, ZSTD_LEVEL).map_err(|_| BatchError::Compress("zstd"))
        }
    }
}

/// Kafka's default level.
const ZSTD_LEVEL: i32 = 3;

/// Smallest output buffer worth starting with.
const ROOM_MIN: usize = 4096;

/// A first guess at the output of `input_len` compressed bytes.
fn first_room(input_len: usize, bytes_max: usize) -> usize {
    input_len.saturating_mul(4).max(ROOM_MIN).min(bytes_max)
}

fn gzip(input: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(input)?;
    encoder.finish()
}

fn lz4_frame(input: &[u8]) -> Result<Vec<u8>, lz4_flex::frame::Error> {
    let info = FrameInfo::new()
        .block_mode(BlockMode::Independent)
        .block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(input)?;
    encoder.finish()
}

fn gunzip(input: &[u8], bytes_max: usize) -> Result<Vec<u8>, BatchError> {
    let bad = |_| BatchError::Decompress("gzip");
    let mut decoder = MultiGzDecoder::new(input);
    let mut out = vec![0; first_room(input.len(), bytes_max)];
    let mut filled = 0usize;
    loop {
        if filled == out.len() {
            if filled == bytes_max {
                // Full: fine if this was all, and reading on also verifies the trailer.
                return match decoder.read(&mut [0]).map_err(bad)? {
                    0 => Ok(out),
                    _ => Err(BatchError::TooLarge { bytes_max }),
                };
            }
            grow(&mut out, filled.saturating_mul(2).min(bytes_max));
        }
        let room = out.get_mut(filled..).unwrap_or_default();
        match decoder.read(room).map_err(bad)? {
            0 => {
                out.truncate(filled);
                return Ok(out);
            }
            count => filled = filled.saturating_add(count),
        }
    }
}

/// Decodes in one go into a buffer that also serves as the window, so that the window size a frame
/// claims costs nothing. A buffer that proves too small is replaced by one four times as large.
fn unzstd(input: &[u8], bytes_max: usize) -> Result<Vec<u8>, BatchError> {
    let bad = BatchError::Decompress("zstd");
    let mut context = DCtx::try_create().ok_or(bad)?;
    let mut room = match zstd_safe::get_frame_content_size(input) {
        Ok(Some(size)) if usize::try_from(size).is_ok_and(|size| size <= bytes_max) => {
            // Believed only as far as the input could plausibly back it.
            usize::try_from(size)
                .unwrap_or(0)
                .min(input.len().saturating_mul(64))
                .max(ROOM_MIN)
        }
        Ok(Some(_)) => return Err(BatchError::TooLarge { bytes_max }),
        Ok(None) => first_room(input.len(), bytes_max),
        Err(_) => return Err(bad),
    };
    loop {
        room = room.min(bytes_max);
        let mut out: Vec<u8> = Vec::with_capacity(room);
        match context.decompress(&mut out, input) {
            // The allocator may have given more room than was asked for.
            Ok(_) if out.len() > bytes_max => return Err(BatchError::TooLarge { bytes_max }),
            Ok(_) => return Ok(out),
            Err(code) if zstd_safe::get_error_name(code) != ZSTD_ROOM => return Err(bad),
            Err(_) if room == bytes_max => return Err(BatchError::TooLarge { bytes_max }),
            Err(_) => room = room.saturating_mul(4).max(ROOM_MIN),
        }
    }
}

/// zstd's name of the one error that a larger buffer cures.
const ZSTD_ROOM: &str = "Destination buffer is too small";

/// Sets the length of `out`, allocating exactly that much.
fn grow(out: &mut Vec<u8>, len: usize) {
    out.reserve_exact(len.saturating_sub(out.len()));
    out.resize(len, 0);
}
