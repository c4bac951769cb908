//! Where every record lies: (partition, offset), (lane, number) and time to batch. Derived from
//! the log as it is applied: an active part on the heap, and one immutable sealed part per log
//! segment, whose bytes are a sidecar file that may be mapped. Holds no rule of the state machine
//! and does no I/O.

mod active;
mod part;
mod sealed;

use bytes::Bytes;

use crate::ids::{BatchRef, LaneId, TimeUs, TopicId};

pub use part::FrozenPart;
pub use sealed::{SealedError, SealedPart};

use active::ActivePart;
use part::Part;

/// One stored batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRow {
    pub topic: TopicId,
    pub partition: u32,
    pub base_offset: u64,
    /// Offset of its last record.
    pub last_offset: u64,
    /// Records in the batch as stored.
    pub records: u32,
    /// Whether some of its records were dropped as duplicates: see [`RecordIndex::dropped`].
    pub has_dropped: bool,
    pub at: BatchRef,
    /// Largest record timestamp, milliseconds.
    pub max_timestamp: i64,
    /// Append time.
    pub time: TimeUs,
    /// Raft term of the entry: Kafka's leader epoch.
    pub epoch: u32,
}

/// One record's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub row: BatchRow,
    /// Index of the record in its batch.
    pub record: u32,
}

impl Place {
    /// Offset of the record in its Kafka partition. Batches are appended with dense deltas, so
    /// the record's index is its delta.
    pub fn offset(&self) -> u64 {
        self.row.base_offset + u64::from(self.record)
    }
}

/// A batch with the lane of each of its records, in log order: what the scheduler walks.
#[derive(Clone, Debug)]
pub struct WalkedBatch {
    pub row: BatchRow,
    /// Position to go on from.
    pub next: WalkPosition,
    /// Per record its lane and number; `None` for a dropped one or where lanes are off.
    pub lanes: Vec<Option<(LaneId, u64)>>,
}

/// A place in the log order of one topic's batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WalkPosition {
    /// Log index of the entry.
    pub index: u64,
    /// Offset of the batch in the entry.
    pub offset: u32,
}

/// A batch as apply reports it.
pub(crate) struct NewBatch<'a> {
    pub(crate) row: BatchRow,
    /// Lane and number of each record; `None` for a dropped one or where lanes are off.
    pub(crate) lanes: &'a [Option<(LaneId, u64)>],
    pub(crate) dropped: &'a [u32],
}

/// All parts of the index, oldest first.
#[derive(Debug, Default)]
pub struct RecordIndex {
    closed: Vec<Part>,
    active: ActivePart,
}

impl RecordIndex {
    /// An empty index.
    pub fn new() -> RecordIndex {
        RecordIndex::default()
    }

    pub(crate) fn add(&mut self, batch: &NewBatch<'_>) {
        self.active.add(batch);
    }

    /// The bytes of the active part, to be kept as a sidecar or inside an image.
    pub fn active_bytes(&self) -> Vec<u8> {
        sealed::encode(&self.active)
    }

    /// Whether the active part holds anything.
    pub fn active_is_empty(&self) -> bool {
        self.active.rows().is_empty()
    }

    /// Closes the active part and starts a new one. The closed part is looked up where it is until
    /// its bytes, the sidecar of the segment that ends here, come back by
    /// [`RecordIndex::replace_sealed`].
    pub fn seal(&mut self) -> FrozenPart {
        let frozen = FrozenPart::new(std::mem::take(&mut self.active));
        self.closed.push(Part::Frozen(frozen.clone()));
        frozen
    }

    /// Adds an older sealed part at the end; parts are added oldest first, before any append.
    pub fn load_sealed(&mut self, bytes: Bytes) -> Result<(), SealedError> {
        self.closed.push(Part::Sealed(SealedPart::open(bytes)?));
        Ok(())
    }

    /// Replaces the closed part that covers the same entries, by its mapped file.
    pub fn replace_sealed(&mut self, bytes: Bytes) -> Result<(), SealedError> {
        let part = SealedPart::open(bytes)?;
        if let Some(old) = self
            .closed
            .iter_mut()
            .find(|old| old.covers() == part.covers())
        {
            *old = Part::Sealed(part);
        }
        Ok(())
    }

    /// Loads the active part of an image.
    pub fn load_active(&mut self, bytes: Bytes) -> Result<(), SealedError> {
        let part = SealedPart::open(bytes)?;
        self.active = part.to_active();
        Ok(())
    }

    /// Drops sealed parts that lie wholly at or below log index `through`.
    pub fn purge_through(&mut self, through: u64) {
        self.closed
            .retain(|part| part.covers().is_none_or(|(_, last)| last > through));
    }

    /// Heap bytes, roughly, of the active part.
    pub fn active_records(&self) -> usize {
        self.active.records()
    }

    /// The first batch of the partition whose last offset is at or above `offset`.
    pub fn find(&self, topic: TopicId, partition: u32, offset: u64) -> Option<BatchRow> {
        // Recent offsets are asked for most: take the newest part that begins at or below.
        let mut best = self.active.find(topic, partition, offset);
        if best.is_some_and(|row| row.base_offset <= offset) {
            return best;
        }
        for part in self.closed.iter().rev() {
            match part.find(topic, partition, offset) {
                Some(row) => {
                    best = Some(row);
                    if row.base_offset <= offset {
                        break;
                    }
                }
                // Everything of this part lies below: so do all older parts.
                None if part.has(topic, partition) => break,
                None => {}
            }
        }
        best
    }

    /// The partition's batches from the one that holds `offset` on.
    pub fn batches(
        &self,
        topic: TopicId,
        partition: u32,
        offset: u64,
    ) -> impl Iterator<Item = BatchRow> + '_ {
        let mut at = offset;
        std::iter::from_fn(move || {
            let row = self.find(topic, partition, at)?;
            at = row.last_offset + 1;
            Some(row)
        })
    }

    /// The first batch at or above `from` with a record timestamp at or after `timestamp_ms`.
    pub fn find_timestamp(
        &self,
        topic: TopicId,
        partition: u32,
        from: u64,
        timestamp_ms: i64,
    ) -> Option<BatchRow> {
        self.first_where(topic, partition, from, &|row| {
            row.max_timestamp >= timestamp_ms
        })
    }

    /// The first batch at or above `from` appended at or after `time`.
    pub fn find_append_time(
        &self,
        topic: TopicId,
        partition: u32,
        from: u64,
        time: TimeUs,
    ) -> Option<BatchRow> {
        self.first_where(topic, partition, from, &|row| row.time >= time)
    }

    /// The batch at or above `from` with the largest record timestamp; the first of equals.
    pub fn max_timestamp(&self, topic: TopicId, partition: u32, from: u64) -> Option<BatchRow> {
        let mut best: Option<BatchRow> = None;
        self.each_row(topic, partition, &mut |row| {
            let better = best.is_none_or(|b| row.max_timestamp > b.max_timestamp);
            if row.last_offset >= from && better {
                best = Some(row);
            }
            true
        });
        best
    }

    fn first_where(
        &self,
        topic: TopicId,
        partition: u32,
        from: u64,
        wanted: &dyn Fn(&BatchRow) -> bool,
    ) -> Option<BatchRow> {
        let mut found = None;
        self.each_row(topic, partition, &mut |row| {
            if row.last_offset >= from && wanted(&row) {
                found = Some(row);
            }
            found.is_none()
        });
        found
    }

    fn each_row(&self, topic: TopicId, partition: u32, look: &mut dyn FnMut(BatchRow) -> bool) {
        if !self
            .closed
            .iter()
            .all(|part| part.each_row(topic, partition, look))
        {
            return;
        }
        for row in self.active.rows_of(topic, partition) {
            if !look(row) {
                return;
            }
        }
    }

    /// Where record `number` of a lane lies, if it is still indexed.
    pub fn locate(&self, lane: LaneId, number: u64) -> Option<Place> {
        if let Some(place) = self.active.locate(lane, number) {
            return Some(place);
        }
        self.closed
            .iter()
            .rev()
            .find_map(|part| part.locate(lane, number))
    }

    /// The lowest number of a lane that is still indexed.
    pub fn first_number(&self, lane: LaneId) -> Option<u64> {
        self.closed
            .iter()
            .find_map(|part| part.first_number(lane))
            .or_else(|| self.active.first_number(lane))
    }

    /// Indexes of the records of a batch that were dropped as duplicates, sorted.
    pub fn dropped(&self, row: &BatchRow) -> Vec<u32> {
        if !row.has_dropped {
            return Vec::new();
        }
        if let Some(dropped) = self.active.dropped(row) {
            return dropped;
        }
        self.closed
            .iter()
            .rev()
            .find_map(|part| part.dropped(row))
            .unwrap_or_default()
    }

    /// Per record of a batch its lane and number; `None` for a dropped one or where lanes are off.
    pub fn lanes_of(&self, row: &BatchRow) -> Vec<Option<(LaneId, u64)>> {
        let at = WalkPosition {
            index: row.at.index,
            offset: row.at.offset,
        };
        self.walk(row.topic, at)
            .map_or(Vec::new(), |batch| batch.lanes)
    }

    /// The topic's first batch at or behind `from` in log order.
    pub fn walk(&self, topic: TopicId, from: WalkPosition) -> Option<WalkedBatch> {
        for part in &self.closed {
            if part.covers().is_some_and(|(_, last)| last >= from.index)
                && let Some(batch) = part.walk(topic, from)
            {
                return Some(batch);
            }
        }
        self.active.walk(topic, from)
    }

    /// Log index up to which every batch is dead: below the log start of its partition, or of a
    /// topic that is gone. Only whole sealed parts count. 0 when none is.
    pub fn dead_through(&self, is_dead: impl Fn(&BatchRow) -> bool) -> u64 {
        let mut through = 0;
        for part in &self.closed {
            if !part.all_rows(&is_dead) {
                break;
            }
            through = part.covers().map_or(through, |(_, last)| last);
        }
        through
    }

    /// Place in log order of the batch that holds `offset` of a partition, or of the next one.
    pub fn walk_position(&self, topic: TopicId, partition: u32, offset: u64) -> WalkPosition {
        match self.find(topic, partition, offset) {
            Some(row) => WalkPosition {
                index: row.at.index,
                offset: row.at.offset,
            },
            None => WalkPosition {
                index: u64::MAX,
                offset: 0,
            },
        }
    }
}

pub(crate) fn after(row: &BatchRow) -> WalkPosition {
    WalkPosition {
        index: row.at.index,
        offset: row.at.offset + 1,
    }
}
