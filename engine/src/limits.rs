//! Every bound of the state machine. Reaching one is a refusal, never a fault.

/// Batches remembered per idempotent producer and partition (KIP-98).
pub const PRODUCER_BATCHES: usize = 5;
/// Most Kafka partitions of one topic.
pub const PARTITIONS_MAX: u32 = 10_000;
/// Idempotent producers are forgotten after this long without a batch, seconds
/// (`producer.id.expiration.ms`, 1 day).
pub const PRODUCER_IDLE_SECONDS: i64 = 86_400;
/// Dedup memory is kept at least this long, seconds (semantics DED-2).
pub const DEDUP_SECONDS_MIN: i64 = 900;
/// Released leases remembered per group and topic, so that a repeated ack is answered like the
/// first (semantics ACK-9).
pub const RELEASED_MAX: usize = 65_536;
/// Rows one tick may forget.
pub const TICK_ROWS_MAX: usize = 100_000;
/// Largest decompressed size of one batch, bytes.
pub const BATCH_DECOMPRESSED_BYTES_MAX: usize = 64 * 1024 * 1024;
