//! A file that is hashed as it is written, in large writes. Knows nothing of its contents.

use std::path::Path;

use super::beside::side_by_side;
use crate::Result;
use crate::format::digest::{FileDigest, FileHasher};
use crate::store::{Store, StoreFile};

/// Small pieces are gathered up to this: a write call costs as much as copying 16 KiB.
const GATHER_BYTES: usize = 1024 * 1024;
/// Larger pieces are written from where they lie.
const DIRECT_BYTES: usize = 256 * 1024;

/// A new file and the digest of what went into it.
pub(crate) struct HashedFile {
    file: Box<dyn StoreFile>,
    hasher: FileHasher,
    gathered: Vec<u8>,
}

impl HashedFile {
    pub(crate) fn create(store: &dyn Store, path: &Path) -> Result<Self> {
        let file = store.create_file(path)?;
        Ok(Self { file, hasher: FileHasher::default(), gathered: Vec::new() })
    }

    /// Hashes what would be written.
    pub(crate) fn nowhere() -> Self {
        Self { file: Box::new(Nowhere), hasher: FileHasher::default(), gathered: Vec::new() }
    }

    /// Bytes taken so far.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.hasher.size_bytes() + self.gathered.len() as u64
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() >= DIRECT_BYTES {
            self.flush()?;
            let Self { file, hasher, .. } = self;
            let write = || file.write_all(bytes);
            return side_by_side(bytes.len(), write, || {
                hasher.update(bytes);
                Ok(())
            });
        }
        if self.gathered.len() + bytes.len() > GATHER_BYTES {
            self.flush()?;
        }
        self.gathered.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        self.hasher.update(&self.gathered);
        self.file.write_all(&self.gathered)?;
        self.gathered.clear();
        Ok(())
    }

    /// Makes the file durable and ends it.
    pub(crate) fn finish(mut self) -> Result<FileDigest> {
        self.flush()?;
        self.file.sync()?;
        self.file.close()?;
        Ok(self.hasher.finish())
    }
}

/// Takes bytes and keeps none.
struct Nowhere;

impl StoreFile for Nowhere {
    fn write_all(&mut self, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
