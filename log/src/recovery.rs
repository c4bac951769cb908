//! What an open makes of the files it finds.
//!
//! Segments with a seal record are taken by their record (and verified in full when they are few);
//! the newest one is scanned. The first frame that does not fit there is a torn tail and is cut,
//! unless a later frame proves that the place had been durable: then it is damage, and the log
//! refuses to open, because a node that shortens its log takes back what it has acknowledged.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::{info, warn};

use crate::checked_file::Unusable;
use crate::error::LogError;
use crate::frame::FrameFault;
use crate::log::LogConfig;
use crate::scan::{Scan, Start, find_proof, scan, written_end};
use crate::seal::{self, Seal, seal_path};
use crate::segment::{
    HeaderFault, SEGMENT_HEADER_BYTES, SegmentFile, SegmentHeader, parse_name, segment_path,
};
use crate::storage::{Storage, write_all_at};
use crate::table::{Entry, Slots, Table};

/// The segment that takes the next frame.
pub(crate) struct Active {
    pub file: Arc<SegmentFile>,
    pub end: u64,
}

/// The state a log starts from.
pub(crate) struct Found {
    pub table: Table,
    pub active: Option<Active>,
    pub next_no: u64,
    /// Sealed segments that lack their record.
    pub unrecorded: Vec<u64>,
    pub cut_bytes: u64,
    pub cut_at: Option<(PathBuf, u64)>,
    pub scanned_bytes: u64,
}

struct Recovery<'a> {
    storage: &'a dyn Storage,
    config: &'a LogConfig,
    dir: &'a Path,
    found: Found,
}

/// Reads the segments' directory and repairs what may be repaired.
pub(crate) fn recover(
    storage: &dyn Storage,
    config: &LogConfig,
    dir: &Path,
) -> Result<Found, LogError> {
    let found = Found {
        table: Table::default(),
        active: None,
        next_no: 1,
        unrecorded: Vec::new(),
        cut_bytes: 0,
        cut_at: None,
        scanned_bytes: 0,
    };
    let mut recovery = Recovery {
        storage,
        config,
        dir,
        found,
    };
    let segments = recovery.list()?;
    let segments = recovery.open_all(&segments)?;
    let count = segments.len();
    for at in 0..count {
        let next = segments.get(at + 1).map(|(_, header)| *header);
        recovery.take(&segments[at].0, &segments[at].1, next)?;
    }
    recovery.scrub_sealed()?;
    let mut found = recovery.found;
    if let Some(first) = found.table.entries.front() {
        found.table.first_index = first.first_index;
    }
    found.table.tail_first = found.table.entries.back().map_or(0, Entry::next_index);
    let last = found.table.entries.iter().rev().find_map(Entry::last_index);
    found.table.last = last.and_then(|last| Some((found.table.terms.at(last)?, last)));
    Ok(found)
}

impl Recovery<'_> {
    /// Segment numbers in order; removes what earlier runs left half-made.
    fn list(&mut self) -> Result<Vec<u64>, LogError> {
        let names = self
            .storage
            .list(self.dir)
            .map_err(|e| LogError::io("list", self.dir, 0, e))?;
        let mut by_no: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for name in names {
            match parse_name(&name) {
                Some((_, suffix)) if suffix.ends_with("tmp") => {
                    self.remove(&self.dir.join(&name))?
                }
                Some((no, _)) => by_no.entry(no).or_default().push(name),
                None => info!(name, "unknown file beside the segments left alone"),
            }
        }
        let mut segments = Vec::new();
        for (no, names) in by_no {
            self.found.next_no = no + 1;
            if names.iter().any(|name| name.ends_with(".seg")) {
                segments.push(no);
            } else {
                for name in names {
                    self.remove(&self.dir.join(name))?;
                }
            }
        }
        Ok(segments)
    }

    fn remove(&self, path: &Path) -> Result<(), LogError> {
        info!(file = %path.display(), "leftover file removed");
        self.storage
            .unlink(path)
            .map_err(|e| LogError::io("remove", path, 0, e))
    }

    /// Opens and checks all headers; drops prepared segments that were never used.
    fn open_all(
        &mut self,
        numbers: &[u64],
    ) -> Result<Vec<(Arc<SegmentFile>, SegmentHeader)>, LogError> {
        let mut opened = Vec::new();
        let mut unused: Vec<PathBuf> = Vec::new();
        for no in numbers {
            let path = segment_path(self.dir, *no);
            match self.open_one(*no, &path)? {
                None => unused.push(path),
                Some(_) if !unused.is_empty() => {
                    let reason = "it has no header although a later segment does";
                    return Err(LogError::damaged(&unused[0], 0, reason));
                }
                Some(segment) => opened.push(segment),
            }
        }
        for path in unused {
            self.remove(&path)?;
        }
        Ok(opened)
    }

    /// `None` for a segment that was prepared and never used.
    fn open_one(
        &self,
        no: u64,
        path: &Path,
    ) -> Result<Option<(Arc<SegmentFile>, SegmentHeader)>, LogError> {
        let wrap = |e| LogError::io("open", path, 0, e);
        let file = self.storage.open(path).map_err(wrap)?;
        let size = file.size().map_err(wrap)?;
        if size < SEGMENT_HEADER_BYTES {
            if self.has_seal(no) {
                return Err(LogError::damaged(path, size, "the file has been shortened"));
            }
            return Ok(None);
        }
        let map = file.map().map_err(wrap)?;
        let bytes = whole(&map)?;
        let layout = |reason: String| LogError::Layout {
            file: path.to_owned(),
            reason,
        };
        let header = match SegmentHeader::decode(bytes) {
            Ok(header) => header,
            Err(HeaderFault::Format(version)) => {
                return Err(layout(format!(
                    "it has format {version}, this build reads format 1"
                )));
            }
            Err(fault) => {
                // A header is durable before the first frame is written, so with anything behind
                // it the header was whole once.
                if written_end(bytes, SEGMENT_HEADER_BYTES).is_none() && !self.has_seal(no) {
                    return Ok(None);
                }
                let reason = match fault {
                    HeaderFault::Broken(reason) => reason,
                    HeaderFault::Empty | HeaderFault::Format(_) => "the segment header is gone",
                };
                return Err(LogError::damaged(path, 0, reason));
            }
        };
        if header.group != self.config.group {
            let ours = self.config.group;
            return Err(layout(format!(
                "it belongs to group {}, not {ours}",
                header.group
            )));
        }
        if header.no != no {
            return Err(layout(format!(
                "it is segment {} under another name",
                header.no
            )));
        }
        if header.size != size {
            let reason = format!("the file has {size} bytes instead of {}", header.size);
            return Err(LogError::damaged(path, size.min(header.size), reason));
        }
        let place = header.place();
        let segment = SegmentFile {
            no,
            path: path.to_owned(),
            size,
            place,
            file,
            map,
        };
        Ok(Some((Arc::new(segment), header)))
    }

    fn has_seal(&self, no: u64) -> bool {
        self.storage.open(&seal_path(self.dir, no)).is_ok()
    }

    /// Adds one segment to the table.
    fn take(
        &mut self,
        file: &Arc<SegmentFile>,
        header: &SegmentHeader,
        next: Option<SegmentHeader>,
    ) -> Result<(), LogError> {
        if let Some(before) = self.found.table.entries.back()
            && (before.next_index() != header.first_index || before.last_crc != header.prev_crc)
        {
            let reason = format!(
                "it starts at index {} and does not continue {}, which ends before index {}",
                header.first_index,
                before.file.path.display(),
                before.next_index()
            );
            return Err(LogError::damaged(&file.path, 0, reason));
        }
        match (seal::read(self.storage, self.dir, header), next) {
            (Ok(seal), _) => self.take_sealed(file, header, seal),
            (Err(cause), Some(next)) => {
                warn!(file = %file.path.display(), %cause, "seal record rebuilt by a scan");
                self.take_unrecorded(file, header, &next)
            }
            (Err(Unusable::Missing | Unusable::Stale), None) => self.take_active(file, header),
            // Only a truncation seals the newest segment, and its record alone says where it ends.
            (Err(cause @ (Unusable::Damaged(_) | Unusable::Io(_))), None) => {
                Err(LogError::damaged(&seal_path(self.dir, header.no), 0, cause))
            }
        }
    }

    fn take_sealed(
        &mut self,
        file: &Arc<SegmentFile>,
        header: &SegmentHeader,
        seal: Seal,
    ) -> Result<(), LogError> {
        self.found.table.terms.append(&seal.terms);
        self.found.table.entries.push_back(Entry {
            file: Arc::clone(file),
            first_index: header.first_index,
            slots: seal.slots,
            end: seal.end,
            prev_crc: header.prev_crc,
            last_crc: seal.last_crc,
            sealed: true,
            recorded: true,
        });
        Ok(())
    }

    fn take_unrecorded(
        &mut self,
        file: &Arc<SegmentFile>,
        header: &SegmentHeader,
        next: &SegmentHeader,
    ) -> Result<(), LogError> {
        let found = scan(whole(&file.map)?, start(header), Some(next.first_index));
        self.found.scanned_bytes += found.end;
        if let Some(fault) = found.fault {
            return Err(LogError::damaged(&file.path, found.end, fault));
        }
        self.found.unrecorded.push(header.no);
        self.push_scanned(file, header, found, true);
        Ok(())
    }

    fn take_active(
        &mut self,
        file: &Arc<SegmentFile>,
        header: &SegmentHeader,
    ) -> Result<(), LogError> {
        let bytes = whole(&file.map)?;
        let found = scan(bytes, start(header), None);
        self.found.scanned_bytes += found.end;
        let end = found.end;
        if let Some(proof) = find_proof(bytes, end, file.place) {
            let fault = found.fault.unwrap_or(FrameFault::End);
            let reason = format!(
                "{fault}, and frame {} at position {} shows that everything below position {} \
                 had been durable",
                proof.index, proof.position, proof.durable_mark
            );
            return Err(LogError::damaged(&file.path, end, reason));
        }
        if let Some(written) = written_end(bytes, end) {
            self.found.cut_bytes = written - end;
            self.found.cut_at = Some((file.path.clone(), end));
            self.erase(file, end, written)?;
        }
        // What was only in the page cache is reported as durable from here on, so it has to be.
        file.file
            .sync()
            .map_err(|e| LogError::io("sync", &file.path, 0, e))?;
        self.push_scanned(file, header, found, false);
        self.found.active = Some(Active {
            file: Arc::clone(file),
            end,
        });
        Ok(())
    }

    /// Zeroes a torn tail. The chain alone would not do: if the same frame is appended again, a
    /// leftover behind it would fit once more.
    fn erase(&self, file: &SegmentFile, from: u64, to: u64) -> Result<(), LogError> {
        let zeros = vec![0; 1 << 20];
        let mut position = from;
        while position < to {
            let count = (to - position).min(zeros.len() as u64);
            write_all_at(
                &*file.file,
                &mut [IoSlice::new(&zeros[..count as usize])],
                position,
            )
            .map_err(|e| LogError::io("cut the torn tail of", &file.path, count, e))?;
            position += count;
        }
        Ok(())
    }

    fn push_scanned(
        &mut self,
        file: &Arc<SegmentFile>,
        header: &SegmentHeader,
        found: Scan,
        sealed: bool,
    ) {
        self.found.table.terms.append(&found.terms);
        self.found.table.entries.push_back(Entry {
            file: Arc::clone(file),
            first_index: header.first_index,
            slots: Slots::Memory(found.slots),
            end: found.end,
            prev_crc: header.prev_crc,
            last_crc: found.last_crc,
            sealed,
            recorded: false,
        });
    }

    /// Verifies sealed segments byte by byte when they are few enough to do so at every boot.
    fn scrub_sealed(&mut self) -> Result<(), LogError> {
        let recorded = || {
            self.found
                .table
                .entries
                .iter()
                .filter(|entry| entry.recorded)
        };
        let total: u64 = recorded().map(|entry| entry.end).sum();
        if total > self.config.scrub_at_open_bytes_max {
            info!(bytes = total, "sealed segments are left to the scrubber");
            return Ok(());
        }
        recorded().try_for_each(scrub)?;
        self.found.scanned_bytes += total;
        Ok(())
    }
}

/// Verifies every frame of a sealed segment against the checksums and the table.
pub(crate) fn scrub(entry: &Entry) -> Result<(), LogError> {
    let file = &entry.file;
    // SAFETY: a sealed segment is not written any more below its end.
    let bytes = unsafe { file.map.range(0, entry.end as usize) };
    let header = SegmentHeader::decode(bytes);
    if header != Ok(file.header(entry.first_index, entry.prev_crc)) {
        return Err(LogError::damaged(
            &file.path,
            0,
            "the segment header has changed",
        ));
    }
    let start = Start {
        place: file.place,
        first_index: entry.first_index,
        prev_crc: entry.prev_crc,
    };
    let found = scan(bytes, start, Some(entry.next_index()));
    if let Some(fault) = found.fault {
        return Err(LogError::damaged(&file.path, found.end, fault));
    }
    if found.end != entry.end || found.last_crc != entry.last_crc {
        let reason = "the frames do not end where the seal record says";
        return Err(LogError::damaged(&file.path, found.end, reason));
    }
    Ok(())
}

fn start(header: &SegmentHeader) -> Start {
    Start {
        place: header.place(),
        first_index: header.first_index,
        prev_crc: header.prev_crc,
    }
}

fn whole(map: &Arc<crate::map::Map>) -> Result<&[u8], LogError> {
    let len = usize::try_from(map.len()).map_err(|_| LogError::Invalid {
        reason: "a segment exceeds the address space".into(),
    })?;
    // SAFETY: the directory is locked and its writer is not started yet, so nobody writes.
    Ok(unsafe { map.range(0, len) })
}
