//! What can go wrong with a node: why it does not start, and how it stops when going on would be
//! worse.

use std::path::PathBuf;
use std::sync::Arc;

use queen_log::LogError;

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{what} {path}: {source}")]
    File {
        what: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{path} is damaged: {why}")]
    Damaged { path: PathBuf, why: String },
    #[error("{path} belongs to node {found}, this node is {ours}")]
    OtherNode {
        path: PathBuf,
        found: i32,
        ours: i32,
    },
    #[error("the log cannot be opened: {0}")]
    Log(String),
    /// Bytes of the log that had been durable do not verify any more.
    #[error("the log cannot be opened: {0}")]
    LogDamaged(String),
    #[error("the state cannot be rebuilt: {0}")]
    State(String),
    #[error("consensus does not start: {0}")]
    Consensus(String),
    #[error(
        "--raft-listen {address} cannot be listened on: {source}; choose another address or port"
    )]
    Listen {
        address: std::net::SocketAddr,
        source: std::io::Error,
    },
    #[error("a thread cannot be started: {0}")]
    Thread(std::io::Error),
}

impl StartError {
    /// Whether the files of a peer mend it. A damaged vote is no such thing: it is this node's own.
    pub(crate) fn is_repairable(&self) -> bool {
        matches!(self, StartError::LogDamaged(_) | StartError::State(_))
    }
}

impl From<LogError> for StartError {
    fn from(error: LogError) -> StartError {
        match &error {
            LogError::Damaged { file, .. } if !file.ends_with("vote") => {
                StartError::LogDamaged(error.to_string())
            }
            _ => StartError::Log(error.to_string()),
        }
    }
}

/// How a node stops at once when its disk or its state can no longer be trusted. The default ends
/// the process; tests bring their own.
#[derive(Clone)]
pub struct Fatal(Arc<dyn Fn(&str) + Send + Sync>);

impl Fatal {
    /// Calls `act` with the reason instead of ending the process.
    pub fn new(act: impl Fn(&str) + Send + Sync + 'static) -> Fatal {
        Fatal(Arc::new(act))
    }

    /// Starts the process again, with the arguments it was started with.
    pub fn restart() -> Fatal {
        Fatal::new(|_| {
            use std::os::unix::process::CommandExt;
            let mut arguments = std::env::args_os();
            let name = arguments.next();
            let program = std::env::current_exe().ok().map(Into::into).or(name);
            if let Some(program) = program {
                let error = std::process::Command::new(program).args(arguments).exec();
                tracing::error!(%error, "cannot start again");
            }
            std::process::exit(EXIT_FATAL);
        })
    }

    /// Stops the node.
    pub fn stop(&self, reason: &str) {
        tracing::error!(reason, "node stops");
        (self.0)(reason);
    }
}

impl Default for Fatal {
    fn default() -> Self {
        Fatal::new(|_| std::process::exit(EXIT_FATAL))
    }
}

impl std::fmt::Debug for Fatal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fatal")
    }
}

/// Exit status of a node that stopped itself (`EX_IOERR` of sysexits).
const EXIT_FATAL: i32 = 74;
