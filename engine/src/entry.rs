//! The bytes of one log entry: a stamp, the commands, and the raw record batches they speak of.
//!
//! ```text
//! version u8 (1) | reserved 3 | commands len u32 | time us i64 | commands (postcard) | batches
//! ```
//! Integers little-endian. A [`Span`](crate::command::Span) counts from the first byte of the
//! batches; a [`BatchRef`] from the first byte of the entry.

use bytes::{BufMut, Bytes, BytesMut};

use crate::command::{Command, Span};
use crate::ids::{BatchRef, TimeUs};

const VERSION: u8 = 1;
const HEADER: usize = 16;

/// An entry that is not ours, or is damaged. The node stops on it: a replica that skips what it
/// cannot read is worse than none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    #[error("entry of {0} bytes is too short")]
    Short(usize),
    #[error("entry format {0} is newer than this binary")]
    Version(u8),
    #[error("commands cannot be decoded: {0}")]
    Commands(String),
}

/// A decoded entry; the batches stay where they lie.
#[derive(Clone, Debug)]
pub struct Entry {
    pub time: TimeUs,
    pub commands: Vec<Command>,
    payload: Bytes,
    batches_at: usize,
}

impl Entry {
    /// Reads an entry's payload.
    pub fn decode(payload: Bytes) -> Result<Entry, EntryError> {
        let short = || EntryError::Short(payload.len());
        let header = payload.first_chunk::<HEADER>().ok_or_else(short)?;
        if header[0] != VERSION {
            return Err(EntryError::Version(header[0]));
        }
        let [.., a, b, c, d] = *header.first_chunk::<8>().ok_or_else(short)?;
        let len = u32::from_le_bytes([a, b, c, d]) as usize;
        let time = header
            .last_chunk::<8>()
            .map(|t| i64::from_le_bytes(*t))
            .ok_or_else(short)?;
        let encoded = payload.get(HEADER..HEADER + len).ok_or_else(short)?;
        let commands = postcard::from_bytes(encoded)
            .map_err(|error| EntryError::Commands(error.to_string()))?;
        let batches_at = HEADER + len;
        Ok(Entry {
            time: TimeUs(time),
            commands,
            payload,
            batches_at,
        })
    }

    /// Where a span's batch lies, for the entry at log index `index`; `None` when the span points
    /// outside.
    pub fn locate(&self, index: u64, span: Span) -> Option<BatchRef> {
        let offset = self.batches_at.checked_add(span.offset as usize)?;
        let end = offset.checked_add(span.len as usize)?;
        if end > self.payload.len() {
            return None;
        }
        Some(BatchRef {
            index,
            offset: u32::try_from(offset).ok()?,
            len: span.len,
        })
    }
}

/// Collects commands and batches into one entry.
#[derive(Debug, Default)]
pub struct EntryBuilder {
    commands: Vec<Command>,
    batches: Vec<Bytes>,
    batch_bytes: usize,
}

impl EntryBuilder {
    /// An empty entry.
    pub fn new() -> EntryBuilder {
        EntryBuilder::default()
    }

    /// Adds a batch to the batch region. Batches must come to less than 4 GiB in all, which the
    /// entry size bound ensures.
    pub fn batch(&mut self, bytes: Bytes) -> Span {
        let span = Span {
            offset: u32::try_from(self.batch_bytes).unwrap_or(u32::MAX),
            len: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        };
        self.batch_bytes += bytes.len();
        self.batches.push(bytes);
        span
    }

    /// Adds a command; its position in the entry.
    pub fn command(&mut self, command: Command) -> usize {
        self.commands.push(command);
        self.commands.len() - 1
    }

    /// Commands so far.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether there is no command yet.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Bytes of batches so far.
    pub fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    /// The entry as a list of byte strings to be written one after the other.
    pub fn finish(self, time: TimeUs) -> Vec<Bytes> {
        let encoded = postcard::to_stdvec(&self.commands)
            .expect("commands are plain data; encoding to memory cannot fail");
        let mut head = BytesMut::with_capacity(HEADER + encoded.len());
        head.put_slice(&[VERSION, 0, 0, 0]);
        head.put_u32_le(u32::try_from(encoded.len()).unwrap_or(u32::MAX));
        head.put_i64_le(time.0);
        head.put_slice(&encoded);
        let mut parts = Vec::with_capacity(self.batches.len() + 1);
        parts.push(head.freeze());
        parts.extend(self.batches);
        parts
    }
}

/// The bytes of a batch inside an entry's payload.
pub fn slice(payload: &Bytes, at: BatchRef) -> Option<Bytes> {
    let start = at.offset as usize;
    let end = start.checked_add(at.len as usize)?;
    (end <= payload.len()).then(|| payload.slice(start..end))
}
