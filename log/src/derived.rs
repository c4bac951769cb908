//! Files beside the log: sidecars of segments and images of the state.
//!
//! A sidecar is derived from one sealed segment and carries the checksum of its last frame; damaged
//! or stale ones read as absent, because they can be rebuilt. An image is the state at a log index;
//! the newest two are kept, so that damage to one costs only a longer replay.

use std::path::PathBuf;

use bytes::Bytes;
use tracing::warn;

use crate::checked_file::{self, Kind, Label, Unusable};
use crate::error::LogError;
use crate::limits::{IMAGES_KEPT, SIDECAR_NAME_BYTES_MAX};
use crate::log::{Log, Shared};

/// A verified image of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The log index the state includes.
    pub index: u64,
    pub bytes: Bytes,
}

impl Log {
    /// Writes (or replaces) a file derived from a sealed segment.
    pub fn write_sidecar(
        &self,
        segment_no: u64,
        name: &str,
        parts: &[&[u8]],
    ) -> Result<(), LogError> {
        let shared = &*self.shared;
        shared.check_alive()?;
        // Held so that the segment is not removed while its sidecar appears.
        let _files = shared.files.lock();
        let Some(label) = shared.sidecar_label(segment_no) else {
            let reason = format!("segment {segment_no} is not a sealed segment of this log");
            return Err(LogError::Invalid { reason });
        };
        let path = shared.sidecar_path(segment_no, name)?;
        shared
            .sidecars
            .lock()
            .remove(&(segment_no, name.to_owned()));
        checked_file::write(&*shared.storage, &path, label, parts)
    }

    /// Maps a sidecar; `None` when it is missing, damaged or derived from other data.
    pub fn map_sidecar(&self, segment_no: u64, name: &str) -> Result<Option<Bytes>, LogError> {
        let shared = &*self.shared;
        let path = shared.sidecar_path(segment_no, name)?;
        let key = (segment_no, name.to_owned());
        if let Some(verified) = shared.sidecars.lock().get(&key) {
            return Ok(Some(verified.clone()));
        }
        let Some(label) = shared.sidecar_label(segment_no) else {
            return Ok(None);
        };
        match checked_file::map(&*shared.storage, &path, label) {
            Ok(bytes) => {
                shared.sidecars.lock().insert(key, bytes.clone());
                Ok(Some(bytes))
            }
            Err(Unusable::Missing) => Ok(None),
            Err(cause) => {
                warn!(file = %path.display(), %cause, "sidecar ignored");
                Ok(None)
            }
        }
    }

    /// Writes the state at a log index; keeps the newest two images.
    pub fn write_image(&self, index: u64, parts: &[&[u8]]) -> Result<(), LogError> {
        let shared = &*self.shared;
        shared.check_alive()?;
        let path = shared.image_path(index);
        checked_file::write(&*shared.storage, &path, shared.image_label(index), parts)?;
        for old in shared.image_indexes()?.into_iter().skip(IMAGES_KEPT) {
            let path = shared.image_path(old);
            shared
                .storage
                .unlink(&path)
                .map_err(|e| LogError::io("remove", &path, 0, e))?;
        }
        Ok(())
    }

    /// All usable images, newest first.
    pub fn images(&self) -> Result<Vec<Image>, LogError> {
        let shared = &*self.shared;
        let mut images = Vec::new();
        for index in shared.image_indexes()? {
            let path = shared.image_path(index);
            match checked_file::map(&*shared.storage, &path, shared.image_label(index)) {
                Ok(bytes) => images.push(Image { index, bytes }),
                Err(cause) => warn!(file = %path.display(), %cause, "image ignored"),
            }
        }
        Ok(images)
    }
}

impl Shared {
    fn sidecar_label(&self, segment_no: u64) -> Option<Label> {
        let table = self.table.read();
        let entry = table.entry(segment_no).filter(|entry| entry.sealed)?;
        // The low bits tell segments apart that end alike, such as empty ones.
        let tag = u64::from(entry.last_crc) << 32 | u64::from(entry.file.place.salt);
        Some(Label {
            kind: Kind::Sidecar,
            group: self.config.group,
            tag,
        })
    }

    fn sidecar_path(&self, segment_no: u64, name: &str) -> Result<PathBuf, LogError> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let valid = !name.is_empty()
            && name.len() <= SIDECAR_NAME_BYTES_MAX
            && name.bytes().all(allowed)
            && !["seg", "seal", "tmp"].contains(&name);
        if !valid {
            let reason = format!("{name:?} cannot name a sidecar");
            return Err(LogError::Invalid { reason });
        }
        Ok(self.segments_dir.join(format!("{segment_no:016}.{name}")))
    }

    fn image_label(&self, index: u64) -> Label {
        Label {
            kind: Kind::Image,
            group: self.config.group,
            tag: index,
        }
    }

    fn image_path(&self, index: u64) -> PathBuf {
        self.images_dir.join(format!("{index:020}.img"))
    }

    /// Indexes of the image files, newest first.
    fn image_indexes(&self) -> Result<Vec<u64>, LogError> {
        let dir = &self.images_dir;
        let names = self
            .storage
            .list(dir)
            .map_err(|e| LogError::io("list", dir, 0, e))?;
        let mut indexes: Vec<u64> = names
            .iter()
            .filter_map(|name| name.strip_suffix(".img")?.parse().ok())
            .collect();
        indexes.sort_unstable_by(|a, b| b.cmp(a));
        Ok(indexes)
    }
}
