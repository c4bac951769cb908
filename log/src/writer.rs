//! The log thread: turns everything that waits into one write and one sync, over and over.
//!
//! A lone append is written at once. What arrives while a sync runs forms the next group. Callbacks
//! are called in the order of the appends, after the sync that covers them, with no lock held.
//!
//! A failed write or sync is final (`Shared::fail`): the kernel may have dropped the pages, so
//! neither a retry nor a look at the page cache proves anything.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::MutexGuard;

use crate::error::LogError;
use crate::frame::{FrameHeader, frame_bytes};
use crate::keeper::Task;
use crate::limits::COPY_BYTES_MAX;
use crate::log::{Done, Shared};
use crate::recovery::Active;
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentFile};
use crate::storage::write_all_at;
use crate::table::{Entry, Slot, Slots, Table, TailFrame};
use crate::vote_file::VoteFile;

/// A frame with its place.
pub(crate) struct Placed {
    pub file: Arc<SegmentFile>,
    pub position: u64,
    pub index: u64,
    pub frame: TailFrame,
    /// Has seen the payload.
    pub hasher: crc32fast::Hasher,
}

pub(crate) type Reply = SyncSender<Result<(), LogError>>;

/// Work for the log thread.
pub(crate) enum Op {
    Append {
        frames: Vec<Placed>,
        bytes: u64,
        done: Done,
    },
    Vote {
        vote: Vec<u8>,
        reply: Reply,
    },
    Flush {
        reply: Reply,
    },
}

/// What waits for the log thread; bounded by the bytes in flight.
#[derive(Default)]
pub(crate) struct Queue {
    pub ops: VecDeque<Op>,
    pub in_flight_bytes: u64,
    pub stop: bool,
}

/// State of the log thread; `trim.rs` borrows it while the queue is empty.
pub(crate) struct Writer {
    pub current: Option<Current>,
    /// Checksum of the last frame written.
    pub last_crc: u32,
    vote: VoteFile,
}

/// The segment being written.
pub(crate) struct Current {
    pub file: Arc<SegmentFile>,
    pub written: u64,
    /// Everything below is known to be on the disk.
    pub durable: u64,
}

/// Completions that wait for the next sync.
#[derive(Default)]
struct Waiting {
    dones: Vec<Done>,
    bytes: u64,
    last_index: Option<u64>,
}

/// Body of the log thread.
pub(crate) fn run(shared: &Shared) {
    loop {
        let ops = {
            let mut queue = shared.queue.lock();
            while queue.ops.is_empty() && !queue.stop {
                shared.work.wait(&mut queue);
            }
            if queue.ops.is_empty() {
                return;
            }
            std::mem::take(&mut queue.ops)
        };
        commit(shared, ops);
    }
}

/// Carries out everything that waited, with as few syncs as the order allows.
fn commit(shared: &Shared, ops: VecDeque<Op>) {
    let mut group = Vec::new();
    let mut waiting = Waiting::default();
    for op in ops {
        match op {
            Op::Append {
                frames,
                bytes,
                done,
            } => {
                waiting.last_index = frames.last().map(|last| last.index).or(waiting.last_index);
                waiting.bytes += bytes;
                waiting.dones.push(done);
                group.extend(frames);
            }
            Op::Vote { vote, reply } => {
                finish(shared, &mut group, &mut waiting);
                answer(&reply, save_vote(shared, &vote));
            }
            Op::Flush { reply } => {
                finish(shared, &mut group, &mut waiting);
                answer(&reply, shared.check_alive());
            }
        }
    }
    finish(shared, &mut group, &mut waiting);
}

fn answer(reply: &Reply, result: Result<(), LogError>) {
    // The caller waits for exactly this; if its thread is gone, nobody is left to tell.
    drop(reply.send(result));
}

fn finish(shared: &Shared, group: &mut Vec<Placed>, waiting: &mut Waiting) {
    let group = std::mem::take(group);
    let waiting = std::mem::take(waiting);
    let result = shared.check_alive().and_then(|()| {
        let mut writer = shared.writer.lock();
        writer.write_group(shared, group).inspect_err(|cause| {
            MutexGuard::unlocked(&mut writer, || shared.fail(cause));
        })
    });
    if result.is_ok()
        && let Some(last) = waiting.last_index
    {
        shared.durable_index.store(last, Ordering::Release);
    }
    {
        let mut queue = shared.queue.lock();
        queue.in_flight_bytes -= waiting.bytes;
    }
    shared.room.notify_all();
    for done in waiting.dones {
        done(if result.is_ok() {
            Ok(())
        } else {
            Err(shared.failure())
        });
    }
}

fn save_vote(shared: &Shared, vote: &[u8]) -> Result<(), LogError> {
    shared.check_alive()?;
    let saved = shared.writer.lock().vote.save(vote);
    saved.inspect_err(|cause| shared.fail(cause))
}

impl Writer {
    pub fn new(active: Option<Active>, table: &Table, vote: VoteFile) -> Writer {
        Writer {
            // Recovery has synced the segment.
            current: active.map(|active| Current {
                file: active.file,
                written: active.end,
                durable: active.end,
            }),
            last_crc: table.entries.back().map_or(0, |entry| entry.last_crc),
            vote,
        }
    }

    fn write_group(&mut self, shared: &Shared, group: Vec<Placed>) -> Result<(), LogError> {
        if group.is_empty() {
            return Ok(());
        }
        let mut pieces = Pieces::default();
        for placed in group {
            if self
                .current
                .as_ref()
                .is_none_or(|current| current.file.no != placed.file.no)
            {
                self.write_pieces(shared, &mut pieces)?;
                self.roll(shared, Arc::clone(&placed.file), placed.index)?;
            }
            let durable_mark = self.current.as_ref().map_or(0, |current| current.durable);
            let mut header = FrameHeader {
                len: placed.frame.len,
                crc: 0,
                prev_crc: self.last_crc,
                segment_no: placed.file.place.segment_no,
                kind: placed.frame.kind,
                group: placed.file.place.group,
                term: placed.frame.term,
                index: placed.index,
                durable_mark,
            };
            let bytes = header.encode(placed.file.place.salt, &placed.hasher);
            self.last_crc = header.crc;
            pieces.push_frame(placed.position, &bytes, &placed.frame);
        }
        self.write_pieces(shared, &mut pieces)?;
        if shared.config.fsync {
            self.sync(shared)
        } else {
            Ok(())
        }
    }

    /// Writes collected frames and makes readers find them in the map.
    fn write_pieces(&mut self, shared: &Shared, pieces: &mut Pieces) -> Result<(), LogError> {
        let pieces = std::mem::take(pieces);
        let (Some(current), Some(first)) = (&mut self.current, pieces.slots.first()) else {
            return Ok(());
        };
        let start = first.position();
        assert_eq!(
            start, current.written,
            "frames must follow each other without a gap"
        );
        let mut buffers = pieces.buffers();
        write_all_at(&*current.file.file, &mut buffers, start).map_err(|source| {
            let file = current.file.path.display();
            LogError::Failed {
                reason: format!("cannot write {file} at {start}: {source}"),
            }
        })?;
        current.written += pieces.bytes;
        shared.counters.writes.fetch_add(1, Ordering::Relaxed);
        shared
            .counters
            .bytes_written
            .fetch_add(pieces.bytes, Ordering::Relaxed);
        let mut table = shared.table.write();
        let count = pieces.slots.len();
        table.tail.drain(..count);
        table.tail_first += count as u64;
        // The current segment is always the last one of the table.
        if let Some(entry) = table.entries.back_mut() {
            entry.end = current.written;
            entry.last_crc = self.last_crc;
            if let Slots::Memory(slots) = &mut entry.slots {
                slots.extend_from_slice(&pieces.slots);
            }
        }
        Ok(())
    }

    /// Goes on in another segment. The old one is synced before the new header exists, so only the
    /// newest segment can ever be torn.
    fn roll(
        &mut self,
        shared: &Shared,
        next: Arc<SegmentFile>,
        first_index: u64,
    ) -> Result<(), LogError> {
        if let Some(current) = &self.current {
            let no = current.file.no;
            self.sync(shared)?;
            if let Some(entry) = shared.table.write().entry_mut(no) {
                entry.sealed = true;
            }
            shared.ask_keeper(Task::Seal(no));
        }
        self.activate(shared, next, first_index)
    }

    /// Makes a prepared segment the newest part of the log; its header is durable on return.
    pub fn activate(
        &mut self,
        shared: &Shared,
        file: Arc<SegmentFile>,
        first_index: u64,
    ) -> Result<(), LogError> {
        let header = file.header(first_index, self.last_crc).encode();
        write_all_at(&*file.file, &mut [IoSlice::new(&header)], 0)
            .and_then(|()| file.file.sync())
            .map_err(|source| LogError::Io {
                action: "begin",
                file: file.path.clone(),
                source,
            })?;
        shared.table.write().entries.push_back(Entry {
            file: Arc::clone(&file),
            first_index,
            slots: Slots::Memory(Vec::new()),
            end: SEGMENT_HEADER_BYTES,
            prev_crc: self.last_crc,
            last_crc: self.last_crc,
            sealed: false,
            recorded: false,
        });
        self.current = Some(Current {
            file,
            written: SEGMENT_HEADER_BYTES,
            durable: SEGMENT_HEADER_BYTES,
        });
        Ok(())
    }

    /// Makes everything written durable.
    pub fn sync(&mut self, shared: &Shared) -> Result<(), LogError> {
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        if current.durable == current.written {
            return Ok(());
        }
        let start = Instant::now();
        current
            .file
            .file
            .sync()
            .map_err(|source| LogError::Failed {
                reason: format!(
                    "cannot sync {} from position {} to {}: {source}",
                    current.file.path.display(),
                    current.durable,
                    current.written
                ),
            })?;
        let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        shared.counters.fsyncs.fetch_add(1, Ordering::Relaxed);
        shared
            .counters
            .fsync_nanos_total
            .fetch_add(nanos, Ordering::Relaxed);
        shared
            .counters
            .fsync_nanos_last
            .store(nanos, Ordering::Relaxed);
        current.durable = current.written;
        Ok(())
    }
}

/// Frames on their way into one write: headers and small parts copied together, large parts as
/// they are.
#[derive(Default)]
struct Pieces {
    copied: Vec<u8>,
    order: Vec<Piece>,
    slots: Vec<Slot>,
    bytes: u64,
}

enum Piece {
    /// Up to this position of `copied`.
    CopiedTo(usize),
    Whole(Bytes),
}

impl Pieces {
    fn push_frame(&mut self, position: u64, header: &[u8], frame: &TailFrame) {
        self.slots.push(Slot::new(position, frame.len));
        self.copied.extend_from_slice(header);
        for part in frame.payload.iter() {
            if part.len() <= COPY_BYTES_MAX {
                self.copied.extend_from_slice(part);
            } else {
                self.end_copied();
                self.order.push(Piece::Whole(part.clone()));
            }
        }
        let total = frame_bytes(u64::from(frame.len));
        let padding = total - header.len() as u64 - u64::from(frame.len);
        self.copied.extend_from_slice(&[0; 8][..padding as usize]);
        self.bytes += total;
    }

    fn end_copied(&mut self) {
        self.order.push(Piece::CopiedTo(self.copied.len()));
    }

    fn buffers(&self) -> Vec<IoSlice<'_>> {
        let mut buffers = Vec::with_capacity(self.order.len() + 1);
        let mut start = 0;
        for piece in &self.order {
            match piece {
                Piece::CopiedTo(end) => {
                    buffers.push(IoSlice::new(&self.copied[start..*end]));
                    start = *end;
                }
                Piece::Whole(bytes) => buffers.push(IoSlice::new(bytes)),
            }
        }
        buffers.push(IoSlice::new(&self.copied[start..]));
        buffers.retain(|buffer| !buffer.is_empty());
        buffers
    }
}

impl Shared {
    /// Waits until this many bytes more may be in flight; a larger append waits for an idle log.
    pub fn wait_for_room(&self, bytes: u64) -> Result<(), LogError> {
        let mut queue = self.queue.lock();
        loop {
            self.check_alive()?;
            let after = queue.in_flight_bytes + bytes;
            if queue.in_flight_bytes == 0 || after <= self.config.in_flight_bytes_max {
                return Ok(());
            }
            self.room.wait(&mut queue);
        }
    }

    pub fn submit(&self, op: Op, bytes: u64) {
        let mut queue = self.queue.lock();
        queue.ops.push_back(op);
        queue.in_flight_bytes += bytes;
        drop(queue);
        self.work.notify_one();
    }

    /// Hands over an operation and waits for its turn to have passed.
    pub fn submit_and_wait(&self, op: impl FnOnce(Reply) -> Op) -> Result<(), LogError> {
        self.check_alive()?;
        let (reply, outcome) = sync_channel(1);
        self.submit(op(reply), 0);
        outcome.recv().unwrap_or_else(|_| Err(self.failure()))
    }
}
