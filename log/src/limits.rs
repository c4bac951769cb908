//! Every bound of the log in one place.

/// Size of a segment unless configured: large enough that seals are rare, small enough that a scan
/// of the active one stays well below a second.
pub const SEGMENT_BYTES_DEFAULT: u64 = 256 << 20;
/// Smallest segment a production configuration may ask for.
pub const SEGMENT_BYTES_MIN: u64 = 1 << 20;
/// Smallest segment [`crate::Log::open_with`] accepts, so that tests can roll often.
pub const SEGMENT_BYTES_MIN_TEST: u64 = 8 << 10;
/// Largest segment: positions are kept in 32 bits and a frame never crosses segments.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Unsynced bytes after which `append` waits; also bounds what a crash can tear.
pub const IN_FLIGHT_BYTES_DEFAULT: u64 = 16 << 20;
/// Sealed bytes that are verified in full at open unless configured.
pub const SCRUB_AT_OPEN_BYTES_DEFAULT: u64 = 1 << 30;
/// Bytes of a vote; it must fit one slot of the vote file.
pub const VOTE_BYTES_MAX: usize = 4000;
/// Buffers per `pwritev` (IOV_MAX on Linux).
pub const BUFFERS_PER_WRITE_MAX: usize = 1024;
/// Payload parts up to this size are copied beside their header, larger ones are written in place.
pub const COPY_BYTES_MAX: usize = 1024;
/// Images kept; the older one covers damage to the newer.
pub const IMAGES_KEPT: usize = 2;
/// Length of a sidecar's name.
pub const SIDECAR_NAME_BYTES_MAX: usize = 32;
