//! Which file this is, and whether its contents may have changed since it was opened. Reads none.

use std::sync::{Mutex, PoisonError};

use rustix::fs::Stat;

/// What tells a file from another one, or from itself before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    /// Links, mode, owner and group: each of them moves the change time by itself.
    attributes: (u64, u32, u32, u32),
}

impl FileIdentity {
    /// Of what `fstat` says, which costs less than the standard library's `statx`.
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev as _,
            inode: stat.st_ino as _,
            size_bytes: stat.st_size as _,
            modified: (stat.st_mtime as _, stat.st_mtime_nsec as _),
            changed: (stat.st_ctime as _, stat.st_ctime_nsec as _),
            attributes: (stat.st_nlink as _, stat.st_mode as _, stat.st_uid, stat.st_gid),
        }
    }

    /// Length in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Whether both are of one file, whatever happened to it between them.
    pub fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Whether the file still holds what it held as `before`.
    ///
    /// Writing moves both times, and whoever puts the modification time back moves the change
    /// time. Unlinking, linking and changing owner or mode move the change time too: they happen
    /// to caches that are replaced, and explain it.
    fn holds_what_it_did(&self, before: &Self) -> bool {
        self.is_same_file(before)
            && (self.size_bytes, self.modified) == (before.size_bytes, before.modified)
            && (self.changed == before.changed || self.attributes != before.attributes)
    }
}

/// What a file looked like when it was opened, brought up to date by changes around its contents.
#[derive(Debug)]
pub struct Baseline {
    opened: FileIdentity,
    latest: Mutex<FileIdentity>,
}

impl Baseline {
    /// Begins with the file as it is.
    pub fn new(opened: FileIdentity) -> Self {
        Self { opened, latest: Mutex::new(opened) }
    }

    /// The file as it was opened.
    pub fn opened(&self) -> FileIdentity {
        self.opened
    }

    /// Whether the file, which now looks like `now`, still holds what it did. An explained change
    /// is explained once.
    pub fn holds(&self, now: FileIdentity) -> bool {
        if now == self.opened {
            return true;
        }
        // Held for a few instructions by threads that `fork` waits for.
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = now.holds_what_it_did(&latest);
        if holds {
            *latest = now;
        }
        holds
    }
}
