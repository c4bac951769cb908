//! Decompressed batches, bounded by bytes. Each shard is a clock: a hit sets a mark, the hand
//! clears marks and evicts what has none. Backlogs drain in log order, so one decompression serves
//! the pops of all lanes in a batch.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use queen_engine::batch::DecodedBatch;
use queen_engine::ids::BatchRef;

use crate::limits::DECODED_SHARDS;

struct Held {
    batch: Arc<DecodedBatch>,
    bytes: usize,
    marked: bool,
}

#[derive(Default)]
struct Shard {
    held: HashMap<BatchRef, Held>,
    hand: VecDeque<BatchRef>,
    bytes: usize,
}

/// A bounded cache of decompressed batches.
pub struct DecodedCache {
    shards: Vec<Mutex<Shard>>,
    shard_bytes_max: usize,
}

impl DecodedCache {
    /// A cache of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> DecodedCache {
        let shards = (0..DECODED_SHARDS).map(|_| Mutex::default()).collect();
        DecodedCache {
            shards,
            shard_bytes_max: bytes_max / DECODED_SHARDS,
        }
    }

    fn shard(&self, at: BatchRef) -> &Mutex<Shard> {
        let mixed = at.index.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(at.offset);
        &self.shards[(mixed % DECODED_SHARDS as u64) as usize]
    }

    /// The batch, if it is held.
    pub fn find(&self, at: BatchRef) -> Option<Arc<DecodedBatch>> {
        let mut shard = self.shard(at).lock();
        let held = shard.held.get_mut(&at)?;
        held.marked = true;
        Some(held.batch.clone())
    }

    /// Holds a batch, unless it is larger than a quarter of its shard.
    pub fn hold(&self, at: BatchRef, batch: &Arc<DecodedBatch>) {
        let bytes = batch.memory_bytes();
        if bytes > self.shard_bytes_max / 4 {
            return;
        }
        let mut shard = self.shard(at).lock();
        let held = Held {
            batch: batch.clone(),
            bytes,
            marked: false,
        };
        if let Some(old) = shard.held.insert(at, held) {
            shard.bytes -= old.bytes;
        } else {
            shard.hand.push_back(at);
        }
        shard.bytes += bytes;
        while shard.bytes > self.shard_bytes_max {
            let Some(next) = shard.hand.pop_front() else {
                break;
            };
            match shard.held.get_mut(&next) {
                Some(held) if held.marked => {
                    held.marked = false;
                    shard.hand.push_back(next);
                }
                Some(_) => {
                    if let Some(old) = shard.held.remove(&next) {
                        shard.bytes -= old.bytes;
                    }
                }
                None => {}
            }
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use queen_engine::batch::BatchBuilder;

    use super::*;

    fn batch(bytes: usize) -> Arc<DecodedBatch> {
        let mut builder = BatchBuilder::new(0);
        builder.push(0, None, Some(&vec![0u8; bytes]), &[]);
        Arc::new(DecodedBatch::decode(builder.finish(), usize::MAX).unwrap())
    }

    #[test]
    fn stays_within_its_bytes_and_keeps_what_is_used() {
        let cache = DecodedCache::new(DECODED_SHARDS * 64 * 1024);
        let small = batch(4000);
        let used = BatchRef {
            index: 1,
            offset: 0,
            len: 1,
        };
        cache.hold(used, &small);
        for index in 2..2000 {
            assert!(cache.find(used).is_some());
            cache.hold(
                BatchRef {
                    index,
                    offset: 0,
                    len: 1,
                },
                &small,
            );
            assert!(cache.bytes() <= DECODED_SHARDS * 64 * 1024);
        }
        cache.hold(
            BatchRef {
                index: 3000,
                offset: 0,
                len: 1,
            },
            &batch(60_000),
        );
        assert!(
            cache
                .find(BatchRef {
                    index: 3000,
                    offset: 0,
                    len: 1
                })
                .is_none()
        );
    }
}
