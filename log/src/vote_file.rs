//! The vote: a few bytes that must never be lost or rolled back.
//!
//! Two slots of 4 KiB with a counter and a checksum. A save writes and syncs one slot and then the
//! other, so that at any moment at least one slot is whole, and afterwards both hold the same vote:
//! one flipped bit later costs nothing. The highest valid counter wins.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::error::LogError;
use crate::frame::{u32_at, u64_at};
use crate::limits::VOTE_BYTES_MAX;
use crate::storage::{DiskFile, Storage, write_all_at};

const SLOT_BYTES: usize = 4096;
const MAGIC: [u8; 4] = *b"QVOT";
/// magic 4 | crc 4 | counter u64 | group u32 | length u32 | vote
const SLOT_HEADER_BYTES: usize = 24;

/// The open vote file.
pub(crate) struct VoteFile {
    file: Arc<dyn DiskFile>,
    group: u32,
    counter: u64,
    pub path: PathBuf,
}

impl VoteFile {
    /// Opens or creates the file and returns the last vote saved.
    pub fn open(
        storage: &dyn Storage,
        dir: &Path,
        group: u32,
    ) -> Result<(VoteFile, Option<Bytes>), LogError> {
        let path = dir.join("vote");
        let wrap = |error| LogError::io("open", &path, 2 * SLOT_BYTES as u64, error);
        let file = match storage.open(&path) {
            Ok(file) if file.size().map_err(wrap)? == 2 * SLOT_BYTES as u64 => file,
            // Nobody voted before the file had its size.
            Ok(_) => {
                storage.unlink(&path).map_err(wrap)?;
                create(storage, dir, &path).map_err(wrap)?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create(storage, dir, &path).map_err(wrap)?
            }
            Err(error) => return Err(wrap(error)),
        };
        let map = file.map().map_err(wrap)?;
        // SAFETY: nothing writes to the file while it is being opened.
        let bytes = unsafe { map.range(0, 2 * SLOT_BYTES) };
        let slots = bytes.chunks(SLOT_BYTES).filter_map(parse_slot);
        let newest = slots.max_by_key(|slot| slot.counter);
        let Some(newest) = newest else {
            // A first vote torn in its first slot leaves the second one empty.
            if bytes[SLOT_BYTES..].iter().any(|byte| *byte != 0) {
                return Err(LogError::damaged(
                    &path,
                    0,
                    "neither copy of the vote verifies",
                ));
            }
            return Ok((
                VoteFile {
                    file,
                    group,
                    counter: 0,
                    path,
                },
                None,
            ));
        };
        if newest.group != group {
            let reason = format!("it holds the vote of group {}, not {group}", newest.group);
            return Err(LogError::Layout { file: path, reason });
        }
        let mut opened = VoteFile {
            file,
            group,
            counter: newest.counter,
            path,
        };
        // Both copies must be equal before one is overwritten again.
        opened.save(&newest.vote)?;
        Ok((opened, Some(newest.vote)))
    }

    /// Replaces the vote; durable on return.
    pub fn save(&mut self, vote: &[u8]) -> Result<(), LogError> {
        if vote.len() > VOTE_BYTES_MAX {
            return Err(LogError::TooLarge {
                bytes: vote.len() as u64,
                max: VOTE_BYTES_MAX as u64,
            });
        }
        self.counter += 1;
        let mut slot = vec![0; SLOT_BYTES];
        slot[0..4].copy_from_slice(&MAGIC);
        slot[8..16].copy_from_slice(&self.counter.to_le_bytes());
        slot[16..20].copy_from_slice(&self.group.to_le_bytes());
        slot[20..24].copy_from_slice(&(vote.len() as u32).to_le_bytes());
        slot[SLOT_HEADER_BYTES..SLOT_HEADER_BYTES + vote.len()].copy_from_slice(vote);
        let crc = crc32fast::hash(&slot[8..]);
        slot[4..8].copy_from_slice(&crc.to_le_bytes());
        for position in [0, SLOT_BYTES as u64] {
            write_all_at(&*self.file, &mut [IoSlice::new(&slot)], position)
                .and_then(|()| self.file.sync())
                .map_err(|source| LogError::Io {
                    action: "save the vote in",
                    file: self.path.clone(),
                    source,
                })?;
        }
        Ok(())
    }
}

struct Slot {
    counter: u64,
    group: u32,
    vote: Bytes,
}

fn parse_slot(bytes: &[u8]) -> Option<Slot> {
    if bytes.len() != SLOT_BYTES
        || bytes[0..4] != MAGIC
        || u32_at(bytes, 4) != crc32fast::hash(&bytes[8..])
    {
        return None;
    }
    let vote = bytes[SLOT_HEADER_BYTES..].get(..u32_at(bytes, 20) as usize)?;
    Some(Slot {
        counter: u64_at(bytes, 8),
        group: u32_at(bytes, 16),
        vote: Bytes::copy_from_slice(vote),
    })
}

fn create(storage: &dyn Storage, dir: &Path, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
    let file = storage.create(path, 2 * SLOT_BYTES as u64)?;
    file.sync()?;
    storage.sync_dir(dir)?;
    Ok(file)
}
