//! The side that has the files: names them, and hands them out in pieces. Everything here is read
//! from disk on a thread that may wait.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use queen_log::Log;

use super::fetch::Wanted;
use super::{FileEntry, Manifest, PIECE_BYTES, TAG_BYTES, split};
use crate::checkpoint::ImageFigures;
use crate::consensus::Served;

/// Where the files come from.
pub struct Source {
    /// The log's directory.
    pub dir: PathBuf,
    pub log: Arc<Log>,
    pub images: Arc<ImageFigures>,
    pub served: Served,
}

async fn elsewhere<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}

impl Source {
    /// Answers with the names of all files as of now. For a repair only when this node surely leads:
    /// then its log holds everything that was committed up to now.
    pub async fn manifest(self: Arc<Self>, mut body: Bytes) -> io::Result<Vec<Bytes>> {
        let wanted = body.try_get_u8().map_err(io::Error::other)?;
        if wanted == Wanted::Repair as u8 {
            self.served.surely_leads().await?;
        }
        elsewhere(move || Ok(vec![self.list()?.encode().into()])).await
    }

    fn list(&self) -> io::Result<Manifest> {
        let missing = || io::Error::other("there is no state image to begin with");
        let image = self.images.place();
        // A log that is there from its first entry needs none.
        if image.is_none() && self.log.first_index() > 1 {
            return Err(missing());
        }
        // Before the segments: nothing between may be missed.
        let purged = self.served.purged();
        let last = self.log.last().ok_or_else(missing)?;
        let mut files = Vec::new();
        for segment in self.log.segments() {
            let path = segment.path;
            let stem = path
                .file_name()
                .and_then(|name| name.to_str())
                .ok_or_else(|| io::Error::other("a segment without a name"))?;
            files.push(self.entry(format!("segments/{stem}"), Some(segment.bytes))?);
            // Derived from the segment; what is missing is made again or not needed.
            for suffix in ["seal", "index"] {
                let beside = path.with_extension(suffix);
                let name = beside.file_name().and_then(|name| name.to_str());
                if let Some(name) = name.filter(|_| segment.sealed && beside.exists()) {
                    files.push(self.entry(format!("segments/{name}"), None)?);
                }
            }
        }
        if let Some(image) = image {
            files.push(self.entry(format!("images/{:020}.img", image.at.index), None)?);
        }
        Ok(Manifest {
            last,
            purged: purged.map(|at| (at.term, at.index)),
            files,
        })
    }

    fn entry(&self, name: String, bytes: Option<u64>) -> io::Result<FileEntry> {
        let file = File::open(self.dir.join(&name))?;
        let size = file.metadata()?.len();
        let bytes = bytes.unwrap_or(size).min(size);
        let mut head = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX).min(TAG_BYTES)];
        file.read_exact_at(&mut head, 0)?;
        Ok(FileEntry {
            name,
            bytes,
            size,
            tag: crc32fast::hash(&head),
        })
    }

    /// Answers with a piece of a file: its checksum and its bytes.
    pub async fn piece(self: Arc<Self>, mut body: Bytes) -> io::Result<Vec<Bytes>> {
        let offset = body.try_get_u64_le().map_err(io::Error::other)?;
        let len = body.try_get_u32_le().map_err(io::Error::other)?;
        elsewhere(move || {
            let name = std::str::from_utf8(&body).map_err(io::Error::other)?;
            if split(name).is_none() || len > PIECE_BYTES {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "no such piece"));
            }
            let file = File::open(self.dir.join(name))?;
            let mut bytes = vec![0; len as usize];
            file.read_exact_at(&mut bytes, offset)?;
            let mut crc = BytesMut::with_capacity(4);
            crc.put_u32_le(crc32fast::hash(&bytes));
            Ok(vec![crc.freeze(), bytes.into()])
        })
        .await
    }
}

/// The question for a piece.
pub(super) fn question(name: &str, offset: u64, len: u32) -> Bytes {
    let mut body = BytesMut::with_capacity(12 + name.len());
    body.put_u64_le(offset);
    body.put_u32_le(len);
    body.put_slice(name.as_bytes());
    body.freeze()
}
