//! Every bound of the listener that is not configurable.

/// Answers of one connection that may be under way at once; more requests wait in the socket.
pub(crate) const PIPELINE_MAX: usize = 64;
/// First buffer of a connection, and of a frame whose bytes have not arrived yet.
pub(crate) const READ_CHUNK: usize = 16 * 1024;
/// A frame up to this size gets its whole buffer once its first chunk is there.
pub(crate) const FRAME_RESERVE_MAX: usize = 4 * 1024 * 1024;
/// Answers that are ready together are written together, up to this many bytes.
pub(crate) const WRITE_GATHER_BYTES: usize = 1024 * 1024;
/// Byte strings per vectored write.
pub(crate) const WRITE_SLICES: usize = 64;
/// Longest fetch wait honoured.
pub(crate) const FETCH_WAIT_MS_MAX: i32 = 10 * 60 * 1000;
/// Largest answer to a fetch, whatever the client asks for (`fetch.max.bytes` of a broker).
pub(crate) const FETCH_BYTES_MAX: usize = 55 * 1024 * 1024;
/// Partitions one fetch session may hold.
pub(crate) const SESSION_PARTITIONS_MAX: usize = 100_000;
/// Longest metadata string of a committed offset, in bytes (`offset.metadata.max.bytes`).
pub(crate) const COMMIT_METADATA_BYTES_MAX: usize = 4096;
/// A joining member without an id is let go after this long (KAFKA-7610).
pub(crate) const NEW_MEMBER_JOIN_MS: u64 = 5 * 60 * 1000;
/// Partitions in one page of DescribeTopicPartitions.
pub(crate) const DESCRIBE_PARTITIONS_MAX: usize = 2000;
