//! Unfinished writes below a directory: to list, and to remove. At most one a name.

use std::path::{Path, PathBuf};

use super::journal;
use crate::format::name::{normalise_name, partial_path};
use crate::store::{EntryKind, Store};
use crate::{Error, Kind, Result};

/// What an interrupted or running write has on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedWrite {
    /// Name of the source.
    pub name: String,
    /// The unpublished directory.
    pub path: PathBuf,
    /// Samples in finished shards: those that the next write of the name may reuse.
    pub samples: u64,
    /// Bytes of all its files.
    pub size_bytes: u64,
    /// Whether a writer holds it now.
    pub is_running: bool,
}

/// The unfinished writes below `parent`, sorted by name.
///
/// # Errors
/// `NotFound` when there is no directory, else as the file system fails.
pub fn unfinished_writes(store: &dyn Store, parent: &Path) -> Result<Vec<UnfinishedWrite>> {
    let mut found = Vec::new();
    for entry in store.list_dir(parent)? {
        let Some(name) = entry.to_str().and_then(source_name) else { continue };
        let path = parent.join(&entry);
        if store.kind(&path)? != Some(EntryKind::Directory) {
            continue;
        }
        found.push(UnfinishedWrite {
            samples: journal::find(store, &path)?.map_or(0, |found| found.rows()),
            size_bytes: size_bytes(store, &path)?,
            is_running: store.lock_dir(&path)?.is_none(),
            name,
            path,
        });
    }
    Ok(found)
}

/// Removes the unfinished write of `name` below `parent`.
///
/// # Errors
/// `NotFound` when there is none, `Conflict` while a writer holds it.
pub fn remove_unfinished_write(store: &dyn Store, parent: &Path, name: &str) -> Result<()> {
    let path = partial_path(parent, &normalise_name(name)?);
    if store.kind(&path)? != Some(EntryKind::Directory) {
        let text = format!("{} does not exist; there is no unfinished write", path.display());
        return Err(Error::new(Kind::NotFound, text));
    }
    let lock = store.lock_dir(&path)?.ok_or_else(|| {
        Error::conflict(format!("{} is being written; end that writer first", path.display()))
    })?;
    // A killed writer's exchange may not be durable: what is removed here would be the cache then.
    store.sync_dir(parent)?;
    store.remove_tree(&path)?;
    drop(lock);
    store.sync_dir(parent)
}

fn source_name(entry: &str) -> Option<String> {
    Some(entry.strip_prefix('.')?.strip_suffix(".partial")?.to_owned())
}

/// Bytes of all files below `path`; what a running writer removes meanwhile counts as nothing.
fn size_bytes(store: &dyn Store, path: &Path) -> Result<u64> {
    match store.kind(path)? {
        Some(EntryKind::File { size_bytes }) => Ok(size_bytes),
        Some(EntryKind::Directory) => {
            let names = match store.list_dir(path) {
                Err(error) if error.kind() == Kind::NotFound => Vec::new(),
                names => names?,
            };
            names.iter().map(|name| size_bytes(store, &path.join(name))).sum()
        }
        Some(EntryKind::Other) | None => Ok(0),
    }
}
