//! From a path to an open cache: the manifest, and one `stat` a file.
//! Reads no payload, no metadata and no index.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::cache::{Cache, Shard};
use super::file::Chain;
use super::file::Origin;
use super::file::VerifiedFile;
use super::file::{LazyFile, missing, wrong_size};
use crate::absent::no_cache;
use crate::format::digest::{Digest, from_hex};
use crate::format::manifest::{Manifest, SHARDS_DIR};
use crate::store::{EntryKind, IoMode, LocalStore, Store};
use crate::{Error, Kind, Result};

/// How to open a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Check every block against the manifest before its first use.
    pub verify: bool,
    /// Map files, or read them by copying.
    pub io: IoMode,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { verify: true, io: IoMode::Auto }
    }
}

/// Attempts when the cache is exchanged for another one between two steps of opening.
const OPEN_ATTEMPTS: usize = 3;

static NEXT_INSTANCE: AtomicU64 = AtomicU64::new(0);

impl Cache {
    /// Opens the cache at `path`. Costs O(files): nothing is read but the manifest.
    ///
    /// # Errors
    /// `NotFound` without a cache at `path` (a directory of caches is named as such),
    /// `Unsupported` for another format version, `Corrupt` for a damaged manifest, a missing file
    /// or one of another size.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let path = path.as_ref();
        let mut attempt = 1;
        loop {
            let (outcome, replaced) = open_once(path, options)?;
            match outcome {
                Err(_) if replaced && attempt < OPEN_ATTEMPTS => attempt += 1,
                outcome => {
                    return outcome.map_err(|e| e.within(format!("cache {}", path.display())));
                }
            }
        }
    }
}

/// The outcome, and whether a failure may come from an exchange in the middle of it.
fn open_once(path: &Path, options: &OpenOptions) -> Result<(Result<Cache>, bool)> {
    let directory = std::path::absolute(path).map_err(|e| Error::from_io("find", path, &e))?;
    let opened = Origin::open(directory, options.io);
    let (origin, bytes) = match opened {
        Err(error) if error.kind() == Kind::NotFound => return Err(no_cache(path)),
        opened => opened?,
    };
    let origin = Arc::new(origin);
    let outcome = Manifest::decode(&bytes)
        .and_then(|manifest| check_files(&origin, &manifest).map(|()| manifest))
        .and_then(|manifest| assemble(path, &origin, manifest, options.verify));
    let replaced = outcome.is_err() && origin.is_replaced();
    Ok((outcome, replaced))
}

fn check_files(origin: &Origin, manifest: &Manifest) -> Result<()> {
    let kind_of = |name: &str| match LocalStore.kind(&origin.join(name)) {
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        outcome => outcome,
    };
    match kind_of(SHARDS_DIR)? {
        Some(EntryKind::Directory) => {}
        None => return Err(missing(SHARDS_DIR)),
        Some(_) => return Err(not_regular(SHARDS_DIR, "a directory")),
    }
    for file in manifest.verified_files().chain([manifest.digests.as_verified()]) {
        match kind_of(file.path)? {
            None => return Err(missing(file.path)),
            Some(EntryKind::File { size_bytes }) if size_bytes == file.size_bytes => {}
            Some(EntryKind::File { size_bytes }) => {
                return Err(wrong_size(file.path, file.size_bytes, size_bytes));
            }
            Some(_) => return Err(not_regular(file.path, "a regular file")),
        }
    }
    Ok(())
}

fn not_regular(name: &str, expected: &str) -> Error {
    Error::corrupt(format!("{name} is not {expected} (links are not followed); rebuild the cache"))
}

fn assemble(path: &Path, origin: &Arc<Origin>, manifest: Manifest, verify: bool) -> Result<Cache> {
    let schema = manifest.schema()?;
    let content = digest(&manifest.content_blake3)?;
    let chain = if verify {
        let file = LazyFile::new(origin, &manifest.digests.path, manifest.digests.size_bytes);
        Some(Arc::new(Chain::new(file, manifest.digest_layout()?)))
    } else {
        None
    };
    let mut files = Vec::new();
    for (number, file) in manifest.verified_files().enumerate() {
        let lazy = LazyFile::new(origin, file.path, file.size_bytes);
        files.push(VerifiedFile::new(lazy, digest(file.blake3)?, number, chain.clone()));
    }
    let mut files = files.into_iter();
    let shards: Vec<_> = files
        .by_ref()
        .take(manifest.shards.len())
        .map(|file| Shard { file, layout: OnceLock::new() })
        .collect();
    // `verified_files` has this order, which is the order of `digests.bin`.
    let (Some(metadata), Some(index)) = (files.next(), files.next()) else {
        return Err(Error::internal("a manifest names neither metadata nor index"));
    };
    let mut shard_starts = vec![0_u64];
    let mut rows = 0_u64;
    for shard in &manifest.shards {
        // `Manifest::decode` checked that the sum is `samples_total`.
        rows = rows.saturating_add(shard.rows);
        shard_starts.push(rows);
    }
    Ok(Cache {
        path: path.to_owned(),
        schema,
        content,
        instance: NEXT_INSTANCE.fetch_add(1, Ordering::Relaxed),
        shard_starts,
        shards,
        index,
        index_checked: OnceLock::new(),
        dictionary: files.next(),
        metadata,
        metadata_table: OnceLock::new(),
        metadata_batches: OnceLock::new(),
        manifest,
    })
}

fn digest(hex: &str) -> Result<Digest> {
    from_hex(hex).ok_or_else(|| Error::internal("a checked digest is not hexadecimal"))
}
