//! A finished shard of an interrupted write, compared with what this run would write in its
//! place. Knows no journal.

use std::path::Path;

use super::hashed_file::HashedFile;
use crate::Result;
use crate::format::digest::{FileDigest, FileHasher};
use crate::store::{IoMode, ReadFile, Store};

/// Bytes compared or copied at a time.
const PIECE_BYTES: usize = 1024 * 1024;

/// The file, as far as it was found equal.
pub(super) struct ReplayedFile {
    stored: ReadFile,
    hasher: FileHasher,
    scratch: Vec<u8>,
}

impl ReplayedFile {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let stored = ReadFile::open(path, IoMode::Pread)?;
        Ok(Self { stored, hasher: FileHasher::default(), scratch: Vec::new() })
    }

    /// Bytes found equal so far.
    pub(super) fn size_bytes(&self) -> u64 {
        self.hasher.size_bytes()
    }

    /// Whether `bytes` come next in the file; only then are they counted.
    pub(super) fn matches(&mut self, bytes: &[u8]) -> Result<bool> {
        let mut offset = self.size_bytes();
        if offset + bytes.len() as u64 > self.stored.size_bytes() {
            return Ok(false);
        }
        for piece in bytes.chunks(PIECE_BYTES) {
            self.scratch.resize(piece.len(), 0);
            self.stored.read_at(offset, &mut self.scratch)?;
            if self.scratch != piece {
                return Ok(false);
            }
            offset += piece.len() as u64;
        }
        self.hasher.update(bytes);
        Ok(true)
    }

    /// The digest of the whole file: where the tail of an Arrow file was found equal, nothing is
    /// left to compare.
    pub(super) fn finish(self) -> FileDigest {
        self.hasher.finish()
    }

    /// A new file that begins with what was found equal. The old one may be unlinked already.
    pub(super) fn into_new(mut self, store: &dyn Store, path: &Path) -> Result<HashedFile> {
        store.remove_tree(path)?;
        let mut file = HashedFile::create(store, path)?;
        let mut offset = 0;
        while offset < self.size_bytes() {
            let len = (self.size_bytes() - offset).min(PIECE_BYTES as u64);
            self.scratch.resize(len as usize, 0);
            self.stored.read_at(offset, &mut self.scratch)?;
            file.write(&self.scratch)?;
            offset += len;
        }
        Ok(file)
    }
}
