//! The lanes: one row per (topic, name), found by hash, numbered by the log. Owns ids, names and
//! next numbers; where the records lie is the index's business.

use hashbrown::HashTable;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::ids::{LaneId, TimeUs, TopicId};

const ALIVE: u8 = 1;
const SEVERAL_PARTITIONS: u8 = 2;

/// What the state keeps of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneRow {
    name_at: u64,
    /// Number of the lane's next record; its count of records ever.
    pub next: u64,
    /// Time of its newest record.
    pub last_time: TimeUs,
    pub topic: TopicId,
    /// Kafka partition of its newest record.
    pub partition: u32,
    name_len: u16,
    flags: u8,
}

impl LaneRow {
    /// Whether its records lie in more than one Kafka partition (the width was raised, or
    /// producers used different partitioners).
    pub fn several_partitions(&self) -> bool {
        self.flags & SEVERAL_PARTITIONS != 0
    }
}

/// All lanes of all topics.
#[derive(Clone, Debug, Default)]
pub struct LaneTable {
    rows: Vec<LaneRow>,
    names: Vec<u8>,
    /// Ids by hash of (topic, name); rebuilt when an image is loaded.
    by_name: HashTable<u32>,
    alive: u64,
}

fn hash_of(topic: TopicId, name: &[u8]) -> u64 {
    xxh3_64_with_seed(name, u64::from(topic.0))
}

impl LaneTable {
    /// The lane's row, if the lane is alive.
    pub fn get(&self, id: LaneId) -> Option<&LaneRow> {
        self.rows
            .get(id.0 as usize)
            .filter(|row| row.flags & ALIVE != 0)
    }

    /// The lane's name, if the lane is alive.
    pub fn name(&self, id: LaneId) -> Option<&[u8]> {
        self.get(id).map(|row| self.name_of(row))
    }

    fn name_of(&self, row: &LaneRow) -> &[u8] {
        let at = usize::try_from(row.name_at).unwrap_or(usize::MAX);
        self.names
            .get(at..at + usize::from(row.name_len))
            .unwrap_or_default()
    }

    /// The lane of `topic` with this name.
    pub fn find(&self, topic: TopicId, name: &[u8]) -> Option<LaneId> {
        let same = |id: &u32| {
            let row = &self.rows[*id as usize];
            row.topic == topic && self.name_of(row) == name
        };
        self.by_name
            .find(hash_of(topic, name), same)
            .copied()
            .map(LaneId)
    }

    /// Number of lanes alive.
    pub fn len(&self) -> u64 {
        self.alive
    }

    /// Whether no lane is alive.
    pub fn is_empty(&self) -> bool {
        self.alive == 0
    }

    /// The lane with this name, made if missing; whether it was made.
    pub(crate) fn intern(&mut self, topic: TopicId, name: &[u8]) -> (LaneId, bool) {
        if let Some(id) = self.find(topic, name) {
            return (id, false);
        }
        let name = &name[..name.len().min(usize::from(u16::MAX))];
        let id = u32::try_from(self.rows.len()).expect("4 billion lanes do not fit in memory");
        self.rows.push(LaneRow {
            name_at: self.names.len() as u64,
            next: 0,
            last_time: TimeUs(0),
            topic,
            partition: 0,
            name_len: u16::try_from(name.len()).unwrap_or(u16::MAX),
            flags: ALIVE,
        });
        self.names.extend_from_slice(name);
        self.alive += 1;
        self.enter(id);
        (LaneId(id), true)
    }

    fn enter(&mut self, id: u32) {
        let LaneTable {
            rows,
            names,
            by_name,
            ..
        } = self;
        let hash = |id: &u32| {
            let row = &rows[*id as usize];
            let at = usize::try_from(row.name_at).unwrap_or(usize::MAX);
            hash_of(
                row.topic,
                names
                    .get(at..at + usize::from(row.name_len))
                    .unwrap_or_default(),
            )
        };
        by_name.insert_unique(hash(&id), id, hash);
    }

    /// Takes the lane's next number for a record in `partition`.
    pub(crate) fn take_number(&mut self, id: LaneId, partition: u32, now: TimeUs) -> u64 {
        let row = &mut self.rows[id.0 as usize];
        if row.next > 0 && row.partition != partition {
            row.flags |= SEVERAL_PARTITIONS;
        }
        row.partition = partition;
        row.last_time = now;
        let number = row.next;
        row.next += 1;
        number
    }

    /// Forgets a lane. Its id is never used again.
    pub(crate) fn remove(&mut self, id: LaneId) {
        let Some(row) = self.get(id).copied() else {
            return;
        };
        let hash = hash_of(row.topic, self.name_of(&row));
        if let Ok(entry) = self.by_name.find_entry(hash, |other| *other == id.0) {
            entry.remove();
        }
        self.rows[id.0 as usize].flags &= !ALIVE;
        self.alive -= 1;
    }

    /// The rows and names as they go into an image.
    pub(crate) fn parts(&self) -> (&[LaneRow], &[u8]) {
        (&self.rows, &self.names)
    }

    /// The table of an image's rows and names.
    pub(crate) fn from_parts(rows: Vec<LaneRow>, names: Vec<u8>) -> LaneTable {
        let alive: Vec<u32> = (0u32..)
            .zip(&rows)
            .filter(|(_, row)| row.flags & ALIVE != 0)
            .map(|(id, _)| id)
            .collect();
        let by_name = HashTable::with_capacity(alive.len());
        let mut table = LaneTable {
            rows,
            names,
            by_name,
            alive: alive.len() as u64,
        };
        for id in alive {
            table.enter(id);
        }
        table
    }
}
