//! Where the next frame goes, and the segments prepared for it.
//!
//! The plan runs ahead of the log thread: a frame gets its segment and position when it is accepted,
//! so a full disk shows up in `append` or `reserve`, before anything is visible, and never later.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::MutexGuard;
use tracing::{debug, warn};

use crate::error::LogError;
use crate::frame::frame_bytes;
use crate::limits::SEGMENT_BYTES_MAX;
use crate::log::Shared;
use crate::recovery::Active;
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentFile};
use crate::table::{Entry, Table};

/// A place for one frame.
pub(crate) type Place = (Arc<SegmentFile>, u64);

/// The state of the plan after a successful placement.
pub(crate) struct After {
    active: Option<Place>,
    spares_used: usize,
}

/// Another segment is needed.
pub(crate) struct Need {
    frame_bytes: u64,
    /// Prepared segments that are of use; the ones after them are too small.
    keep: usize,
}

/// The write position as accepted, not as written.
pub(crate) struct Plan {
    /// `None` while the log is empty and takes any index.
    pub next_index: Option<u64>,
    pub active: Option<Place>,
    spares: VecDeque<Arc<SegmentFile>>,
    /// A segment is being created without the lock.
    making: bool,
    next_no: u64,
}

impl Plan {
    pub fn new(table: &Table, active: Option<&Active>, next_no: u64) -> Plan {
        Plan {
            next_index: table.entries.back().map(Entry::next_index),
            active: active.map(|active| (Arc::clone(&active.file), active.end)),
            spares: VecDeque::new(),
            making: false,
            next_no,
        }
    }

    /// Finds places for payloads of these sizes, changing nothing.
    pub fn place(&self, sizes: &[u64]) -> Result<(Vec<Place>, After), Need> {
        let mut cursor = self.active.clone();
        let mut spares_used = 0;
        let mut places = Vec::with_capacity(sizes.len());
        for size in sizes {
            let bytes = frame_bytes(*size);
            let (file, position) = match cursor.take() {
                Some((file, position)) if position + bytes <= file.size => (file, position),
                _ => match self.spares.get(spares_used) {
                    Some(spare) if SEGMENT_HEADER_BYTES + bytes <= spare.size => {
                        spares_used += 1;
                        (Arc::clone(spare), SEGMENT_HEADER_BYTES)
                    }
                    _ => {
                        return Err(Need {
                            frame_bytes: bytes,
                            keep: spares_used,
                        });
                    }
                },
            };
            cursor = Some((Arc::clone(&file), position + bytes));
            places.push((file, position));
        }
        Ok((
            places,
            After {
                active: cursor,
                spares_used,
            },
        ))
    }

    /// Takes a placement as done.
    pub fn accept(&mut self, after: After, last_index: Option<u64>) {
        self.active = after.active;
        self.spares.drain(..after.spares_used);
        if let Some(last) = last_index {
            self.next_index = Some(last + 1);
        }
    }

    /// The active segment is three quarters full and nothing is prepared.
    pub fn wants_spare(&self) -> bool {
        self.spares.is_empty()
            && !self.making
            && self
                .active
                .as_ref()
                .is_some_and(|(file, end)| *end > file.size / 4 * 3)
    }

    pub fn take_spare(&mut self) -> Option<Arc<SegmentFile>> {
        self.spares.pop_front()
    }

    pub fn claim_no(&mut self) -> u64 {
        self.next_no += 1;
        self.next_no - 1
    }

    pub fn spare_bytes(&self) -> u64 {
        self.spares.iter().map(|spare| spare.size).sum()
    }

    /// What `make_spare` needs to get any segment of the usual size.
    pub fn any_segment(&self) -> Need {
        Need {
            frame_bytes: 0,
            keep: self.spares.len(),
        }
    }
}

impl Shared {
    /// Creates another segment; the lock is released meanwhile, so the caller must look again.
    pub fn make_spare<'a>(
        &'a self,
        mut plan: MutexGuard<'a, Plan>,
        need: Need,
    ) -> Result<MutexGuard<'a, Plan>, LogError> {
        self.check_alive()?;
        if plan.making {
            while plan.making {
                self.plan_changed.wait(&mut plan);
            }
            return Ok(plan);
        }
        let unfit: Vec<_> = plan.spares.drain(need.keep..).collect();
        let no = plan.claim_no();
        plan.making = true;
        drop(plan);
        unfit.iter().for_each(|spare| self.discard(spare));
        let size = (SEGMENT_HEADER_BYTES + need.frame_bytes)
            .next_multiple_of(4096)
            .clamp(self.config.segment_bytes, SEGMENT_BYTES_MAX);
        let made = SegmentFile::create(
            &*self.storage,
            &self.segments_dir,
            self.config.group,
            no,
            size,
        );
        let mut plan = self.plan.lock();
        plan.making = false;
        self.plan_changed.notify_all();
        let file = made?;
        debug!(file = %file.path.display(), size, "segment prepared");
        plan.spares.push_back(file);
        Ok(plan)
    }

    /// Removes a prepared segment that is of no use.
    pub fn discard(&self, spare: &SegmentFile) {
        if let Err(error) = self.storage.unlink(&spare.path) {
            warn!(file = %spare.path.display(), %error, "cannot remove a prepared segment");
        }
    }

    /// Waits until no segment is being created, so that the plan is complete under the lock.
    pub fn settled_plan(&self) -> MutexGuard<'_, Plan> {
        let mut plan = self.plan.lock();
        while plan.making {
            self.plan_changed.wait(&mut plan);
        }
        plan
    }
}

/// Refuses indexes that leave a gap or go back.
pub(crate) fn check_order(
    next: Option<u64>,
    indexes: impl Iterator<Item = u64>,
) -> Result<(), LogError> {
    let mut next = next;
    for got in indexes {
        match next {
            Some(expected) if got != expected => {
                return Err(LogError::OutOfOrder { expected, got });
            }
            Some(_) | None => {}
        }
        let after = got.checked_add(1);
        next = Some(after.ok_or(LogError::OutOfOrder { expected: got, got })?);
    }
    Ok(())
}
