//! Read-only maps of whole files, handed out as `Bytes`.
//!
//! A map is never stored to. A file's final size is fixed before it is mapped and never shrinks, so
//! a mapped page always exists. No `&[u8]` is ever built over bytes that may still be written: only
//! ranges below the written position become slices, and those bytes never change again.

use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use memmap2::{MmapOptions, MmapRaw};

/// A file mapped from its first to its last byte.
pub struct Map {
    raw: MmapRaw,
}

impl Map {
    /// Maps a whole file, which must not be empty.
    pub fn new(file: &File) -> io::Result<Arc<Map>> {
        Ok(Arc::new(Map {
            raw: MmapOptions::new().map_raw_read_only(file)?,
        }))
    }

    /// The mapped length.
    pub fn len(&self) -> u64 {
        self.raw.len() as u64
    }

    /// True when nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.raw.len() == 0
    }

    /// Borrows a range.
    ///
    /// # Safety
    ///
    /// The bytes of the range must have been written completely, and must not be written again
    /// while the borrow lives.
    ///
    /// # Panics
    ///
    /// If the range leaves the map; positions come from checked tables.
    pub unsafe fn range(&self, position: u64, len: usize) -> &[u8] {
        let end = position.checked_add(len as u64);
        assert!(
            end.is_some_and(|end| end <= self.len()),
            "range outside of the map"
        );
        // SAFETY: the range lies inside the live mapping (asserted above), and the caller vouches
        // that nobody writes to it.
        unsafe { std::slice::from_raw_parts(self.raw.as_ptr().add(position as usize), len) }
    }

    /// Hands out a range that keeps the map alive.
    ///
    /// # Safety
    ///
    /// As for [`Map::range`], for as long as the `Bytes` or a clone of it lives.
    pub unsafe fn bytes(self: &Arc<Map>, position: u64, len: usize) -> Bytes {
        let end = position.checked_add(len as u64);
        assert!(
            end.is_some_and(|end| end <= self.len()),
            "range outside of the map"
        );
        Bytes::from_owner(MapRange {
            map: Arc::clone(self),
            position,
            len,
        })
    }
}

struct MapRange {
    map: Arc<Map>,
    position: u64,
    len: usize,
}

impl AsRef<[u8]> for MapRange {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the caller of `Map::bytes` vouched for this range.
        unsafe { self.map.range(self.position, self.len) }
    }
}
