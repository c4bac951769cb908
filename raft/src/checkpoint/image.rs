//! A state image: everything a node needs beside its log and the sidecars of sealed segments.
//!
//! ```text
//! format u32 (1) | then sections, each a u64 length and its bytes:
//!   place:      applied u8, term u64, index u64, sealed before u64
//!   membership: empty, or term u64, index u64 and the membership's bytes
//!   index:      the active part of the record index
//!   engine:     queen_engine's own image
//! ```
//! Integers little-endian. The log checks the bytes as a whole.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use queen_engine::Engine;
use queen_engine::index::RecordIndex;

use crate::apply::State;
use crate::replicator::Position;

const FORMAT: u32 = 1;
const PLACE_BYTES: usize = 25;

/// Bytes that are not a state image of this binary.
#[derive(Debug, thiserror::Error)]
pub enum ImageFault {
    #[error("the image is cut short")]
    Short,
    #[error("the image has format {0}, this binary reads {FORMAT}")]
    Format(u32),
    #[error("the image's record index: {0}")]
    Index(String),
    #[error(transparent)]
    Engine(#[from] queen_engine::ImageError),
}

/// The image of a state as byte strings to be written one after the other.
pub fn parts(state: &State) -> Vec<Vec<u8>> {
    let mut place = Vec::with_capacity(PLACE_BYTES);
    let at = state.applied.unwrap_or_default();
    place.put_u8(u8::from(state.applied.is_some()));
    place.put_u64_le(at.term);
    place.put_u64_le(at.index);
    place.put_u64_le(state.sealed_before);
    let mut membership = Vec::new();
    if let Some((at, bytes)) = &state.membership {
        membership.put_u64_le(at.term);
        membership.put_u64_le(at.index);
        membership.put_slice(bytes);
    }
    let engine = state.engine.image();
    let engine_bytes: usize = engine.iter().map(Vec::len).sum();
    let length = |len: usize| (len as u64).to_le_bytes().to_vec();
    let mut parts = vec![FORMAT.to_le_bytes().to_vec()];
    for section in [place, membership, state.index.active_bytes()] {
        parts.push(length(section.len()));
        parts.push(section);
    }
    parts.push(length(engine_bytes));
    parts.extend(engine);
    parts
}

/// The image of a state in one piece.
pub fn encode(state: &State) -> Bytes {
    let parts = parts(state);
    let mut whole = BytesMut::with_capacity(parts.iter().map(Vec::len).sum());
    parts.iter().for_each(|part| whole.put_slice(part));
    whole.freeze()
}

/// The state of an image. Its index holds only the active part: sealed ones are loaded beside it.
pub fn decode(mut bytes: Bytes) -> Result<State, ImageFault> {
    let format = bytes.try_get_u32_le().map_err(|_| ImageFault::Short)?;
    if format != FORMAT {
        return Err(ImageFault::Format(format));
    }
    let mut section = || -> Result<Bytes, ImageFault> {
        let len = bytes.try_get_u64_le().map_err(|_| ImageFault::Short)?;
        let len = usize::try_from(len).map_err(|_| ImageFault::Short)?;
        if len > bytes.len() {
            return Err(ImageFault::Short);
        }
        Ok(bytes.split_to(len))
    };
    let (mut place, mut membership, active, engine) =
        (section()?, section()?, section()?, section()?);
    if place.len() != PLACE_BYTES {
        return Err(ImageFault::Short);
    }
    let is_applied = place.get_u8() != 0;
    let at = Position {
        term: place.get_u64_le(),
        index: place.get_u64_le(),
    };
    let sealed_before = place.get_u64_le();
    let membership = match membership.len() {
        0 => None,
        1..16 => return Err(ImageFault::Short),
        _ => {
            let at = Position {
                term: membership.get_u64_le(),
                index: membership.get_u64_le(),
            };
            Some((at, Bytes::copy_from_slice(&membership)))
        }
    };
    let mut index = RecordIndex::new();
    index
        .load_active(active)
        .map_err(|error| ImageFault::Index(error.to_string()))?;
    let engine = Engine::from_image(&engine)?;
    Ok(State {
        engine,
        index,
        applied: is_applied.then_some(at),
        membership,
        sealed_before,
    })
}
