//! The directory a cache was opened in, and whether it still holds the same cache.
//! Knows nothing of what the files mean.

use std::path::{Path, PathBuf};

use crate::format::limits::MANIFEST_BYTES_MAX;
use crate::format::manifest::MANIFEST_FILE;
use crate::store::{Baseline, IoMode, ReadFile};
use crate::{Error, Result};

/// Where a cache lies and how its files are read.
pub(in crate::read) struct Origin {
    /// Absolute, so that files opened later do not depend on the working directory.
    pub directory: PathBuf,
    /// As the caller asked.
    pub io: IoMode,
    manifest: Baseline,
}

impl Origin {
    /// Reads the manifest in `directory`; its identity stands for the whole cache from then on.
    ///
    /// # Errors
    /// `NotFound` without a manifest, `Corrupt` when it is too large or no regular file.
    pub fn open(directory: PathBuf, io: IoMode) -> Result<(Self, Vec<u8>)> {
        let path = directory.join(MANIFEST_FILE);
        let file = ReadFile::open(&path, IoMode::Pread)?;
        let size = file.size_bytes();
        if size > MANIFEST_BYTES_MAX {
            return Err(Error::corrupt(format!(
                "manifest has {size} bytes; expected at most {MANIFEST_BYTES_MAX}; rebuild the \
                 cache; in {}",
                path.display()
            )));
        }
        let mut bytes = vec![0; size as usize];
        file.read_at(0, &mut bytes)?;
        Ok((Self { directory, io, manifest: Baseline::new(file.identity()) }, bytes))
    }

    /// Path of the file `name`.
    pub fn join(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Whether another cache, or none, is there now: files not yet opened are lost to us.
    pub fn is_replaced(&self) -> bool {
        let now = ReadFile::open(&self.directory.join(MANIFEST_FILE), IoMode::Pread);
        now.map_or(true, |file| !self.manifest.holds(file.identity()))
    }

    /// The error for a file that is not what it was when the cache was opened.
    pub fn conflict(&self, name: &str) -> Error {
        conflict(&self.directory.join(name))
    }
}

/// The error for a file of an open cache that changed.
pub(in crate::read) fn conflict(path: &Path) -> Error {
    Error::conflict(format!("the cache changed while open; reopen it; seen at {}", path.display()))
}
