//! A node whose log is damaged where it had been durable: it may have acknowledged what it cannot
//! read any more, so it neither votes nor receives entries until it has the files of a leader.
//!
//! Why this is safe: an entry that was committed with this node's help lies on a majority, and a
//! leader that a majority has just confirmed, without this node, holds every such entry. The vote
//! file is untouched, so no vote is given twice.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::fetch::{Download, Wanted};
use super::{INCOMING, install};
use crate::cluster::Links;
use crate::error::StartError;

/// Between two rounds over all peers.
const BETWEEN: Duration = Duration::from_millis(500);

/// Fetches a leader's files, however long it takes to find one; then [`install::run`] puts them in
/// place. Blocks.
pub fn run(data_dir: &Path, links: &Arc<Links>, why: &str) -> Result<(), StartError> {
    tracing::error!(
        why,
        "the log is damaged; it is fetched from the leader, and this node takes no part until then"
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::Thread)?;
    let fetched = AtomicU64::new(0);
    let incoming = data_dir.join(INCOMING);
    let manifest = runtime.block_on(async {
        loop {
            for from in links.cluster.others() {
                let download = Download {
                    links,
                    from,
                    fetched: &fetched,
                };
                let got = async {
                    let manifest = download.manifest(Wanted::Repair).await?;
                    download.files(&incoming, &manifest).await?;
                    Ok(manifest)
                };
                match got.await {
                    Ok(manifest) => return manifest,
                    Err(error) => links.cluster.note_failure(from, &error),
                }
            }
            tokio::time::sleep(BETWEEN).await;
        }
    });
    install::set_ready(&incoming, &manifest).map_err(|source| StartError::File {
        what: "cannot keep fetched files in",
        path: incoming,
        source,
    })
}
