//! Failures of the log, by what a caller can do about them.
//!
//! `Full` is retryable once there is space; `Locked`, `Layout` and `Damaged` need an operator;
//! `Failed` is final for this process; the rest are mistakes of the caller or plain I/O errors.

use std::io;
use std::path::{Path, PathBuf};

/// Everything that can go wrong in the log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// Another process (or another `Log` in this one) has the directory open.
    #[error(
        "the log directory {} is in use by another process; stop it first, or give this node \
         its own data directory", dir.display()
    )]
    Locked { dir: PathBuf },

    /// The file is intact but was written for something else: other format, group or size.
    #[error("{} does not belong to this log: {reason}", file.display())]
    Layout { file: PathBuf, reason: String },

    /// Bytes that were once durable do not verify any more; nothing is guessed away.
    #[error(
        "{} is damaged at position {position}: {reason}; the log will not start over it, \
         because the bytes there were acknowledged. Restore the file from a backup, or empty \
         this node's data directory and let it fetch everything from its peers", file.display()
    )]
    Damaged {
        file: PathBuf,
        position: u64,
        reason: String,
    },

    /// No space for another segment or file; nothing was changed, so retry when there is.
    #[error("no space left for {needed} more bytes in {}", dir.display())]
    Full { needed: u64, dir: PathBuf },

    /// One frame is larger than any segment may be.
    #[error("a frame of {bytes} bytes exceeds the largest allowed, {max}")]
    TooLarge { bytes: u64, max: u64 },

    /// The log met an error it cannot survive (a failed write or fsync) and takes no more calls.
    #[error("the log has failed and stays closed: {reason}")]
    Failed { reason: String },

    /// The log is shutting down.
    #[error("the log is closed")]
    Closed,

    /// Frames were not appended at the index after the last one.
    #[error("the next frame must have index {expected}, got {got}")]
    OutOfOrder { expected: u64, got: u64 },

    /// The call makes no sense in the present state; `reason` says why.
    #[error("{reason}")]
    Invalid { reason: String },

    /// An I/O error outside the write path of the log itself.
    #[error("cannot {action} {}: {source}", file.display())]
    Io {
        action: &'static str,
        file: PathBuf,
        source: io::Error,
    },
}

impl LogError {
    /// Wraps an I/O error, telling a full disk from the others.
    pub(crate) fn io(action: &'static str, file: &Path, needed: u64, source: io::Error) -> Self {
        if is_full(&source) {
            LogError::Full {
                needed,
                dir: file.parent().unwrap_or(file).to_owned(),
            }
        } else {
            LogError::Io {
                action,
                file: file.to_owned(),
                source,
            }
        }
    }

    pub(crate) fn damaged(file: &Path, position: u64, reason: impl ToString) -> Self {
        LogError::Damaged {
            file: file.to_owned(),
            position,
            reason: reason.to_string(),
        }
    }
}

/// True for "no space" and "quota exceeded".
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}
