//! Where bytes live: the only user of the file system. Knows nothing of what they mean.
//!
//! ```text
//! Store, StoreFile   what writing needs: create, write, fsync, rename, lock
//!   ^ local          the real file system
//!   ^ faulty         the same, failing where a test says (feature "faults")
//!   ^ crash, disk    the same, remembering what a power loss could leave (feature "faults")
//! ReadFile           what reading needs: a mapping, or reads at an offset
//!   ^ identity       whether a file still holds what it did
//!   ^ mapping        the one place that maps memory
//!   ^ guard          sections that survive the loss of mapped pages
//!   ^ regions        which memory is mapped
//! MemoryFile         memory that other processes map
//! SharedPage         a few numbers that other processes see
//! ```

#[cfg(feature = "faults")]
mod crash;
#[cfg(feature = "faults")]
mod disk;
#[cfg(feature = "faults")]
mod faulty;
mod guard;
mod identity;
mod local;
mod lock;
mod mapping;
mod memory_file;
mod read_file;
mod regions;
mod shared_page;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub use guard::{Section, guarded, guarded_once};
pub use identity::{Baseline, FileIdentity};
pub use local::LocalStore;
pub(crate) use lock::not_a_directory;
pub use lock::{AllLocks, DirLock};
pub use mapping::Mapping;
pub use memory_file::{MemoryFile, MemoryWriter};
pub use read_file::{IoMode, ReadFile};
pub use shared_page::{PAGE_WORDS, SharedPage};

#[cfg(feature = "faults")]
pub use crash::CrashStore;
#[cfg(feature = "faults")]
pub use disk::{Disk, Fate, Tree};
#[cfg(feature = "faults")]
pub use faulty::{Fault, FaultyStore};

use crate::Result;

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file of this many bytes.
    File {
        /// Length in bytes.
        size_bytes: u64,
    },
    /// A directory.
    Directory,
    /// A symbolic link, device, socket or pipe.
    Other,
}

/// The operations that writing a cache is made of.
pub trait Store: Send + Sync {
    /// Makes a directory whose parent exists.
    ///
    /// # Errors
    /// `Conflict` when it exists already.
    fn create_dir(&self, path: &Path) -> Result<()>;

    /// Makes a new file.
    ///
    /// # Errors
    /// `Conflict` when it exists already.
    fn create_file(&self, path: &Path) -> Result<Box<dyn StoreFile>>;

    /// Makes the entries of a directory durable.
    ///
    /// # Errors
    /// As the file system fails.
    fn sync_dir(&self, path: &Path) -> Result<()>;

    /// Renames a directory to a name that is free.
    ///
    /// # Errors
    /// `Conflict` when `to` exists. On file systems without an atomic way the check comes before
    /// the rename; a non-empty directory is still never replaced.
    fn rename_no_replace(&self, from: &Path, to: &Path) -> Result<()>;

    /// Renames a file to a name in the same directory, where another file may be: it is replaced
    /// atomically.
    ///
    /// # Errors
    /// As the file system fails.
    fn replace_file(&self, from: &Path, to: &Path) -> Result<()>;

    /// Exchanges two directories atomically.
    ///
    /// # Errors
    /// `Unsupported` where the file system cannot.
    fn exchange(&self, a: &Path, b: &Path) -> Result<()>;

    /// Removes a file, or a directory and everything below it; what is not there is fine.
    ///
    /// # Errors
    /// As the file system fails.
    fn remove_tree(&self, path: &Path) -> Result<()>;

    /// Names in a directory, sorted.
    ///
    /// # Errors
    /// `NotFound` when there is no directory.
    fn list_dir(&self, path: &Path) -> Result<Vec<PathBuf>>;

    /// What `path` is, links not followed; `None` when it does not exist.
    ///
    /// # Errors
    /// As the file system fails.
    fn kind(&self, path: &Path) -> Result<Option<EntryKind>>;

    /// Takes the advisory lock of a directory without waiting; `None` while another holds it, or
    /// when the directory was renamed or removed meanwhile. A dead holder's lock is free.
    ///
    /// # Errors
    /// As the file system fails.
    fn lock_dir(&self, path: &Path) -> Result<Option<DirLock>>;
}

/// A file being written. After one failure every later operation fails too: the kernel may have
/// dropped the bytes and would report success the next time.
pub trait StoreFile: Send {
    /// Appends all of `bytes`.
    ///
    /// # Errors
    /// `Exhausted` when the disk is full, else as the file system fails.
    fn write_all(&mut self, bytes: &[u8]) -> Result<()>;

    /// Makes what was written durable.
    ///
    /// # Errors
    /// As the file system fails.
    fn sync(&mut self) -> Result<()>;

    /// Ends the file.
    ///
    /// # Errors
    /// As the file system fails.
    fn close(self: Box<Self>) -> Result<()>;
}

/// All bytes of a small file.
///
/// # Errors
/// `NotFound`, `Corrupt` for more than `bytes_max` bytes or a file that is not regular.
pub fn read_file(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    let file = ReadFile::open(path, IoMode::Pread)?;
    let size = file.size_bytes();
    if size > bytes_max {
        return Err(crate::Error::corrupt(format!(
            "{} has {size} bytes; expected at most {bytes_max}; rebuild the cache",
            path.display()
        )));
    }
    let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Whether nobody is meant to write into the directory: no mode bit allows it. The superuser may
/// all the same, so that the mode is all there is to go by.
pub fn is_marked_read_only(directory: &Path) -> bool {
    std::fs::metadata(directory).is_ok_and(|metadata| metadata.permissions().readonly())
}
