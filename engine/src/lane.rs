//! The lanes: one row per (topic, name), found by hash, numbered by the log. Owns ids, names and
//! next numbers; where the records lie is the index's business.

use hashbrown::HashTable;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::chunks::Chunks;
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
    rows: Chunks<LaneRow>,
    names: Names,
    /// 32 bits of the hash of (topic, name), and the id; rebuilt when an image is loaded. The bits
    /// are kept so that growth and most misses touch no row.
    by_name: HashTable<(u32, u32)>,
    alive: u64,
}

/// Names one after the other in blocks that never move.
#[derive(Clone, Debug, Default)]
struct Names {
    blocks: Vec<Vec<u8>>,
}

/// Bits of a name's place that count inside its block.
const BLOCK_BITS: u32 = 20;

impl Names {
    fn push(&mut self, name: &[u8]) -> u64 {
        let full = self
            .blocks
            .last()
            .is_none_or(|b| b.len() + name.len() > 1 << BLOCK_BITS);
        if full {
            self.blocks.push(Vec::with_capacity(1 << BLOCK_BITS));
        }
        let block = self.blocks.len() - 1;
        let at = self.blocks[block].len();
        self.blocks[block].extend_from_slice(name);
        ((block as u64) << BLOCK_BITS) | at as u64
    }

    fn get(&self, at: u64, len: u16) -> &[u8] {
        let block = usize::try_from(at >> BLOCK_BITS).unwrap_or(usize::MAX);
        let from = usize::try_from(at & ((1 << BLOCK_BITS) - 1)).unwrap_or(usize::MAX);
        self.blocks
            .get(block)
            .and_then(|block| block.get(from..from + usize::from(len)))
            .unwrap_or_default()
    }
}

fn hash_of(topic: TopicId, name: &[u8]) -> u32 {
    let hash = xxh3_64_with_seed(name, u64::from(topic.0));
    u32::try_from(hash >> 32).unwrap_or(0)
}

/// Spreads 32 bits over the 64 that the table looks at.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
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
        self.get(id)
            .map(|row| self.names.get(row.name_at, row.name_len))
    }

    /// The lane of `topic` with this name.
    pub fn find(&self, topic: TopicId, name: &[u8]) -> Option<LaneId> {
        self.find_hashed(hash_of(topic, name), topic, name)
    }

    fn find_hashed(&self, hash: u32, topic: TopicId, name: &[u8]) -> Option<LaneId> {
        let same = |(other, id): &(u32, u32)| {
            *other == hash
                && self.get(LaneId(*id)).is_some_and(|row| {
                    row.topic == topic && self.names.get(row.name_at, row.name_len) == name
                })
        };
        self.by_name
            .find(spread(hash), same)
            .map(|(_, id)| LaneId(*id))
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
        let name = &name[..name.len().min(usize::from(u16::MAX))];
        let hash = hash_of(topic, name);
        if let Some(id) = self.find_hashed(hash, topic, name) {
            return (id, false);
        }
        let id = u32::try_from(self.rows.len()).expect("4 billion lanes do not fit in memory");
        self.rows.push(LaneRow {
            name_at: self.names.push(name),
            next: 0,
            last_time: TimeUs(0),
            topic,
            partition: 0,
            name_len: u16::try_from(name.len()).unwrap_or(u16::MAX),
            flags: ALIVE,
        });
        self.alive += 1;
        self.by_name
            .insert_unique(spread(hash), (hash, id), |(hash, _)| spread(*hash));
        (LaneId(id), true)
    }

    /// Takes the lane's next number for a record in `partition`.
    pub(crate) fn take_number(&mut self, id: LaneId, partition: u32, now: TimeUs) -> u64 {
        let row = self
            .rows
            .get_mut(id.0 as usize)
            .expect("apply has looked the lane up");
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
        let hash = hash_of(row.topic, self.names.get(row.name_at, row.name_len));
        if let Ok(entry) = self
            .by_name
            .find_entry(spread(hash), |(_, other)| *other == id.0)
        {
            entry.remove();
        }
        if let Some(row) = self.rows.get_mut(id.0 as usize) {
            row.flags &= !ALIVE;
        }
        self.alive -= 1;
    }

    /// The rows and, in their order, the names as they go into an image.
    pub(crate) fn parts(&self) -> (Vec<&LaneRow>, Vec<u8>) {
        let mut names = Vec::new();
        for row in self.rows.iter() {
            names.extend_from_slice(self.names.get(row.name_at, row.name_len));
        }
        (self.rows.iter().collect(), names)
    }

    /// The table of an image's rows and names. Names that are cut short come out empty.
    pub(crate) fn from_parts(rows: Vec<LaneRow>, names: &[u8]) -> LaneTable {
        let mut table = LaneTable::default();
        table.by_name.reserve(rows.len(), |(hash, _)| spread(*hash));
        let mut rest = names;
        for (id, mut row) in (0u32..).zip(rows) {
            let (name, tail) = rest.split_at(rest.len().min(usize::from(row.name_len)));
            rest = tail;
            row.name_at = table.names.push(name);
            if row.flags & ALIVE != 0 {
                let hash = hash_of(row.topic, name);
                table
                    .by_name
                    .insert_unique(spread(hash), (hash, id), |(hash, _)| spread(*hash));
                table.alive += 1;
            }
            table.rows.push(row);
        }
        table
    }
}
