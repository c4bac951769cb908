//! Puts fetched files in the place of a log, before the log is opened. Each step can be repeated
//! after a crash: the old directories are moved aside once, the new files are moved one by one, and
//! all that was fetched is removed when consensus has taken note of where the new log begins.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::{INCOMING, Manifest, split, staged};
use crate::replicator::Position;

/// Names the files once all of them are there.
const READY: &str = "READY";

/// Declares the fetched files whole; durable on return.
pub(super) fn set_ready(incoming: &Path, manifest: &Manifest) -> io::Result<()> {
    let bytes = manifest.encode();
    let draft = incoming.join("ready.draft");
    let mut file = File::create(&draft)?;
    file.write_all(&crc32fast::hash(&bytes).to_le_bytes())?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&draft, incoming.join(READY))?;
    File::open(incoming)?.sync_all()
}

fn read_ready(incoming: &Path) -> io::Result<Option<Manifest>> {
    let bytes = match fs::read(incoming.join(READY)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the list of files is damaged");
    let (crc, rest) = bytes.split_first_chunk::<4>().ok_or_else(damaged)?;
    if u32::from_le_bytes(*crc) != crc32fast::hash(rest) {
        return Err(damaged());
    }
    Manifest::decode(rest).map(Some).ok_or_else(damaged)
}

/// What an install put in place.
pub struct Installed {
    /// What the node the files came from had let go of.
    pub begins_behind: Option<Position>,
}

/// Puts fetched files in place, if there are whole ones; call [`finish`] when the log is in use.
pub fn run(data_dir: &Path) -> io::Result<Option<Installed>> {
    let incoming = data_dir.join(INCOMING);
    let Some(manifest) = read_ready(&incoming)? else {
        return Ok(None);
    };
    let log = data_dir.join("log");
    for dir in ["segments", "images"] {
        let (present, aside) = (log.join(dir), incoming.join(format!("old-{dir}")));
        if !aside.exists() {
            match present.exists() {
                true => fs::rename(&present, &aside)?,
                false => fs::create_dir_all(&aside)?,
            }
            File::open(&incoming)?.sync_all()?;
        }
        fs::create_dir_all(&present)?;
    }
    for file in &manifest.files {
        let from = staged(&incoming, file);
        let Some((dir, name)) = split(&file.name) else {
            continue;
        };
        if !from.exists() {
            // Moved before a crash.
            continue;
        }
        let whole = OpenOptions::new().write(true).open(&from)?;
        whole.set_len(file.size)?;
        whole.sync_all()?;
        fs::rename(&from, log.join(dir).join(name))?;
    }
    for dir in [log.join("segments"), log.join("images"), log] {
        File::open(dir)?.sync_all()?;
    }
    let (_, last) = manifest.last;
    tracing::info!(
        last,
        files = manifest.files.len(),
        "log of a peer installed"
    );
    Ok(Some(Installed {
        begins_behind: manifest.purged(),
    }))
}

/// Removes what is left of the fetch.
pub fn finish(data_dir: &Path) -> io::Result<()> {
    let incoming = data_dir.join(INCOMING);
    // The list first: an install that is repeated after the new log has gone on would undo that.
    fs::remove_file(incoming.join(READY))?;
    File::open(&incoming)?.sync_all()?;
    fs::remove_dir_all(&incoming)?;
    File::open(data_dir)?.sync_all()
}
