//! The two signals that stop the broker.

use tokio::signal::unix::{SignalKind, signal};

/// Resolves with the signal's name at the first SIGTERM or SIGINT after the call.
pub fn stop() -> std::io::Result<impl Future<Output = &'static str>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    })
}
