//! One segment file: its name, its 4 KiB header, and the handle that writers and readers share.
//!
//! A segment is created at its final size with an empty header ("spare"), and becomes part of the
//! log when its header is written and synced ("activated"). Frames start after the header.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::LogError;
use crate::frame::{Place, u32_at, u64_at};
use crate::map::Map;
use crate::storage::{DiskFile, Storage};

/// Bytes of a segment before its first frame.
pub const SEGMENT_HEADER_BYTES: u64 = 4096;

pub(crate) const FORMAT_VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"QUEENSEG";
const HEADER_USED_BYTES: usize = 56;

/// The fixed fields of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub group: u32,
    pub no: u64,
    pub size: u64,
    pub first_index: u64,
    /// Checksum of the frame before the first one here; 0 at the start of a log.
    pub prev_crc: u32,
    /// Seeds the checksum of every frame in this segment.
    pub salt: u32,
}

/// Why the first bytes of a file are not a segment header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// All zero: the segment was prepared and not used yet.
    Empty,
    /// Not ours, torn or flipped.
    Broken(&'static str),
    /// Intact, but of a format this build does not know.
    Format(u32),
}

impl SegmentHeader {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; SEGMENT_HEADER_BYTES as usize];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.group.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.no.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.size.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.first_index.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.prev_crc.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..HEADER_USED_BYTES - 4]);
        bytes[HEADER_USED_BYTES - 4..HEADER_USED_BYTES].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, HeaderFault> {
        let Some(header) = bytes.get(..SEGMENT_HEADER_BYTES as usize) else {
            return Err(HeaderFault::Broken(
                "the file is shorter than a segment header",
            ));
        };
        let (used, rest) = header.split_at(HEADER_USED_BYTES);
        if used.iter().all(|byte| *byte == 0) {
            return Err(HeaderFault::Empty);
        }
        if used[0..8] != MAGIC {
            return Err(HeaderFault::Broken(
                "the segment header has no magic number",
            ));
        }
        if u32_at(used, HEADER_USED_BYTES - 4) != crc32fast::hash(&used[..HEADER_USED_BYTES - 4]) {
            return Err(HeaderFault::Broken(
                "the segment header's checksum does not match",
            ));
        }
        if u32_at(used, 8) != FORMAT_VERSION {
            return Err(HeaderFault::Format(u32_at(used, 8)));
        }
        if rest.iter().any(|byte| *byte != 0) {
            return Err(HeaderFault::Broken(
                "the reserved part of the segment header is not zero",
            ));
        }
        Ok(SegmentHeader {
            group: u32_at(used, 12),
            no: u64_at(used, 16),
            size: u64_at(used, 24),
            first_index: u64_at(used, 32),
            prev_crc: u32_at(used, 40),
            salt: u32_at(used, 44),
        })
    }

    pub fn place(&self) -> Place {
        Place {
            group: self.group,
            segment_no: self.no as u32,
            salt: self.salt,
        }
    }
}

/// An open segment file; shared by the writer and all readers.
pub(crate) struct SegmentFile {
    pub no: u64,
    pub path: PathBuf,
    pub size: u64,
    pub place: Place,
    pub file: Arc<dyn DiskFile>,
    pub map: Arc<Map>,
}

impl SegmentFile {
    /// Creates a spare segment: allocated, durable as a file, header still empty.
    pub fn create(
        storage: &dyn Storage,
        dir: &Path,
        group: u32,
        no: u64,
        size: u64,
    ) -> Result<Arc<SegmentFile>, LogError> {
        let path = segment_path(dir, no);
        let file = storage
            .create(&path, size)
            .map_err(|error| LogError::io("create the segment", &path, size, error))?;
        let made = file
            .sync()
            .and_then(|()| storage.sync_dir(dir))
            .and_then(|()| file.map());
        match made {
            Ok(map) => Ok(Arc::new(SegmentFile {
                no,
                path,
                size,
                place: Place {
                    group,
                    segment_no: no as u32,
                    salt: random_salt(),
                },
                file,
                map,
            })),
            Err(error) => {
                // The first error is the one to report; a leftover is removed at the next open.
                drop(storage.unlink(&path));
                Err(LogError::io("prepare the segment", &path, size, error))
            }
        }
    }

    pub fn header(&self, first_index: u64, prev_crc: u32) -> SegmentHeader {
        SegmentHeader {
            group: self.place.group,
            no: self.no,
            size: self.size,
            first_index,
            prev_crc,
            salt: self.place.salt,
        }
    }
}

/// Name of a segment's file.
pub(crate) fn segment_path(dir: &Path, no: u64) -> PathBuf {
    dir.join(format!("{no:016}.seg"))
}

/// Splits `0000000000000001.seg` into number and suffix; `None` for files that are not ours.
pub(crate) fn parse_name(name: &str) -> Option<(u64, &str)> {
    let (no, suffix) = name.split_once('.')?;
    if no.len() != 16 || !no.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((no.parse().ok()?, suffix))
}

/// A number nobody outside can guess. It never influences what the log returns, only whether
/// foreign bytes can pass for a frame, so replay stays deterministic.
fn random_salt() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trip_and_flips() {
        let header = SegmentHeader {
            group: 1,
            no: 2,
            size: 3,
            first_index: 4,
            prev_crc: 5,
            salt: 6,
        };
        let mut bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        for at in 0..bytes.len() {
            bytes[at] ^= 0x40;
            assert!(SegmentHeader::decode(&bytes).is_err(), "byte {at}");
            bytes[at] ^= 0x40;
        }
        assert_eq!(
            SegmentHeader::decode(&vec![0; 4096]),
            Err(HeaderFault::Empty)
        );
    }

    #[test]
    fn names() {
        assert_eq!(parse_name("0000000000000012.seg"), Some((12, "seg")));
        assert_eq!(parse_name("12.seg"), None);
        assert_eq!(parse_name("LOCK"), None);
    }
}
