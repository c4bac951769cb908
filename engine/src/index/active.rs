//! The part of the index that still grows: rows in log order, with maps by partition, topic and
//! lane. Lives on the heap; sealed and written out when its log segment is full.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::{BatchRow, NewBatch, Place, WalkPosition, WalkedBatch, after};
use crate::ids::{LaneId, TopicId};

/// No lane: the record was dropped, or lanes are off.
pub(super) const NO_LANE: u32 = u32::MAX;

/// The records of one lane in this part: dense numbers from `first`.
#[derive(Clone, Debug, Default)]
pub(super) struct LaneRun {
    pub(super) first: u64,
    /// Ordinal of each record in this part.
    pub(super) ordinals: Vec<u32>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ActivePart {
    rows: Vec<BatchRow>,
    /// Ordinal of each row's first record.
    first_record: Vec<u32>,
    by_partition: HashMap<(TopicId, u32), Vec<u32>>,
    by_topic: HashMap<TopicId, Vec<u32>>,
    lane_of: Vec<u32>,
    lanes: HashMap<u32, LaneRun>,
    dropped: BTreeMap<u32, Vec<u32>>,
}

impl ActivePart {
    pub(super) fn add(&mut self, batch: &NewBatch<'_>) {
        let id = u32::try_from(self.rows.len()).expect("a segment holds fewer than 2^32 batches");
        let first = u32::try_from(self.lane_of.len()).expect("and fewer than 2^32 records");
        let row = batch.row;
        self.rows.push(row);
        self.first_record.push(first);
        self.by_partition
            .entry((row.topic, row.partition))
            .or_default()
            .push(id);
        self.by_topic.entry(row.topic).or_default().push(id);
        for (ordinal, lane) in (first..first + row.records).zip(batch.lanes) {
            match lane {
                None => self.lane_of.push(NO_LANE),
                Some((lane, number)) => {
                    self.lane_of.push(lane.0);
                    let run = self.lanes.entry(lane.0).or_insert_with(|| LaneRun {
                        first: *number,
                        ordinals: Vec::new(),
                    });
                    run.ordinals.push(ordinal);
                }
            }
        }
        // A batch without lanes still takes its ordinals.
        self.lane_of.resize((first + row.records) as usize, NO_LANE);
        if !batch.dropped.is_empty() {
            self.dropped.insert(id, batch.dropped.to_vec());
        }
    }

    pub(super) fn rows(&self) -> &[BatchRow] {
        &self.rows
    }

    pub(super) fn records(&self) -> usize {
        self.lane_of.len()
    }

    pub(super) fn first_records(&self) -> &[u32] {
        &self.first_record
    }

    pub(super) fn lane_of(&self) -> &[u32] {
        &self.lane_of
    }

    pub(super) fn lanes(&self) -> &HashMap<u32, LaneRun> {
        &self.lanes
    }

    pub(super) fn all_dropped(&self) -> &BTreeMap<u32, Vec<u32>> {
        &self.dropped
    }

    pub(super) fn covers(&self) -> Option<(u64, u64)> {
        Some((self.rows.first()?.at.index, self.rows.last()?.at.index))
    }

    pub(super) fn has(&self, topic: TopicId, partition: u32) -> bool {
        self.by_partition.contains_key(&(topic, partition))
    }

    pub(super) fn all_rows(&self, wanted: impl Fn(&BatchRow) -> bool) -> bool {
        self.rows.iter().all(wanted)
    }

    pub(super) fn find(&self, topic: TopicId, partition: u32, offset: u64) -> Option<BatchRow> {
        let ids = self.by_partition.get(&(topic, partition))?;
        let at = ids.partition_point(|id| self.rows[*id as usize].last_offset < offset);
        ids.get(at).map(|id| self.rows[*id as usize])
    }

    pub(super) fn rows_of(
        &self,
        topic: TopicId,
        partition: u32,
    ) -> impl Iterator<Item = BatchRow> + '_ {
        let ids = self
            .by_partition
            .get(&(topic, partition))
            .map_or(&[][..], Vec::as_slice);
        ids.iter().map(|id| self.rows[*id as usize])
    }

    pub(super) fn locate(&self, lane: LaneId, number: u64) -> Option<Place> {
        let run = self.lanes.get(&lane.0)?;
        let at = usize::try_from(number.checked_sub(run.first)?).ok()?;
        let ordinal = *run.ordinals.get(at)?;
        let row = self.first_record.partition_point(|first| *first <= ordinal) - 1;
        Some(Place {
            row: self.rows[row],
            record: ordinal - self.first_record[row],
        })
    }

    pub(super) fn first_number(&self, lane: LaneId) -> Option<u64> {
        self.lanes.get(&lane.0).map(|run| run.first)
    }

    pub(super) fn dropped(&self, row: &BatchRow) -> Option<Vec<u32>> {
        let at = self
            .rows
            .partition_point(|r| (r.at.index, r.at.offset) < (row.at.index, row.at.offset));
        if self.rows.get(at)?.at != row.at {
            return None;
        }
        self.dropped.get(&u32::try_from(at).ok()?).cloned()
    }

    pub(super) fn walk(&self, topic: TopicId, from: WalkPosition) -> Option<WalkedBatch> {
        let ids = self.by_topic.get(&topic)?;
        let at = ids.partition_point(|id| {
            let row = &self.rows[*id as usize];
            (row.at.index, row.at.offset) < (from.index, from.offset)
        });
        let id = *ids.get(at)? as usize;
        let row = self.rows[id];
        let first = self.first_record[id] as usize;
        let lanes = (first..first + row.records as usize)
            .map(|ordinal| {
                let lane = self.lane_of[ordinal];
                let run = self.lanes.get(&lane)?;
                let at = run
                    .ordinals
                    .binary_search(&u32::try_from(ordinal).ok()?)
                    .ok()?;
                Some((LaneId(lane), run.first + at as u64))
            })
            .collect();
        Some(WalkedBatch {
            row,
            next: after(&row),
            lanes,
        })
    }

    /// Rebuilds a part from its rows; used when an image is loaded.
    pub(super) fn rebuild(
        rows: Vec<(BatchRow, Vec<u32>)>,
        lane_of: &[u32],
        first_number: &dyn Fn(u32) -> u64,
    ) -> ActivePart {
        let mut part = ActivePart::default();
        let mut at = 0;
        let mut next: HashMap<u32, u64> = HashMap::new();
        for (row, dropped) in rows {
            let lanes: Vec<Option<(LaneId, u64)>> = lane_of[at..at + row.records as usize]
                .iter()
                .map(|lane| {
                    if *lane == NO_LANE {
                        return None;
                    }
                    let number = next.entry(*lane).or_insert_with(|| first_number(*lane));
                    *number += 1;
                    Some((LaneId(*lane), *number - 1))
                })
                .collect();
            at += row.records as usize;
            part.add(&NewBatch {
                row,
                lanes: &lanes,
                dropped: &dropped,
            });
        }
        part
    }
}
