//! [`Log`]: the public surface, and the state its threads share.
//!
//! Calls check the arguments, take the plan's lock for a place in the order, and hand work to the
//! log thread (`writer.rs`). Reads touch only the table. `trim.rs` and `derived.rs` hold the rest of
//! the surface.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};
use tracing::{error, info, warn};

use crate::error::LogError;
use crate::frame::frame_bytes;
use crate::keeper::{KeeperQueue, Task};
use crate::limits;
use crate::plan::{Plan, check_order};
use crate::recovery;
use crate::storage::{FsStorage, LockGuard, Storage};
use crate::table::{Table, TailFrame};
use crate::vote_file::VoteFile;
use crate::writer::{self, Op, Placed, Queue, Writer};

/// How to open a log.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// Directory of this log alone.
    pub dir: PathBuf,
    /// Raft group, stamped into every segment and frame.
    pub group: u32,
    /// Size of a new segment.
    pub segment_bytes: u64,
    /// Wait for the disk before reporting frames as done.
    pub fsync: bool,
    /// Accepted bytes that may be unsynced before `append` waits.
    pub in_flight_bytes_max: u64,
    /// Sealed segments are verified in full at open when they are no larger than this together.
    pub scrub_at_open_bytes_max: u64,
}

impl LogConfig {
    /// The defaults for a directory and group.
    pub fn new(dir: impl Into<PathBuf>, group: u32) -> LogConfig {
        LogConfig {
            dir: dir.into(),
            group,
            segment_bytes: limits::SEGMENT_BYTES_DEFAULT,
            fsync: true,
            in_flight_bytes_max: limits::IN_FLIGHT_BYTES_DEFAULT,
            scrub_at_open_bytes_max: limits::SCRUB_AT_OPEN_BYTES_DEFAULT,
        }
    }
}

/// A frame to append.
#[derive(Debug, Clone)]
pub struct FrameIn {
    pub kind: u8,
    pub term: u64,
    pub index: u64,
    /// Parts that lie one after the other on disk.
    pub payload: Vec<Bytes>,
}

/// A frame read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameOut {
    pub kind: u8,
    pub term: u64,
    pub index: u64,
    /// A slice of the map, or of the memory the frame was appended from.
    pub payload: Bytes,
}

/// Called once with the outcome of an append, on the log thread. It must not block and must not
/// call `append` or anything that waits for the log.
pub type Done = Box<dyn FnOnce(Result<(), LogError>) + Send>;

pub(crate) type FatalHook = Box<dyn Fn(&LogError) + Send + Sync>;
pub(crate) type SealHook = Box<dyn Fn(SegmentInfo) + Send + Sync>;

/// What `open` found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// First index held, or the next one when the log is empty.
    pub first_index: u64,
    /// Term and index of the last frame.
    pub last: Option<(u64, u64)>,
    /// Bytes of a torn tail that were dropped.
    pub cut_bytes: u64,
    /// Where the torn tail began.
    pub cut_at: Option<(PathBuf, u64)>,
    /// The last vote saved.
    pub vote: Option<Bytes>,
    /// Bytes whose checksums were verified.
    pub scanned_bytes: u64,
}

/// One segment of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentInfo {
    pub no: u64,
    pub first_index: u64,
    /// `None` while the segment is empty.
    pub last_index: Option<u64>,
    /// Header and frames, without the unused rest.
    pub bytes: u64,
    pub sealed: bool,
    pub path: PathBuf,
}

/// Counters since open, and present sizes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogStats {
    pub bytes_written: u64,
    pub writes: u64,
    pub fsyncs: u64,
    pub fsync_nanos_total: u64,
    pub fsync_nanos_last: u64,
    pub appends: u64,
    pub frames: u64,
    pub segments: u64,
    /// Allocated for segments, prepared ones included.
    pub disk_bytes: u64,
    pub in_flight_bytes: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub bytes_written: AtomicU64,
    pub writes: AtomicU64,
    pub fsyncs: AtomicU64,
    pub fsync_nanos_total: AtomicU64,
    pub fsync_nanos_last: AtomicU64,
    pub appends: AtomicU64,
    pub frames: AtomicU64,
}

/// What the threads of a log share.
pub(crate) struct Shared {
    pub config: LogConfig,
    pub segments_dir: PathBuf,
    pub images_dir: PathBuf,
    pub storage: Arc<dyn Storage>,
    pub plan: Mutex<Plan>,
    /// A segment under preparation is ready or has failed.
    pub plan_changed: Condvar,
    pub queue: Mutex<Queue>,
    /// The queue has work, or the log stops.
    pub work: Condvar,
    /// In-flight bytes went down, or the log failed.
    pub room: Condvar,
    pub writer: Mutex<Writer>,
    pub keeper: Mutex<KeeperQueue>,
    pub keeper_work: Condvar,
    /// Held while segments are removed or get their seal records.
    pub files: Mutex<()>,
    pub table: RwLock<Table>,
    pub durable_index: AtomicU64,
    /// How often frames were taken away from the end.
    pub cuts: AtomicU64,
    pub sidecars: Mutex<HashMap<(u64, String), Bytes>>,
    pub on_seal: Mutex<Option<Arc<SealHook>>>,
    pub counters: Counters,
    is_failed: AtomicBool,
    failure: Mutex<Option<String>>,
    on_fatal: Mutex<Arc<FatalHook>>,
}

/// A durable, ordered log of frames. All methods may be called from any thread.
pub struct Log {
    pub(crate) shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    _lock: Box<dyn LockGuard>,
}

impl Log {
    /// Opens or creates the log in a directory and brings it to its last consistent state.
    pub fn open(config: LogConfig) -> Result<(Log, Recovered), LogError> {
        if config.segment_bytes < limits::SEGMENT_BYTES_MIN {
            let reason = format!(
                "segment_bytes must be at least {}",
                limits::SEGMENT_BYTES_MIN
            );
            return Err(LogError::Invalid { reason });
        }
        Log::open_with(config, Arc::new(FsStorage))
    }

    /// As [`Log::open`], on a given disk and with segments as small as a test likes.
    pub fn open_with(
        config: LogConfig,
        storage: Arc<dyn Storage>,
    ) -> Result<(Log, Recovered), LogError> {
        Log::open_hooked(config, storage, Box::new(|_| std::process::abort()))
    }

    /// As [`Log::open_with`], with the fatal hook in place before any thread runs.
    pub fn open_hooked(
        mut config: LogConfig,
        storage: Arc<dyn Storage>,
        on_fatal: Box<dyn Fn(&LogError) + Send + Sync>,
    ) -> Result<(Log, Recovered), LogError> {
        config.segment_bytes = config.segment_bytes.next_multiple_of(4096);
        if !(limits::SEGMENT_BYTES_MIN_TEST..=limits::SEGMENT_BYTES_MAX)
            .contains(&config.segment_bytes)
        {
            let reason = format!(
                "segment_bytes must be at most {}",
                limits::SEGMENT_BYTES_MAX
            );
            return Err(LogError::Invalid { reason });
        }
        let segments_dir = config.dir.join("segments");
        let images_dir = config.dir.join("images");
        for dir in [&config.dir, &segments_dir, &images_dir] {
            storage
                .make_dir(dir)
                .map_err(|e| LogError::io("create", dir, 0, e))?;
        }
        let lock = take_lock(&*storage, &config.dir)?;
        storage
            .sync_dir(&config.dir)
            .map_err(|e| LogError::io("sync", &config.dir, 0, e))?;
        let (vote_file, vote) = VoteFile::open(&*storage, &config.dir, config.group)?;
        let found = recovery::recover(&*storage, &config, &segments_dir)?;
        let recovered = Recovered {
            first_index: found.table.first_index,
            last: found.table.last,
            cut_bytes: found.cut_bytes,
            cut_at: found.cut_at,
            vote,
            scanned_bytes: found.scanned_bytes,
        };
        if let Some((file, position)) = &recovered.cut_at {
            warn!(file = %file.display(), position, bytes = recovered.cut_bytes, "torn tail cut");
        }
        info!(
            dir = %config.dir.display(), group = config.group, first_index = recovered.first_index,
            last = ?recovered.last, scanned_bytes = recovered.scanned_bytes, "log opened"
        );
        let mut keeper = KeeperQueue::default();
        keeper
            .tasks
            .extend(found.unrecorded.into_iter().map(Task::Seal));
        let shared = Arc::new(Shared {
            plan: Mutex::new(Plan::new(
                &found.table,
                found.active.as_ref(),
                found.next_no,
            )),
            plan_changed: Condvar::new(),
            queue: Mutex::new(Queue::default()),
            work: Condvar::new(),
            room: Condvar::new(),
            writer: Mutex::new(Writer::new(found.active, &found.table, vote_file)),
            keeper: Mutex::new(keeper),
            keeper_work: Condvar::new(),
            files: Mutex::new(()),
            durable_index: AtomicU64::new(recovered.last.map_or(0, |(_, index)| index)),
            cuts: AtomicU64::new(0),
            table: RwLock::new(found.table),
            sidecars: Mutex::new(HashMap::new()),
            on_seal: Mutex::new(None),
            counters: Counters::default(),
            is_failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            on_fatal: Mutex::new(Arc::new(on_fatal)),
            config,
            segments_dir,
            images_dir,
            storage,
        });
        let mut log = Log {
            shared,
            threads: Vec::new(),
            _lock: lock,
        };
        log.spawn("log", writer::run)?;
        log.spawn("log-keeper", crate::keeper::run)?;
        Ok((log, recovered))
    }

    fn spawn(&mut self, name: &str, body: fn(&Shared)) -> Result<(), LogError> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new()
            .name(format!("{name}-{}", shared.config.group))
            .spawn(move || {
                let run = std::panic::AssertUnwindSafe(|| body(&shared));
                if std::panic::catch_unwind(run).is_err() {
                    let reason = "a log thread panicked".to_owned();
                    shared.fail(&LogError::Failed { reason });
                }
            })
            .map_err(|e| LogError::io("start a thread for", &self.shared.config.dir, 0, e))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Makes sure that an append of this payload size cannot meet a full disk.
    ///
    /// Cheap when there is room. Counts one frame, or several that fit one segment together.
    pub fn reserve(&self, bytes: u64) -> Result<(), LogError> {
        self.shared.check_alive()?;
        let mut plan = self.shared.plan.lock();
        loop {
            match plan.place(&[bytes]) {
                Ok(_) => return Ok(()),
                Err(need) => plan = self.shared.make_spare(plan, need)?,
            }
        }
    }

    /// Appends frames; they are readable on return, and `done` is called once they are durable.
    ///
    /// On `Err` nothing was appended and `done` is dropped without a call. Waits only while too many
    /// bytes are in flight.
    pub fn append(&self, frames: Vec<FrameIn>, done: Done) -> Result<(), LogError> {
        let shared = &*self.shared;
        let mut pending = Vec::with_capacity(frames.len());
        let mut sizes = Vec::with_capacity(frames.len());
        let mut bytes = 0;
        for frame in frames {
            let len: u64 = frame.payload.iter().map(|part| part.len() as u64).sum();
            let max = limits::SEGMENT_BYTES_MAX - crate::SEGMENT_HEADER_BYTES - 4096;
            if len > max {
                return Err(LogError::TooLarge { bytes: len, max });
            }
            let mut hasher = crc32fast::Hasher::new();
            frame.payload.iter().for_each(|part| hasher.update(part));
            sizes.push(len);
            bytes += frame_bytes(len);
            let payload: Arc<[Bytes]> = frame.payload.into();
            let tail = TailFrame {
                kind: frame.kind,
                term: frame.term,
                payload,
                len: len as u32,
            };
            pending.push((frame.index, tail, hasher));
        }
        shared.wait_for_room(bytes)?;
        let mut plan = shared.plan.lock();
        let (places, after) = loop {
            shared.check_alive()?;
            check_order(plan.next_index, pending.iter().map(|(index, _, _)| *index))?;
            match plan.place(&sizes) {
                Ok(placed) => break placed,
                Err(need) => plan = shared.make_spare(plan, need)?,
            }
        };
        plan.accept(after, pending.last().map(|(index, _, _)| *index));
        let mut placed = Vec::with_capacity(pending.len());
        {
            let mut table = shared.table.write();
            if table.last.is_none()
                && let Some((first, _, _)) = pending.first()
            {
                table.first_index = *first;
                table.tail_first = *first;
            }
            for ((index, tail, hasher), (file, position)) in pending.into_iter().zip(places) {
                table.terms.push(index, tail.term);
                table.last = Some((tail.term, index));
                table.tail.push_back(tail.clone());
                placed.push(Placed {
                    file,
                    position,
                    index,
                    frame: tail,
                    hasher,
                });
            }
        }
        shared.counters.appends.fetch_add(1, Ordering::Relaxed);
        shared
            .counters
            .frames
            .fetch_add(placed.len() as u64, Ordering::Relaxed);
        shared.submit(
            Op::Append {
                frames: placed,
                bytes,
                done,
            },
            bytes,
        );
        let prepare = plan.wants_spare();
        drop(plan);
        if prepare {
            shared.ask_keeper(Task::Prepare);
        }
        Ok(())
    }

    /// The first index held, or the next one when the log is empty.
    pub fn first_index(&self) -> u64 {
        self.shared.table.read().first_index
    }

    /// Term and index of the last frame.
    pub fn last(&self) -> Option<(u64, u64)> {
        self.shared.table.read().last
    }

    /// The term of a frame held.
    pub fn term_of(&self, index: u64) -> Option<u64> {
        let table = self.shared.table.read();
        let (_, last) = table.last?;
        if index < table.first_index || index > last {
            return None;
        }
        table.terms.at(index)
    }

    /// The last index known to be on the disk; 0 when none is.
    pub fn durable_index(&self) -> u64 {
        self.shared.durable_index.load(Ordering::Acquire)
    }

    /// How often frames were taken away from the end since the open: what was seen of the newest
    /// segments before may not hold any more.
    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::Acquire)
    }

    /// Saves the vote; durable on return, and after everything appended before.
    pub fn save_vote(&self, vote: &[u8]) -> Result<(), LogError> {
        if vote.len() > limits::VOTE_BYTES_MAX {
            let max = limits::VOTE_BYTES_MAX as u64;
            return Err(LogError::TooLarge {
                bytes: vote.len() as u64,
                max,
            });
        }
        self.shared.submit_and_wait(|reply| Op::Vote {
            vote: vote.to_vec(),
            reply,
        })
    }

    /// All segments in order.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.shared
            .table
            .read()
            .entries
            .iter()
            .map(|entry| entry.info())
            .collect()
    }

    /// Sets the hook called on the keeper thread after each seal; it may write sidecars.
    pub fn on_seal(&self, hook: Box<dyn Fn(SegmentInfo) + Send + Sync>) {
        *self.shared.on_seal.lock() = Some(Arc::new(hook));
    }

    /// Sets the hook called when the log fails for good; the default aborts the process.
    pub fn on_fatal(&self, hook: Box<dyn Fn(&LogError) + Send + Sync>) {
        *self.shared.on_fatal.lock() = Arc::new(hook);
    }

    /// Present counters.
    pub fn stats(&self) -> LogStats {
        let counters = &self.shared.counters;
        let spare_bytes = self.shared.plan.lock().spare_bytes();
        let (segments, used_bytes) = {
            let table = self.shared.table.read();
            let bytes: u64 = table.entries.iter().map(|entry| entry.file.size).sum();
            (table.entries.len() as u64, bytes)
        };
        LogStats {
            bytes_written: counters.bytes_written.load(Ordering::Relaxed),
            writes: counters.writes.load(Ordering::Relaxed),
            fsyncs: counters.fsyncs.load(Ordering::Relaxed),
            fsync_nanos_total: counters.fsync_nanos_total.load(Ordering::Relaxed),
            fsync_nanos_last: counters.fsync_nanos_last.load(Ordering::Relaxed),
            appends: counters.appends.load(Ordering::Relaxed),
            frames: counters.frames.load(Ordering::Relaxed),
            segments,
            disk_bytes: used_bytes + spare_bytes,
            in_flight_bytes: self.shared.queue.lock().in_flight_bytes,
        }
    }

    /// Finishes what was appended, stops the threads and releases the directory.
    pub fn close(self) {
        drop(self);
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // The log thread first: it may still hand seals to the keeper.
        for thread in self.threads.drain(..) {
            self.shared.queue.lock().stop = true;
            self.shared.work.notify_all();
            // A panic was already turned into a failure by the thread itself.
            drop(thread.join());
            self.shared.keeper.lock().stop = true;
            self.shared.keeper_work.notify_all();
        }
    }
}

impl Shared {
    pub fn check_alive(&self) -> Result<(), LogError> {
        if self.is_failed.load(Ordering::Acquire) {
            Err(self.failure())
        } else {
            Ok(())
        }
    }

    pub fn failure(&self) -> LogError {
        let reason = self.failure.lock().clone().unwrap_or_default();
        LogError::Failed { reason }
    }

    /// Closes the log for good. The kernel may have dropped the pages of a failed write, so nothing
    /// that was in flight may ever be reported as done.
    pub fn fail(&self, cause: &LogError) {
        {
            let mut failure = self.failure.lock();
            if failure.is_some() {
                return;
            }
            *failure = Some(match cause {
                LogError::Failed { reason } => reason.clone(),
                other => other.to_string(),
            });
        }
        self.is_failed.store(true, Ordering::Release);
        error!(error = %cause, dir = %self.config.dir.display(), "log failed");
        let hook = Arc::clone(&self.on_fatal.lock());
        hook(cause);
        // Taking each lock once makes sure that no waiter misses the change.
        drop(self.queue.lock());
        self.room.notify_all();
        self.work.notify_all();
        self.plan_changed.notify_all();
    }
}

fn take_lock(storage: &dyn Storage, dir: &Path) -> Result<Box<dyn LockGuard>, LogError> {
    let path = dir.join("LOCK");
    storage.lock(&path).map_err(|error| {
        if error.kind() == std::io::ErrorKind::WouldBlock {
            LogError::Locked {
                dir: dir.to_owned(),
            }
        } else {
            LogError::io("lock", &path, 0, error)
        }
    })
}
