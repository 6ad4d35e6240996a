//! Advisory locks on directories. A lock goes with its descriptor, so the dead hold none.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::{Error, Result};

/// A held lock; dropping it gives it back. It belongs to the directory, not to its name: it stays
/// with the directory through renames.
#[derive(Debug)]
pub struct DirLock {
    _directory: File,
}

/// See [`super::Store::lock_dir`].
pub(super) fn try_lock(path: &Path) -> Result<Option<DirLock>> {
    let failed = |verb: &str, e: &io::Error| Error::from_io(verb, path, e);
    // Anything else standing there is refused; opening a pipe would wait for its other end.
    let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    let directory = match opened {
        Ok(directory) => directory,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed("open", &e)),
    };
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(e) if io::Error::from(e).kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(e) => return Err(failed("lock", &e.into())),
    }
    // The holder may have renamed the directory away between opening and locking it.
    let locked = directory.metadata().map_err(|e| failed("look at", &e))?;
    match std::fs::metadata(path) {
        Ok(named) if (named.dev(), named.ino()) == (locked.dev(), locked.ino()) => {
            Ok(Some(DirLock { _directory: directory }))
        }
        Ok(_) => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed("look at", &e)),
    }
}
