//! A disk that fails on request: for tests of this crate and of those above it.
//!
//! It wraps the real file system and keeps, for everything that was not synced yet, what is needed to
//! take it back. [`EvilStorage::lose_unsynced`] then leaves the directory as a power cut might
//! have: each unsynced write kept, lost or torn at any sector, directory changes undone from some
//! point on. It can also run out of space, fail a sync, hold syncs back, and die at the n-th change.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::{DiskFile, FsStorage, LockGuard, Storage};
use crate::map::Map;

const SECTOR_BYTES: usize = 512;

/// The hostile disk; clones share their state.
#[derive(Clone)]
pub struct EvilStorage {
    shared: Arc<EvilShared>,
}

struct EvilShared {
    state: Mutex<State>,
    changed: Condvar,
    /// Keeps removed files until their removal is synced.
    graveyard: PathBuf,
}

#[derive(Default)]
struct State {
    /// Changes still allowed before the disk dies.
    fuse: Option<u64>,
    dead: bool,
    changes: u64,
    space: Option<u64>,
    syncs_to_fail: Option<u64>,
    syncs_held: bool,
    syncs_waiting: u64,
    graves: u64,
    writes: Vec<Write>,
    names: Vec<Rename>,
}

struct Write {
    inode: u64,
    file: Arc<File>,
    position: u64,
    before: Vec<u8>,
    /// A sync has failed over it, so no later sync makes it durable.
    doomed: bool,
}

enum Rename {
    Created(PathBuf),
    Moved {
        from: PathBuf,
        to: PathBuf,
        replaced: Option<PathBuf>,
    },
    Removed {
        path: PathBuf,
        grave: PathBuf,
    },
}

impl EvilStorage {
    /// A healthy disk; `graveyard` is a scratch directory on the same file system.
    pub fn new(graveyard: impl Into<PathBuf>) -> EvilStorage {
        let shared = EvilShared {
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
            graveyard: graveyard.into(),
        };
        EvilStorage {
            shared: Arc::new(shared),
        }
    }

    /// Dies after this many more changes (writes, syncs, creations, renames, removals).
    pub fn die_after(&self, changes: u64) {
        self.shared.state.lock().fuse = Some(changes);
    }

    /// True once the disk has died.
    pub fn is_dead(&self) -> bool {
        self.shared.state.lock().dead
    }

    /// True while it is going to die.
    pub fn is_armed(&self) -> bool {
        self.shared.state.lock().fuse.is_some()
    }

    /// Changes seen so far.
    pub fn changes(&self) -> u64 {
        self.shared.state.lock().changes
    }

    /// Bytes that may still be allocated; `None` for no bound.
    pub fn set_space(&self, bytes: Option<u64>) {
        self.shared.state.lock().space = bytes;
    }

    /// Lets this many file syncs pass and fails the one after.
    pub fn fail_sync_after(&self, passing: u64) {
        self.shared.state.lock().syncs_to_fail = Some(passing);
    }

    /// Makes file syncs wait until [`EvilStorage::free_syncs`].
    pub fn hold_syncs(&self) {
        self.shared.state.lock().syncs_held = true;
    }

    /// Waits until a sync waits.
    pub fn wait_for_held_sync(&self) {
        let mut state = self.shared.state.lock();
        while state.syncs_waiting == 0 {
            self.shared.changed.wait(&mut state);
        }
    }

    /// Lets held syncs go on.
    pub fn free_syncs(&self) {
        self.shared.state.lock().syncs_held = false;
        self.shared.changed.notify_all();
    }

    /// Leaves the files as a power cut would and starts over with a healthy disk. Every `Log` on it
    /// must have been dropped. The seed decides what was lost.
    pub fn lose_unsynced(&self, seed: u64) -> io::Result<()> {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut state = self.shared.state.lock();
        for write in std::mem::take(&mut state.writes).into_iter().rev() {
            let mode = random.below(4);
            if mode == 0 {
                continue;
            }
            let mut start = 0;
            while start < write.before.len() {
                let at = write.position as usize + start;
                let sector_end = (at / SECTOR_BYTES + 1) * SECTOR_BYTES;
                let end = (start + sector_end - at).min(write.before.len());
                if mode == 1 || random.below(2) == 0 {
                    let position = write.position + start as u64;
                    write
                        .file
                        .write_all_at(&write.before[start..end], position)?;
                }
                start = end;
            }
        }
        let mut names = std::mem::take(&mut state.names);
        let kept = random.below(names.len() as u64 + 1) as usize;
        for change in names.drain(kept..).rev() {
            match change {
                Rename::Created(path) => remove_if_there(&path)?,
                Rename::Removed { path, grave } => fs::rename(grave, path)?,
                Rename::Moved { from, to, replaced } => {
                    fs::rename(&to, &from)?;
                    if let Some(grave) = replaced {
                        fs::rename(grave, &to)?;
                    }
                }
            }
        }
        let graves = state.graves;
        *state = State {
            graves,
            ..State::default()
        };
        Ok(())
    }

    fn change(&self) -> io::Result<()> {
        self.shared.state.lock().change()
    }

    fn grave(&self, path: &Path) -> io::Result<PathBuf> {
        let mut state = self.shared.state.lock();
        state.graves += 1;
        let grave = self.shared.graveyard.join(format!("{}", state.graves));
        remove_if_there(&grave)?;
        fs::hard_link(path, &grave)?;
        Ok(grave)
    }

    fn file(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let inode = file.metadata()?.ino();
        Ok(Arc::new(EvilFile {
            disk: self.clone(),
            file: Arc::new(file),
            inode,
        }))
    }
}

impl State {
    fn change(&mut self) -> io::Result<()> {
        match &mut self.fuse {
            Some(0) => self.dead = true,
            Some(left) => *left -= 1,
            None => {}
        }
        if self.dead {
            return Err(io::Error::other("the disk has died"));
        }
        self.changes += 1;
        Ok(())
    }
}

impl Storage for EvilStorage {
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        FsStorage.make_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        FsStorage.list(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        FsStorage.lock(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.file(path)
    }

    fn create(&self, path: &Path, bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
        {
            let mut state = self.shared.state.lock();
            state.change()?;
            if let Some(space) = &mut state.space {
                let left = space.checked_sub(bytes);
                *space = left.ok_or_else(|| io::Error::from(io::ErrorKind::StorageFull))?;
            }
        }
        drop(FsStorage.create(path, bytes)?);
        self.shared
            .state
            .lock()
            .names
            .push(Rename::Created(path.to_owned()));
        self.file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change()?;
        let replaced = match to.exists() {
            true => Some(self.grave(to)?),
            false => None,
        };
        FsStorage.rename(from, to)?;
        let moved = Rename::Moved {
            from: from.to_owned(),
            to: to.to_owned(),
            replaced,
        };
        self.shared.state.lock().names.push(moved);
        Ok(())
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.change()?;
        let grave = self.grave(path)?;
        FsStorage.unlink(path)?;
        self.shared.state.lock().names.push(Rename::Removed {
            path: path.to_owned(),
            grave,
        });
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.change()?;
        let durable = |change: &Rename| match change {
            Rename::Created(path) | Rename::Removed { path, .. } => path.parent() == Some(dir),
            Rename::Moved { to, .. } => to.parent() == Some(dir),
        };
        state.names.retain(|change| !durable(change));
        Ok(())
    }
}

struct EvilFile {
    disk: EvilStorage,
    file: Arc<File>,
    inode: u64,
}

impl DiskFile for EvilFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<usize> {
        let mut state = self.disk.shared.state.lock();
        state.change()?;
        let len: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut before = vec![0; len];
        self.file.read_exact_at(&mut before, position)?;
        let written = rustix::io::pwritev(&*self.file, buffers, position)?;
        before.truncate(written);
        let file = Arc::clone(&self.file);
        state.writes.push(Write {
            inode: self.inode,
            file,
            position,
            before,
            doomed: false,
        });
        Ok(written)
    }

    fn release(&self, _from: u64, _to: u64) -> io::Result<()> {
        // Only ever touches bytes that nobody reads.
        self.disk.change()
    }

    fn sync(&self) -> io::Result<()> {
        let shared = &self.disk.shared;
        let mut state = shared.state.lock();
        state.syncs_waiting += 1;
        shared.changed.notify_all();
        // Writes that arrive while the sync is held are not covered by it.
        let covered = state.writes.len();
        while state.syncs_held && !state.dead {
            shared.changed.wait(&mut state);
        }
        state.syncs_waiting -= 1;
        state.change()?;
        let failing = match &mut state.syncs_to_fail {
            Some(0) => true,
            Some(passing) => {
                *passing -= 1;
                false
            }
            None => false,
        };
        let inode = self.inode;
        if failing {
            state.syncs_to_fail = None;
            let lost = state.writes.iter_mut().filter(|write| write.inode == inode);
            lost.for_each(|write| write.doomed = true);
            return Err(io::Error::from_raw_os_error(
                rustix::io::Errno::IO.raw_os_error(),
            ));
        }
        let mut at = 0;
        state.writes.retain(|write| {
            at += 1;
            at > covered || write.inode != inode || write.doomed
        });
        Ok(())
    }

    fn map(&self) -> io::Result<Arc<Map>> {
        Map::new(&self.file)
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A small reproducible generator (xorshift); a failing seed is all a test has to print.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % bound
    }
}
