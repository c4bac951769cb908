//! The state as bytes, for checkpoints and snapshots. Format 1: sections, each a little-endian
//! u64 length and its bytes: everything but the lanes (postcard), the lane rows (postcard), the
//! lane names (raw).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Engine;
use crate::dedup::Dedup;
use crate::group::Groups;
use crate::ids::TimeUs;
use crate::kv::KvStore;
use crate::lane::LaneTable;
use crate::outcome::DeadLetter;
use crate::timer::TimerStore;
use crate::topic::Topics;

const FORMAT: u32 = 1;

/// Bytes that are not a state image of this binary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    #[error("state image is cut short")]
    Short,
    #[error("state image has format {0}, this binary reads {FORMAT}")]
    Format(u32),
    #[error("state image cannot be decoded: {0}")]
    Decode(String),
}

#[derive(Serialize)]
struct Saved<'a> {
    format: u32,
    topics: &'a Topics,
    groups: &'a Groups,
    kv: &'a KvStore,
    timers: &'a TimerStore,
    dead_letters: &'a BTreeMap<u64, DeadLetter>,
    dedup: &'a Dedup,
    next_dead_letter: u64,
    next_producer: i64,
    applied: u64,
    now: TimeUs,
}

#[derive(Deserialize)]
struct Loaded {
    format: u32,
    topics: Topics,
    groups: Groups,
    kv: KvStore,
    timers: TimerStore,
    dead_letters: BTreeMap<u64, DeadLetter>,
    dedup: Dedup,
    next_dead_letter: u64,
    next_producer: i64,
    applied: u64,
    now: TimeUs,
}

fn encode<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("state is plain data; encoding to memory cannot fail")
}

impl Engine {
    /// The state as a list of byte strings to be written one after the other.
    pub fn image(&self) -> Vec<Vec<u8>> {
        let (rows, names) = self.lanes.parts();
        let saved = Saved {
            format: FORMAT,
            topics: &self.topics,
            groups: &self.groups,
            kv: &self.kv,
            timers: &self.timers,
            dead_letters: &self.dead_letters,
            dedup: &self.dedup,
            next_dead_letter: self.next_dead_letter,
            next_producer: self.next_producer,
            applied: self.applied,
            now: self.now,
        };
        let mut parts = Vec::with_capacity(6);
        for section in [encode(&saved), encode(&rows), names] {
            parts.push((section.len() as u64).to_le_bytes().to_vec());
            parts.push(section);
        }
        parts
    }

    /// The state of an image's bytes.
    pub fn from_image(bytes: &[u8]) -> Result<Engine, ImageError> {
        let mut rest = bytes;
        let mut section = || -> Result<&[u8], ImageError> {
            let (len, tail) = rest.split_first_chunk::<8>().ok_or(ImageError::Short)?;
            let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| ImageError::Short)?;
            if tail.len() < len {
                return Err(ImageError::Short);
            }
            let (section, tail) = tail.split_at(len);
            rest = tail;
            Ok(section)
        };
        let decode_error = |error: postcard::Error| ImageError::Decode(error.to_string());
        let saved = section()?;
        let (format, _) = postcard::take_from_bytes::<u32>(saved).map_err(decode_error)?;
        if format != FORMAT {
            return Err(ImageError::Format(format));
        }
        let loaded: Loaded = postcard::from_bytes(saved).map_err(decode_error)?;
        let rows = postcard::from_bytes(section()?).map_err(decode_error)?;
        let names = section()?;
        debug_assert_eq!(loaded.format, FORMAT);
        Ok(Engine {
            topics: loaded.topics,
            lanes: LaneTable::from_parts(rows, names),
            groups: loaded.groups,
            kv: loaded.kv,
            timers: loaded.timers,
            dead_letters: loaded.dead_letters,
            dedup: loaded.dedup,
            next_dead_letter: loaded.next_dead_letter,
            next_producer: loaded.next_producer,
            applied: loaded.applied,
            now: loaded.now,
        })
    }
}
