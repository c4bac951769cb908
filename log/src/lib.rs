//! An append-only log of opaque frames on disk, for one Raft group.
//!
//! It owns segments, group commit, fsync, mapped reads, checksums, recovery, reclaim, and the small
//! files beside them (vote, sidecars, state images). It knows nothing of Kafka, HTTP or Raft's rules:
//! a frame is a kind, a term, an index and bytes.
//!
//! The map, in reading order:
//!
//! | file | owns |
//! |---|---|
//! | `frame.rs`, `segment.rs`, `seal.rs` | bytes of a frame, of a segment's header, of a seal record |
//! | `log.rs`, `reader.rs` | [`Log`]: open, append, close, what all threads share; reads |
//! | `plan.rs` | where the next frame goes; segments prepared ahead |
//! | `writer.rs` | the log thread: group commit and completion in order |
//! | `keeper.rs` | the background thread: prepares and seals segments |
//! | `table.rs`, `map.rs` | index → position; mapped files as `Bytes` |
//! | `scan.rs`, `recovery.rs` | walking frames; what a boot makes of what it finds |
//! | `trim.rs` | truncate, purge, reset |
//! | `derived.rs`, `checked_file.rs`, `vote_file.rs` | sidecars, images; whole small files; the vote |
//! | `storage.rs`, `storage/evil.rs` | the only door to the disk; the same, hostile |
//!
//! Lock order: plan, then files, then writer, then table or queue. Nothing is locked while a
//! callback runs.

mod checked_file;
mod derived;
mod error;
mod frame;
mod keeper;
pub mod limits;
mod log;
mod map;
mod plan;
mod reader;
mod recovery;
mod scan;
mod seal;
mod segment;
pub mod storage;
mod table;
mod trim;
mod vote_file;
mod writer;

pub use derived::Image;
pub use error::LogError;
pub use frame::FRAME_HEADER_BYTES;
pub use log::{Done, FrameIn, FrameOut, Log, LogConfig, LogStats, Recovered, SegmentInfo};
pub use map::Map;
pub use scan::{Proof, RecoverySummary, recover_bytes};
pub use segment::SEGMENT_HEADER_BYTES;
