//! Takes frames away: the newest ones (`truncate_after`), the oldest ones (`purge_through`), all
//! (`reset_to`), and verifies what stays (`scrub`).
//!
//! Nothing is ever overwritten or shortened, because readers may hold the bytes. Whole segments are
//! unlinked, newest first when truncating, so that a crash in between leaves a shorter but whole
//! log. A segment cut in its middle is sealed at the cut by an atomic seal record, and the log goes on
//! in a new one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::{debug, info, warn};

use crate::error::LogError;
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, frame_bytes};
use crate::keeper::Task;
use crate::log::{Log, Shared};
use crate::plan::Plan;
use crate::recovery;
use crate::seal;
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentFile, parse_name, segment_path};
use crate::table::{Entry, Slots};
use crate::writer::{Op, Writer};

impl Log {
    /// Drops all frames after `index`; durable on return.
    ///
    /// Costs a segment: the rest of a segment that is cut in its middle is given back to the file
    /// system and never used again. A truncation is rare, bytes under a reader's feet are not worth it.
    pub fn truncate_after(&self, index: u64) -> Result<(), LogError> {
        let shared = &*self.shared;
        shared.check_alive()?;
        let mut plan = shared.settled_plan();
        {
            let table = shared.table.read();
            if table.last.is_none_or(|(_, last)| last <= index) {
                return Ok(());
            }
            if index.saturating_add(1) < table.first_index {
                let first = table.first_index;
                let reason = format!("cannot truncate after {index}: the log starts at {first}");
                return Err(LogError::Invalid { reason });
            }
        }
        shared.submit_and_wait(|reply| Op::Flush { reply })?;
        let _files = shared.files.lock();
        let mut writer = shared.writer.lock();
        // The seal at the cut vouches for the frames before it, with or without fsync per append.
        writer
            .sync(shared)
            .inspect_err(|cause| shared.fail(cause))?;
        let result = shared.drop_after(&mut plan, &mut writer, index);
        shared.cuts.fetch_add(1, Ordering::AcqRel);
        shared.settle(&mut plan, &mut writer, index + 1);
        result?;
        // A header that continues from here makes the cut known in two places.
        match shared.begin_segment(&mut plan, &mut writer, index + 1) {
            Ok(()) => {}
            Err(LogError::Full { .. }) => debug!("no space yet for a segment after the cut"),
            Err(error) => return Err(error),
        }
        info!(index, "log truncated");
        Ok(())
    }

    /// Unlinks the oldest sealed segments that end at or before `index`; returns the new first index.
    pub fn purge_through(&self, index: u64) -> Result<u64, LogError> {
        let shared = &*self.shared;
        shared.check_alive()?;
        let _files = shared.files.lock();
        loop {
            let victim = {
                let table = shared.table.read();
                let front = table.entries.front().filter(|front| {
                    let ends = front.next_index() <= index.saturating_add(1);
                    front.sealed && ends && table.entries.len() > 1
                });
                match front {
                    Some(front) => front.file.no,
                    None => return Ok(table.first_index),
                }
            };
            shared.unlink_segment(victim)?;
            let mut table = shared.table.write();
            table.entries.pop_front();
            if let Some(front) = table.entries.front() {
                let first = front.first_index;
                table.first_index = first;
                table.terms.cut_before(first);
                if table.last.is_some_and(|(_, last)| last < first) {
                    table.last = None;
                    table.terms.0.clear();
                }
            }
        }
    }

    /// Drops every frame and continues at `next_index`, as after the install of a snapshot.
    pub fn reset_to(&self, next_index: u64) -> Result<(), LogError> {
        let shared = &*self.shared;
        shared.check_alive()?;
        let mut plan = shared.settled_plan();
        shared.submit_and_wait(|reply| Op::Flush { reply })?;
        let _files = shared.files.lock();
        let mut writer = shared.writer.lock();
        let mut result = Ok(());
        while result.is_ok() {
            let Some(no) = shared.newest() else { break };
            result = shared.remove_newest(no);
        }
        shared.settle(&mut plan, &mut writer, next_index);
        shared.cuts.fetch_add(1, Ordering::AcqRel);
        result?;
        shared.begin_segment(&mut plan, &mut writer, next_index)?;
        info!(next_index, "log reset");
        Ok(())
    }

    /// Verifies every frame of a sealed segment.
    pub fn scrub(&self, segment_no: u64) -> Result<(), LogError> {
        let entry = self.shared.table.read().entry(segment_no).cloned();
        match entry {
            Some(entry) if entry.sealed => recovery::scrub(&entry),
            Some(_) => Err(LogError::Invalid {
                reason: format!("segment {segment_no} is still written to"),
            }),
            None => Err(LogError::Invalid {
                reason: format!("there is no segment {segment_no}"),
            }),
        }
    }
}

impl Shared {
    fn newest(&self) -> Option<u64> {
        self.table.read().entries.back().map(|entry| entry.file.no)
    }

    fn drop_after(&self, plan: &mut Plan, writer: &mut Writer, index: u64) -> Result<(), LogError> {
        loop {
            let entry = self.table.read().entries.back().cloned();
            let Some(entry) = entry else { return Ok(()) };
            if entry.first_index > index {
                self.remove_newest(entry.file.no)?;
                continue;
            }
            if entry.next_index() <= index + 1 {
                return Ok(());
            }
            return match self.cut(&entry, index) {
                Err(LogError::Full { .. }) => {
                    // Prepared segments are worth less than the truncation.
                    while let Some(spare) = plan.take_spare() {
                        self.discard(&spare);
                    }
                    self.cut(&entry, index)
                }
                result => result,
            }
            .inspect(|()| writer.current = None);
        }
    }

    fn remove_newest(&self, no: u64) -> Result<(), LogError> {
        self.unlink_segment(no)?;
        self.table.write().entries.pop_back();
        Ok(())
    }

    /// Seals a segment after `index`, which it holds, and forgets the frames behind.
    fn cut(&self, entry: &Entry, index: u64) -> Result<(), LogError> {
        let keep = usize::try_from(index - entry.first_index + 1).unwrap_or(usize::MAX);
        let last_slot = keep.checked_sub(1).and_then(|last| entry.slots.get(last));
        let Some(last_slot) = last_slot else {
            let reason = format!("{} does not hold frame {index}", entry.file.path.display());
            return Err(LogError::Invalid { reason });
        };
        // SAFETY: the slot is in the table, so the frame is written and never overwritten.
        let bytes = unsafe {
            entry
                .file
                .map
                .range(last_slot.position(), FRAME_HEADER_BYTES)
        };
        let last_crc = match bytes.first_chunk() {
            Some(bytes) => FrameHeader::decode(bytes).crc,
            None => 0,
        };
        let written = entry.end;
        let cut = Entry {
            slots: Slots::Memory((0..keep).filter_map(|at| entry.slots.get(at)).collect()),
            end: last_slot.position() + frame_bytes(u64::from(last_slot.len)),
            last_crc,
            sealed: true,
            recorded: true,
            ..entry.clone()
        };
        let terms = self.table.read().terms.range(cut.first_index, index);
        let header = cut.file.header(cut.first_index, cut.prev_crc);
        let dir = &self.segments_dir;
        seal::write(&*self.storage, dir, &header, &seal::encode(&cut, &terms))?;
        let no = cut.file.no;
        if let Some(entry) = self.table.write().entry_mut(no) {
            *entry = cut;
        }
        self.forget_sidecars(no);
        // A sealed segment may have been cut before, with frames behind its end still in readers'
        // hands; only the end of an open one is the end of all that was ever written.
        let unused = written.next_multiple_of(4096);
        if !entry.sealed
            && unused < entry.file.size
            && let Err(error) = entry.file.file.release(unused, entry.file.size)
        {
            debug!(file = %entry.file.path.display(), %error, "unused space not given back");
        }
        self.ask_keeper(Task::Announce(no));
        Ok(())
    }

    /// Brings plan, writer and table in line with the entries that are left.
    fn settle(&self, plan: &mut Plan, writer: &mut Writer, next_if_empty: u64) {
        let mut table = self.table.write();
        let next = table
            .entries
            .back()
            .map_or(next_if_empty, Entry::next_index);
        match next.checked_sub(1) {
            Some(last) if !table.entries.is_empty() => table.terms.cut_after(last),
            _ => table.terms.0.clear(),
        }
        table.tail.clear();
        table.tail_first = next;
        let last = table.entries.iter().rev().find_map(Entry::last_index);
        table.last = last.and_then(|last| Some((table.terms.at(last)?, last)));
        if table.entries.is_empty() {
            table.first_index = next;
        }
        let newest = table.entries.back().filter(|entry| !entry.sealed);
        let open_no = newest.map(|entry| entry.file.no);
        if writer
            .current
            .as_ref()
            .is_none_or(|current| Some(current.file.no) != open_no)
        {
            writer.current = None;
            plan.active = None;
        }
        writer.last_crc = table.entries.back().map_or(0, |entry| entry.last_crc);
        plan.next_index = Some(next);
        self.durable_index
            .store(last.unwrap_or(0), Ordering::Release);
    }

    /// Activates a segment for `next_index` unless one is open.
    fn begin_segment(
        &self,
        plan: &mut Plan,
        writer: &mut Writer,
        next_index: u64,
    ) -> Result<(), LogError> {
        if plan.active.is_some() {
            return Ok(());
        }
        let file = match plan.take_spare() {
            Some(spare) => spare,
            None => SegmentFile::create(
                &*self.storage,
                &self.segments_dir,
                self.config.group,
                plan.claim_no(),
                self.config.segment_bytes,
            )?,
        };
        writer
            .activate(self, Arc::clone(&file), next_index)
            .inspect_err(|cause| self.fail(cause))?;
        plan.active = Some((file, SEGMENT_HEADER_BYTES));
        Ok(())
    }

    /// Removes a segment's file durably, then what belongs to it.
    fn unlink_segment(&self, no: u64) -> Result<(), LogError> {
        let dir = &self.segments_dir;
        let path = segment_path(dir, no);
        self.storage
            .unlink(&path)
            .and_then(|()| self.storage.sync_dir(dir))
            .map_err(|e| LogError::io("remove", &path, 0, e))?;
        self.forget_sidecars(no);
        let names = self
            .storage
            .list(dir)
            .map_err(|e| LogError::io("list", dir, 0, e))?;
        for name in names {
            if parse_name(&name).is_some_and(|(owner, _)| owner == no)
                && let Err(error) = self.storage.unlink(&dir.join(&name))
            {
                warn!(name, %error, "cannot remove a sidecar; the next open will");
            }
        }
        Ok(())
    }

    fn forget_sidecars(&self, no: u64) {
        self.sidecars.lock().retain(|(owner, _), _| *owner != no);
    }
}
