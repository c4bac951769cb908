//! Every bound of the listener. Reaching one is a refusal the client can read.

/// Largest request body, bytes (http-api 1.1).
pub const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest wait of a pop, milliseconds.
pub const POP_WAIT_MS_MAX: u64 = 60_000;
/// Messages of a pop that names no batch.
pub const POP_BATCH_DEFAULT: u32 = 200;
/// Most messages of one pop; larger values are lowered.
pub const POP_BATCH_MAX: u32 = 10_000;
/// Most lanes of one pop.
pub const POP_LANES_MAX: u32 = 64;
/// Lease of a discovery pop that names none, milliseconds.
pub const DISCOVERY_LEASE_MS: i64 = 60_000;
/// Longest lease a client may ask for, seconds (seven days).
pub const LEASE_SECONDS_MAX: i64 = 7 * 86_400;
/// Records looked at on either side of a cursor for an unremembered transaction id.
pub const RESOLVE_WINDOW: u64 = 10_000;
/// Operations of one KV call, and of the KV part of a transaction.
pub const KV_OPS_MAX: usize = 256;
pub const KV_OPS_IN_TRANSACTION_MAX: usize = 64;
/// Keys of one KV call, and of the KV part of a transaction.
pub const KV_KEYS_MAX: usize = 1024;
pub const KV_KEYS_IN_TRANSACTION_MAX: usize = 256;
/// Longest key, bytes.
pub const KV_KEY_BYTES_MAX: usize = 512;
/// Largest value as compact JSON, bytes.
pub const KV_VALUE_BYTES_MAX: usize = 64 * 1024;
/// Values one call may read, bytes.
pub const KV_READ_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Rows of one prefix read: default and bound.
pub const KV_PREFIX_LIMIT: usize = 100;
pub const KV_PREFIX_LIMIT_MAX: usize = 1000;
/// Operations of one timers call.
pub const TIMER_OPS_MAX: usize = 256;
/// Largest decoded payload of a timer, bytes.
pub const TIMER_PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
/// Farthest a timer may lie ahead, milliseconds (90 days).
pub const TIMER_HORIZON_MS: i64 = 90 * 86_400 * 1000;
/// Longest timer key, bytes.
pub const TIMER_KEY_BYTES_MAX: usize = 512;
/// Longest prefix of a timer count, bytes.
pub const TIMER_PREFIX_BYTES_MAX: usize = 128;
/// Positions of one transaction, and the longest metadata of one.
pub const POSITIONS_MAX: usize = 16_384;
pub const POSITION_METADATA_BYTES_MAX: usize = 4096;
/// Entries of one call that reads by offset.
pub const FETCH_ENTRIES_MAX: usize = 1024;
/// Bytes of one fetch entry: default and bound.
pub const FETCH_ENTRY_BYTES: u64 = 1024 * 1024;
pub const FETCH_ENTRY_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Bytes of a whole fetch answer: default and bound.
pub const FETCH_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Longest wait of a fetch, milliseconds.
pub const FETCH_WAIT_MS_MAX: u64 = 30_000;
/// Lanes of one page of `partitions/changed`.
pub const CHANGED_LIMIT: usize = 1000;
/// Lanes looked at in one look at the state, so that apply is not held up.
pub const LANES_PER_LOOK: usize = 2_000;
/// Lanes counted one by one for a listing; beyond it counts are offset arithmetic.
pub const LANES_COUNTED_MAX: usize = 20_000;
/// Rows of one page of a listing.
pub const PAGE_MAX: usize = 1000;
/// Deepest a listing can be paged.
pub const PAGE_OFFSET_MAX: usize = 100_000;
/// Message groups of a binary body.
pub const BINARY_RAW_BYTES_MAX: usize = BODY_BYTES_MAX;
/// Open connections.
pub const CONNECTIONS_MAX: usize = 20_000;
/// How long a connection may take over its request head, seconds.
pub const HEAD_SECONDS: u64 = 30;
/// How long a shutdown waits for requests in flight, seconds.
pub const DRAIN_SECONDS: u64 = 3;

/// Bytes read and forgotten of a body that is too large, before the connection is closed.
pub const LINGER_BYTES: usize = 4 * 1024 * 1024;
/// And for how long.
pub const LINGER: std::time::Duration = std::time::Duration::from_secs(1);

/// How long a call that is no long poll waits for a leader (http-api 3.3).
pub const LEADER_WAIT: std::time::Duration = std::time::Duration::from_secs(3);
/// How long the leader may take over a call that is handed to it, beside what it may wait.
pub const FORWARD_WAIT: std::time::Duration = std::time::Duration::from_secs(35);
/// How long an answer is still waited for when another node leads by now.
pub const DEPOSED_WAIT: std::time::Duration = std::time::Duration::from_secs(1);
/// Pause before looking for a leader again.
pub const LEADER_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);
/// Largest answer that is handed on, bytes.
pub const FORWARDED_BYTES_MAX: usize = 256 * 1024 * 1024;
