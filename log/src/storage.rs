//! The only door to the disk.
//!
//! The log speaks to files through [`Storage`] and [`DiskFile`]. [`FsStorage`] is the real one;
//! [`evil::EvilStorage`] wraps it for tests, refuses space, fails syncs and loses whatever was not
//! synced when it "crashes".

pub mod evil;

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;

use crate::map::Map;

/// A disk: files by path.
pub trait Storage: Send + Sync + 'static {
    /// Creates a directory and its parents.
    fn make_dir(&self, dir: &Path) -> io::Result<()>;
    /// Names of the files in a directory, in no order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Takes an exclusive lock that ends with the guard; `WouldBlock` when another holds it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>>;
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates a new file of a final size, all of it allocated; leaves nothing behind on failure.
    fn create(&self, path: &Path, bytes: u64) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames a file over another.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// One open file.
pub trait DiskFile: Send + Sync {
    /// Its size.
    fn size(&self) -> io::Result<u64>;
    /// Writes at a position; may write less than asked for.
    fn write_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<usize>;
    /// Gives the space of a range back without changing the size; the range reads as zeros.
    fn release(&self, from: u64, to: u64) -> io::Result<()>;
    /// Makes all written bytes durable.
    fn sync(&self) -> io::Result<()>;
    /// Maps the whole file.
    fn map(&self) -> io::Result<Arc<Map>>;
}

/// Holds a lock until dropped.
pub trait LockGuard: Send + Sync {}

/// Writes all buffers, whatever the number of calls.
pub(crate) fn write_all_at(
    file: &dyn DiskFile,
    mut buffers: &mut [IoSlice<'_>],
    mut position: u64,
) -> io::Result<()> {
    IoSlice::advance_slices(&mut buffers, 0);
    while !buffers.is_empty() {
        let count = buffers.len().min(crate::limits::BUFFERS_PER_WRITE_MAX);
        let written = match file.write_at(&buffers[..count], position) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        position += written as u64;
        IoSlice::advance_slices(&mut buffers, written);
    }
    Ok(())
}

/// The file system of the machine.
pub struct FsStorage;

struct FsFile(File);

struct FsLock(#[expect(dead_code, reason = "the lock lives as long as the open file")] File);

impl LockGuard for FsLock {}

impl Storage for FsStorage {
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            // Names that are not UTF-8 are not ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(FsLock(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(FsFile(
            OpenOptions::new().read(true).write(true).open(path)?,
        )))
    }

    fn create(&self, path: &Path, bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        match allocate(&file, bytes) {
            Ok(()) => Ok(Arc::new(FsFile(file))),
            Err(error) => {
                // The first error is the one to report; a leftover is removed at the next open.
                drop(fs::remove_file(path));
                Err(error)
            }
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }
}

impl DiskFile for FsFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], position: u64) -> io::Result<usize> {
        Ok(rustix::io::pwritev(&self.0, buffers, position)?)
    }

    fn release(&self, from: u64, to: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.0, flags, from, to.saturating_sub(from))?)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn map(&self) -> io::Result<Arc<Map>> {
        Map::new(&self.0)
    }
}

fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        // File systems without fallocate: real zeros reserve the space as well.
        Err(Errno::OPNOTSUPP) => fill(file, bytes),
        Err(error) => Err(error.into()),
    }
}

fn fill(file: &File, bytes: u64) -> io::Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut position = 0;
    while position < bytes {
        let count = (bytes - position).min(zeros.len() as u64) as usize;
        position += rustix::io::pwrite(file, &zeros[..count], position)? as u64;
    }
    Ok(())
}
