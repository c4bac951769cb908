//! Checkpoints: when a log segment is sealed and applied, its part of the record index becomes the
//! segment's sidecar; when the log has grown enough, an image of the whole state is written. Both
//! are derived from the log, so a lost one costs time and no data.
//!
//! The apply thread cuts (exactly between the last entry of a segment and the first of the next),
//! a thread of its own writes.

pub mod boot;
pub mod image;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use queen_engine::index::FrozenPart;
use queen_log::{FRAME_HEADER_BYTES, Log};
use tokio::sync::Notify;

use crate::apply::{SharedState, State};
use crate::limits;
use crate::metrics;
use crate::replicator::Position;

/// Name of the record index's sidecar.
const SIDECAR: &str = "index";

enum Task {
    Sidecar {
        segment: u64,
        part: FrozenPart,
    },
    Image {
        place: ImagePlace,
        parts: Vec<Vec<u8>>,
    },
    Stop,
}

/// What the apply thread and the writer share.
pub struct Checkpoints {
    log: Arc<Log>,
    /// Never blocks: the apply thread sends under the lock that the writer needs. Bounded all the
    /// same: one image at a time, and a sidecar's bytes are those the index holds anyway.
    tasks: Sender<Task>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// An image is being written.
    busy: AtomicBool,
    figures: Arc<ImageFigures>,
    image_log_bytes_min: u64,
    segment_bytes: u64,
}

/// What a state image stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImagePlace {
    /// The entry up to which the state is applied.
    pub at: Position,
    /// The membership then: its entry and its bytes.
    pub membership: Option<(Position, Bytes)>,
}

impl ImagePlace {
    /// What an image of this state stands for; `None` when nothing was applied.
    pub fn of(state: &State) -> Option<ImagePlace> {
        Some(ImagePlace {
            at: state.applied?,
            membership: state.membership.clone(),
        })
    }
}

/// What is known of the newest image on disk.
#[derive(Debug, Default)]
pub struct ImageFigures {
    bytes: AtomicU64,
    place: Mutex<Option<ImagePlace>>,
    previous: AtomicU64,
    /// Told when an image was written.
    pub written: Notify,
}

impl ImageFigures {
    /// Index of its entry; 0 when there is no image.
    pub fn index(&self) -> u64 {
        self.place.lock().as_ref().map_or(0, |place| place.at.index)
    }

    /// What it stands for; `None` when there is no image.
    pub fn place(&self) -> Option<ImagePlace> {
        self.place.lock().clone()
    }

    /// Index of the older image that is kept; 0 when there is none.
    pub fn previous(&self) -> u64 {
        self.previous.load(Ordering::Relaxed)
    }

    /// Its size; 0 when it was written by an earlier process.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Checkpoints {
    /// Starts the writer. `image` is what the newest usable image stands for.
    pub fn start(
        log: Arc<Log>,
        state: SharedState,
        image: Option<ImagePlace>,
        image_log_bytes_min: u64,
        segment_bytes: u64,
    ) -> std::io::Result<Arc<Checkpoints>> {
        let (tasks, inbox) = channel();
        let checkpoints = Arc::new(Checkpoints {
            log,
            tasks,
            writer: Mutex::new(None),
            busy: AtomicBool::new(false),
            figures: Arc::new(ImageFigures {
                bytes: AtomicU64::new(0),
                place: Mutex::new(image),
                ..ImageFigures::default()
            }),
            image_log_bytes_min,
            segment_bytes,
        });
        let body = checkpoints.clone();
        let thread = std::thread::Builder::new()
            .name("queen-checkpoint".to_string())
            .spawn(move || body.write_all(&inbox, &state))?;
        *checkpoints.writer.lock() = Some(thread);
        Ok(checkpoints)
    }

    fn write_all(&self, inbox: &Receiver<Task>, state: &SharedState) {
        while let Ok(task) = inbox.recv() {
            match task {
                Task::Sidecar { segment, part } => {
                    self.write_sidecar(segment, &part.encode(), state);
                }
                Task::Image { place, parts } => {
                    self.write_image(place, &parts);
                    self.busy.store(false, Ordering::Release);
                }
                Task::Stop => return,
            }
        }
    }

    fn write_sidecar(&self, segment: u64, bytes: &[u8], state: &SharedState) {
        let mapped = self
            .log
            .write_sidecar(segment, SIDECAR, &[bytes])
            .and_then(|()| self.log.map_sidecar(segment, SIDECAR));
        match mapped {
            Ok(Some(mapped)) => {
                // The part on the heap says the same; without the map it only costs memory.
                if let Err(error) = state.write().index.replace_sealed(mapped) {
                    tracing::warn!(segment, %error, "sidecar cannot be used");
                }
            }
            Ok(None) => tracing::warn!(segment, "sidecar vanished"),
            Err(error) => tracing::warn!(segment, %error, "sidecar not written"),
        }
    }

    fn write_image(&self, place: ImagePlace, parts: &[Vec<u8>]) {
        let index = place.at.index;
        let started = Instant::now();
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        match self.log.write_image(index, &slices) {
            Ok(()) => {
                self.figures.bytes.store(bytes, Ordering::Relaxed);
                let previous = self.figures.place.lock().replace(place);
                let previous = previous.map_or(0, |place| place.at.index);
                self.figures.previous.store(previous, Ordering::Relaxed);
                self.figures.written.notify_one();
                metrics::image(bytes, started.elapsed());
                tracing::info!(index, bytes, "state image written");
            }
            // The older image stays; the next one may find room.
            Err(error) => tracing::warn!(index, %error, "state image not written"),
        }
    }

    /// Figures of the newest image.
    pub fn figures(&self) -> Arc<ImageFigures> {
        self.figures.clone()
    }

    fn send(&self, task: Task) {
        // The writer ends only after everything was sent.
        if self.tasks.send(task).is_err() {
            tracing::warn!("checkpoint writer has ended");
        }
    }

    /// Writes a last image and ends the writer. Nothing may be applied any more.
    pub fn finish(&self, state: &SharedState) {
        let last = {
            let state = state.read();
            ImagePlace::of(&state)
                .filter(|place| place.at.index > self.figures.index())
                .map(|place| (place, image::parts(&state)))
        };
        if let Some((place, parts)) = last {
            self.send(Task::Image { place, parts });
        }
        self.abandon();
    }

    /// Ends the writer when it has written what was cut.
    pub fn abandon(&self) {
        let Some(writer) = self.writer.lock().take() else {
            return;
        };
        self.send(Task::Stop);
        if writer.join().is_err() {
            tracing::warn!("checkpoint writer panicked");
        }
    }
}

/// The apply thread's side.
pub struct Cutter {
    checkpoints: Arc<Checkpoints>,
    /// Sealed segments whose end has not been applied: number and last index.
    ends: VecDeque<(u64, u64)>,
    /// Bytes applied since the segments were looked at, and how many more the newest one takes.
    since_look: u64,
    room: u64,
    term: u64,
    /// [`Log::cuts`] at the last look.
    cuts: u64,
    since_image: u64,
}

impl Cutter {
    pub fn new(checkpoints: Arc<Checkpoints>) -> Cutter {
        Cutter {
            checkpoints,
            ends: VecDeque::new(),
            since_look: 0,
            room: 0,
            term: 0,
            cuts: 0,
            since_image: 0,
        }
    }

    /// Before an entry of so many bytes is applied.
    pub fn before(&mut self, at: Position, bytes: usize, state: &mut State) {
        let frame = (bytes + FRAME_HEADER_BYTES + 8) as u64;
        self.since_look += frame;
        self.since_image += frame;
        // Only an entry that does not fit the newest segment, or another leader, can begin a new
        // one; so the segments need not be looked at for every entry.
        // Ends that were seen before the log was cut may lie elsewhere now; an entry that came after
        // the cut is looked at only after it, so this look is in time.
        let is_cut = self.checkpoints.log.cuts() != self.cuts;
        let may_be_new = self.since_look >= self.room || self.term != at.term;
        if is_cut || (self.ends.is_empty() && may_be_new) {
            self.look(state.sealed_before);
            self.since_look = frame;
        }
        self.term = at.term;
        while let Some((segment, last)) = self.ends.front().copied()
            && last < at.index
        {
            self.ends.pop_front();
            let part = state.index.seal();
            state.sealed_before = last + 1;
            self.checkpoints.send(Task::Sidecar { segment, part });
        }
    }

    fn look(&mut self, sealed_before: u64) {
        self.cuts = self.checkpoints.log.cuts();
        let segments = self.checkpoints.log.segments();
        let room_of = |bytes: u64| self.checkpoints.segment_bytes.saturating_sub(bytes);
        self.room = segments.last().map_or(0, |newest| room_of(newest.bytes));
        self.ends = segments
            .iter()
            .filter(|segment| segment.sealed)
            .filter_map(|segment| Some((segment.no, segment.last_index?)))
            .filter(|(_, last)| *last >= sealed_before)
            .collect();
    }

    /// After an entry was applied.
    pub fn after(&mut self, at: Position, state: &State) {
        let checkpoints = &self.checkpoints;
        let due = checkpoints.image_log_bytes_min.max(
            checkpoints
                .figures
                .bytes()
                .saturating_mul(limits::IMAGE_LOG_FACTOR),
        );
        if self.since_image < due || checkpoints.busy.swap(true, Ordering::AcqRel) {
            return;
        }
        self.since_image = 0;
        let place = ImagePlace {
            at,
            membership: state.membership.clone(),
        };
        checkpoints.send(Task::Image {
            place,
            parts: image::parts(state),
        });
    }
}
