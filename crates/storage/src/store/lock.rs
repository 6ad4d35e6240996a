//! Advisory locks on directories. A lock goes with its descriptor, so the dead hold none.
//!
//! Network file systems may keep locks of directories on the machine that took them (NFS on Linux
//! does): there the writers of one machine exclude each other, those of two do not.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::{Error, Result};

/// A held lock; dropping it gives it back. It belongs to the directory, not to its name: it stays
/// with the directory through renames.
#[derive(Debug)]
pub struct DirLock {
    number: u64,
}

/// The open directories of all locks, by number. A forked child inherits the descriptors, and
/// would hold the locks on after its parent died.
static HELD: Mutex<BTreeMap<u64, File>> = Mutex::new(BTreeMap::new());
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

impl Drop for DirLock {
    fn drop(&mut self) {
        AllLocks::hold().0.remove(&self.number);
    }
}

impl DirLock {
    /// Whether this process holds it: a forked child does not have its parent's locks.
    pub fn is_held(&self) -> bool {
        AllLocks::hold().0.contains_key(&self.number)
    }
}

/// While it lives, no lock is taken or given back: it is held across a fork.
pub struct AllLocks(MutexGuard<'static, BTreeMap<u64, File>>);

impl AllLocks {
    /// Waits for those who are taking a lock, or giving one back.
    pub fn hold() -> Self {
        Self(HELD.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Closes what a forked child inherited: the locks stay with its parent alone. Only for the
    /// child.
    pub fn leave(&mut self) {
        self.0.clear();
    }
}

/// See [`super::Store::lock_dir`].
pub(super) fn try_lock(path: &Path) -> Result<Option<DirLock>> {
    let failed = |verb: &str, e: &io::Error| Error::from_io(verb, path, e);
    let mut all = AllLocks::hold();
    // Anything else standing there is refused; opening a pipe would wait for its other end.
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    let directory = match opened {
        Ok(directory) => directory,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            return Err(not_a_directory(path));
        }
        Err(e) => return Err(failed("open", &e)),
    };
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(e) if io::Error::from(e).kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(e) => return Err(refused(path, &e.into())),
    }
    // The holder may have renamed the directory away between opening and locking it.
    let locked = directory.metadata().map_err(|e| failed("look at", &e))?;
    match std::fs::metadata(path) {
        Ok(named) if (named.dev(), named.ino()) == (locked.dev(), locked.ino()) => {
            let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
            all.0.insert(number, directory);
            Ok(Some(DirLock { number }))
        }
        Ok(_) => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed("look at", &e)),
    }
}

/// Something else stands where an unfinished write has its directory.
pub(crate) fn not_a_directory(path: &Path) -> Error {
    Error::conflict(format!(
        "{} is not a directory; expected one of an unfinished write, or nothing; remove it",
        path.display()
    ))
}

/// Why a lock could not even be asked for.
fn refused(path: &Path, error: &io::Error) -> Error {
    // EBADF: locks that want the file open for writing, which a directory never is. ENOLCK: no
    // lock service, or none of its locks left.
    let is_without_locks = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::BADF | Errno::INVAL) => true,
        _ => error.kind() == io::ErrorKind::Unsupported,
    };
    if !is_without_locks {
        return Error::from_io("lock", path, error);
    }
    let path = path.display();
    Error::unsupported(format!(
        "cannot lock {path}: {error}; its file system gives no locks, and without one two writers \
         would spoil each other's files: write the cache to a local disk and copy the finished \
         directory, or mount the file system with locks"
    ))
    .caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn a_file_system_without_locks_is_said_to_be_one() {
        for errno in [Errno::NOLCK, Errno::OPNOTSUPP, Errno::NOSYS, Errno::BADF, Errno::INVAL] {
            let error = refused(Path::new("/caches/.a.partial"), &errno.into());
            assert_eq!(error.kind(), Kind::Unsupported, "{error}");
            assert_eq!(error.os_code(), Some(errno.raw_os_error()));
            for part in ["/caches/.a.partial", "no locks", "local disk"] {
                assert!(error.message().contains(part), "{error}");
            }
        }
        let error = refused(Path::new("a"), &Errno::IO.into());
        assert_eq!(error.kind(), Kind::Unavailable, "a failing disk is another matter");
    }
}
