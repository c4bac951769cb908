//! Every bound of the node. Reaching one is a refusal or a wait, never a fault.

use std::time::Duration;

/// Bytes of record batches one entry collects from several requests.
pub const ENTRY_BYTES_TARGET: usize = 4 * 1024 * 1024;
/// Bytes of the largest single request; it gets an entry of its own.
pub const ENTRY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Commands one entry collects.
pub const ENTRY_COMMANDS_MAX: usize = 4096;
/// Share of [`ENTRY_COMMANDS_MAX`] that acks and claims may take while pushes wait.
pub const ENTRY_URGENT_MAX: usize = 2048;
/// Entries proposed and not yet answered.
pub const IN_FLIGHT_ENTRIES_MAX: usize = 8;
/// Their bytes.
pub const IN_FLIGHT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes of requests accepted and not yet answered.
pub const QUEUED_BYTES_MAX: usize = 128 * 1024 * 1024;
/// What a request costs of [`QUEUED_BYTES_MAX`] beside its payload.
pub const REQUEST_BYTES: usize = 256;
/// How long a request waits for room in the queue.
pub const ROOM_WAIT: Duration = Duration::from_secs(15);
/// How long a request waits for its outcome.
pub const OUTCOME_WAIT: Duration = Duration::from_secs(30);
/// Pause before proposing again after the consensus refused for the moment.
pub const REFUSED_PAUSE: Duration = Duration::from_millis(10);
/// Entries handed to the apply thread and not yet applied.
pub const APPLY_QUEUE: usize = 256;
/// Bytes of decompressed batches kept.
pub const DECODED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Shards of that cache.
pub const DECODED_SHARDS: usize = 16;
/// Timers fired in one round.
pub const TIMERS_PER_ROUND: usize = 1024;
/// Rounds a pop may lose against others before it answers with nothing.
pub const POP_ROUNDS_MAX: usize = 64;
/// Time between two rounds of housekeeping while there is something to keep.
pub const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// Log bytes since the last image that make a new one due, at least.
pub const IMAGE_LOG_BYTES_MIN: u64 = 256 * 1024 * 1024;
/// The same, as a multiple of the image's size.
pub const IMAGE_LOG_FACTOR: u64 = 4;
/// How often something is looked at that nothing tells of.
pub const LOOK: Duration = Duration::from_millis(10);
/// How long a stop waits for work in flight.
pub const STOP_WAIT: Duration = Duration::from_millis(1500);
/// Bytes of entries one read of the log returns at most (but always one entry).
pub const READ_BYTES_MAX: usize = 4 * 1024 * 1024;
