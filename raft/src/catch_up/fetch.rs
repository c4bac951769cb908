//! The side that lacks the files: fetches them one after the other, goes on where an earlier try
//! ended, and starts the node again when all are whole on its disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes};

use super::source::question;
use super::{FileEntry, INCOMING, Manifest, PIECE_BYTES, install, staged};
use crate::cluster::handshake::Purpose;
use crate::cluster::{Links, kind};
use crate::error::Fatal;
use crate::replicator::Replicator;

/// How long a piece may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Fetches files when it is told to.
pub struct Fetcher {
    pub data_dir: PathBuf,
    pub links: Arc<Links>,
    pub replicator: Arc<dyn Replicator>,
    /// Starts the node again.
    pub restart: Fatal,
    pub busy: AtomicBool,
    /// Bytes fetched since the start.
    pub fetched: Arc<AtomicU64>,
}

impl Fetcher {
    /// Begins to fetch from a peer, unless it is at it already.
    pub fn begin(self: Arc<Self>, from: i32) -> io::Result<()> {
        if self.busy.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        tracing::info!(
            from,
            "the log lacks more than the leader still has; fetching its files"
        );
        tokio::spawn(async move {
            match self.fetch(from).await {
                // Stays busy: the node is about to start again.
                Ok(()) => self
                    .restart
                    .stop("it starts again with the files it fetched"),
                Err(error) => {
                    tracing::warn!(from, %error, "files not fetched; the leader will ask again");
                    self.busy.store(false, Ordering::Release);
                }
            }
        });
        Ok(())
    }

    async fn fetch(&self, from: i32) -> io::Result<()> {
        let download = Download {
            links: &self.links,
            from,
            fetched: &self.fetched,
        };
        let manifest = download.manifest(Wanted::Files).await?;
        let role = self.replicator.role();
        let ours = self.replicator.last().map(|at| (at.term, at.index));
        if role.term < manifest.last.0 || role.is_leader || ours > Some(manifest.last) {
            return Err(io::Error::other("its log is not what this node lacks"));
        }
        let incoming = self.data_dir.join(INCOMING);
        download.files(&incoming, &manifest).await?;
        // Another leader may have gone on meanwhile, and this node with it.
        let role = self.replicator.role();
        let ours = self.replicator.last().map(|at| (at.term, at.index));
        if role.is_leader || ours > Some(manifest.last) {
            return Err(io::Error::other("this node has caught up by itself"));
        }
        let ready = tokio::task::spawn_blocking(move || install::set_ready(&incoming, &manifest));
        ready.await.map_err(io::Error::other)?
    }
}

/// What the files are wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// To have what a peer has.
    Files = 0,
    /// To have everything that may count on this node: only a leader that is sure to lead has it.
    Repair = 1,
}

/// Files on their way from one peer.
pub(super) struct Download<'a> {
    pub links: &'a Links,
    pub from: i32,
    pub fetched: &'a AtomicU64,
}

impl Download<'_> {
    async fn ask(&self, kind: u8, body: Vec<Bytes>) -> io::Result<Bytes> {
        let link = self.links.get(self.from, Purpose::Files);
        link.ask(kind, body, PATIENCE).await
    }

    /// What there is.
    pub async fn manifest(&self, wanted: Wanted) -> io::Result<Manifest> {
        let body = vec![Bytes::copy_from_slice(&[wanted as u8])];
        let bytes = self.ask(kind::MANIFEST, body).await?;
        Manifest::decode(&bytes)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a list of files"))
    }

    /// Fetches all of it; goes on with what an earlier try has fetched.
    pub async fn files(&self, incoming: &Path, manifest: &Manifest) -> io::Result<()> {
        tidy(incoming, manifest)?;
        for file in &manifest.files {
            self.file(incoming, file).await?;
        }
        let bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
        tracing::info!(from = self.from, bytes, "all files fetched");
        Ok(())
    }

    async fn file(&self, incoming: &Path, file: &FileEntry) -> io::Result<()> {
        let path = staged(incoming, file);
        let mut to = OpenOptions::new().create(true).append(true).open(&path)?;
        let mut at = to.metadata()?.len();
        while at < file.bytes {
            let len = u64::from(PIECE_BYTES).min(file.bytes - at);
            let body = question(&file.name, at, u32::try_from(len).unwrap_or(PIECE_BYTES));
            let mut piece = self.ask(kind::PIECE, vec![body]).await?;
            let crc = piece.try_get_u32_le().map_err(io::Error::other)?;
            if piece.len() as u64 != len || crc32fast::hash(&piece) != crc {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a piece is damaged",
                ));
            }
            to = tokio::task::spawn_blocking(move || to.write_all(&piece).map(|()| to))
                .await
                .map_err(io::Error::other)??;
            at += len;
            self.fetched.fetch_add(len, Ordering::Relaxed);
        }
        let synced = tokio::task::spawn_blocking(move || to.sync_all());
        synced.await.map_err(io::Error::other)?
    }
}

/// Makes room: what an earlier try fetched and nobody wants any more goes.
fn tidy(incoming: &Path, manifest: &Manifest) -> io::Result<()> {
    std::fs::create_dir_all(incoming)?;
    let wanted: Vec<PathBuf> = manifest
        .files
        .iter()
        .map(|file| staged(incoming, file))
        .collect();
    for found in std::fs::read_dir(incoming)? {
        let path = found?.path();
        if !wanted.contains(&path) && path.is_file() {
            std::fs::remove_file(&path)?;
        }
    }
    File::open(incoming)?.sync_all()
}
