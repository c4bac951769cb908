//! The background thread: prepares the next segment early and writes seal records, so that
//! neither is paid for by an append.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use tracing::{debug, warn};

use crate::error::LogError;
use crate::log::Shared;
use crate::seal;
use crate::segment::SegmentHeader;
use crate::table::{Entry, Table};

/// Work for the keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Create the next segment if it is still needed.
    Prepare,
    /// Write the seal record of a segment that takes no more frames.
    Seal(u64),
    /// Tell the hook about a segment whose record is already written.
    Announce(u64),
}

/// What waits for the keeper; at most one task per segment and one to prepare.
#[derive(Default)]
pub(crate) struct KeeperQueue {
    pub tasks: VecDeque<Task>,
    pub stop: bool,
}

/// Body of the keeper thread.
pub(crate) fn run(shared: &Shared) {
    loop {
        let task = {
            let mut queue = shared.keeper.lock();
            while queue.tasks.is_empty() && !queue.stop {
                shared.keeper_work.wait(&mut queue);
            }
            match queue.tasks.pop_front() {
                Some(task) => task,
                None => return,
            }
        };
        if shared.check_alive().is_err() {
            continue;
        }
        match task {
            Task::Prepare if shared.keeper.lock().stop => {}
            Task::Prepare => prepare(shared),
            Task::Seal(no) => {
                record(shared, no);
                announce(shared, no);
            }
            Task::Announce(no) => announce(shared, no),
        }
    }
}

fn prepare(shared: &Shared) {
    let plan = shared.plan.lock();
    if !plan.wants_spare() {
        return;
    }
    let need = plan.any_segment();
    match shared.make_spare(plan, need) {
        Ok(plan) => drop(plan),
        // An append that needs the segment tries again and reports it.
        Err(error) => debug!(%error, "cannot prepare a segment yet"),
    }
}

fn record(shared: &Shared, no: u64) {
    let _files = shared.files.lock();
    let entry_is_open = |entry: &Entry| entry.sealed && !entry.recorded;
    if !shared.table.read().entry(no).is_some_and(entry_is_open) {
        return;
    }
    match shared.write_seal(no) {
        Ok(()) => {}
        Err(error @ LogError::Full { .. }) => warn!(segment = no, %error, "seal record skipped"),
        Err(error) => shared.fail(&error),
    }
}

fn announce(shared: &Shared, no: u64) {
    let info = shared.table.read().entry(no).map(Entry::info);
    let hook = shared.on_seal.lock().as_ref().map(Arc::clone);
    if let (Some(info), Some(hook)) = (info, hook) {
        hook(info);
    }
}

impl Shared {
    pub fn ask_keeper(&self, task: Task) {
        let mut queue = self.keeper.lock();
        if !queue.tasks.contains(&task) {
            queue.tasks.push_back(task);
            drop(queue);
            self.keeper_work.notify_one();
        }
    }

    /// Writes the record of a sealed segment as the table has it; the caller holds `files`.
    pub fn write_seal(&self, no: u64) -> Result<(), LogError> {
        let encoded = encode(&self.table.read(), no);
        let Some((header, body)) = encoded else {
            return Ok(());
        };
        let dir: &Path = &self.segments_dir;
        seal::write(&*self.storage, dir, &header, &body)?;
        // From here on the positions are read from the record instead of from memory.
        match seal::read(&*self.storage, dir, &header) {
            Ok(seal) => {
                if let Some(entry) = self.table.write().entry_mut(no) {
                    entry.slots = seal.slots;
                    entry.recorded = true;
                }
                Ok(())
            }
            Err(cause) => Err(LogError::damaged(&seal::seal_path(dir, no), 0, cause)),
        }
    }
}

fn encode(table: &Table, no: u64) -> Option<(SegmentHeader, Vec<u8>)> {
    let entry = table.entry(no)?;
    let header = entry.file.header(entry.first_index, entry.prev_crc);
    let terms = match entry.last_index() {
        Some(last) => table.terms.range(entry.first_index, last),
        None => Default::default(),
    };
    Some((header, seal::encode(entry, &terms)))
}
