//! Whole files written once: seal records, sidecars and state images.
//!
//! A 64 byte header (magic, version, kind, tag, length, checksums), then the body. They are
//! written under a temporary name, synced, renamed and made durable with their directory, so a
//! reader sees the old file, the new file or none, and never half of one.
//!
//! ```text
//! 0 magic 8 | 8 version u32 | 12 kind u32 | 16 tag u64 | 24 group u32 | 28 body crc u32
//! 32 body length u64 | 40 zero | 60 header crc u32
//! ```

use std::io::{self, IoSlice};
use std::path::Path;

use bytes::Bytes;

use crate::error::LogError;
use crate::frame::{u32_at, u64_at};
use crate::storage::{Storage, write_all_at};

const MAGIC: [u8; 8] = *b"QUEENSID";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
/// The header's own checksum covers everything before it.
const CRC_AT: usize = HEADER_BYTES - 4;

/// What a file is for, so that one never passes for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Seal = 1,
    Sidecar = 2,
    Image = 3,
}

/// Identity of a checked file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Label {
    pub kind: Kind,
    pub group: u32,
    /// What the content was derived from; a reader compares it to find stale files.
    pub tag: u64,
}

/// Writes a file so that it appears whole and durable, or not at all.
pub(crate) fn write(
    storage: &dyn Storage,
    path: &Path,
    label: Label,
    parts: &[&[u8]],
) -> Result<(), LogError> {
    let temporary = path.with_added_extension("tmp");
    let body_bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
    let total = HEADER_BYTES as u64 + body_bytes;
    let done = replace(storage, path, &temporary, label, parts, body_bytes);
    done.map_err(|error| {
        // The first error is the one to report; a leftover is removed at the next open.
        drop(storage.unlink(&temporary));
        LogError::io("write", path, total, error)
    })
}

fn replace(
    storage: &dyn Storage,
    path: &Path,
    temporary: &Path,
    label: Label,
    parts: &[&[u8]],
    body_bytes: u64,
) -> io::Result<()> {
    let mut body_crc = crc32fast::Hasher::new();
    for part in parts {
        body_crc.update(part);
    }
    let mut header = [0; HEADER_BYTES];
    header[0..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&(label.kind as u32).to_le_bytes());
    header[16..24].copy_from_slice(&label.tag.to_le_bytes());
    header[24..28].copy_from_slice(&label.group.to_le_bytes());
    header[28..32].copy_from_slice(&body_crc.finalize().to_le_bytes());
    header[32..40].copy_from_slice(&body_bytes.to_le_bytes());
    let crc = crc32fast::hash(&header[..CRC_AT]);
    header[CRC_AT..].copy_from_slice(&crc.to_le_bytes());

    let file = match storage.create(temporary, HEADER_BYTES as u64 + body_bytes) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            storage.unlink(temporary)?;
            storage.create(temporary, HEADER_BYTES as u64 + body_bytes)?
        }
        created => created?,
    };
    let mut buffers = vec![IoSlice::new(&header)];
    buffers.extend(parts.iter().map(|part| IoSlice::new(part)));
    write_all_at(&*file, &mut buffers, 0)?;
    file.sync()?;
    storage.rename(temporary, path)?;
    match path.parent() {
        Some(dir) => storage.sync_dir(dir),
        None => Ok(()),
    }
}

/// Why a checked file cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    Missing,
    Io(io::Error),
    Damaged(&'static str),
    /// Intact, but derived from something else.
    Stale,
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unusable::Missing => f.write_str("the file is missing"),
            Unusable::Io(error) => write!(f, "the file cannot be read: {error}"),
            Unusable::Damaged(reason) => f.write_str(reason),
            Unusable::Stale => f.write_str("the file was derived from other data"),
        }
    }
}

/// Maps a file's body after verifying all of it.
pub(crate) fn map(storage: &dyn Storage, path: &Path, label: Label) -> Result<Bytes, Unusable> {
    let opened = storage.open(path).and_then(|file| Ok((file.size()?, file)));
    let (size, file) = match opened {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Unusable::Missing),
        Err(error) => return Err(Unusable::Io(error)),
    };
    if size < HEADER_BYTES as u64 {
        return Err(Unusable::Damaged("the file is shorter than its header"));
    }
    let map = file.map().map_err(Unusable::Io)?;
    let len = usize::try_from(size).map_err(|_| Unusable::Damaged("the file is too large"))?;
    // SAFETY: such files are complete before they get this name and are never written again.
    let whole = unsafe { map.bytes(0, len) };
    verify(&whole, label)?;
    Ok(whole.slice(HEADER_BYTES..))
}

fn verify(whole: &[u8], label: Label) -> Result<(), Unusable> {
    let (header, body) = whole.split_at(HEADER_BYTES);
    if header[0..8] != MAGIC {
        return Err(Unusable::Damaged("the magic number does not match"));
    }
    if u32_at(header, CRC_AT) != crc32fast::hash(&header[..CRC_AT]) {
        return Err(Unusable::Damaged("the header's checksum does not match"));
    }
    if u32_at(header, 8) != VERSION
        || u32_at(header, 12) != label.kind as u32
        || u32_at(header, 24) != label.group
        || u64_at(header, 16) != label.tag
    {
        return Err(Unusable::Stale);
    }
    if u64_at(header, 32) != body.len() as u64 {
        return Err(Unusable::Damaged("the length does not match"));
    }
    if u32_at(header, 28) != crc32fast::hash(body) {
        return Err(Unusable::Damaged("the checksum does not match"));
    }
    Ok(())
}
