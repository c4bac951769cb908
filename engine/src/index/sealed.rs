//! A sealed part of the index: immutable bytes that are looked up where they lie, so a sidecar
//! file can be mapped and costs no heap. All integers little-endian; layout below.
//!
//! ```text
//! header   magic "QIX1" | rows u32 | records u32 | partitions u32 | topics u32 | lanes u32
//!          | dropped u32 | reserved u32
//! rows     64 B each, in log order: topic u32, partition u32, base u64, index u64, offset u32,
//!          len u32, records u32, first record u32, last delta u32, epoch u32, max timestamp i64,
//!          time i64
//! by-part  u32 row ids grouped by (topic, partition), in offset order
//! parts    16 B each, sorted: topic u32, partition u32, start u32, count u32
//! by-topic u32 row ids grouped by topic, in log order
//! topics   12 B each, sorted: topic u32, start u32, count u32
//! lane-of  u32 per record: its lane or 2^32 - 1
//! ordinals u32 record ordinals grouped by lane, in number order
//! lanes    20 B each, sorted: lane u32, first number u64, start u32, count u32
//! dropped  8 B each, sorted: row u32, record u32
//! ```

use bytes::Bytes;

use super::active::{ActivePart, NO_LANE};
use super::{BatchRow, Place, WalkPosition, WalkedBatch, after};
use crate::ids::{BatchRef, LaneId, TimeUs, TopicId};

const MAGIC: u32 = u32::from_le_bytes(*b"QIX1");
const HEADER: usize = 32;
const ROW: usize = 64;
const PART: usize = 16;
const TOPIC: usize = 12;
const LANE: usize = 20;
const DROPPED: usize = 8;

/// The bytes are not a sealed part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an index part: {0}")]
pub struct SealedError(&'static str);

/// One sealed part, looked up in its bytes.
#[derive(Clone, Debug)]
pub struct SealedPart {
    bytes: Bytes,
    rows: usize,
    records: usize,
    partitions: usize,
    topics: usize,
    lanes: usize,
    dropped: usize,
    by_partition_at: usize,
    partitions_at: usize,
    by_topic_at: usize,
    topics_at: usize,
    lane_of_at: usize,
    ordinals_at: usize,
    ordinals: usize,
    lanes_at: usize,
    dropped_at: usize,
}

pub(super) fn encode(part: &ActivePart) -> Vec<u8> {
    let rows = part.rows();
    let mut parts: Vec<((TopicId, u32), u32)> = rows
        .iter()
        .zip(0u32..)
        .map(|(row, id)| ((row.topic, row.partition), id))
        .collect();
    parts.sort();
    let mut topics: Vec<(TopicId, u32)> = rows
        .iter()
        .zip(0u32..)
        .map(|(row, id)| (row.topic, id))
        .collect();
    topics.sort();
    let mut lanes: Vec<u32> = part.lanes().keys().copied().collect();
    lanes.sort_unstable();
    let dropped: Vec<(u32, u32)> = part
        .all_dropped()
        .iter()
        .flat_map(|(row, records)| records.iter().map(|record| (*row, *record)))
        .collect();
    let partitions = groups(parts.iter().map(|(key, _)| *key));
    let topic_groups = groups(topics.iter().map(|(key, _)| *key));

    let mut out = Vec::with_capacity(HEADER + rows.len() * (ROW + 8) + part.records() * 8);
    let u32s = |out: &mut Vec<u8>, values: &[u32]| {
        values
            .iter()
            .for_each(|v| out.extend_from_slice(&v.to_le_bytes()));
    };
    let count = |n: usize| u32::try_from(n).expect("a segment holds fewer than 2^32 of anything");
    let counts = [
        count(rows.len()),
        count(part.records()),
        count(partitions.len()),
        count(topic_groups.len()),
        count(lanes.len()),
        count(dropped.len()),
        0,
    ];
    u32s(&mut out, &[MAGIC]);
    u32s(&mut out, &counts);
    for (row, first) in rows.iter().zip(part.first_records()) {
        u32s(&mut out, &[row.topic.0, row.partition]);
        out.extend_from_slice(&row.base_offset.to_le_bytes());
        out.extend_from_slice(&row.at.index.to_le_bytes());
        let delta = u32::try_from(row.last_offset - row.base_offset).unwrap_or(u32::MAX);
        u32s(
            &mut out,
            &[
                row.at.offset,
                row.at.len,
                row.records,
                *first,
                delta,
                row.epoch,
            ],
        );
        out.extend_from_slice(&row.max_timestamp.to_le_bytes());
        out.extend_from_slice(&row.time.0.to_le_bytes());
    }
    parts.iter().for_each(|(_, id)| u32s(&mut out, &[*id]));
    for ((topic, partition), start, len) in &partitions {
        u32s(&mut out, &[topic.0, *partition, *start, *len]);
    }
    topics.iter().for_each(|(_, id)| u32s(&mut out, &[*id]));
    for (topic, start, len) in &topic_groups {
        u32s(&mut out, &[topic.0, *start, *len]);
    }
    u32s(&mut out, part.lane_of());
    for lane in &lanes {
        u32s(&mut out, &part.lanes()[lane].ordinals);
    }
    let mut start = 0;
    for lane in &lanes {
        let run = &part.lanes()[lane];
        let len = count(run.ordinals.len());
        u32s(&mut out, &[*lane]);
        out.extend_from_slice(&run.first.to_le_bytes());
        u32s(&mut out, &[start, len]);
        start += len;
    }
    dropped
        .iter()
        .for_each(|(row, record)| u32s(&mut out, &[*row, *record]));
    out
}

/// Runs of equal keys: key, start, length.
fn groups<K: PartialEq + Copy>(keys: impl Iterator<Item = K>) -> Vec<(K, u32, u32)> {
    let mut groups: Vec<(K, u32, u32)> = Vec::new();
    for (key, at) in keys.zip(0u32..) {
        match groups.last_mut() {
            Some((last, _, len)) if *last == key => *len += 1,
            _ => groups.push((key, at, 1)),
        }
    }
    groups
}

impl SealedPart {
    /// Takes the bytes of a part; checks that all sections are there.
    pub fn open(bytes: Bytes) -> Result<SealedPart, SealedError> {
        let mut head = [0u32; 8];
        for (i, value) in head.iter_mut().enumerate() {
            *value = read_u32(&bytes, i * 4).ok_or(SealedError("too short for a header"))?;
        }
        if head[0] != MAGIC {
            return Err(SealedError("wrong magic"));
        }
        let [_, rows, records, partitions, topics, lanes, dropped, _] = head.map(|n| n as usize);
        let by_partition_at = HEADER + rows * ROW;
        let partitions_at = by_partition_at + rows * 4;
        let by_topic_at = partitions_at + partitions * PART;
        let topics_at = by_topic_at + rows * 4;
        let lane_of_at = topics_at + topics * TOPIC;
        let ordinals_at = lane_of_at + records * 4;
        let fixed = ordinals_at + lanes * LANE + dropped * DROPPED;
        let ordinals = bytes
            .len()
            .checked_sub(fixed)
            .ok_or(SealedError("too short"))?
            / 4;
        if ordinals > records || fixed + ordinals * 4 != bytes.len() {
            return Err(SealedError("sections do not add up"));
        }
        let lanes_at = ordinals_at + ordinals * 4;
        let dropped_at = lanes_at + lanes * LANE;
        Ok(SealedPart {
            bytes,
            rows,
            records,
            partitions,
            topics,
            lanes,
            dropped,
            by_partition_at,
            partitions_at,
            by_topic_at,
            topics_at,
            lane_of_at,
            ordinals_at,
            ordinals,
            lanes_at,
            dropped_at,
        })
    }

    fn u32_at(&self, at: usize) -> u32 {
        read_u32(&self.bytes, at).unwrap_or(0)
    }

    fn u64_at(&self, at: usize) -> u64 {
        read_u64(&self.bytes, at).unwrap_or(0)
    }

    fn row(&self, id: usize) -> Option<BatchRow> {
        if id >= self.rows {
            return None;
        }
        let at = HEADER + id * ROW;
        let base_offset = self.u64_at(at + 8);
        Some(BatchRow {
            topic: TopicId(self.u32_at(at)),
            partition: self.u32_at(at + 4),
            base_offset,
            last_offset: base_offset + u64::from(self.u32_at(at + 40)),
            records: self.u32_at(at + 32),
            has_dropped: self.has_dropped(id),
            at: BatchRef {
                index: self.u64_at(at + 16),
                offset: self.u32_at(at + 24),
                len: self.u32_at(at + 28),
            },
            max_timestamp: self.u64_at(at + 48).cast_signed(),
            time: TimeUs(self.u64_at(at + 56).cast_signed()),
            epoch: self.u32_at(at + 44),
        })
    }

    fn first_record(&self, id: usize) -> u32 {
        self.u32_at(HEADER + id * ROW + 36)
    }

    /// Whether `wanted` holds for all its rows.
    pub(super) fn all_rows(&self, wanted: impl Fn(&BatchRow) -> bool) -> bool {
        (0..self.rows)
            .filter_map(|id| self.row(id))
            .all(|row| wanted(&row))
    }

    /// First and last log index of its batches.
    pub fn covers(&self) -> Option<(u64, u64)> {
        let last = self.row(self.rows.checked_sub(1)?)?;
        Some((self.row(0)?.at.index, last.at.index))
    }

    /// Start and count of a partition's row ids.
    fn part(&self, topic: TopicId, partition: u32) -> Option<(usize, usize)> {
        let at = |i: usize| self.partitions_at + i * PART;
        let i = partition_point(self.partitions, |i| {
            (self.u32_at(at(i)), self.u32_at(at(i) + 4)) < (topic.0, partition)
        });
        if i == self.partitions
            || (self.u32_at(at(i)), self.u32_at(at(i) + 4)) != (topic.0, partition)
        {
            return None;
        }
        Some((
            self.u32_at(at(i) + 8) as usize,
            self.u32_at(at(i) + 12) as usize,
        ))
    }

    pub(super) fn has(&self, topic: TopicId, partition: u32) -> bool {
        self.part(topic, partition).is_some()
    }

    fn row_of_part(&self, i: usize) -> Option<BatchRow> {
        self.row(self.u32_at(self.by_partition_at + i * 4) as usize)
    }

    pub(super) fn find(&self, topic: TopicId, partition: u32, offset: u64) -> Option<BatchRow> {
        let (start, count) = self.part(topic, partition)?;
        let i = partition_point(count, |i| {
            self.row_of_part(start + i)
                .is_some_and(|row| row.last_offset < offset)
        });
        if i == count {
            None
        } else {
            self.row_of_part(start + i)
        }
    }

    pub(super) fn rows_of(
        &self,
        topic: TopicId,
        partition: u32,
    ) -> impl Iterator<Item = BatchRow> + '_ {
        let (start, count) = self.part(topic, partition).unwrap_or((0, 0));
        (start..start + count).filter_map(|i| self.row_of_part(i))
    }

    /// First number, start and count of a lane's ordinals.
    fn lane(&self, lane: LaneId) -> Option<(u64, usize, usize)> {
        let at = |i: usize| self.lanes_at + i * LANE;
        let i = partition_point(self.lanes, |i| self.u32_at(at(i)) < lane.0);
        if i == self.lanes || self.u32_at(at(i)) != lane.0 {
            return None;
        }
        let start = self.u32_at(at(i) + 12) as usize;
        Some((
            self.u64_at(at(i) + 4),
            start,
            self.u32_at(at(i) + 16) as usize,
        ))
    }

    pub(super) fn locate(&self, lane: LaneId, number: u64) -> Option<Place> {
        let (first, start, count) = self.lane(lane)?;
        let i = usize::try_from(number.checked_sub(first)?).ok()?;
        if i >= count || start + i >= self.ordinals {
            return None;
        }
        let ordinal = self.u32_at(self.ordinals_at + (start + i) * 4);
        let id =
            partition_point(self.rows, |id| self.first_record(id) <= ordinal).checked_sub(1)?;
        Some(Place {
            row: self.row(id)?,
            record: ordinal - self.first_record(id),
        })
    }

    pub(super) fn first_number(&self, lane: LaneId) -> Option<u64> {
        self.lane(lane).map(|(first, _, _)| first)
    }

    fn dropped_from(&self, row: usize) -> usize {
        partition_point(self.dropped, |i| {
            (self.u32_at(self.dropped_at + i * DROPPED) as usize) < row
        })
    }

    fn has_dropped(&self, row: usize) -> bool {
        if self.dropped == 0 {
            return false;
        }
        let at = self.dropped_from(row);
        at < self.dropped && self.u32_at(self.dropped_at + at * DROPPED) as usize == row
    }

    fn dropped_of(&self, row: usize) -> Vec<u32> {
        (self.dropped_from(row)..self.dropped)
            .map(|i| self.dropped_at + i * DROPPED)
            .take_while(|at| self.u32_at(*at) as usize == row)
            .map(|at| self.u32_at(at + 4))
            .collect()
    }

    pub(super) fn dropped(&self, row: &BatchRow) -> Option<Vec<u32>> {
        let id = partition_point(self.rows, |id| {
            self.row(id)
                .is_some_and(|r| (r.at.index, r.at.offset) < (row.at.index, row.at.offset))
        });
        (self.row(id)?.at == row.at).then(|| self.dropped_of(id))
    }

    pub(super) fn walk(&self, topic: TopicId, from: WalkPosition) -> Option<WalkedBatch> {
        let at = |i: usize| self.topics_at + i * TOPIC;
        let i = partition_point(self.topics, |i| self.u32_at(at(i)) < topic.0);
        if i == self.topics || self.u32_at(at(i)) != topic.0 {
            return None;
        }
        let (start, count) = (
            self.u32_at(at(i) + 4) as usize,
            self.u32_at(at(i) + 8) as usize,
        );
        let id_of = |i: usize| self.u32_at(self.by_topic_at + (start + i) * 4) as usize;
        let first = partition_point(count, |i| {
            self.row(id_of(i))
                .is_some_and(|r| (r.at.index, r.at.offset) < (from.index, from.offset))
        });
        if first == count {
            return None;
        }
        let id = id_of(first);
        let row = self.row(id)?;
        let record = self.first_record(id) as usize;
        let lanes = (record..record + row.records as usize)
            .map(|r| {
                let lane = self.u32_at(self.lane_of_at + r * 4);
                if lane == NO_LANE {
                    return None;
                }
                let (first, start, count) = self.lane(LaneId(lane))?;
                let at = |i: usize| self.u32_at(self.ordinals_at + (start + i) * 4) as usize;
                let i = partition_point(count, |i| at(i) < r);
                Some((LaneId(lane), first + i as u64))
            })
            .collect();
        Some(WalkedBatch {
            row,
            next: after(&row),
            lanes,
        })
    }

    pub(super) fn to_active(&self) -> ActivePart {
        let rows = (0..self.rows)
            .filter_map(|id| Some((self.row(id)?, self.dropped_of(id))))
            .collect();
        let lane_of: Vec<u32> = (0..self.records)
            .map(|r| self.u32_at(self.lane_of_at + r * 4))
            .collect();
        ActivePart::rebuild(rows, &lane_of, &|lane| {
            self.first_number(LaneId(lane)).unwrap_or(0)
        })
    }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u32::from_le_bytes(*b))
}

fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u64::from_le_bytes(*b))
}

/// Index of the first of `count` items for which `below` is false.
fn partition_point(count: usize, below: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if below(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
