//! Names that both protocols agree on: reserved groups, lane names, record headers, bounds.

/// The group of a pop or an ack that names none (semantics QMD-1).
pub const QUEUE_MODE_GROUP: &str = "__QUEUE_MODE__";
/// The group under which timers that cannot fire are dead-lettered (semantics DLQ-12).
pub const TIMER_GROUP: &str = "__timer__";
/// The lane of a push that names no partition; its records carry no key.
pub const DEFAULT_LANE: &str = "Default";

/// Record header: the producer's transaction id, the key of deduplication and the address of acks.
pub const HEADER_TRANSACTION_ID: &str = "queen.transaction-id";
/// Record header: the message id, present only where it was promised before the append.
pub const HEADER_MESSAGE_ID: &str = "queen.message-id";
/// Record header: the trace id of a message pushed in a transaction.
pub const HEADER_TRACE_ID: &str = "queen.trace-id";
/// Record header: the authenticated producer (the `sub` claim of its token).
pub const HEADER_PRODUCER_SUB: &str = "queen.producer-sub";

/// Longest budget of topic plus the longer of lane and group, in bytes (semantics QUE-8).
pub const NAME_BYTES_MAX: usize = 411;
/// Longest transaction id in bytes (semantics PSH-12).
pub const TRANSACTION_ID_BYTES_MAX: usize = 65_535;
