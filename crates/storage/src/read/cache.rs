//! An open cache: its manifest, its files and what was parsed of them so far.
//! Every duty of reading has its own file; this one only holds what they share.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use arrow_array::RecordBatch;

use super::file::VerifiedFile;
use super::metadata::MetadataTable;
use crate::format::digest::Digest;
use crate::format::ipc::FileLayout;
use crate::format::manifest::Manifest;
use crate::format::schema::StoredSchema;
use crate::{Error, Result};

/// A published cache, open for reading by any number of threads.
///
/// Opening costs one `stat` a file; files are opened, and their blocks verified, when they are
/// first touched.
pub struct Cache {
    /// As the caller named it.
    pub(super) path: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) schema: StoredSchema,
    pub(super) content: Digest,
    /// Tells this cache from others where a thread keeps things of several.
    pub(super) instance: u64,
    /// First row of each shard, and the row count at the end.
    pub(super) shard_starts: Vec<u64>,
    pub(super) shards: Vec<Shard>,
    pub(super) index: VerifiedFile,
    pub(super) index_checked: OnceLock<()>,
    pub(super) dictionary: Option<VerifiedFile>,
    pub(super) metadata: VerifiedFile,
    pub(super) metadata_table: OnceLock<MetadataTable>,
    pub(super) metadata_batches: OnceLock<Vec<RecordBatch>>,
}

/// One shard file and its footer, once something needed it.
pub(super) struct Shard {
    pub file: VerifiedFile,
    pub layout: OnceLock<FileLayout>,
}

impl Cache {
    /// The directory as the caller named it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the cache says about itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The stored columns.
    pub fn schema(&self) -> &StoredSchema {
        &self.schema
    }

    /// Samples in the cache.
    pub fn rows(&self) -> u64 {
        self.manifest.samples_total
    }

    /// Identity of the contents: 53 bits of [`Cache::content_digest`].
    pub fn cache_id(&self) -> u64 {
        self.manifest.cache_id
    }

    /// Digest of the logical contents.
    pub fn content_digest(&self) -> &Digest {
        &self.content
    }

    /// Shard files of the cache.
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    pub(super) fn shard(&self, shard: u32) -> Result<&Shard> {
        self.shards.get(shard as usize).ok_or_else(|| {
            Error::invalid(format!(
                "shard {shard}; expected one below {}; in {}",
                self.shards.len(),
                self.path().display()
            ))
        })
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cache({})", self.path().display())
    }
}
